/* bounds.c -- the exact optimum of a layer's caches, and what it bounds.
 *
 * The way that the certificate covers: rows as read -> costs -> solver ->
 * schedule. The solver proves its schedule against the costs; here the costs
 * are compared with the rows, read once more, and the loss of each schedule,
 * added up while the layer is replayed, with the optimum.
 *
 * Costs take 8 T (T - P) bytes, so only those of one cache are there at a
 * time: a cache's rows are read again whenever they are asked for.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The rows of one cache, asked for from the last to the first. */
struct cache_rows {
    struct layer_work *w;
    uint32_t cache;
    uint32_t first; /* row of the tile that is there; UINT32_MAX: none */
    /* A window or chunk layer's protected first tokens, and what the last row
     * that shows one of them asks for it. See shelter(). */
    uint32_t sheltered;
    double all;
};

size_t kvr__bounds_bytes(const struct plan *plan, uint32_t n_cache)
{
    const size_t nb = plan->options->n_budget;
    const struct kvr_optimum_problem problem = {.n_token = plan->T,
                                                .prompt_len = plan->P};
    uint64_t costs = 0, solver = 0;

    if (!plan->needs_optimum || !kvr_optimum_bytes(&costs, &solver, &problem))
        return 0;
    return n_cache * nb * (plan->T * sizeof(uint32_t) + 2 * sizeof(double)) +
           (size_t)costs + (size_t)solver;
}

static bool is_local(const struct layer_work *w)
{
    return w->shape->mask != KVR_MASK_CAUSAL && w->shape->span > 0;
}

/* ---- the optimum's problem ---- */

/* Last row that the layer's mask shows token i to; T or more: all. */
static uint64_t last_shown(const struct layer_work *w, uint32_t i)
{
    const uint64_t span = w->shape->span;

    return w->shape->mask == KVR_MASK_WINDOW ? i + span - 1
                                             : i / span * span + span - 1;
}

/* A protected token leaves with its mask, so its place is free from then on:
 * the optimum's protection, which is for good, would be another problem. In
 * place of it the last row that shows the token asks for more than all rows
 * together, so that no optimum gives the token up before. */
static void shelter(double *row, const struct cache_rows *rows, uint32_t step)
{
    const uint32_t T = rows->w->plan->T;

    for (uint32_t i = 0; i < rows->sheltered && i <= step; i++) {
        const uint64_t last = last_shown(rows->w, i);
        if ((last < T ? last : T - 1) == step)
            row[i] += rows->all;
    }
}

/* kvr_optimum_row_fn: row `step` in units, summed over the cache's heads.
 * Rows that are not counted ask for nothing. */
static enum kvr_status cache_row(double *row, uint32_t step, void *ud,
                                 struct kvr_error *err)
{
    struct cache_rows *rows = ud;
    struct layer_work *w = rows->w;
    const struct plan *plan = w->plan;
    const uint32_t first = step / TILE * TILE, head = rows->cache * w->group;

    if (step < plan->score_first || step > plan->score_last) {
        memset(row, 0, ((size_t)step + 1) * sizeof *row);
    } else {
        if (rows->first != first) {
            const uint32_t n = plan->T - first < TILE ? plan->T - first : TILE;
            const enum kvr_status status =
                kvr__layer_read_heads(w, head, w->group, first, n, err);
            if (status != KVR_OK)
                return status;
            rows->first = first;
        }
        for (uint32_t h = 0; h < w->group; h++)
            plan->kernels->add_units(
                w->wide, loss_of(w, head + h, step - first), (double)w->scale,
                h == 0, (step + 64) / 64 * 64);
        memcpy(row, w->wide, ((size_t)step + 1) * sizeof *row);
    }
    shelter(row, rows, step);
    return KVR_OK;
}

/* More than all counted rows of the cache together. */
static enum kvr_status add_all(double *all, struct cache_rows *rows,
                               struct kvr_error *err)
{
    const struct plan *plan = rows->w->plan;
    double *row = kvr_aligned_calloc(plan->stride, sizeof *row);
    enum kvr_status status = KVR_OK;
    double sum = 1;

