/* facts.c -- what a row says about itself, once for all policies.
 *
 * Heaviest tokens at every budget, accesses of the recorded row, mass to come.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t kvr__facts_bytes(const struct plan *plan, uint32_t n_head)
{
    const size_t nb = plan->options->n_budget;
    size_t row = plan->stride * sizeof(double) +
                 (2 * n_head + 1 + 3 * nb) * sizeof(double) +
                 (2 * nb + 1) * plan->words * sizeof(uint64_t) +
                 sizeof(uint32_t);

    if (plan->needs_next)
        row += plan->stride * sizeof(uint32_t);
    if (plan->needs_future)
        row += plan->stride * sizeof(double);
    return STRIP * row +
           nb * (plan->stride + 1 + n_head) * sizeof(double); /* drawn, hint */
}

enum kvr_status kvr__facts_init(struct facts *f, const struct plan *plan,
                                uint32_t first_head, uint32_t n_head,
                                struct kvr_error *err)
{
    const size_t nb = plan->options->n_budget;
    const size_t bits = STRIP * nb * plan->words;

    *f = (struct facts){.first_head = first_head, .n_head = n_head};
    f->summed = kvr_aligned_calloc(STRIP * plan->stride, sizeof(double));
    f->total = kvr_aligned_calloc((size_t)STRIP * n_head, sizeof(double));
    f->sink = kvr_aligned_calloc((size_t)STRIP * n_head, sizeof(double));
    f->sum = kvr_aligned_calloc((size_t)STRIP * n_head, sizeof(kvr_real));
    f->newest = kvr_aligned_calloc(STRIP, sizeof(double));
    f->top = kvr_aligned_calloc(STRIP * nb, sizeof(double));
    f->least = kvr_aligned_calloc(STRIP * nb, sizeof(double));
    f->hint = kvr_aligned_calloc((1 + n_head) * nb, sizeof(double));
    f->head_top = kvr_aligned_calloc(STRIP * nb, sizeof(double));
    f->drawn = kvr_aligned_calloc(nb * plan->stride, sizeof(double));
    f->over = kvr_aligned_calloc(bits, sizeof(uint64_t));
    f->at_least = kvr_aligned_calloc(bits, sizeof(uint64_t));
    f->accessed =
        kvr_aligned_calloc((size_t)STRIP * plan->words, sizeof(uint64_t));
    f->n_accessed = kvr_aligned_calloc(STRIP, sizeof(uint32_t));
    bool ok = f->summed && f->total && f->sink && f->sum && f->newest &&
              f->top && f->least && f->hint && f->head_top && f->drawn &&
              f->over && f->at_least && f->accessed && f->n_accessed;
    if (plan->needs_next) {
        f->next_access =
            kvr_aligned_calloc(STRIP * plan->stride, sizeof(uint32_t));
        ok = ok && f->next_access;
    }
    if (plan->needs_future) {
        f->future = kvr_aligned_calloc(STRIP * plan->stride, sizeof(double));
        ok = ok && f->future;
    }
    if (!ok)
        return kvr_no_memory(err, "row facts", kvr__facts_bytes(plan, n_head));
    return KVR_OK;
}

void kvr__facts_fini(struct facts *f)
{
    free(f->summed);
    free(f->total);
    free(f->sink);
    free(f->sum);
    free(f->newest);
    free(f->top);
    free(f->least);
    free(f->hint);
    free(f->head_top);
    free(f->drawn);
    free(f->over);
    free(f->at_least);
    free(f->accessed);
    free(f->n_accessed);
    free(f->next_access);
    free(f->future);
}

/* Heaviest at every budget, of the summed row and of each head. The newest
 * token is put aside meanwhile: it always stays. */
static void fill_tops(struct layer_work *w, struct facts *f, uint32_t r,
                      uint32_t t, uint32_t k)
{
    const struct plan *plan = w->plan;
    const size_t nb = plan->options->n_budget;
    double *top = f->top + r * nb, *head_top = f->head_top + r * nb;
    double total = 0;

    for (uint32_t h = 0; h < f->n_head; h++)
        total += f->total[r * f->n_head + h];
    double *summed = f->summed + r * plan->stride;
    summed[t] = 0;
    kvr__heaviest_at_budgets(plan, NULL, summed, t, total - f->newest[r], top,
                             f->hint);
    summed[t] = f->newest[r];
    memcpy(f->least + r * nb, f->hint, nb * sizeof(double));
    for (size_t b = 0; b < nb; b++)
        head_top[b] = f->n_head == 1 ? top[b] : 0;
    for (uint32_t h = 0; f->n_head > 1 && h < f->n_head; h++) {
        kvr_real *row = w->loss + row_at(w, f->first_head + h, k);
        const kvr_real newest = row[t];
        row[t] = 0;
        kvr__heaviest_at_budgets(plan, row, NULL, t,
                                 f->total[r * f->n_head + h] -
                                     (double)newest * (double)w->scale,
                                 w->tops, f->hint + (1 + h) * nb);
        row[t] = newest;
        for (size_t b = 0; b < nb; b++)
            head_top[b] += w->tops[b];
    }
}

