/* layer.c -- one layer, from its first tile to its results.
 *
 * Rows are read a tile at a time, for all heads; a strip of it stays in the
 * processor's cache while every (policy, budget) passes over it.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum kvr_status work_init(struct layer_work *w, struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const size_t n_head = w->shape->n_head;
    const size_t tile = n_head * (TILE * plan->stride + ASIDE);

    w->rows = kvr_aligned_calloc(tile, sizeof(kvr_real));
    w->loss = plan->options->loss == KVR_LOSS_MASS
                  ? w->rows
                  : kvr_aligned_calloc(tile, sizeof(kvr_real));
    w->weight = kvr_aligned_calloc(plan->stride, sizeof(kvr_real));
    w->key = kvr_aligned_calloc(plan->stride, sizeof(kvr_real));
    w->second = kvr_aligned_calloc(plan->stride, sizeof(kvr_real));
    w->sorted = kvr_aligned_calloc(plan->stride, sizeof(kvr_real));
    w->accessed = kvr_aligned_calloc(plan->stride, sizeof(int32_t));
    w->ones = kvr_aligned_calloc(plan->stride, sizeof(int32_t));
    w->all = kvr_aligned_calloc(plan->words, sizeof(uint64_t));
    w->wide = kvr_aligned_calloc(plan->stride, sizeof(double));
    w->tops = kvr_calloc(plan->options->n_budget, sizeof *w->tops);
    w->row = kvr_calloc(n_head, sizeof *w->row);
    w->losses = kvr_calloc(n_head, sizeof *w->losses);
    w->by = kvr_calloc(n_head, sizeof *w->by);
    w->kept = kvr_calloc(n_head, sizeof *w->kept);
    w->facts = kvr_calloc(w->n_cache, sizeof *w->facts);
    if (!w->rows || !w->loss || !w->weight || !w->key || !w->second ||
        !w->sorted || !w->accessed || !w->ones || !w->all || !w->wide ||
        !w->tops || !w->row || !w->losses || !w->by || !w->kept || !w->facts)
        return kvr_no_memory(err, "a layer's rows", tile * sizeof(kvr_real));
    memset(w->ones, 0xff, plan->stride * sizeof *w->ones);
    memset(w->all, 0xff, plan->words * sizeof *w->all);
    for (uint32_t c = 0; c < w->n_cache; c++) {
        const enum kvr_status status =
            kvr__facts_init(&w->facts[c], plan, c * w->group, w->group, err);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

static void work_fini(struct layer_work *w)
{
    for (uint32_t i = 0; i < w->n_unit; i++)
        kvr__unit_fini(&w->units[i]);
    free(w->units);
    free(w->alike);
    free(w->row_cost);
    kvr__future_free(w);
    kvr__bounds_free(w);
    for (uint32_t c = 0; w->facts != NULL && c < w->n_cache; c++)
        kvr__facts_fini(&w->facts[c]);
    free(w->facts);
    if (w->loss != w->rows)
        free(w->loss);
    free(w->rows);
    free(w->weight);
    free(w->key);
    free(w->second);
    free(w->sorted);
    free(w->accessed);
    free(w->ones);
    free(w->all);
    free(w->wide);
    free(w->tops);
    free(w->row);
    free(w->losses);
    free(w->by);
    free(w->kept);
}

/* --loss value: weights times the norm of the value they fetch, on a grid of
 * 2^-30 of the layer's largest norm, so that sums stay exact. A line of the
 * tile is filled to its end: all of it is read. */
static void weigh_by_value(struct layer_work *w, uint32_t head, uint32_t first,
                           uint32_t n)
{
    const size_t row = (w->first_head + head) / w->value_heads;
    const float *value = w->value + row * w->plan->T;

    for (uint32_t k = 0; k < n; k++) {
        const size_t at = row_at(w, head, k);
        for (uint32_t i = 0; i < first + n; i++)
            w->loss[at + i] =
                (kvr_real)(rint((double)w->rows[at + i] * (double)value[i] /
                                w->value_scale * 0x1p30) *
                           0x1p-30);
        for (size_t i = first + n; i < w->line; i++)
            w->loss[at + i] = 0;
    }
}

/* In the builds for tests what a tile does not fill is no number, so that no
 * result can rest on what lay there before. */
static void poison(struct layer_work *w, uint32_t head, uint32_t n)
{
#ifdef KVR_POISON
    const size_t at = row_at(w, head, 0);

    for (size_t i = at; i < at + n * w->line; i++)
        w->rows[i] = w->loss[i] = (kvr_real)NAN;
#else
    (void)w, (void)head, (void)n;
#endif
}

