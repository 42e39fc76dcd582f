/* optimum_solver.c -- successive shortest augmenting paths over the slots.
 *
 * Rows are slot times, columns tokens. A slot is added by the cheapest path
 * that starts at it, hands tokens from slot to slot, and ends at a token that
 * no slot has yet; prices and rents then rise so that every matched pair is
 * tight again (Jonker and Volgenant 1987). Two things make it fast:
 *
 * - Once matched, a token stays matched. A private copy of the costs keeps
 *   the matched columns in front, so a scan runs over those only; the best
 *   free column of a row comes from minima of blocks, kept up to date.
 * - Up to KVR__WIDE rows are scanned in one pass. That is label correcting: a
 *   column whose label falls after its scan is scanned again. At the end each
 *   column with a label below the path's length has its exact distance.
 *
 * Several slots may share a step. A row that was scanned from as short a
 * distance already is not scanned again for another token matched to it.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "optimum.h"

#include "kvr_memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOURCE = -1,
    LINE = 8,  /* doubles in a cache line */
    GROUP = 8, /* columns looked at together; divides KVR__BLOCK */
};

/* One row scanned, and the column through which it was reached. */
struct reach {
    uint32_t step;
    int32_t column; /* SOURCE for the new slot's own row */
    double base;    /* distance of the row less its price */
};

struct kvr__solver {
    uint32_t n_token, first; /* T, P */
    size_t n_column;         /* T rounded up to whole blocks */
    size_t stride; /* of cost: a cache line more, or equal columns of all
                    * rows would fall into one cache set */
    size_t n_block, n_row;
    kvr__pass_fn pass;
    size_t n_matched; /* columns 0..n_matched-1 have a slot */
    double *cost;     /* [n_row][stride], columns permuted */
    double *row_low;  /* [n_row] least cost of a free column, */
    double *low;      /* [n_row][n_block] and of those in each block */
    uint32_t *token;  /* [n_column] which token a column is */
    uint32_t *slot;   /* [n_column] step of a matched column */
    double *rent;     /* [n_column] w; KVR__FORBIDDEN for free columns */
    double *price;    /* [n_row] u */
    /* Of the path in progress: */
    double *label, *closed, *via; /* [n_column] */
    double *open;                 /* [n_block] */
    double *scanned;              /* [n_row] least base it was scanned with */
    double *rise;                 /* [n_row] */
    struct reach
        *reached; /* batches of KVR__WIDE, unused ones base FORBIDDEN */
    size_t capacity, n_batch;
    double shortest; /* length of the best path to a free column */
    size_t last;     /* the element of reached that ends it */
    double width;    /* labels this near to the least are scanned together */
};

static inline size_t row_of(const struct kvr__solver *s, uint32_t step)
{
    return step - s->first;
}

static inline double *costs_of(const struct kvr__solver *s, uint32_t step)
{
    return s->cost + row_of(s, step) * s->stride;
}

static double least(const double *value, size_t n)
{
    double low = KVR__FORBIDDEN;

#pragma omp simd reduction(min : low)
    for (size_t i = 0; i < n; i++)
        low = value[i] < low ? value[i] : low;
    return low;
}

void kvr__solver_free(struct kvr__solver *s)
{
    if (s == NULL)
        return;
    free(s->cost);
    free(s->row_low);
    free(s->low);
    free(s->token);
    free(s->slot);
    free(s->rent);
    free(s->price);
    free(s->label);
    free(s->closed);
    free(s->via);
    free(s->open);
    free(s->scanned);
    free(s->rise);
    free(s->reached);
    free(s);
}

static bool allocate(struct kvr__solver *s)
{
    const size_t real = sizeof(double);

    s->cost = kvr_aligned_calloc(s->n_row * s->stride, real);
    s->low = kvr_aligned_calloc(s->n_row * s->n_block, real);
    s->row_low = kvr_calloc(s->n_row, real);
    s->price = kvr_calloc(s->n_row, real);
    s->scanned = kvr_calloc(s->n_row, real);
    s->rise = kvr_calloc(s->n_row, real);
    s->rent = kvr_aligned_calloc(s->n_column, real);
    s->label = kvr_aligned_calloc(s->n_column, real);
    s->closed = kvr_aligned_calloc(s->n_column, real);
    s->via = kvr_aligned_calloc(s->n_column, real);
    s->open = kvr_aligned_calloc(s->n_block, real);
    s->token = kvr_calloc(s->n_column, sizeof *s->token);
    s->slot = kvr_calloc(s->n_column, sizeof *s->slot);
    return s->cost && s->low && s->row_low && s->price && s->scanned &&
           s->rise && s->rent && s->label && s->closed && s->via && s->open &&
           s->token && s->slot;
}