    if (row == NULL)
        return kvr_no_memory(err, "a row", plan->stride);
    for (uint32_t t = plan->T; status == KVR_OK && t-- > plan->P;) {
        status = cache_row(row, t, rows, err);
        for (uint32_t i = 0; status == KVR_OK && i <= t; i++)
            sum += row[i];
    }
    free(row);
    *all = sum;
    return status;
}

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

/* Costs of one cache under one protection, compared with the rows that they
 * were made from. */
static enum kvr_status make_costs(struct kvr_optimum_costs **out,
                                  struct layer_work *w, uint32_t cache,
                                  const struct kvr_optimum_problem *asked,
                                  struct kvr_error *err)
{
    struct cache_rows rows = {.w = w, .cache = cache, .first = UINT32_MAX};
    struct kvr_optimum_problem problem = *asked;
    enum kvr_status status = KVR_OK;

    *out = NULL;
    if (is_local(w) && problem.protect_first > 0) {
        status = add_all(&rows.all, &rows, err);
        rows.sheltered = problem.protect_first;
        problem.protect_first = 0;
    }
    if (status == KVR_OK)
        status = kvr_optimum_costs_new(out, &problem, cache_row, &rows, err);
    if (status == KVR_OK)
        status = kvr_optimum_costs_check(*out, cache_row, &rows, err);
    if (status == KVR_OK)
        return KVR_OK;
    kvr_optimum_costs_free(*out);
    *out = NULL;
    if (status != KVR_ERR_INPUT) /* a row names its place itself */
        kvr_error_prefix(err, "layer %u cache %u", w->shape->layer,
                         w->item->first_cache + cache);
    return status;
}

/* Marks in same[] the budgets whose protection is that of budget b. */
static void mark_same(bool *same, const struct plan *plan, size_t b)
{
    const struct kvr_sim_options *o = plan->options;
    const struct kvr_optimum_problem p =
        problem_for(plan, o->budgets[b].tokens);

    for (size_t a = 0; a < o->n_budget; a++) {
        const struct kvr_optimum_problem q =
            problem_for(plan, o->budgets[a].tokens);
        same[a] = q.protect_recent == p.protect_recent &&
                  q.protect_first == p.protect_first;
    }
}

/* ---- before the replay ---- */

static void keep_plan(struct optimum *o, const struct plan *plan, size_t b,
                      const struct kvr_optimum *solved, uint32_t k)
{
    const struct kvr_optimum_plan *p = kvr_optimum_plan(solved, k);

    o->loss[b] = NAN;
    if (p == NULL || !p->feasible)
        return;
    o->loss[b] = (double)p->cost;
    for (uint32_t i = 0; i < plan->T; i++)
        o->leaves[b * plan->T + i] =
            p->evict[i] < plan->T ? p->evict[i] - 1 : plan->T;
}

/* Solves for the budgets marked in `same`, which share one protection. */
static enum kvr_status solve_some(struct layer_work *w, uint32_t c, size_t b,
                                  const bool *same, struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const struct kvr_sim_options *o = plan->options;
    const struct kvr_optimum_problem problem =
        problem_for(plan, o->budgets[b].tokens);
    struct kvr_optimum_costs *costs = NULL;
    struct kvr_optimum *solved = NULL;
    uint32_t *k = kvr_calloc(o->n_budget, sizeof *k);
    size_t n = 0;

    if (k == NULL)
        return kvr_no_memory(err, "budgets", o->n_budget);
    for (size_t a = 0; a < o->n_budget; a++)
        if (same[a])
            k[n++] = o->budgets[a].tokens < plan->T ? o->budgets[a].tokens + 1
                                                    : plan->T;
    const struct kvr_optimum_request request = {.budgets = k, .n_budget = n};
    enum kvr_status status = make_costs(&costs, w, c, &problem, err);
    if (status == KVR_OK) {
        status = kvr_optimum_solve(&solved, costs, &request, err);
        if (status != KVR_OK)
            kvr_error_prefix(err, "layer %u cache %u", w->shape->layer,
                             w->item->first_cache + c);
    }
    n = 0;
    for (size_t a = 0; status == KVR_OK && a < o->n_budget; a++)
        if (same[a])
            keep_plan(&w->optimum[c], plan, a, solved, k[n++]);
    kvr_optimum_free(solved);
    kvr_optimum_costs_free(costs);
    free(k);
    return status;
}

