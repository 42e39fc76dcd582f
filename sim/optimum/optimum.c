/* optimum.c -- runs of the solver: all budgets of a cache, or the budgets
 * that a rule really had.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "optimum.h"

#include "kvr_memory.h"

#include <stdlib.h>

struct kvr_optimum {
    uint32_t n_token;
    int64_t *curve;
    size_t n_plan;
    struct entry {
        uint32_t budget;
        struct kvr_optimum_plan *plan;
    } * plans;
};

void kvr_optimum_plan_free(struct kvr_optimum_plan *plan)
{
    if (plan == NULL)
        return;
    free(plan->visible);
    free(plan->evict);
    free(plan->price);
    free(plan->rent);
    free(plan->mu);
    free(plan);
}

/* A plan without a solution; visible is copied. NULL: no memory. */
static struct kvr_optimum_plan *plan_new(const struct kvr_optimum_costs *costs,
                                         const uint32_t *visible)
{
    const uint32_t n = costs->problem.n_token;
    struct kvr_optimum_plan *plan = kvr_calloc(1, sizeof *plan);

    if (plan == NULL)
        return NULL;
    plan->n_token = n;
    plan->prompt_len = costs->problem.prompt_len;
    plan->cost = KVR_OPTIMUM_INFEASIBLE;
    plan->visible = kvr_calloc(n, sizeof *plan->visible);
    if (plan->visible == NULL) {
        kvr_optimum_plan_free(plan);
        return NULL;
    }
    for (uint32_t t = plan->prompt_len; t < n; t++)
        plan->visible[t] = visible[t];
    return plan;
}

/* Takes the solver's state over as the optimum `cost`, and proves it. */
static enum kvr_status plan_fill(struct kvr_optimum_plan *plan, int64_t cost,
                                 const struct kvr_optimum_costs *costs,
                                 const struct kvr__solver *solver,
                                 struct kvr_error *err)
{
    const uint32_t n = plan->n_token;
    uint32_t *slots = kvr_calloc(n, sizeof *slots);

    plan->evict = kvr_calloc(n, sizeof *plan->evict);
    plan->price = kvr_calloc(n, sizeof *plan->price);
    plan->rent = kvr_calloc(n, sizeof *plan->rent);
    plan->mu = kvr_calloc(n, sizeof *plan->mu);
    if (!slots || !plan->evict || !plan->price || !plan->rent || !plan->mu) {
        free(slots);
        return kvr_no_memory(err, "optimum plan", 4 * n * sizeof(int64_t));
    }
    kvr__solver_read(solver, plan->evict, plan->price, plan->rent);
    kvr__count_slots(slots, plan->visible, plan->prompt_len, n);
    int64_t next = 0;
    for (uint32_t t = n; t-- > plan->prompt_len;) {
        if (slots[t] == 0)
            plan->price[t] = next;
        plan->mu[t] = plan->price[t] - next;
        next = plan->price[t];
    }
    free(slots);
    plan->feasible = true;
    plan->cost = cost;
    return kvr_optimum_verify(costs, plan, err);
}

static uint32_t clamp(uint32_t budget, uint32_t n_token)
{
    return budget < n_token ? budget : n_token;
}

static enum kvr_status add_plans(struct kvr_optimum *optimum,
                                 const struct kvr_optimum_costs *costs,
                                 const struct kvr_optimum_request *request,
                                 struct kvr_error *err)
{
    const uint32_t n = optimum->n_token;
    uint32_t *visible = kvr_calloc(n, sizeof *visible);

    optimum->plans = kvr_calloc(request->n_budget, sizeof *optimum->plans);
    if (visible == NULL || optimum->plans == NULL) {
        free(visible);
        return kvr_no_memory(err, "optimum plans", n * sizeof *visible);
    }
    for (size_t b = 0; b < request->n_budget; b++) {
        const uint32_t budget = clamp(request->budgets[b], n);
        if (kvr_optimum_plan(optimum, budget) != NULL)
            continue;
        for (uint32_t t = 0; t < n; t++)
            visible[t] = budget;
        struct kvr_optimum_plan *plan = plan_new(costs, visible);
        if (plan == NULL) {
            free(visible);
            return kvr_no_memory(err, "optimum plan", n * sizeof *visible);
        }
        optimum->plans[optimum->n_plan++] =
            (struct entry){.budget = budget, .plan = plan};
    }
    free(visible);
    return KVR_OK;
}

/* From k = T down to `last`; each step adds the one slot that k - 1 has and
 * k lacks. */
static enum kvr_status run(struct kvr_optimum *optimum, uint32_t last,
                           const struct kvr_optimum_costs *costs,
                           struct kvr__solver *solver, struct kvr_error *err)
{
    const uint32_t first = costs->problem.prompt_len;
    int64_t cost = 0;