static void fill_bits(struct layer_work *w, struct facts *f, uint32_t r,
                      uint32_t t)
{
    const struct plan *plan = w->plan;
    const size_t nb = plan->options->n_budget;
    const uint64_t newest = (uint64_t)1 << (t % 64);
    const double *summed = f->summed + r * plan->stride;

    for (size_t b = 0; b < nb; b++) {
        uint64_t *over = f->over + (r * nb + b) * plan->words;
        uint64_t *at_least = f->at_least + (r * nb + b) * plan->words;
        const double least = f->least[r * nb + b];
        plan->kernels->bits_above(over, at_least, summed, least,
                                  (t + 64) / 64 * 64);
        over[t / 64] &= newest - 1;
        at_least[t / 64] &= newest - 1;
    }
}

static int real_descending(const void *a, const void *b)
{
    const kvr_real x = *(const kvr_real *)a, y = *(const kvr_real *)b;

    return (x < y) - (x > y);
}

/* The rules that need the row in order of weight. */
static kvr_real ranked_least(const struct kvr_access *access,
                             const kvr_real *sorted, uint32_t n)
{
    double total = 0, held = 0;

    if (access->kind == KVR_ACCESS_RELMAX)
        return (kvr_real)(access->x * (double)sorted[0]);
    if (access->kind == KVR_ACCESS_TOPM)
        return access->x >= n ? sorted[n - 1] : sorted[(uint32_t)access->x - 1];
    for (uint32_t i = 0; i < n; i++)
        total += (double)sorted[i];
    for (uint32_t i = 0; i < n; i++) {
        held += (double)sorted[i];
        if (held >= access->x * total)
            return sorted[i];
    }
    return sorted[n - 1];
}

kvr_real kvr__access_least(const struct kvr_access *access,
                           const kvr_real *weight, const int32_t *resident,
                           uint32_t n, uint32_t n_visible, kvr_real *sorted,
                           int *inclusive)
{
    uint32_t count = 0;

    *inclusive = access->kind != KVR_ACCESS_ABOVE_UNIFORM;
    if (access->kind == KVR_ACCESS_ABOVE_UNIFORM)
        return (kvr_real)1 / (kvr_real)n_visible;
    if (access->kind == KVR_ACCESS_ABS)
        return (kvr_real)access->x;
    for (uint32_t i = 0; i < n; i++)
        if (resident == NULL || resident[i] != 0)
            sorted[count++] = weight[i];
    qsort(sorted, count, sizeof *sorted, real_descending);
    if (count == 0 || sorted[0] <= 0) { /* a row without mass: none */
        *inclusive = 0;
        return (kvr_real)HUGE_VAL;
    }
    return ranked_least(access, sorted, count);
}

/* Takes out of a set what lies below `from`. */
static void hide(uint64_t *bits, uint32_t from)
{
    for (uint32_t i = 0; i < from; i += 64)
        bits[i / 64] &= i + 64 <= from ? 0 : ~(uint64_t)0 << (from - i);
}

/* Accesses of the recorded mean row, as stored, n = t + 1, among what the mask
 * shows: a weight of 0 behind it is none, whatever the rule. */
static void fill_accesses(struct layer_work *w, struct facts *f, uint32_t r,
                          uint32_t t, uint32_t k)
{
    const struct plan *plan = w->plan;
    const struct kvr_sim_options *o = plan->options;
    const uint32_t n = t + 1, wide = (n + 63) / 64 * 64;
    int inclusive;
    uint64_t *bits = f->accessed + (size_t)r * plan->words;

    for (uint32_t h = 0; h < f->n_head; h++) {
        w->row[h] = row_of(w, f->first_head + h, k);
        w->by[h] = 1;
    }
    plan->kernels->weigh(w->weight, w->row, w->by, f->n_head,
                         (kvr_real)1 / (kvr_real)f->n_head, wide);
    const kvr_real least = kvr__access_least(&o->access, w->weight, NULL, n, n,
                                             w->sorted, &inclusive);
    plan->kernels->bits_of_row(bits, w->weight, least, inclusive, wide);
    hide(bits, kvr__mask_from(w->shape, t));
    const uint32_t end =
        o->hit_prompt_only && plan->P < t ? plan->P : t; /* past tokens */
    uint32_t count = 0;
    for (uint32_t i = 0; i < wide; i += 64) {
        if (i + 64 > end)
            bits[i / 64] &= i >= end ? 0 : ((uint64_t)1 << (end - i)) - 1;
        count += (uint32_t)__builtin_popcountll(bits[i / 64]);
    }
    f->n_accessed[r] = count;
}