static enum kvr_status optimum_init(struct optimum *o, const struct plan *plan,
                                    struct kvr_error *err)
{
    const size_t nb = plan->options->n_budget;

    o->loss = kvr_calloc(nb, sizeof *o->loss);
    o->replayed = kvr_calloc(nb, sizeof *o->replayed);
    o->leaves = kvr_calloc(nb * plan->T, sizeof *o->leaves);
    if (o->loss == NULL || o->replayed == NULL || o->leaves == NULL)
        return kvr_no_memory(err, "schedules", nb * plan->T);
    return KVR_OK;
}

enum kvr_status kvr__bounds_solve(struct layer_work *w, struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const size_t nb = plan->options->n_budget;
    bool *same = kvr_calloc(nb, sizeof *same);
    bool *done = kvr_calloc(nb, sizeof *done);
    enum kvr_status status = KVR_OK;

    w->optimum = kvr_calloc(w->n_cache, sizeof *w->optimum);
    if (w->optimum == NULL || same == NULL || done == NULL)
        status = kvr_no_memory(err, "schedules", w->n_cache);
    for (uint32_t c = 0; status == KVR_OK && c < w->n_cache; c++) {
        status = optimum_init(&w->optimum[c], plan, err);
        memset(done, 0, nb * sizeof *done);
        for (size_t b = 0; status == KVR_OK && b < nb; b++) {
            if (done[b])
                continue;
            mark_same(same, plan, b);
            status = solve_some(w, c, b, same, err);
            for (size_t a = 0; a < nb; a++)
                done[a] = done[a] || same[a];
        }
    }
    free(same);
    free(done);
    return status;
}

void kvr__bounds_free(struct layer_work *w)
{
    for (uint32_t c = 0; w->optimum != NULL && c < w->n_cache; c++) {
        free(w->optimum[c].loss);
        free(w->optimum[c].replayed);
        free(w->optimum[c].leaves);
    }
    free(w->optimum);
}

/* ---- while rows are replayed ---- */

void kvr__bounds_count(struct layer_work *w, uint32_t cache, uint32_t t,
                       uint32_t r)
{
    const struct plan *plan = w->plan;
    const double *summed = w->facts[cache].summed + r * plan->stride;
    struct optimum *o = &w->optimum[cache];

    if (t < plan->score_first || t > plan->score_last)
        return;
    for (size_t b = 0; b < plan->options->n_budget; b++) {
        const uint32_t *leaves = o->leaves + b * plan->T;
        double lost = 0;
        for (uint32_t i = 0; i <= t; i++)
            lost += leaves[i] < t ? summed[i] : 0;
        o->replayed[b] += lost;
    }
}

/* ---- after the last row ---- */

static enum kvr_status check_replayed(const struct layer_work *w,
                                      struct kvr_error *err)
{
    const struct kvr_sim_options *o = w->plan->options;

    for (uint32_t c = 0; c < w->n_cache; c++)
        for (size_t b = 0; b < o->n_budget; b++) {
            const struct optimum *best = &w->optimum[c];
            if (!isnan(best->loss[b]) && best->replayed[b] != best->loss[b])
                return kvr_fail(err, KVR_ERR_INTERNAL,
                                "layer %u cache %u, budget %s: the optimum's "
                                "schedule loses %.17g units in the rows, its "
                                "certificate says %.17g",
                                w->shape->layer, w->item->first_cache + c,
                                o->budgets[b].spec, best->replayed[b],
                                best->loss[b]);
        }
    return KVR_OK;
}