    for (uint32_t k = optimum->n_token;; k--) {
        optimum->curve[k] = cost;
        for (size_t b = 0; b < optimum->n_plan; b++) {
            if (optimum->plans[b].budget != k)
                continue;
            const enum kvr_status status =
                plan_fill(optimum->plans[b].plan, cost, costs, solver, err);
            if (status != KVR_OK)
                return status;
        }
        if (k == last)
            return KVR_OK;
        int64_t rise;
        bool placed;
        const enum kvr_status status = kvr__solver_add(
            solver, k - 1 > first ? k - 1 : first, &rise, &placed, err);
        if (status != KVR_OK)
            return status;
        if (!placed) {
            while (k-- > 0)
                optimum->curve[k] = KVR_OPTIMUM_INFEASIBLE;
            return KVR_OK;
        }
        cost += rise;
    }
}

enum kvr_status kvr_optimum_solve(struct kvr_optimum **out,
                                  const struct kvr_optimum_costs *costs,
                                  const struct kvr_optimum_request *request,
                                  struct kvr_error *err)
{
    const uint32_t n = costs->problem.n_token;
    struct kvr_optimum *optimum = kvr_calloc(1, sizeof *optimum);
    struct kvr__solver *solver = NULL;
    uint32_t last = request->whole_curve ? 0 : n;

    *out = NULL;
    if (optimum == NULL)
        return kvr_no_memory(err, "optimum", sizeof *optimum);
    optimum->n_token = n;
    optimum->curve = kvr_calloc((size_t)n + 1, sizeof *optimum->curve);
    enum kvr_status status = KVR_OK;
    if (optimum->curve == NULL)
        status = kvr_no_memory(err, "optimum curve", (n + 1) * sizeof(int64_t));
    if (status == KVR_OK)
        status = add_plans(optimum, costs, request, err);
    if (status == KVR_OK)
        status = kvr__solver_new(&solver, costs, err);
    if (status == KVR_OK) {
        for (uint32_t k = 0; k <= n; k++)
            optimum->curve[k] = KVR_OPTIMUM_NOT_COMPUTED;
        for (size_t b = 0; b < optimum->n_plan; b++)
            last = clamp(optimum->plans[b].budget, last);
        status = run(optimum, last, costs, solver, err);
    }
    kvr__solver_free(solver);
    if (status != KVR_OK) {
        kvr_optimum_free(optimum);
        return status;
    }
    *out = optimum;
    return KVR_OK;
}

void kvr_optimum_free(struct kvr_optimum *optimum)
{
    if (optimum == NULL)
        return;
    for (size_t b = 0; b < optimum->n_plan; b++)
        kvr_optimum_plan_free(optimum->plans[b].plan);
    free(optimum->plans);
    free(optimum->curve);
    free(optimum);
}

const int64_t *kvr_optimum_curve(const struct kvr_optimum *optimum)
{
    return optimum->curve;
}

const struct kvr_optimum_plan *
kvr_optimum_plan(const struct kvr_optimum *optimum, uint32_t k)
{
    const uint32_t budget = clamp(k, optimum->n_token);

    for (size_t b = 0; b < optimum->n_plan; b++)
        if (optimum->plans[b].budget == budget)
            return optimum->plans[b].plan;
    return NULL;
}

/* All slots of a plan, latest first. */
static enum kvr_status add_slots(int64_t *cost, bool *placed,
                                 struct kvr__solver *solver,
                                 const uint32_t *slots, uint32_t first,
                                 uint32_t n_token, struct kvr_error *err)
{
    *cost = 0;
    *placed = true;
    for (uint32_t t = n_token; t-- > first;)
        for (uint32_t copy = 0; copy < slots[t]; copy++) {
            int64_t rise = 0;
            const enum kvr_status status =
                kvr__solver_add(solver, t, &rise, placed, err);
            if (status != KVR_OK || !*placed)
                return status;
            *cost += rise;
        }
    return KVR_OK;
}

enum kvr_status kvr_optimum_matched(struct kvr_optimum_plan **out,
                                    const struct kvr_optimum_costs *costs,
                                    const uint32_t *visible,
                                    struct kvr_error *err)
{
    const uint32_t n = costs->problem.n_token, p = costs->problem.prompt_len;
    struct kvr_optimum_plan *plan = plan_new(costs, visible);
    uint32_t *slots = kvr_calloc(n, sizeof *slots);
    struct kvr__solver *solver = NULL;
    int64_t cost = 0;
    bool placed = false;
    enum kvr_status status = KVR_OK;

    *out = NULL;
    if (plan == NULL || slots == NULL)
        status = kvr_no_memory(err, "optimum plan", n * sizeof *slots);
    if (status == KVR_OK)
        status = kvr__solver_new(&solver, costs, err);
    if (status == KVR_OK) {
        kvr__count_slots(slots, visible, p, n);
        status = add_slots(&cost, &placed, solver, slots, p, n, err);
    }
    if (status == KVR_OK && placed)
        status = plan_fill(plan, cost, costs, solver, err);
    kvr__solver_free(solver);
    free(slots);
    if (status != KVR_OK) {
        kvr_optimum_plan_free(plan);
        return status;
    }
    *out = plan;
    return KVR_OK;
}
