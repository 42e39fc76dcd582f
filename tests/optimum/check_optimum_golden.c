/* check_optimum_golden.c -- 40 instances solved by independent programs:
 * every curve, every bound, every stored schedule, `==`.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_optimum.h"

#include "suite.h"

#include <jansson.h>
#include <string.h>

static struct kvr_error err;

static uint32_t number(const json_t *in, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(in, key));
}

/* Rows of an instance, T wide. */
static double *read_rows(const json_t *in, uint32_t n)
{
    const json_t *rows = json_object_get(in, "attention");
    double *out = calloc(json_array_size(rows) * n, sizeof *out);

    for (size_t j = 0; j < json_array_size(rows); j++) {
        const json_t *row = json_array_get(rows, j);
        for (size_t i = 0; i < json_array_size(row); i++)
            out[j * n + i] = (double)json_integer_value(json_array_get(row, i));
    }
    return out;
}

/* The stored schedule is feasible under our rules, costs the optimum, and has
 * no regret; so is, does and has ours. */
static void check_plan(const json_t *stored,
                       const struct kvr_optimum_costs *costs,
                       const struct kvr_optimum_plan *plan)
{
    const json_t *steps = json_object_get(stored, "evict_step");
    uint32_t evict[64];
    int64_t rho[64], idle, cost;

    for (uint32_t i = 0; i < plan->n_token; i++)
        evict[i] = (uint32_t)json_integer_value(json_array_get(steps, i));
    must(kvr_optimum_cost(&cost, costs, evict, plan->visible, &err));
    ck_assert_int_eq(cost, plan->cost);
    must(kvr_optimum_regret(rho, &idle, costs, plan, evict, &err));
    ck_assert_int_eq(idle, 0);
    for (uint32_t i = 0; i < plan->n_token; i++)
        ck_assert_int_eq(rho[i], 0);
    must(kvr_optimum_cost(&cost, costs, plan->evict, plan->visible, &err));
    ck_assert_int_eq(cost, plan->cost);
    must(kvr_optimum_verify(costs, plan, &err));
}

/* The stored prices are a certificate for our own verifier. */
static void check_prices(const json_t *stored,
                         const struct kvr_optimum_costs *costs,
                         struct kvr_optimum_plan plan)
{
    const json_t *slots = json_object_get(stored, "slot_price");
    const json_t *rents = json_object_get(stored, "token_rent");
    int64_t price[64] = {0}, rent[64], mu[64] = {0}, next = 0;
    char key[16];

    for (uint32_t i = 0; i < plan.n_token; i++)
        rent[i] = json_integer_value(json_array_get(rents, i));
    for (uint32_t t = plan.n_token; t-- > plan.prompt_len;) {
        snprintf(key, sizeof key, "%u", t);
        const json_t *value = json_object_get(slots, key);
        price[t] = value != NULL ? json_integer_value(value) : next;
        mu[t] = price[t] - next;
        next = price[t];
    }
    plan.price = price;
    plan.rent = rent;
    plan.mu = mu;
    must(kvr_optimum_verify(costs, &plan, &err));
}

static void check_instance(const json_t *in)
{
    const uint32_t n = number(in, "T");
    const struct kvr_optimum_problem problem = {
        .n_token = n,
        .prompt_len = number(in, "P"),
        .protect_recent = number(in, "protect_recent"),
        .protect_first = number(in, "sinks")};
    double *rows = read_rows(in, n);
    struct kvr_optimum_matrix matrix = {
        .first = rows, .stride = n, .prompt_len = problem.prompt_len};
    const json_t *best = json_object_get(in, "opt_miss");
    const json_t *bound = json_object_get(in, "topk_miss_newest_kept");
    uint32_t budgets[64];
    int64_t topk[64];
    struct kvr_optimum_costs *costs;
    struct kvr_optimum *optimum;

    ck_assert_uint_lt(n, 64);
    for (uint32_t k = 0; k <= n; k++)
        budgets[k] = k;
    const struct kvr_optimum_request request = {
        .budgets = budgets, .n_budget = n + 1, .whole_curve = true};
    must(kvr_optimum_costs_new(&costs, &problem, kvr_optimum_matrix_row,
                               &matrix, &err));
    must(kvr_optimum_solve(&optimum, costs, &request, &err));
    must(kvr_optimum_topk(topk, &problem, kvr_optimum_matrix_row, &matrix,
                          &err));
    for (uint32_t k = 0; k <= n; k++) {
        char key[16];
        snprintf(key, sizeof key, "%u", k);
        const json_t *stored =
            json_object_get(json_object_get(in, "schedules"), key);
        ck_assert_int_eq(kvr_optimum_curve(optimum)[k],
                         json_integer_value(json_array_get(best, k)));
        if (k > 0)
            ck_assert_int_eq(topk[k],
                             json_integer_value(json_array_get(bound, k)));
        if (stored != NULL) {
            check_plan(stored, costs, kvr_optimum_plan(optimum, k));
            check_prices(stored, costs, *kvr_optimum_plan(optimum, k));
        }
    }
    kvr_optimum_free(optimum);
    kvr_optimum_costs_free(costs);
    free(rows);
}

START_TEST(all_budgets_equal_the_stored_optima)
{
    json_t *root = json_load_file(
        KVR_TEST_DATA "/golden/oracle/oracle_small.json", 0, NULL);
    const json_t *list = json_object_get(root, "instances");

    ck_assert_uint_eq(json_array_size(list), 40);
    for (size_t i = 0; i < json_array_size(list); i++)
        check_instance(json_array_get(list, i));
    json_decref(root);
}
END_TEST

KVR_SUITE("optimum_golden", all_budgets_equal_the_stored_optima)