enum kvr_status kvr__layer_read_heads(struct layer_work *w, uint32_t first_head,
                                      uint32_t n_head, uint32_t first,
                                      uint32_t n, struct kvr_error *err)
{
    const struct plan *plan = w->plan;

    w->line = line_of(first + n);
    for (uint32_t h = first_head; h < first_head + n_head; h++) {
        poison(w, h, n);
        const enum kvr_status status = plan->rows->read(
            plan->rows->ud, w->layer, w->first_head + h, first, n,
            w->rows + row_at(w, h, 0), w->line, w->worker, err);
        if (status != KVR_OK)
            return status;
        if (w->loss != w->rows)
            weigh_by_value(w, h, first, n);
    }
    return KVR_OK;
}

enum kvr_status kvr__layer_read_tile(struct layer_work *w, uint32_t first,
                                     uint32_t n, struct kvr_error *err)
{
    return kvr__layer_read_heads(w, 0, w->shape->n_head, first, n, err);
}

bool kvr__cache_wanted(const struct layer_work *w, uint32_t cache)
{
    const bool *heads = w->plan->options->heads;

    return heads == NULL || heads[w->item->first_cache + cache];
}

/* Runs outer, sets inner; a rule of layer scope has one set. */
static enum kvr_status make_units(struct layer_work *w, struct kvr_error *err)
{
    const struct plan *plan = w->plan;

    w->units = kvr_calloc(plan->n_run * w->n_cache, sizeof *w->units);
    w->alike = kvr_calloc(plan->n_run * w->n_cache, sizeof *w->alike);
    w->row_cost = kvr_calloc(plan->n_run * plan->T, sizeof *w->row_cost);
    if (w->units == NULL || w->alike == NULL || w->row_cost == NULL)
        return kvr_no_memory(err, "units", plan->n_run * w->n_cache);
    for (size_t i = 0; i < plan->n_run; i++) {
        const struct run *run = &plan->runs[i];
        const bool whole =
            run->policy->scope == KVR_SCOPE_LAYER && !plan->per_query_head;
        for (uint32_t c = 0; c < w->n_cache; c++) {
            if (whole ? c > 0 : !kvr__cache_wanted(w, c))
                continue;
            const enum kvr_status status = kvr__unit_init(
                &w->units[w->n_unit++], w, run, c, whole ? w->n_cache : 1, err);
            if (status != KVR_OK)
                return status;
        }
    }
    return KVR_OK;
}

static bool sees_all(const struct layer_work *w, uint32_t unit)
{
    return w->units[unit].n_cache > 1;
}

static enum kvr_status replay_tile(struct layer_work *w, uint32_t first,
                                   uint32_t n, struct kvr_error *err)
{
    for (uint32_t k = 0; k < n; k += STRIP) {
        const uint32_t m = n - k < STRIP ? n - k : STRIP;
        /* Cache by cache, so that its rows stay close; where a set sees all
         * caches, row by row. */
        for (uint32_t c = 0; c < w->n_cache; c++) {
            const enum kvr_status status =
                kvr__facts_fill(w, c, first + k, k, m, err);
            if (status != KVR_OK)
                return status;
            for (uint32_t r = 0; w->optimum != NULL && r < m; r++)
                kvr__bounds_count(w, c, first + k + r, r);
            for (uint32_t i = 0; i < w->n_unit; i++)
                if (w->units[i].first_cache == c && !sees_all(w, i))
                    kvr__unit_advance(&w->units[i], w, first + k, k, 0, m);
        }
        for (uint32_t r = 0; r < m; r++)
            for (uint32_t i = 0; i < w->n_unit; i++)
                if (sees_all(w, i))
                    kvr__unit_advance(&w->units[i], w, first + k, k, r, r + 1);
        for (uint32_t c = 0; c < w->n_cache; c++)
            kvr__late_advance(w, c, first + k, m);
    }
    return KVR_OK;
}

/* Small layers keep their small products, whatever norms the others have. */
double kvr__value_scale(const float *value, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, (double)value[i]);
    return exp2(ceil(log2(most > 0 ? most : 1)));
}