enum kvr_status kvr__solver_new(struct kvr__solver **out,
                                const struct kvr_optimum_costs *costs,
                                struct kvr_error *err)
{
    struct kvr__solver *s = kvr_calloc(1, sizeof *s);
    uint64_t unused = 0, bytes = 0;

    *out = NULL;
    if (s == NULL)
        return kvr_no_memory(err, "optimum", sizeof *s);
    s->n_token = costs->problem.n_token;
    s->first = costs->problem.prompt_len;
    s->n_column = costs->stride;
    s->stride = s->n_column + LINE;
    s->n_block = s->n_column / KVR__BLOCK;
    s->n_row = s->n_token - s->first;
    s->pass = kvr__optimum_pass();
    s->width = 1;
    if (!kvr_optimum_bytes(&unused, &bytes, &costs->problem) || !allocate(s)) {
        kvr__solver_free(s);
        return kvr_no_memory(err, "optimum solver", (size_t)bytes);
    }
    for (size_t r = 0; r < s->n_row; r++) {
        double *low = s->low + r * s->n_block;
        memcpy(s->cost + r * s->stride, costs->cost + r * costs->stride,
               s->n_column * sizeof *s->cost);
        for (size_t b = 0; b < s->n_block; b++)
            low[b] =
                least(s->cost + r * s->stride + b * KVR__BLOCK, KVR__BLOCK);
        s->row_low[r] = least(low, s->n_block);
    }
    for (size_t i = 0; i < s->n_column; i++) {
        s->token[i] = (uint32_t)i;
        s->rent[i] = KVR__FORBIDDEN;
    }
    *out = s;
    return KVR_OK;
}

/* Scans the n rows of the newest batch: the best free column of each, and the
 * labels of all matched columns. */
static void scan_batch(struct kvr__solver *s, uint32_t n)
{
    struct reach *batch = s->reached + s->n_batch * KVR__WIDE;
    struct kvr__pass pass = {
        .n = n,
        .batch = (double)s->n_batch,
        .n_block = (s->n_matched + KVR__BLOCK - 1) / KVR__BLOCK,
        .rent = s->rent,
        .closed = s->closed,
        .label = s->label,
        .via = s->via,
        .open = s->open,
    };

    for (uint32_t x = 0; x < KVR__WIDE; x++) {
        const struct reach *from = &batch[x < n ? x : 0];
        pass.row[x] = costs_of(s, from->step);
        pass.base[x] = from->base;
    }
    for (uint32_t x = 0; x < n; x++) {
        const double length =
            s->row_low[row_of(s, batch[x].step)] + batch[x].base;
        if (length < s->shortest) {
            s->shortest = length;
            s->last = s->n_batch * KVR__WIDE + x;
        }
    }
    for (uint32_t x = n; x < KVR__WIDE; x++)
        batch[x] = (struct reach){
            .column = SOURCE, .base = KVR__FORBIDDEN, .step = batch[0].step};
    s->pass(&pass);
    s->n_batch++;
}

/* Least label among GROUP columns that are open. */
static inline double open_label(const struct kvr__solver *s, size_t first)
{
    const double *label = s->label + first, *closed = s->closed + first;
    double low = KVR__FORBIDDEN;

#pragma omp simd reduction(min : low)
    for (size_t i = 0; i < GROUP; i++) {
        const double here = label[i] < closed[i] ? label[i] : KVR__FORBIDDEN;
        low = here < low ? here : low;
    }
    return low;
}

/* Takes the open columns of a group with labels up to `limit` into the batch
 * that has n rows. Returns the new n; *more: there was no room for all. */
