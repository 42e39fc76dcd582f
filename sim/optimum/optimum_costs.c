/* optimum_costs.c -- suffix sums of the weights, and what other schedules
 * cost.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "optimum.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum kvr_status kvr_optimum_matrix_row(double *row, uint32_t step, void *ud,
                                       struct kvr_error *err)
{
    const struct kvr_optimum_matrix *m = ud;
    const double *from = m->first + (size_t)(step - m->prompt_len) * m->stride;

    (void)err;
    memcpy(row, from, ((size_t)step + 1) * sizeof *row);
    return KVR_OK;
}

static uint64_t whole_blocks(uint32_t n_token)
{
    return ((uint64_t)n_token + KVR__BLOCK - 1) / KVR__BLOCK * KVR__BLOCK;
}

bool kvr_optimum_bytes(uint64_t *costs, uint64_t *solver,
                       const struct kvr_optimum_problem *problem)
{
    if (problem->prompt_len > problem->n_token)
        return false;
    const uint64_t stride = whole_blocks(problem->n_token);
    const uint64_t rows = problem->n_token - problem->prompt_len;
    /* Vectors of the solver: some ten doubles a token, a few for each row,
     * and one minimum for each row and block. */
    const uint64_t small = 128 * stride + 128 * rows;
    uint64_t cells, square, minima, sum;

    if (!kvr_mul_u64(&cells, stride, rows) ||
        !kvr_mul_u64(&square, cells, sizeof(double)))
        return false;
    minima = square / KVR__BLOCK;
    if (!kvr_add_u64(&sum, square, minima + small))
        return false;
    *costs = square;
    *solver = sum;
    return true;
}

static enum kvr_status check_problem(const struct kvr_optimum_problem *p,
                                     struct kvr_error *err)
{
    if (p->prompt_len == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "optimum: prompt length 0, expected at least 1");
    if (p->prompt_len >= p->n_token)
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "optimum: %u tokens and prompt length %u leave no "
                        "step to count",
                        p->n_token, p->prompt_len);
    return KVR_OK;
}

/* The callback's row, checked; *mass grows by its sum. */
static enum kvr_status fetch(double *row, double *mass, uint32_t step,
                             kvr_optimum_row_fn fn, void *ud,
                             struct kvr_error *err)
{
    const enum kvr_status status = fn(row, step, ud, err);

    if (status != KVR_OK)
        return status;
    for (uint32_t i = 0; i <= step; i++) {
        if (!(row[i] >= 0) || row[i] != floor(row[i]))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "optimum: step %u token %u: weight %g, expected "
                            "an integer of at least 0",
                            step, i, row[i]);
        *mass += row[i];
    }
    if (!(*mass < KVR_OPTIMUM_MASS_LIMIT))
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "optimum: weights of steps from %u on sum to %g units, "
                        "the limit of exact arithmetic is %g",
                        step, *mass, KVR_OPTIMUM_MASS_LIMIT);
    return KVR_OK;
}

/* Folds the protection into the suffix sums of one step. */
static void store_row(struct kvr_optimum_costs *costs, const double *sum,
                      uint32_t step)
{
    const struct kvr_optimum_problem *p = &costs->problem;
    double *out = costs->cost + (size_t)(step - p->prompt_len) * costs->stride;
    const size_t first = p->protect_first;
    const size_t end = step + (size_t)1 > p->protect_recent
                           ? (size_t)step + 1 - p->protect_recent
                           : 0;

    for (size_t i = 0; i < costs->stride; i++)
        out[i] = i >= first && i < end ? sum[i] : KVR__FORBIDDEN;
}

static enum kvr_status build(struct kvr_optimum_costs *costs,
                             kvr_optimum_row_fn fn, void *ud,
                             struct kvr_error *err)
{
    const struct kvr_optimum_problem *p = &costs->problem;
    double *sum = kvr_aligned_calloc(costs->stride, sizeof *sum);
    double *row = kvr_aligned_calloc(costs->stride, sizeof *row);
    enum kvr_status status = KVR_OK;
    double mass = 0;

