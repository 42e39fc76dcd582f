/* replay.c -- the whole call: layers in parallel, results in order.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"
#include "kvr_parallel.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list {
    struct kvr_eviction *evictions;
    size_t n_eviction;
    struct kvr_step_row *steps;
    size_t n_step;
};

/* Of a layer in several parts, until the last one is done. */
struct parts_sum {
    struct cost *row_cost; /* [n_run][T]; NULL: no part is done */
    uint32_t *histogram;   /* [n_result][BINS] */
    uint32_t n_done;
};

/* The private part of struct kvr_sim. Parts end in any order; what they add
 * to one place is whole numbers, so the order does not show. */
struct own {
    pthread_mutex_t lock;
    struct list *lists;   /* [n_result][n_cache] */
    uint32_t *histograms; /* [n_result][2][BINS]: all layers, global ones */
    double *missed;       /* [n_run][n_layer] of each replicate */
    uint32_t *numbers;    /* [n_layer] */
    uint64_t *failed;     /* [n_result] where the error that is kept is from */
    struct parts_sum *sums; /* [n_layer] */
    uint32_t done;
    const struct plan *plan;
};

static struct own *own_of(const struct kvr_sim *sim)
{
    return sim->own;
}

enum kvr_status kvr__sim_keep_lists(struct kvr_sim *sim, struct unit *u,
                                    uint32_t c, size_t run, uint32_t slot,
                                    struct kvr_error *err)
{
    struct list *list = &own_of(sim)->lists[run * sim->n_cache + slot];

    if (u->n_log > 0) {
        list->evictions = kvr_calloc(u->n_log, sizeof *u->log);
        if (list->evictions == NULL)
            return kvr_no_memory(err, "evictions", u->n_log);
        memcpy(list->evictions, u->log, u->n_log * sizeof *u->log);
        list->n_eviction = u->n_log;
    }
    if (u->steps != NULL) {
        list->steps = kvr_calloc(u->n_m, sizeof *u->steps);
        if (list->steps == NULL)
            return kvr_no_memory(err, "steps", u->n_m);
        memcpy(list->steps, u->steps + (size_t)c * u->n_m,
               u->n_m * sizeof *u->steps);
        list->n_step = u->n_m;
    }
    return KVR_OK;
}

const struct kvr_eviction *kvr_sim_evictions(const struct kvr_sim *sim,
                                             size_t run, uint32_t cache,
                                             size_t *n)
{
    const struct list *l = &own_of(sim)->lists[run * sim->n_cache + cache];

    *n = l->n_eviction;
    return l->evictions;
}

const struct kvr_step_row *kvr_sim_steps(const struct kvr_sim *sim, size_t run,
                                         uint32_t cache, size_t *n)
{
    const struct list *l = &own_of(sim)->lists[run * sim->n_cache + cache];

    *n = l->n_step;
    return l->steps;
}

static bool is_global(const struct kvr_layer_shape *shape)
{
    return shape->mask == KVR_MASK_CAUSAL;
}

/* Units of a layer as mass that adds up exactly over layers. */
static double on_grid(const struct layer_work *w, double units)
{
    const double mass = units * w->unit_mass, grid = w->plan->row_grid;

    return grid > 0 ? rint(mass / grid) * grid : mass;
}

/* Rows of the layer, of all replicates of a result. */
static void add_rows(struct kvr_sim *sim, const struct layer_work *w,
                     const struct cost *row_cost, size_t result)
{
    struct kvr_run_result *out = &sim->runs[result];

    for (size_t run = 0; run < w->plan->n_run; run++) {
        const struct cost *cost = row_cost + run * w->plan->T;
        if (w->plan->runs[run].result != result)
            continue;
        for (uint32_t t = 0; t < sim->n_token; t++) {
            out->row_missed[t] += on_grid(w, cost[t].missed);
            out->row_recorded[t] += on_grid(w, cost[t].recorded);
        }
    }
}

/* A layer whose caches are all there: its own results, and what spans layers.
 */