static uint32_t take_group(struct kvr__solver *s, size_t first, double limit,
                           struct reach *batch, uint32_t n, bool *more)
{
    for (size_t i = first; i < first + GROUP; i++) {
        const double label = s->label[i];
        if (!(label < s->closed[i]) || label > limit || label >= s->shortest)
            continue;
        const size_t row = row_of(s, s->slot[i]);
        const double base = label - s->price[row];
        if (base < s->scanned[row]) {
            if (n == KVR__WIDE) {
                *more = true;
                return n;
            }
            s->scanned[row] = base;
            batch[n++] = (struct reach){
                .step = s->slot[i], .column = (int32_t)i, .base = base};
        }
        s->closed[i] = label;
    }
    return n;
}

/* The same for a block; its least open label is renewed, as all those taken
 * may turn out to need no scan. */
static uint32_t take_block(struct kvr__solver *s, size_t block, double limit,
                           struct reach *batch, uint32_t n, bool *more)
{
    const size_t first = block * KVR__BLOCK;
    double left = KVR__FORBIDDEN;

    for (size_t g = first; g < first + KVR__BLOCK && !*more; g += GROUP) {
        double low = open_label(s, g);
        if (low <= limit) {
            n = take_group(s, g, limit, batch, n, more);
            low = open_label(s, g);
        }
        left = low < left ? low : left;
    }
    s->open[block] = left;
    return n;
}

/* Fills the next batch with the columns nearest to the source. 0: every path
 * shorter than the best one is known. The width adapts so that batches are
 * nearly full without reaching far ahead; it changes no result. */
static uint32_t next_batch(struct kvr__solver *s)
{
    const size_t n_block = (s->n_matched + KVR__BLOCK - 1) / KVR__BLOCK;
    struct reach *batch = s->reached + s->n_batch * KVR__WIDE;

    for (;;) {
        const double low = least(s->open, n_block);
        uint32_t n = 0;
        bool more = false;

        if (low >= s->shortest)
            return 0;
        for (size_t b = 0; b < n_block && !more; b++)
            if (s->open[b] <= low + s->width)
                n = take_block(s, b, low + s->width, batch, n, &more);
        if (n == 0)
            continue;
        if (more)
            s->width = floor(s->width * 0.75);
        else if (n + 2 < KVR__WIDE)
            s->width = floor(s->width * 1.25) + 1;
        return n;
    }
}

static enum kvr_status find_path(struct kvr__solver *s, uint32_t step,
                                 struct kvr_error *err)
{
    const size_t n = (s->n_matched + KVR__BLOCK - 1) / KVR__BLOCK * KVR__BLOCK;
    uint32_t n_row = 1;

    for (size_t i = 0; i < n; i++)
        s->label[i] = s->closed[i] = KVR__FORBIDDEN;
    for (size_t r = 0; r < s->n_row; r++)
        s->scanned[r] = KVR__FORBIDDEN;
    s->n_batch = 0;
    s->shortest = KVR__FORBIDDEN / 2;
    while (n_row > 0) {
        void *items = s->reached;
        const size_t need = (s->n_batch + 2) * KVR__WIDE;
        if (!kvr_grow(&items, &s->capacity, need, sizeof *s->reached))
            return kvr_no_memory(err, "optimum paths",
                                 need * sizeof *s->reached);
        s->reached = items;
        if (s->n_batch == 0) {
            const double base = -s->price[row_of(s, step)];
            s->reached[0] =
                (struct reach){.step = step, .column = SOURCE, .base = base};
            s->scanned[row_of(s, step)] = base;
        }
        scan_batch(s, n_row);
        n_row = next_batch(s);
    }
    return KVR_OK;
}

/* The free column that attains the shortest path. */
static size_t free_column(const struct kvr__solver *s)
{
    const struct reach *end = &s->reached[s->last];
    const double *cost = costs_of(s, end->step);
    const double *low = s->low + row_of(s, end->step) * s->n_block;
    const double want = s->shortest - end->base;
    size_t block = s->n_matched / KVR__BLOCK;

    while (low[block] != want) {
        block++;
        assert(block < s->n_block);
    }
    size_t i = block * KVR__BLOCK;
    if (i < s->n_matched)
        i = s->n_matched;
    while (cost[i] != want) {
        i++;
        assert(i < (block + 1) * KVR__BLOCK);
    }
    return i;
}

/* Prices rise by the slots as they were during the search. Tokens of one step
 * have one distance, so a step has one rise. */
