/* future.c -- the pass that looks ahead, for rules and bounds that may.
 *
 * Sums and accesses of all rows to come, and the exact optimum with its
 * schedules. Runs before the replay of a layer, and only if something asks.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Problems to solve: a share of B is another protection at each budget. */
static size_t protections(const struct plan *plan)
{
    const struct kvr_sim_options *o = plan->options;

    return o->protect_first.share > 0 || o->protect_last.share > 0 ? o->n_budget
                                                                   : 1;
}

size_t future_bytes(const struct plan *plan, uint32_t n_cache)
{
    const size_t decode = plan->T - plan->P;
    size_t each =
        3 * plan->stride * sizeof(double) + plan->stride * sizeof(uint32_t);
    uint64_t costs = 0, solver = 0;
    const struct kvr_optimum_problem problem = {.n_token = plan->T,
                                                .prompt_len = plan->P};

    if (plan->needs_next)
        each += (size_t)plan->T * plan->words * sizeof(uint64_t);
    if (plan->needs_optimum) {
        /* Rows of all caches are collected in one pass; costs and solver of
         * one cache at a time, costs kept. */
        each += decode * plan->stride * sizeof(double);
        if (kvr_optimum_bytes(&costs, &solver, &problem))
            each += (size_t)costs * protections(plan) +
                    plan->options->n_budget * plan->T * sizeof(uint32_t);
    }
    return n_cache * each + (size_t)solver;
}

/* Error-free addition (Knuth 1969): what a double cannot hold goes to rest,
 * so that what was added can be taken off again and equals stay equal. */
void future_add(struct future *u, uint32_t i, double mass)
{
    const double a = u->remaining[i], sum = a + mass, b = sum - a;

    u->rest[i] += (a - (sum - b)) + (mass - b);
    u->remaining[i] = sum;
}

static enum kvr_status future_init(struct future *u, struct optimum *o,
                                   const struct plan *plan,
                                   struct kvr_error *err)
{
    const size_t decode = plan->T - plan->P;
    bool ok = true;

    u->column = kvr_aligned_calloc(plan->stride, sizeof(double));
    u->remaining = kvr_aligned_calloc(plan->stride, sizeof(double));
    u->rest = kvr_aligned_calloc(plan->stride, sizeof(double));
    u->next = kvr_aligned_calloc(plan->stride, sizeof(uint32_t));
    ok = u->column && u->remaining && u->rest && u->next;
    if (plan->needs_next) {
        u->access = kvr_calloc((size_t)plan->T * plan->words, sizeof(uint64_t));
        ok = ok && u->access;
    }
    if (plan->needs_optimum) {
        const size_t nb = plan->options->n_budget;
        u->summed = kvr_aligned_calloc(decode * plan->stride, sizeof(double));
        o->costs = kvr_calloc(nb, sizeof *o->costs);
        o->loss = kvr_calloc(nb, sizeof(double));
        o->leaves = kvr_calloc(nb * plan->T, sizeof(uint32_t));
        ok = ok && u->summed && o->costs && o->loss && o->leaves;
    }
    if (!ok)
        return kvr_no_memory(err, "rows to come", future_bytes(plan, 1));
    return KVR_OK;
}

static void free_costs(struct optimum *o, size_t n_budget)
{
    for (size_t b = 0; o->costs != NULL && b < n_budget; b++) {
        struct kvr_optimum_costs *costs = o->costs[b];
        for (size_t a = b; a < n_budget; a++)
            if (o->costs[a] == costs)
                o->costs[a] = NULL;
        kvr_optimum_costs_free(costs);
    }
    free(o->costs);
}

void future_free(struct layer_work *w)
{
    for (uint32_t c = 0; w->future != NULL && c < w->n_cache; c++) {
        free(w->future[c].column);
        free(w->future[c].access);
        free(w->future[c].summed);
        free(w->future[c].remaining);
        free(w->future[c].rest);
        free(w->future[c].next);
    }
    for (uint32_t c = 0; w->optimum != NULL && c < w->n_cache; c++) {
        free_costs(&w->optimum[c], w->plan->options->n_budget);
        free(w->optimum[c].loss);
        free(w->optimum[c].leaves);
    }
    free(w->future);
    free(w->optimum);
}