/* Tokens that the mask shows to row t. */
static uint32_t shown(const struct layer_work *w, uint32_t t)
{
    return t + 1 - kvr__mask_from(w->shape, t);
}

/* Whether the plain optimum at B is one of the unit's: no row saw more than
 * B + 1 tokens, and each counted row min(B + 1, all that its mask shows). */
static bool sizes_are_plain(const struct unit *u, const struct layer_work *w)
{
    const struct plan *plan = w->plan;
    const uint32_t budget = u->run->budget->tokens;

    for (uint32_t t = plan->P; t < plan->T; t++) {
        const uint32_t here = shown(w, t), seen = u->visible_at[t];
        const uint32_t most = here <= budget ? here : budget + 1;
        if (seen > most ||
            (seen < most && t >= plan->score_first && t <= plan->score_last))
            return false;
    }
    return true;
}

/* Places that a unit had at each step. Where it saw all that the mask shows,
 * nothing was bounded, and protected tokens that are hidden need places too:
 * B + 1. */
static void fill_places(uint32_t *places, const struct unit *u,
                        const struct layer_work *w)
{
    const uint32_t T = w->plan->T;
    const uint32_t budget = u->run->budget->tokens;
    const uint32_t plain = budget < T ? budget + 1 : T;

    for (uint32_t t = 0; t < T; t++) {
        const uint32_t seen = u->visible_at[t];
        places[t] =
            is_local(w) && seen == shown(w, t) && seen < plain ? plain : seen;
    }
}

static bool is_bounded(const struct unit *u, uint32_t cache)
{
    return u->status == KVR_OK && u->run->policy->mask == NULL &&
           cache - u->first_cache < u->n_cache;
}

/* oracle of the units that held B; counts those that need another. */
static uint32_t set_plain(struct layer_work *w, uint32_t cache,
                          const bool *same)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n_unit; i++) {
        struct unit *u = &w->units[i];
        const size_t b = u->run->budget_index;
        if (!is_bounded(u, cache) || !same[b])
            continue;
        struct kvr_tally *t = &u->tally[cache - u->first_cache];
        if (sizes_are_plain(u, w)) {
            t->oracle = t->oracle_matched = w->optimum[cache].loss[b];
        } else {
            t->resized = 1;
            n++;
        }
    }
    return n;
}

/* Least loss with the places that a unit had. */
static enum kvr_status match(struct unit *u, const struct layer_work *w,
                             uint32_t cache, uint32_t *places,
                             const struct kvr_optimum_costs *costs,
                             struct kvr_error *err)
{
    struct kvr_optimum_plan *plan = NULL;

    fill_places(places, u, w);
    const enum kvr_status status =
        kvr_optimum_matched(&plan, costs, places, err);
    if (status != KVR_OK) {
        kvr_error_prefix(err, "layer %u cache %u", w->shape->layer,
                         w->item->first_cache + cache);
        return status;
    }
    if (plan->feasible)
        u->tally[cache - u->first_cache].oracle_matched = (double)plan->cost;
    kvr_optimum_plan_free(plan);
    return KVR_OK;
}

static enum kvr_status match_some(struct layer_work *w, uint32_t cache,
                                  size_t b, const bool *same,
                                  struct kvr_error *err)
{
    const struct kvr_optimum_problem problem =
        problem_for(w->plan, w->plan->options->budgets[b].tokens);
    struct kvr_optimum_costs *costs = NULL;
    uint32_t *places = kvr_calloc(w->plan->T, sizeof *places);
    enum kvr_status status = KVR_OK;