static void raise_prices(struct kvr__solver *s, uint32_t step)
{
    for (size_t r = 0; r < s->n_row; r++)
        s->rise[r] = 0;
    for (size_t i = 0; i < s->n_matched; i++)
        if (s->label[i] < s->shortest)
            s->rise[row_of(s, s->slot[i])] = s->shortest - s->label[i];
    s->rise[row_of(s, step)] = s->shortest;
    for (size_t r = 0; r < s->n_row; r++)
        s->price[r] += s->rise[r];
}

static void raise_rents(struct kvr__solver *s)
{
    for (size_t i = 0; i < s->n_matched; i++)
        if (s->label[i] < s->shortest)
            s->rent[i] += s->shortest - s->label[i];
}

/* Hands the slots along the path, from its end to the source. Needs the rents
 * as they were during the search. Returns the slot of the free column. */
static uint32_t flip_path(struct kvr__solver *s)
{
    const uint32_t new_slot = s->reached[s->last].step;
    int32_t column = s->reached[s->last].column;

    while (column != SOURCE) {
        const size_t batch = (size_t)s->via[column];
        const struct reach *from = &s->reached[batch * KVR__WIDE];
        uint32_t x = 0;
        while (costs_of(s, from[x].step)[column] + from[x].base +
                   s->rent[column] !=
               s->label[column]) {
            x++;
            assert(x < KVR__WIDE);
        }
        s->slot[column] = from[x].step;
        column = from[x].column;
    }
    return new_slot;
}

/* Block minima of one row after columns `from` (a free one, now matched and
 * at the end of the front part) and `to` changed places; n_matched is new. */
static void update_low(struct kvr__solver *s, size_t row, size_t from,
                       size_t to)
{
    const double *cost = s->cost + row * s->stride;
    double *low = s->low + row * s->n_block;
    const size_t b = from / KVR__BLOCK, f = to / KVR__BLOCK;
    const double leave = cost[to], come = cost[from];
    const size_t end = (f + 1) * KVR__BLOCK;

    if (b != f) {
        if (low[b] == leave)
            low[b] = least(cost + b * KVR__BLOCK, KVR__BLOCK);
        else if (come < low[b])
            low[b] = come;
    }
    if (low[f] == (b == f ? leave : come))
        low[f] = least(cost + s->n_matched, end - s->n_matched);
    if (s->row_low[row] == leave)
        s->row_low[row] = least(low + f, s->n_block - f);
}

static void bring_forward(struct kvr__solver *s, size_t from, uint32_t slot)
{
    const size_t to = s->n_matched++;

    for (size_t r = 0; r < s->n_row; r++) {
        double *cost = s->cost + r * s->stride;
        const double c = cost[from];
        cost[from] = cost[to];
        cost[to] = c;
        update_low(s, r, from, to);
    }
    const uint32_t token = s->token[from];
    s->token[from] = s->token[to];
    s->token[to] = token;
    s->slot[to] = slot;
    s->rent[to] = 0;
}

enum kvr_status kvr__solver_add(struct kvr__solver *s, uint32_t step,
                                int64_t *rise, bool *placed,
                                struct kvr_error *err)
{
    const enum kvr_status status = find_path(s, step, err);

    *placed = false;
    if (status != KVR_OK)
        return status;
    if (s->shortest >= KVR__FORBIDDEN / 2)
        return KVR_OK;
    const size_t column = free_column(s);
    raise_prices(s, step);
    const uint32_t slot = flip_path(s);
    raise_rents(s);
    bring_forward(s, column, slot);
    *rise = (int64_t)s->price[row_of(s, step)];
    *placed = true;
    return KVR_OK;
}

void kvr__solver_read(const struct kvr__solver *s, uint32_t *evict,
                      int64_t *price, int64_t *rent)
{
    for (uint32_t t = 0; t < s->n_token; t++)
        price[t] = t < s->first ? 0 : (int64_t)s->price[t - s->first];
    for (size_t i = 0; i < s->n_column; i++) {
        const uint32_t token = s->token[i];
        const bool matched = i < s->n_matched;
        if (token >= s->n_token)
            continue;
        evict[token] = matched ? s->slot[i] : s->n_token;
        rent[token] = matched ? (int64_t)s->rent[i] : 0;
    }
}