    if (sum == NULL || row == NULL)
        status =
            kvr_no_memory(err, "optimum rows", 2 * costs->stride * sizeof *row);
    for (uint32_t t = p->n_token; status == KVR_OK && t-- > p->prompt_len;) {
        status = fetch(row, &mass, t, fn, ud, err);
        if (status != KVR_OK)
            break;
        for (uint32_t i = 0; i <= t; i++)
            sum[i] += row[i];
        store_row(costs, sum, t);
    }
    if (status == KVR_OK)
        costs->total = (int64_t)mass;
    free(sum);
    free(row);
    return status;
}

enum kvr_status kvr_optimum_costs_new(struct kvr_optimum_costs **out,
                                      const struct kvr_optimum_problem *problem,
                                      kvr_optimum_row_fn fn, void *ud,
                                      struct kvr_error *err)
{
    enum kvr_status status = check_problem(problem, err);
    uint64_t bytes, unused;

    *out = NULL;
    if (status != KVR_OK)
        return status;
    if (!kvr_optimum_bytes(&bytes, &unused, problem))
        return kvr_fail(err, KVR_ERR_LIMIT, "optimum: %u tokens are too many",
                        problem->n_token);
    struct kvr_optimum_costs *costs = kvr_calloc(1, sizeof *costs);
    if (costs == NULL)
        return kvr_no_memory(err, "optimum", sizeof *costs);
    costs->problem = *problem;
    costs->stride = (size_t)whole_blocks(problem->n_token);
    costs->cost =
        kvr_aligned_calloc((size_t)bytes / sizeof(double), sizeof(double));
    if (costs->cost == NULL)
        status = kvr_no_memory(err, "optimum costs", (size_t)bytes);
    else
        status = build(costs, fn, ud, err);
    if (status != KVR_OK) {
        kvr_optimum_costs_free(costs);
        return status;
    }
    *out = costs;
    return KVR_OK;
}

/* What the costs of step `step` must be: the row and what later steps lose. */
static enum kvr_status check_row(const struct kvr_optimum_costs *costs,
                                 const double *row, uint32_t step,
                                 struct kvr_error *err)
{
    const struct kvr_optimum_problem *p = &costs->problem;
    const double *cost = kvr__costs_row(costs, step);
    const double *later =
        step + 1 < p->n_token ? kvr__costs_row(costs, step + 1) : NULL;
    const size_t end = step + (size_t)1 > p->protect_recent
                           ? (size_t)step + 1 - p->protect_recent
                           : 0;

    for (size_t i = 0; i < costs->stride; i++) {
        const bool free_to_go = i >= p->protect_first && i < end;
        const double expected =
            !free_to_go ? KVR__FORBIDDEN : row[i] + (later ? later[i] : 0);
        if (cost[i] != expected)
            return kvr_fail(err, KVR_ERR_INTERNAL,
                            "optimum: the cost of token %zu at step %u is "
                            "%.17g, the rows make %.17g",
                            i, step, cost[i], expected);
    }
    return KVR_OK;
}

enum kvr_status kvr_optimum_costs_check(const struct kvr_optimum_costs *costs,
                                        kvr_optimum_row_fn fn, void *ud,
                                        struct kvr_error *err)
{
    const struct kvr_optimum_problem *p = &costs->problem;
    double *row = kvr_aligned_calloc(costs->stride, sizeof *row);
    enum kvr_status status = KVR_OK;
    double mass = 0;

    if (row == NULL)
        return kvr_no_memory(err, "an optimum row", costs->stride);
    for (uint32_t t = p->n_token; status == KVR_OK && t-- > p->prompt_len;) {
        status = fetch(row, &mass, t, fn, ud, err);
        if (status == KVR_OK)
            status = check_row(costs, row, t, err);
    }
    if (status == KVR_OK && (double)costs->total != mass)
        status = kvr_fail(err, KVR_ERR_INTERNAL,
                          "optimum: a total of %lld, the rows make %.17g",
                          (long long)costs->total, mass);
    free(row);
    return status;
}