static void close_layer(struct kvr_sim *sim, const struct layer_work *w,
                        const struct cost *row_cost, const uint32_t *histograms)
{
    const uint32_t index = w->item->index, *first = w->plan->first_cache;

    for (size_t i = 0; i < sim->n_run; i++) {
        const uint32_t *histogram = histograms + i * BINS;
        uint32_t *all = own_of(sim)->histograms + i * 2 * BINS;
        struct kvr_run_result *out = &sim->runs[i];
        struct kvr_tally *layer = &out->layers[index];
        double most = 0;
        for (uint32_t c = first[index]; c < first[index + 1]; c++) {
            kvr_tally_add(layer, &out->caches[c].tally);
            most = fmax(most, out->caches[c].miss.max);
        }
        if (layer->rows > 0)
            kvr__percentiles_of_histogram(&out->layer_miss[index], histogram,
                                          most);
        for (uint32_t b = 0; b < BINS; b++) {
            all[b] += histogram[b];
            if (is_global(w->shape))
                all[BINS + b] += histogram[b];
        }
        add_rows(sim, w, row_cost, i);
    }
}

/* What the replicates missed in the part, and what failed in it: of several
 * failures that of the first layer and cache is kept. */
static void add_units(struct kvr_sim *sim, const struct layer_work *w)
{
    struct own *own = own_of(sim);
    const uint64_t here = (uint64_t)w->layer << 32 | w->item->first_cache;

    for (uint32_t i = 0; i < w->n_unit; i++) {
        const struct unit *u = &w->units[i];
        const size_t run = (size_t)(u->run - w->plan->runs);
        struct kvr_run_result *out = &sim->runs[u->run->result];
        for (uint32_t c = 0; c < u->n_cache; c++)
            if (kvr__cache_wanted(w, u->first_cache + c))
                own->missed[run * sim->n_layer + w->item->index] +=
                    u->tally[c].missed * w->unit_mass;
        if (u->status != KVR_OK &&
            (out->status == KVR_OK || here < own->failed[u->run->result])) {
            own->failed[u->run->result] = here;
            out->status = u->status;
            snprintf(out->error, sizeof out->error, "%s", u->error);
        }
    }
}

/* The sums of a layer in several parts. */
static enum kvr_status new_sums(struct parts_sum *sum, const struct plan *plan,
                                struct kvr_error *err)
{
    sum->row_cost = kvr_calloc(plan->n_run * plan->T, sizeof *sum->row_cost);
    sum->histogram = kvr_calloc(plan->n_result * BINS, sizeof(uint32_t));
    if (sum->row_cost == NULL || sum->histogram == NULL)
        return kvr_no_memory(err, "results of a layer",
                             plan->n_run * plan->T * sizeof *sum->row_cost);
    return KVR_OK;
}

static void free_sums(struct parts_sum *sum)
{
    free(sum->row_cost);
    free(sum->histogram);
    *sum = (struct parts_sum){0};
}

/* Whole units, so that the order of the parts does not show. */
static enum kvr_status add_to_sums(struct kvr_sim *sim,
                                   const struct layer_work *w,
                                   const uint32_t *histogram,
                                   struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    struct parts_sum *sum = &own_of(sim)->sums[w->item->index];

    if (sum->row_cost == NULL) {
        const enum kvr_status status = new_sums(sum, plan, err);
        if (status != KVR_OK)
            return status;
    }
    for (size_t i = 0; i < plan->n_run * plan->T; i++) {
        sum->row_cost[i].missed += w->row_cost[i].missed;
        sum->row_cost[i].recorded += w->row_cost[i].recorded;
    }
    for (size_t i = 0; i < plan->n_result * BINS; i++)
        sum->histogram[i] += histogram[i];
    if (++sum->n_done == w->item->n_parts) {
        close_layer(sim, w, sum->row_cost, sum->histogram);
        free_sums(sum);
    }
    return KVR_OK;
}

enum kvr_status kvr__sim_add_part(struct kvr_sim *sim,
                                  const struct layer_work *w,
                                  const uint32_t *histogram,
                                  struct kvr_error *err)
{
    struct own *own = own_of(sim);
    enum kvr_status status = KVR_OK;

    pthread_mutex_lock(&own->lock);
    add_units(sim, w);
    if (w->item->n_parts > 1)
        status = add_to_sums(sim, w, histogram, err);
    else
        close_layer(sim, w, w->row_cost, histogram);
    pthread_mutex_unlock(&own->lock);
    return status;
}

static enum kvr_status replay_item(uint32_t item, uint32_t worker, void *ud,
                                   struct kvr_error *err)
{
    struct kvr_sim *sim = ud;
    struct own *own = own_of(sim);
    const struct plan *plan = own->plan;
    const enum kvr_status status =
        kvr__layer_replay(plan, &plan->items[item], worker, sim, err);