/* Accesses of the recorded mean row t, its newest token included. */
static void note_accesses(struct layer_work *w, uint32_t c, uint32_t t,
                          uint32_t k)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[c];
    const uint32_t n = t + 1, wide = (n + 63) / 64 * 64;
    uint64_t *bits = w->future[c].access + (size_t)t * plan->words;
    int inclusive;

    for (uint32_t h = 0; h < f->n_head; h++) {
        w->row[h] = row_of(w, f->first_head + h, k);
        w->by[h] = 1;
    }
    plan->kernels->weigh(w->weight, w->row, w->by, f->n_head,
                         (kvr_real)1 / (kvr_real)f->n_head, wide);
    const kvr_real least = access_least(&plan->options->access, w->weight, NULL,
                                        n, n, w->sorted, &inclusive);
    plan->kernels->above(w->accessed, w->weight, least, inclusive, wide);
    for (uint32_t i = 0; i < n; i++)
        bits[i / 64] |= (uint64_t)(w->accessed[i] & 1) << (i % 64);
}

/* Column sums are of the attention itself, whatever the loss. */
static void note_columns(struct layer_work *w, uint32_t c, uint32_t t,
                         uint32_t k)
{
    const struct facts *f = &w->facts[c];
    double *column = w->future[c].column;

    for (uint32_t h = 0; h < f->n_head; h++) {
        const kvr_real *row = row_of(w, f->first_head + h, k);
        for (uint32_t i = 0; i <= t; i++)
            column[i] += (double)row[i] * (double)w->scale;
    }
}

static void note_row(struct layer_work *w, uint32_t c, uint32_t t, uint32_t k)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[c];
    struct future *u = &w->future[c];
    const uint32_t wide = (t + 64) / 64 * 64;

    for (uint32_t h = 0; h < f->n_head; h++)
        plan->kernels->add_units(w->wide, loss_of(w, f->first_head + h, k),
                                 (double)w->scale, h == 0, wide);
    for (uint32_t i = 0; i <= t; i++)
        future_add(u, i, w->wide[i]);
    if (plan->needs_column)
        note_columns(w, c, t, k);
    if (plan->needs_next)
        note_accesses(w, c, t, k);
    if (plan->needs_optimum && t >= plan->P)
        memcpy(u->summed + (size_t)(t - plan->P) * plan->stride, w->wide,
               (t + 1) * sizeof(double));
}

/* The optimum's problem for budget tokens. In a window or chunk layer the
 * first tokens are sheltered by cost instead: see shelter. */
static struct kvr_optimum_problem problem_for(const struct plan *plan,
                                              uint32_t budget)
{
    const struct kvr_sim_options *o = plan->options;

    return (struct kvr_optimum_problem){
        .n_token = plan->T,
        .prompt_len = plan->P,
        .protect_recent = kvr_protect_tokens(&o->protect_last, budget) + 1,
        .protect_first = kvr_protect_tokens(&o->protect_first, budget),
    };
}

/* Last row that the layer's mask shows token i to; T or more: all. */
static uint32_t last_shown(const struct layer_work *w, uint32_t i)
{
    const uint32_t span = w->shape->span;

    return w->shape->mask == KVR_MASK_WINDOW ? i + span - 1
                                             : i / span * span + span - 1;
}

/* A protected token leaves with its mask, so its place is free from then on:
 * the optimum's protection, which is for good, would be another problem. In
 * its stead the last row that shows the token wants it more than everything
 * else together. sign -1 takes that back. */
static void shelter(struct layer_work *w, uint32_t c, uint32_t first,
                    double sign, double all)
{
    const struct plan *plan = w->plan;
    double *summed = w->future[c].summed;

    for (uint32_t i = 0; i < first && i < plan->T; i++) {
        uint32_t row = last_shown(w, i);
        row = row < plan->T ? row : plan->T - 1;
        if (row >= plan->P)
            summed[(row - plan->P) * plan->stride + i] += sign * all;
    }
}

static double all_mass(const struct layer_work *w, uint32_t c)
{
    const size_t n = (size_t)(w->plan->T - w->plan->P) * w->plan->stride;
    double sum = 1;

    for (size_t i = 0; i < n; i++)
        sum += w->future[c].summed[i];
    return sum;
}

static void keep_plan(struct optimum *o, const struct plan *plan, size_t b,
                      const struct kvr_optimum *solved, uint32_t k)
{
    const struct kvr_optimum_plan *p = kvr_optimum_plan(solved, k);

    if (p == NULL || !p->feasible) {
        o->loss[b] = NAN;
        return;
    }
    o->loss[b] = (double)p->cost;
    for (uint32_t i = 0; i < plan->T; i++)
        o->leaves[b * plan->T + i] =
            p->evict[i] < plan->T ? p->evict[i] - 1 : plan->T;
}