void kvr_optimum_costs_free(struct kvr_optimum_costs *costs)
{
    if (costs == NULL)
        return;
    free(costs->cost);
    free(costs);
}

int64_t kvr_optimum_total(const struct kvr_optimum_costs *costs)
{
    return costs->total;
}

void kvr__count_slots(uint32_t *slots, const uint32_t *visible, uint32_t first,
                      uint32_t n_token)
{
    uint32_t most = 0;

    for (uint32_t t = first; t < n_token; t++) {
        const uint32_t over = t + 1 > visible[t] ? t + 1 - visible[t] : 0;
        slots[t] = over > most ? over - most : 0;
        most += slots[t];
    }
}

static enum kvr_status check_visible(const struct kvr_optimum_costs *costs,
                                     const uint32_t *evict,
                                     const uint32_t *visible,
                                     struct kvr_error *err)
{
    const uint32_t n = costs->problem.n_token, p = costs->problem.prompt_len;
    uint32_t *gone = kvr_calloc((size_t)n + 1, sizeof *gone);
    enum kvr_status status = KVR_OK;
    uint32_t absent = 0;

    if (gone == NULL)
        return kvr_no_memory(err, "optimum", (n + 1) * sizeof *gone);
    for (uint32_t i = 0; i < n; i++)
        gone[evict[i]]++;
    for (uint32_t t = p; t < n && status == KVR_OK; t++) {
        absent += gone[t];
        if (t + 1 - absent > visible[t])
            status = kvr_fail(err, KVR_ERR_INPUT,
                              "schedule: step %u sees %u tokens, the budget "
                              "is %u",
                              t, t + 1 - absent, visible[t]);
    }
    free(gone);
    return status;
}

enum kvr_status kvr_optimum_cost(int64_t *cost,
                                 const struct kvr_optimum_costs *costs,
                                 const uint32_t *evict, const uint32_t *visible,
                                 struct kvr_error *err)
{
    const uint32_t n = costs->problem.n_token, p = costs->problem.prompt_len;
    int64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (evict[i] == n)
            continue;
        if (evict[i] > n || evict[i] < p)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "schedule: token %u leaves at step %u, expected "
                            "%u to %u",
                            i, evict[i], p, n);
        const double c = kvr__costs_row(costs, evict[i])[i];
        if (c == KVR__FORBIDDEN)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "schedule: token %u leaves at step %u while it is "
                            "protected or not there",
                            i, evict[i]);
        sum += (int64_t)c;
    }
    *cost = sum;
    return visible == NULL ? KVR_OK : check_visible(costs, evict, visible, err);
}

static int heavier_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

enum kvr_status kvr_optimum_topk(int64_t *curve,
                                 const struct kvr_optimum_problem *problem,
                                 kvr_optimum_row_fn fn, void *ud,
                                 struct kvr_error *err)
{
    enum kvr_status status = check_problem(problem, err);
    const uint32_t n = problem->n_token;
    double mass = 0;

    if (status != KVR_OK)
        return status;
    double *row = kvr_calloc(n, sizeof *row);
    if (row == NULL)
        return kvr_no_memory(err, "top-k row", n * sizeof *row);
    memset(curve, 0, ((size_t)n + 1) * sizeof *curve);
    for (uint32_t t = n; t-- > problem->prompt_len;) {
        status = fetch(row, &mass, t, fn, ud, err);
        if (status != KVR_OK)
            break;
        /* With budget k the k-1 heaviest of the t older tokens stay. */
        qsort(row, t, sizeof *row, heavier_first);
        int64_t lost = 0;
        for (uint32_t k = t; k > 0; k--) {
            lost += (int64_t)row[k - 1];
            curve[k] += lost;
        }
    }
    curve[0] = KVR_OPTIMUM_INFEASIBLE;
    free(row);
    return status;
}
