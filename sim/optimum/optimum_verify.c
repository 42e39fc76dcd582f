/* optimum_verify.c -- the certificate of an optimum, and the regret of other
 * schedules against its prices. Integers only.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "optimum.h"

#include "kvr_memory.h"

#include <inttypes.h>
#include <stdlib.h>

#define LIMIT INT64_C(9007199254740992) /* 2^53: doubles are exact below */

/* A sum that cannot overflow: each part gathers up to 2^32 terms of less than
 * 2^27 (high) or 2^26 (low) in size. */
struct wide {
    int64_t high, low;
};

static void wide_add(struct wide *sum, int64_t value, int64_t sign)
{
    sum->high += sign * (value >> 26);
    sum->low += sign * (value & 0x3ffffff);
}

/* sum == value, where 0 <= value < 2^53. */
static bool wide_is(const struct wide *sum, int64_t value)
{
    const int64_t low = sum->low - (value & 0x3ffffff);
    const int64_t high = sum->high - (value >> 26);

    /* high 2^26 + low = 0 needs low = -high 2^26; divide, do not multiply. */
    return low % 0x4000000 == 0 && low / 0x4000000 == -high;
}

static enum kvr_status check_range(const struct kvr_optimum_plan *plan,
                                   struct kvr_error *err)
{
    for (uint32_t i = 0; i < plan->n_token; i++) {
        if (plan->rent[i] < 0 || plan->rent[i] >= LIMIT)
            return kvr_fail(err, KVR_ERR_INTERNAL,
                            "optimum: rent %" PRId64 " of token %u",
                            plan->rent[i], i);
        if (plan->price[i] < 0 || plan->price[i] >= LIMIT)
            return kvr_fail(err, KVR_ERR_INTERNAL,
                            "optimum: price %" PRId64 " of step %u",
                            plan->price[i], i);
    }
    return KVR_OK;
}

/* u_t - w_i <= L[i][t] for every token that may be absent at step t. Both
 * sides are integers below 2^53, so doubles compare them exactly. */
static bool step_is_dual(const struct kvr_optimum_costs *costs,
                         const double *rent, double price, uint32_t step)
{
    const double *row = kvr__costs_row(costs, step);
    const uint32_t n = costs->problem.n_token;
    double slack = KVR__FORBIDDEN;

#pragma omp simd reduction(min : slack)
    for (uint32_t i = 0; i < n; i++) {
        const double here = row[i] - (price - rent[i]);
        slack = here < slack ? here : slack;
    }
    return slack >= 0;
}

static enum kvr_status check_dual(const struct kvr_optimum_costs *costs,
                                  const struct kvr_optimum_plan *plan,
                                  const uint32_t *slots, struct wide *value,
                                  struct kvr_error *err)
{
    const uint32_t n = plan->n_token;
    double *rent = kvr_calloc(n, sizeof *rent);
    enum kvr_status status = KVR_OK;

    if (rent == NULL)
        return kvr_no_memory(err, "optimum rents", n * sizeof *rent);
    for (uint32_t i = 0; i < n; i++) {
        rent[i] = (double)plan->rent[i];
        wide_add(value, plan->rent[i], -1);
    }
    for (uint32_t t = plan->prompt_len; t < n && status == KVR_OK; t++) {
        if (slots[t] == 0)
            continue;
        if (!step_is_dual(costs, rent, (double)plan->price[t], t))
            status = kvr_fail(err, KVR_ERR_INTERNAL,
                              "optimum: the price %" PRId64 " of step %u is "
                              "above what some token costs there",
                              plan->price[t], t);
        /* One by one: a product might not fit. */
        for (uint32_t copy = 0; copy < slots[t]; copy++)
            wide_add(value, plan->price[t], 1);
    }
    free(rent);
    return status;
}

static enum kvr_status check_steps(const struct kvr_optimum_plan *plan,
                                   const uint32_t *slots, struct kvr_error *err)
{
    for (uint32_t t = plan->prompt_len; t < plan->n_token; t++) {
        const int64_t next = t + 1 < plan->n_token ? plan->price[t + 1] : 0;
        if (plan->mu[t] < 0 || plan->mu[t] != plan->price[t] - next)
            return kvr_fail(err, KVR_ERR_INTERNAL,
                            "optimum: rent %" PRId64 " of step %u, %u slots",
                            plan->mu[t], t, slots[t]);
    }
    return KVR_OK;
}

enum kvr_status kvr_optimum_verify(const struct kvr_optimum_costs *costs,
                                   const struct kvr_optimum_plan *plan,
                                   struct kvr_error *err)
{
    const uint32_t n = costs->problem.n_token, p = costs->problem.prompt_len;
    struct wide dual = {0};
    int64_t primal = 0;

    if (!plan->feasible || plan->n_token != n || plan->prompt_len != p)
        return kvr_fail(err, KVR_ERR_INTERNAL,
                        "optimum: a plan for %u tokens, prompt %u, %s",
                        plan->n_token, plan->prompt_len,
                        plan->feasible ? "of another problem" : "infeasible");
    uint32_t *slots = kvr_calloc(n, sizeof *slots);
    if (slots == NULL)
        return kvr_no_memory(err, "optimum slots", n * sizeof *slots);
    kvr__count_slots(slots, plan->visible, p, n);
    enum kvr_status status = check_range(plan, err);
    if (status == KVR_OK)
        status =
            kvr_optimum_cost(&primal, costs, plan->evict, plan->visible, err);
    if (status == KVR_OK)
        status = check_dual(costs, plan, slots, &dual, err);
    if (status == KVR_OK)
        status = check_steps(plan, slots, err);
    if (status == KVR_OK &&
        (primal != plan->cost || primal >= LIMIT || !wide_is(&dual, primal)))
        status = kvr_fail(err, KVR_ERR_INTERNAL,
                          "optimum: the schedule costs %" PRId64 ", the plan "
                          "says %" PRId64 ", the prices prove another",
                          primal, plan->cost);
    free(slots);
    return status;
}

/* Rent of the places that a schedule leaves empty: by step t it has evicted
 * more tokens than the slots ask for. */
static int64_t idle_rent(const struct kvr_optimum_plan *plan,
                         const uint32_t *slots, const uint32_t *gone)
{
    int64_t spare = 0, idle = 0;

    for (uint32_t t = plan->prompt_len; t < plan->n_token; t++) {
        spare += (int64_t)gone[t] - slots[t];
        idle += spare * plan->mu[t];
    }
    return idle;
}

enum kvr_status kvr_optimum_regret(int64_t *rho, int64_t *idle,
                                   const struct kvr_optimum_costs *costs,
                                   const struct kvr_optimum_plan *plan,
                                   const uint32_t *evict, struct kvr_error *err)
{
    const uint32_t n = plan->n_token;
    int64_t cost;
    enum kvr_status status =
        kvr_optimum_cost(&cost, costs, evict, plan->visible, err);

    if (status != KVR_OK)
        return status;
    uint32_t *slots = kvr_calloc(n, sizeof *slots);
    uint32_t *gone = kvr_calloc((size_t)n + 1, sizeof *gone);
    if (slots == NULL || gone == NULL) {
        status = kvr_no_memory(err, "regret", 2 * n * sizeof *slots);
        goto out;
    }
    kvr__count_slots(slots, plan->visible, plan->prompt_len, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t e = evict[i];
        gone[e]++;
        rho[i] = plan->rent[i];
        if (e < n)
            rho[i] += (int64_t)kvr__costs_row(costs, e)[i] - plan->price[e];
    }
    *idle = idle_rent(plan, slots, gone);
out:
    free(slots);
    free(gone);
    return status;
}