static enum kvr_status load_arrays(struct layer_work *w, struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const struct kvr_rows *rows = plan->rows;
    const bool mass = plan->options->loss == KVR_LOSS_MASS;
    uint32_t n = 0;

    if (rows->array == NULL)
        return KVR_OK;
    const enum kvr_status status = rows->array(
        rows->ud, w->layer, mass ? KVR_SINK_MASS : plan->value_array,
        mass ? &w->sink : &w->value, &n, err);
    if (status != KVR_OK)
        return status;
    if (mass) {
        if (w->sink != NULL)
            w->sink += (size_t)w->first_head * plan->T;
        return KVR_OK;
    }
    w->value_heads = rows->layers[w->layer].n_head / n;
    w->value_scale = kvr__value_scale(w->value, (size_t)n * plan->T);
    w->unit_mass = w->value_scale / plan->scale;
    return KVR_OK;
}

static void to_mass(struct kvr_tally *t, double unit)
{
    double *const sums[] = {
        &t->missed, &t->recorded,      &t->prompt_missed, &t->prompt_recorded,
        &t->kept,   &t->best,          &t->head_kept,     &t->head_best,
        &t->late,   &t->topk,          &t->topk_b,        &t->head_bound,
        &t->oracle, &t->oracle_matched};

    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++)
        *sums[i] *= unit;
    for (uint32_t b = 0; b < KVR_LAG_BINS; b++) {
        t->late_by_age[b] *= unit;
        t->late_by_lag[b] *= unit;
    }
}

static enum kvr_status name_cache(struct kvr_cache_result *out,
                                  const struct layer_work *w, uint32_t cache,
                                  struct kvr_error *err)
{
    const uint32_t g = w->group, head = w->facts[cache].first_head;
    const uint32_t in_model =
        w->shape->head_index != NULL ? w->shape->head_index[head] : head;

    out->layer = w->shape->layer;
    out->kv_head = in_model / (w->plan->per_query_head ? 1 : g);
    out->n_query_head = g;
    out->missed = kvr_calloc(g, sizeof *out->missed);
    out->recorded = kvr_calloc(g, sizeof *out->recorded);
    if (out->missed == NULL || out->recorded == NULL)
        return kvr_no_memory(err, "results", g);
    return KVR_OK;
}

/* Adds one replicate's cache to its result; its rows go behind the n that
 * to->m holds. */
static enum kvr_status hand_over(struct unit *u, struct layer_work *w,
                                 uint32_t c, struct kvr_cache_result *out,
                                 struct collected *to, size_t *n,
                                 struct kvr_error *err)
{
    const uint32_t g = w->group;
    const size_t rows = (size_t)g * u->n_m;
    struct kvr_tally tally = u->tally[c];

    to_mass(&tally, w->unit_mass);
    kvr_tally_add(&out->tally, &tally);
    for (uint32_t h = 0; h < g; h++) {
        const struct cost *cost = &u->head_cost[c * g + h];
        out->missed[h] += cost->missed * w->unit_mass;
        out->recorded[h] += cost->recorded * w->unit_mass;
    }
    if (!kvr_grow((void **)&to->m, &to->capacity, *n + rows, sizeof *to->m))
        return kvr_no_memory(err, "results", (*n + rows) * sizeof *to->m);
    memcpy(to->m + *n, u->m + (size_t)c * rows, rows * sizeof *to->m);
    *n += rows;
    return KVR_OK;
}

/* All replicates of one cache: units [first, end) are those of its result. */
static enum kvr_status collect_cache(struct layer_work *w, uint32_t first,
                                     uint32_t end, uint32_t cache,
                                     uint32_t slot, struct collected *to,
                                     struct kvr_error *err)
{
    const size_t result = w->units[first].run->result;
    struct kvr_cache_result *out = &to->sim->runs[result].caches[slot];
    enum kvr_status status = name_cache(out, w, cache, err);
    size_t n = 0;

    for (uint32_t i = first; i < end && status == KVR_OK; i++) {
        struct unit *u = &w->units[i];
        if (cache - u->first_cache >= u->n_cache)
            continue;
        const uint32_t c = cache - u->first_cache;
        status = hand_over(u, w, c, out, to, &n, err);
        if (status == KVR_OK && u->run->replicate == 0)
            status = kvr__sim_keep_lists(to->sim, u, c, result, slot, err);
    }
    if (status != KVR_OK)
        return status;
    kvr__histogram_add(to->histogram + result * BINS, to->m, n);
    return kvr__percentiles(&out->miss, to->m, n, &to->sorted, err);
}

static enum kvr_status collect_result(struct layer_work *w, uint32_t first,
                                      uint32_t end, struct collected *to,
                                      struct kvr_error *err)
{
    const uint32_t base = w->plan->first_cache[w->item->index] + w->item->slot;
    enum kvr_status status = KVR_OK;