/* Solves for the budgets marked in `same`, which share one protection. */
static enum kvr_status solve_some(struct layer_work *w, uint32_t c,
                                  const struct kvr_optimum_problem *problem,
                                  const bool *same, struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const struct kvr_sim_options *o = plan->options;
    struct optimum *out = &w->optimum[c];
    struct kvr_optimum_matrix matrix = {.first = w->future[c].summed,
                                        .stride = plan->stride,
                                        .prompt_len = plan->P};
    struct kvr_optimum_costs *costs = NULL;
    struct kvr_optimum *solved = NULL;
    uint32_t *k = kvr_calloc(o->n_budget, sizeof *k);
    size_t n = 0;

    if (k == NULL)
        return kvr_no_memory(err, "budgets", o->n_budget);
    for (size_t b = 0; b < o->n_budget; b++)
        if (same[b])
            k[n++] = o->budgets[b].tokens < plan->T ? o->budgets[b].tokens + 1
                                                    : plan->T;
    const struct kvr_optimum_request request = {.budgets = k, .n_budget = n};
    enum kvr_status status = kvr_optimum_costs_new(
        &costs, problem, kvr_optimum_matrix_row, &matrix, err);
    for (size_t b = 0; status == KVR_OK && b < o->n_budget; b++)
        if (same[b])
            out->costs[b] = costs;
    if (status == KVR_OK)
        status = kvr_optimum_solve(&solved, costs, &request, err);
    n = 0;
    for (size_t b = 0; status == KVR_OK && b < o->n_budget; b++)
        if (same[b])
            keep_plan(out, plan, b, solved, k[n++]);
    kvr_optimum_free(solved);
    free(k);
    return status;
}

static enum kvr_status solve_sheltered(struct layer_work *w, uint32_t c,
                                       const struct kvr_optimum_problem *p,
                                       const bool *same, struct kvr_error *err)
{
    const bool local = w->shape->mask != KVR_MASK_CAUSAL && w->shape->span > 0;
    struct kvr_optimum_problem problem = *p;

    if (!local || p->protect_first == 0)
        return solve_some(w, c, p, same, err);
    const double all = all_mass(w, c);
    problem.protect_first = 0;
    shelter(w, c, p->protect_first, 1, all);
    const enum kvr_status status = solve_some(w, c, &problem, same, err);
    shelter(w, c, p->protect_first, -1, all);
    return status;
}

static enum kvr_status solve(struct layer_work *w, uint32_t c,
                             struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const struct kvr_sim_options *o = plan->options;
    bool *same = kvr_calloc(o->n_budget, sizeof *same);
    bool *done = kvr_calloc(o->n_budget, sizeof *done);
    enum kvr_status status = KVR_OK;

    if (same == NULL || done == NULL)
        status = kvr_no_memory(err, "budgets", o->n_budget);
    for (size_t b = 0; status == KVR_OK && b < o->n_budget; b++) {
        if (done[b])
            continue;
        const struct kvr_optimum_problem p =
            problem_for(plan, o->budgets[b].tokens);
        for (size_t a = 0; a < o->n_budget; a++) {
            const struct kvr_optimum_problem q =
                problem_for(plan, o->budgets[a].tokens);
            same[a] = q.protect_recent == p.protect_recent &&
                      q.protect_first == p.protect_first;
            done[a] = done[a] || same[a];
        }
        status = solve_sheltered(w, c, &p, same, err);
        if (status != KVR_OK)
            kvr_error_prefix(err, "layer %u cache %u", w->shape->layer, c);
    }
    free(same);
    free(done);
    return status;
}

enum kvr_status future_run(struct layer_work *w, struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    enum kvr_status status = KVR_OK;

    w->future = kvr_calloc(w->n_cache, sizeof *w->future);
    w->optimum = kvr_calloc(w->n_cache, sizeof *w->optimum);
    if (w->future == NULL || w->optimum == NULL)
        return kvr_no_memory(err, "rows to come", w->n_cache);
    for (uint32_t c = 0; status == KVR_OK && c < w->n_cache; c++)
        status = future_init(&w->future[c], &w->optimum[c], plan, err);
    for (uint32_t t = 0; status == KVR_OK && t < plan->T; t += TILE) {
        const uint32_t n = plan->T - t < TILE ? plan->T - t : TILE;
        status = layer_read_tile(w, t, n, err);
        for (uint32_t k = 0; status == KVR_OK && k < n; k++)
            for (uint32_t c = 0; c < w->n_cache; c++)
                note_row(w, c, t + k, k);
    }
    for (uint32_t c = 0; c < w->n_cache && status == KVR_OK; c++) {
        if (plan->needs_optimum)
            status = solve(w, c, err);
        free(w->future[c].summed); /* the costs hold what is still needed */
        w->future[c].summed = NULL;
        w->facts[c].column = w->future[c].column;
    }
    return status;
}