    if (places == NULL)
        return kvr_no_memory(err, "places", w->plan->T);
    status = make_costs(&costs, w, cache, &problem, err);
    for (uint32_t i = 0; status == KVR_OK && i < w->n_unit; i++) {
        struct unit *u = &w->units[i];
        if (is_bounded(u, cache) && same[u->run->budget_index] &&
            u->tally[cache - u->first_cache].resized > 0)
            status = match(u, w, cache, places, costs, err);
    }
    kvr_optimum_costs_free(costs);
    free(places);
    return status;
}

static enum kvr_status set_optimum(struct layer_work *w, uint32_t cache,
                                   bool *same, bool *done,
                                   struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const size_t nb = plan->options->n_budget;
    enum kvr_status status = KVR_OK;

    memset(done, 0, nb * sizeof *done);
    for (size_t b = 0; status == KVR_OK && b < nb; b++) {
        if (done[b])
            continue;
        mark_same(same, plan, b);
        if (set_plain(w, cache, same) > 0)
            status = match_some(w, cache, b, same, err);
        for (size_t a = 0; a < nb; a++)
            done[a] = done[a] || same[a];
    }
    return status;
}

static enum kvr_status broken(const struct unit *u, const struct layer_work *w,
                              uint32_t c, const char *relation,
                              const char *what, double bound,
                              struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_INTERNAL,
                    "policy %s, budget %s, layer %u, kv head %u: lost %.17g "
                    "units, %s %s %.17g",
                    u->run->policy->name, u->run->budget->spec, w->shape->layer,
                    w->item->first_cache + u->first_cache + c,
                    u->tally[c].missed, relation, what, bound);
}

/* topk <= oracle <= rule, in exact sums, wherever both sides exist; topk and
 * oracle themselves lose their bound, no more. */
static enum kvr_status check_order(const struct unit *u,
                                   const struct layer_work *w, uint32_t c,
                                   struct kvr_error *err)
{
    const struct kvr_tally *t = &u->tally[c];
    const double slack = w->plan->whole_units ? 0 : 1e-9 * t->recorded;
    const double best = t->oracle_matched;

    if (t->topk > t->missed + slack)
        return broken(u, w, c, "less than the bound", "topk", t->topk, err);
    if (best > t->missed + slack)
        return broken(u, w, c, "less than the bound", "oracle", best, err);
    if (t->topk > best + slack)
        return broken(u, w, c, "and topk is above the oracle's", "", best, err);
    if (!u->run->foreign && (u->run->policy->needs & KVR_NEEDS_TOP) != 0 &&
        t->missed > t->topk + slack)
        return broken(u, w, c, "more than its bound", "topk", t->topk, err);
    if ((u->run->policy->needs & KVR_NEEDS_SCHEDULE) != 0 &&
        t->missed > best + slack)
        return broken(u, w, c, "more than its bound", "oracle", best, err);
    return KVR_OK;
}

enum kvr_status kvr__bounds_finish(struct layer_work *w, struct kvr_error *err)
{
    const size_t nb = w->plan->options->n_budget;
    bool *same = kvr_calloc(nb, sizeof *same);
    bool *done = kvr_calloc(nb, sizeof *done);
    enum kvr_status status = KVR_OK;

    if (same == NULL || done == NULL)
        status = kvr_no_memory(err, "budgets", nb);
    for (uint32_t i = 0; i < w->n_unit; i++)
        for (uint32_t c = 0; c < w->units[i].n_cache; c++)
            w->units[i].tally[c].oracle = w->units[i].tally[c].oracle_matched =
                NAN;
    if (status == KVR_OK && w->optimum != NULL)
        status = check_replayed(w, err);
    for (uint32_t c = 0;
         status == KVR_OK && w->optimum != NULL && c < w->n_cache; c++)
        status = set_optimum(w, c, same, done, err);
    for (uint32_t i = 0; i < w->n_unit; i++)
        for (uint32_t c = 0; status == KVR_OK && c < w->units[i].n_cache; c++)
            if (w->units[i].status == KVR_OK)
                status = check_order(&w->units[i], w, c, err);
    free(same);
    free(done);
    return status;
}