/* What is still to come after row t. */
static void fill_future(struct layer_work *w, struct facts *f, struct future *u,
                        uint32_t r, uint32_t t)
{
    const struct plan *plan = w->plan;
    const double *summed = f->summed + r * plan->stride;

    if (plan->needs_future) {
        for (uint32_t i = 0; i <= t; i++) {
            kvr__future_add(u, i, -summed[i]);
            f->future[r * plan->stride + i] = u->remaining[i] + u->rest[i];
        }
    }
    if (!plan->needs_next)
        return;
    for (uint32_t i = 0; i <= t; i++) {
        uint32_t q = u->next[i];
        if (q > t && i < t)
            continue;
        for (q = t + 1; q < plan->T; q++)
            if (u->access[(size_t)q * plan->words + i / 64] >> (i % 64) & 1)
                break;
        u->next[i] = q < plan->T ? q : UINT32_MAX;
    }
    memcpy(f->next_access + r * plan->stride, u->next,
           (t + 1) * sizeof(uint32_t));
}

uint32_t kvr__mask_from(const struct kvr_layer_shape *shape, uint32_t t)
{
    return kvr_mask_first_key(shape->mask, shape->span, t);
}

/* In a window or chunk layer nothing lies outside the mask, or the mask is
 * not the one that was recorded. */
static enum kvr_status check_mask(const struct layer_work *w, uint32_t head,
                                  uint32_t t, const kvr_real *row,
                                  struct kvr_error *err)
{
    const uint32_t from = kvr__mask_from(w->shape, t);

    for (uint32_t i = 0; i < from; i++)
        if (row[i] != 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "layer %u head %u row %u: weight %.6g on key %u, "
                            "outside the layer's mask of %u keys",
                            w->shape->layer, kvr_head_number(w->shape, head), t,
                            (double)row[i], i, w->shape->span);
    return KVR_OK;
}

/* Recorded mass of each head, exactly, and the row summed over heads. */
static enum kvr_status fill_sums(struct layer_work *w, struct facts *f,
                                 uint32_t r, uint32_t t, uint32_t k,
                                 struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const uint32_t wide = (t + 64) / 64 * 64;
    double *summed = f->summed + r * plan->stride;

    for (uint32_t h = 0; h < f->n_head; h++) {
        const uint32_t head = f->first_head + h;
        const kvr_real *row = loss_of(w, head, k);
        const enum kvr_status status =
            check_mask(w, head, t, row_of(w, head, k), err);
        if (status != KVR_OK)
            return status;
        plan->kernels->add_units(summed, row, (double)w->scale, h == 0, wide);
        const kvr_real sum =
            plan->kernels->sum(w->ones, w->all, row_of(w, head, k), wide);
        if (!(sum < (kvr_real)1.99))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "layer %u head %u row %u: weights sum to %.6g, "
                            "expected about 1",
                            w->shape->layer, kvr_head_number(w->shape, head), t,
                            (double)sum);
        f->sink[r * f->n_head + h] =
            w->sink == NULL ? 0
                            : rint((double)w->sink[(size_t)head * plan->T + t] *
                                   (double)w->scale);
        f->sum[r * f->n_head + h] = sum;
        w->losses[h] = row;
    }
    plan->kernels->mass(f->total + r * f->n_head, w->ones, w->all, w->losses,
                        f->n_head, w->scale, wide);
    f->newest[r] = summed[t];
    return KVR_OK;
}

enum kvr_status kvr__facts_fill(struct layer_work *w, uint32_t cache,
                                uint32_t step, uint32_t k, uint32_t n,
                                struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    struct facts *f = &w->facts[cache];

    for (uint32_t r = 0; r < n; r++) {
        const uint32_t t = step + r;
        const enum kvr_status status = fill_sums(w, f, r, t, k + r, err);
        if (status != KVR_OK)
            return status;
        if (t >= plan->score_first || plan->options->stream_prefill ||
            plan->needs_top) {
            fill_tops(w, f, r, t, k + r);
            fill_bits(w, f, r, t);
            fill_accesses(w, f, r, t, k + r);
        }
        if (w->future != NULL)
            fill_future(w, f, &w->future[cache], r, t);
    }
    return KVR_OK;
}