    for (uint32_t c = 0; c < w->n_cache && status == KVR_OK; c++)
        if (kvr__cache_wanted(w, c))
            status =
                collect_cache(w, first, end, c, base + to->slot[c], to, err);
    return status;
}

static enum kvr_status collect(struct layer_work *w, struct kvr_sim *sim,
                               struct kvr_error *err)
{
    struct collected to = {.sim = sim};
    enum kvr_status status = KVR_OK;
    uint32_t n = 0;

    to.slot = kvr_calloc(w->n_cache, sizeof *to.slot);
    to.histogram = kvr_calloc(w->plan->n_result * BINS, sizeof *to.histogram);
    if (to.slot == NULL || to.histogram == NULL)
        status = kvr_no_memory(err, "results", w->n_cache);
    for (uint32_t i = 0; i < w->n_unit; i++) {
        kvr__unit_count_finish(&w->units[i]);
        kvr__late_finish(&w->units[i], w);
    }
    if (status == KVR_OK)
        status = kvr__bounds_finish(w, err);
    for (uint32_t c = 0; status == KVR_OK && c < w->n_cache; c++)
        to.slot[c] = kvr__cache_wanted(w, c) ? n++ : 0;
    for (uint32_t i = 0, end; i < w->n_unit && status == KVR_OK; i = end) {
        for (end = i; end < w->n_unit &&
                      w->units[end].run->result == w->units[i].run->result;)
            end++;
        status = collect_result(w, i, end, &to, err);
    }
    if (status == KVR_OK)
        status = kvr__sim_add_part(sim, w, to.histogram, err);
    free(to.slot);
    free(to.histogram);
    free(to.m);
    free(to.sorted.sorted);
    return status;
}

/* The shape of the part: its heads and their numbers. *numbers is to be freed.
 */
static enum kvr_status part_shape(struct kvr_layer_shape *part,
                                  uint32_t **numbers,
                                  const struct layer_work *w,
                                  struct kvr_error *err)
{
    const struct kvr_layer_shape *whole = &w->plan->rows->layers[w->layer];
    const uint32_t n_head = w->n_cache * w->group;

    *part = *whole;
    part->n_head = n_head;
    part->n_kv_head = w->n_cache;
    *numbers = kvr_calloc(n_head, sizeof **numbers);
    if (*numbers == NULL)
        return kvr_no_memory(err, "a layer's heads", n_head);
    for (uint32_t h = 0; h < n_head; h++)
        (*numbers)[h] = kvr_head_number(whole, w->first_head + h);
    part->head_index = *numbers;
    return KVR_OK;
}

enum kvr_status kvr__layer_replay(const struct plan *plan,
                                  const struct work_item *item, uint32_t worker,
                                  struct kvr_sim *sim, struct kvr_error *err)
{
    const uint32_t layer = plan->layer[item->index];
    const struct kvr_layer_shape *whole = &plan->rows->layers[layer];
    const uint32_t n_cache =
        plan->per_query_head ? whole->n_head : whole->n_kv_head;
    const uint32_t group = whole->n_head / n_cache;
    struct kvr_layer_shape part;
    uint32_t *numbers = NULL;
    struct layer_work w = {
        .plan = plan,
        .item = item,
        .shape = &part,
        .layer = layer,
        .worker = worker,
        .n_cache = item->n_cache,
        .group = group,
        .n_cache_whole = n_cache,
        .first_head = item->first_cache * group,
        .scale = (kvr_real)plan->scale,
        .unit_mass = plan->unit_mass,
    };
    enum kvr_status status = part_shape(&part, &numbers, &w, err);

    if (status == KVR_OK)
        status = work_init(&w, err);
    if (status == KVR_OK)
        status = load_arrays(&w, err);
    if (status == KVR_OK && plan->needs_optimum)
        status = kvr__bounds_solve(&w, err);
    if (status == KVR_OK && plan->looks_ahead)
        status = kvr__future_run(&w, err);
    if (status == KVR_OK)
        status = make_units(&w, err);
    for (uint32_t t = 0; t < plan->T && status == KVR_OK; t += TILE) {
        const uint32_t n = plan->T - t < TILE ? plan->T - t : TILE;
        status = kvr__layer_read_tile(&w, t, n, err);
        if (status == KVR_OK)
            status = replay_tile(&w, t, n, err);
    }
    if (status == KVR_OK)
        status = collect(&w, sim, err);
    work_fini(&w);
    free(numbers);
    return status;
}