    if (status == KVR_OK && plan->options->progress != NULL) {
        pthread_mutex_lock(&own->lock);
        own->done++;
        plan->options->progress(plan->options->progress_ud, own->done,
                                plan->n_item);
        pthread_mutex_unlock(&own->lock);
    }
    return status;
}

/* What each replicate missed, in the order of layers. */
static void sum_replicates(struct kvr_sim *sim, const struct plan *plan)
{
    const struct own *own = own_of(sim);

    for (size_t i = 0; i < plan->n_run; i++) {
        const struct run *run = &plan->runs[i];
        double *to = &sim->runs[run->result].replicate_missed[run->replicate];
        for (uint32_t l = 0; l < sim->n_layer; l++)
            *to += own->missed[i * sim->n_layer + l];
    }
}

/* All layers, and the global-attention ones, in the order of layers. */
static void sum_layers(struct kvr_sim *sim, const struct plan *plan)
{
    const struct own *own = own_of(sim);

    for (size_t i = 0; i < sim->n_run; i++) {
        struct kvr_run_result *r = &sim->runs[i];
        double most = 0, most_global = 0;
        for (uint32_t l = 0; l < sim->n_layer; l++) {
            const bool global = is_global(&plan->rows->layers[plan->layer[l]]);
            kvr_tally_add(&r->model, &r->layers[l]);
            most = fmax(most, r->layer_miss[l].max);
            if (global) {
                kvr_tally_add(&r->global, &r->layers[l]);
                most_global = fmax(most_global, r->layer_miss[l].max);
            }
        }
        const uint32_t *h = own->histograms + i * 2 * BINS;
        if (r->model.rows > 0)
            kvr__percentiles_of_histogram(&r->model_miss, h, most);
        if (r->global.rows > 0)
            kvr__percentiles_of_histogram(&r->global_miss, h + BINS,
                                          most_global);
    }
}

/* Why there is no optimum beside a run; NULL: there is one. */
static const char *no_optimum(const struct plan *plan,
                              const struct kvr_run_result *r)
{
    if (!plan->needs_optimum && plan->options->stream_prefill)
        return "evicting inside the prompt is another problem";
    if (!plan->needs_optimum)
        return "not computed";
    if (r->policy->mask != NULL) /* topk, graduation=gap */
        return "tokens come back: only topk is a bound";
    if (isnan(r->model.oracle_matched))
        return "no schedule keeps the protected tokens in these places";
    return NULL;
}

static void explain(struct kvr_sim *sim, const struct plan *plan)
{
    for (size_t i = 0; i < sim->n_run; i++) {
        struct kvr_run_result *r = &sim->runs[i];
        const char *none = no_optimum(plan, r);
        r->oracle_reason =
            none != NULL ? none : "held other than B: see oracle_matched";
        r->matched_reason =
            none != NULL ? none : "held B throughout: see oracle";
    }
}

static enum kvr_status make_run(struct kvr_run_result *r,
                                const struct plan *plan, size_t i,
                                uint32_t n_cache, struct kvr_error *err)
{
    const struct run *run = plan->runs;

    for (size_t k = 0; k < plan->n_run; k++)
        if (plan->runs[k].result == i) {
            run = r->n_replicate == 0 ? &plan->runs[k] : run;
            r->n_replicate++;
        }
    r->spec = run->spec;
    r->policy = run->policy;
    r->budget = run->budget;
    memcpy(r->arg, run->arg, sizeof r->arg);
    r->clamped = run->clamped;
    r->observe = run->observe;
    r->group = run->group;
    r->window = run->window;
    r->protect_first =
        kvr_protect_tokens(&plan->options->protect_first, run->budget->tokens);
    r->protect_last =
        kvr_protect_tokens(&plan->options->protect_last, run->budget->tokens);
    r->replicate_missed = kvr_calloc(r->n_replicate, sizeof(double));
    r->layers = kvr_calloc(plan->n_layer, sizeof *r->layers);
    r->layer_miss = kvr_calloc(plan->n_layer, sizeof *r->layer_miss);
    r->caches = kvr_calloc(n_cache, sizeof *r->caches);
    r->row_missed = kvr_calloc(plan->T, sizeof *r->row_missed);
    r->row_recorded = kvr_calloc(plan->T, sizeof *r->row_recorded);
    if (!r->replicate_missed || !r->layers || !r->layer_miss || !r->caches ||
        !r->row_missed || !r->row_recorded)
        return kvr_no_memory(err, "results", n_cache * sizeof *r->caches);
    return KVR_OK;
}

static enum kvr_status make_sim(struct kvr_sim **out, const struct plan *plan,
                                struct kvr_error *err)
{
    const uint32_t n_cache = plan->first_cache[plan->n_layer];
    struct kvr_sim *sim = kvr_calloc(1, sizeof *sim);
    struct own *own = kvr_calloc(1, sizeof *own);
    enum kvr_status status = KVR_OK;

    if (sim == NULL || own == NULL) {
        free(sim);
        free(own);
        return kvr_no_memory(err, "results", sizeof *sim + sizeof *own);
    }
    *out = sim;
    sim->own = own;
    pthread_mutex_init(&own->lock, NULL);
    own->plan = plan;
    sim->n_token = plan->T;
    sim->prompt_len = plan->P;
    sim->score_first = plan->score_first;
    sim->score_last = plan->score_last;
    sim->n_layer = plan->n_layer;
    sim->n_cache = n_cache;
    const size_t n = plan->n_result;
    own->lists = kvr_calloc(n * n_cache, sizeof *own->lists);
    own->histograms = kvr_calloc(n * 2 * BINS, sizeof(uint32_t));
    own->missed = kvr_calloc(plan->n_run * plan->n_layer, sizeof(double));
    own->numbers = kvr_calloc(plan->n_layer, sizeof(uint32_t));
    own->failed = kvr_calloc(n, sizeof(uint64_t));
    own->sums = kvr_calloc(plan->n_layer, sizeof *own->sums);
    sim->runs = kvr_calloc(n, sizeof *sim->runs);
    if (!own->lists || !own->histograms || !own->missed || !own->numbers ||
        !own->failed || !own->sums || !sim->runs)
        return kvr_no_memory(err, "results", n * n_cache);
    for (uint32_t l = 0; l < plan->n_layer; l++) {
        const struct kvr_layer_shape *shape =
            &plan->rows->layers[plan->layer[l]];
        own->numbers[l] = shape->layer;
        sim->has_local = sim->has_local || !is_global(shape);
    }
    sim->layer_number = own->numbers;
    for (; status == KVR_OK && sim->n_run < n; sim->n_run++)
        status =
            make_run(&sim->runs[sim->n_run], plan, sim->n_run, n_cache, err);
    return status;
}

void kvr_sim_free(struct kvr_sim *sim)
{
    if (sim == NULL)
        return;
    struct own *own = own_of(sim);
    for (size_t i = 0; i < sim->n_run; i++) {
        struct kvr_run_result *r = &sim->runs[i];
        for (uint32_t c = 0; r->caches != NULL && c < sim->n_cache; c++) {
            free(r->caches[c].missed);
            free(r->caches[c].recorded);
        }
        free(r->replicate_missed);
        free(r->layers);
        free(r->layer_miss);
        free(r->caches);
        free(r->row_missed);
        free(r->row_recorded);
    }
    for (size_t i = 0; own->lists != NULL && i < sim->n_run * sim->n_cache;
         i++) {
        free(own->lists[i].evictions);
        free(own->lists[i].steps);
    }
    free(own->lists);
    free(own->histograms);
    free(own->numbers);
    free(own->missed);
    free(own->failed);
    for (uint32_t l = 0; own->sums != NULL && l < sim->n_layer; l++)
        free_sums(&own->sums[l]);
    free(own->sums);
    pthread_mutex_destroy(&own->lock);
    free(own);
    free(sim->runs);
    free(sim);
}

enum kvr_status kvr_sim_run(struct kvr_sim **out, const struct kvr_rows *rows,
                            const struct kvr_sim_options *options,
                            struct kvr_error *err)
{
    struct plan plan;
    struct kvr_sim *sim = NULL;
    enum kvr_status status = kvr__plan_init(&plan, rows, options, err);

    if (status == KVR_OK)
        status = make_sim(&sim, &plan, err);
    if (status == KVR_OK) {
        sim->peak_bytes = kvr__plan_bytes(&plan);
        status = kvr_parallel_for(plan.n_item, kvr__plan_threads(&plan),
                                  replay_item, sim, err);
    }
    if (status == KVR_OK) {
        sum_layers(sim, &plan);
        sum_replicates(sim, &plan);
        explain(sim, &plan);
        own_of(sim)->plan = NULL;
        *out = sim;
    } else {
        kvr_sim_free(sim);
    }
    kvr__plan_fini(&plan);
    return status;
}
