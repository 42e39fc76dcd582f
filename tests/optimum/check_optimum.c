/* check_optimum.c -- the exact optimum against slow solvers, its prices, its
 * certificate and its limits.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "instances.h"

#include "kvr_isa.h"
#include "kvr_optimum.h"
#include "kvr_random.h"
#include "optimum.h"

#include "suite.h"

#include <string.h>

static struct kvr_error err;

static struct kvr_optimum_costs *costs_of(struct instance *in)
{
    struct kvr_optimum_costs *costs;

    must(kvr_optimum_costs_new(&costs, &in->problem, kvr_optimum_matrix_row,
                               &in->matrix, &err));
    return costs;
}

/* All budgets 0..T, each with its plan and so with its certificate. */
static struct kvr_optimum *solve_all(const struct kvr_optimum_costs *costs,
                                     uint32_t n)
{
    uint32_t *budgets = calloc(n + 1, sizeof *budgets);
    const struct kvr_optimum_request request = {
        .budgets = budgets, .n_budget = n + 1, .whole_curve = true};
    struct kvr_optimum *optimum;

    for (uint32_t k = 0; k <= n; k++)
        budgets[k] = k;
    must(kvr_optimum_solve(&optimum, costs, &request, &err));
    free(budgets);
    return optimum;
}

START_TEST(equals_a_walk_over_all_subsets)
{
    uint32_t feasible = 0;

    for (uint32_t number = 0; number < 1000; number++) {
        struct instance in;
        instance_random(&in, number, 8);
        const uint32_t n = in.problem.n_token;
        struct kvr_optimum_costs *costs = costs_of(&in);
        struct kvr_optimum *optimum = solve_all(costs, n);
        for (uint32_t k = 0; k <= n; k++) {
            uint32_t visible[8];
            for (uint32_t t = 0; t < n; t++)
                visible[t] = k;
            const int64_t least = brute_force(&in, visible);
            ck_assert_int_eq(kvr_optimum_curve(optimum)[k], least);
            feasible += least >= 0;
        }
        kvr_optimum_free(optimum);
        kvr_optimum_costs_free(costs);
        instance_free(&in);
    }
    ck_assert_uint_gt(feasible, 3000);
}
END_TEST

START_TEST(equals_subsets_under_budgets_that_change)
{
    const struct kvr_random draw = {.seed = 5, .purpose = KVR_RANDOM_TEST};
    uint32_t feasible = 0;

    for (uint32_t number = 0; number < 600; number++) {
        struct instance in;
        instance_random(&in, number + 7000, 8);
        const uint32_t n = in.problem.n_token;
        struct kvr_optimum_costs *costs = costs_of(&in);
        struct kvr_optimum_plan *plan;
        uint32_t visible[8];
        for (uint32_t t = 0; t < n; t++)
            visible[t] = kvr_random_below(&draw, t, number, 0, n + 1);
        must(kvr_optimum_matched(&plan, costs, visible, &err));
        ck_assert_int_eq(plan->cost, brute_force(&in, visible));
        ck_assert(plan->feasible == (plan->cost >= 0));
        feasible += plan->feasible;
        kvr_optimum_plan_free(plan);
        kvr_optimum_costs_free(costs);
        instance_free(&in);
    }
    ck_assert_uint_gt(feasible, 100);
}
END_TEST

START_TEST(equals_a_dense_assignment)
{
    for (uint32_t number = 0; number < 24; number++) {
        struct instance in;
        instance_random(&in, number + 100, 90);
        const uint32_t n = in.problem.n_token;
        struct kvr_optimum_costs *costs = costs_of(&in);
        struct kvr_optimum *optimum = solve_all(costs, n);
        for (uint32_t k = 0; k <= n; k += 3)
            ck_assert_int_eq(kvr_optimum_curve(optimum)[k], assignment(&in, k));
        kvr_optimum_free(optimum);
        kvr_optimum_costs_free(costs);
        instance_free(&in);
    }
}
END_TEST

/* Several blocks of columns, and enough rows that batches are full. */
START_TEST(equals_a_dense_assignment_at_300_tokens)
{
    for (uint32_t kind = 0; kind < N_KIND; kind++) {
        const struct kvr_optimum_problem problem = {.n_token = 300,
                                                    .prompt_len = 70,
                                                    .protect_recent = 1 + kind,
                                                    .protect_first = kind / 2};
        struct instance in;
        instance_make(&in, kind, (enum kind)kind, &problem);
        struct kvr_optimum_costs *costs = costs_of(&in);
        struct kvr_optimum *optimum = solve_all(costs, 300);
        for (uint32_t k = 10; k <= 300; k += 58)
            ck_assert_int_eq(kvr_optimum_curve(optimum)[k], assignment(&in, k));
        kvr_optimum_free(optimum);
        kvr_optimum_costs_free(costs);
        instance_free(&in);
    }
}
END_TEST

START_TEST(curve_is_convex_and_its_slope_is_the_earliest_price)
{
    for (uint32_t number = 0; number < 60; number++) {
        struct instance in;
        instance_random(&in, number + 300, 60);
        const uint32_t n = in.problem.n_token, p = in.problem.prompt_len;
        struct kvr_optimum_costs *costs = costs_of(&in);
        struct kvr_optimum *optimum = solve_all(costs, n);
        const int64_t *curve = kvr_optimum_curve(optimum);
        ck_assert_int_eq(curve[n], 0);
        for (uint32_t k = n; k-- > 0 && curve[k] >= 0;) {
            const struct kvr_optimum_plan *plan = kvr_optimum_plan(optimum, k);
            const uint32_t earliest = k > p ? k : p;
            ck_assert_int_ge(curve[k], curve[k + 1]);
            if (k + 2 <= n)
                ck_assert_int_ge(curve[k] - curve[k + 1],
                                 curve[k + 1] - curve[k + 2]);
            ck_assert_int_eq(plan->price[earliest], curve[k] - curve[k + 1]);
            int64_t rents = 0;
            for (uint32_t t = 0; t < n; t++)
                rents += plan->mu[t];
            ck_assert_int_eq(rents, curve[k] - curve[k + 1]);
        }
        kvr_optimum_free(optimum);
        kvr_optimum_costs_free(costs);
        instance_free(&in);
    }
}
END_TEST

/* Evicts at random, now and then more than the budget asks for. False: the
 * protection left nothing to evict. */
static bool random_schedule(uint32_t *evict, const struct instance *in,
                            uint32_t k, uint32_t number)
{
    const struct kvr_optimum_problem *q = &in->problem;
    const struct kvr_random draw = {
        .seed = number, .layer = 3, .purpose = KVR_RANDOM_TEST};

    for (uint32_t i = 0; i < q->n_token; i++)
        evict[i] = q->n_token;
    for (uint32_t t = q->prompt_len, held = t; t < q->n_token; t++) {
        held++;
        uint32_t goal = held < k ? held : k, tries = 0;
        if (goal > 0 && kvr_random_below(&draw, t, k, 0, 5) == 0)
            goal--;
        while (held > goal && ++tries < 1000) {
            const uint32_t i = kvr_random_below(&draw, t, k, tries, t + 1);
            if (evict[i] < q->n_token || i < q->protect_first ||
                i + q->protect_recent > t)
                continue;
            evict[i] = t;
            held--;
        }
        if (held > k)
            return false;
    }
    return true;
}

START_TEST(regret_sums_exactly)
{
    uint32_t checked = 0;

    for (uint32_t number = 0; number < 120; number++) {
        struct instance in;
        instance_random(&in, number + 500, 40);
        const uint32_t n = in.problem.n_token;
        struct kvr_optimum_costs *costs = costs_of(&in);
        struct kvr_optimum *optimum = solve_all(costs, n);
        for (uint32_t k = 1; k <= n; k++) {
            const struct kvr_optimum_plan *plan = kvr_optimum_plan(optimum, k);
            uint32_t evict[40];
            int64_t rho[40], idle, cost, sum = 0;
            if (!plan->feasible || !random_schedule(evict, &in, k, number))
                continue;
            must(kvr_optimum_cost(&cost, costs, evict, plan->visible, &err));
            must(kvr_optimum_regret(rho, &idle, costs, plan, evict, &err));
            for (uint32_t i = 0; i < n; i++) {
                ck_assert_int_ge(rho[i], 0);
                sum += rho[i];
            }
            ck_assert_int_ge(idle, 0);
            ck_assert_int_eq(cost - plan->cost, sum + idle);
            checked++;
        }
        kvr_optimum_free(optimum);
        kvr_optimum_costs_free(costs);
        instance_free(&in);
    }
    ck_assert_uint_gt(checked, 1000);
}
END_TEST

START_TEST(a_plan_that_is_not_optimal_is_refused)
{
    const struct kvr_optimum_problem problem = {
        .n_token = 40, .prompt_len = 12, .protect_recent = 1};
    struct instance in;
    instance_make(&in, 9, PEAKED, &problem);
    struct kvr_optimum_costs *costs = costs_of(&in);
    struct kvr_optimum *optimum = solve_all(costs, 40);
    struct kvr_optimum_plan *plan =
        (struct kvr_optimum_plan *)kvr_optimum_plan(optimum, 10);

    must(kvr_optimum_verify(costs, plan, &err));
    plan->cost++;
    must_fail(kvr_optimum_verify(costs, plan, &err), KVR_ERR_INTERNAL,
              "the schedule costs");
    plan->cost--;
    plan->price[20] += 100000000;
    must_fail(kvr_optimum_verify(costs, plan, &err), KVR_ERR_INTERNAL,
              "step 20");
    plan->price[20] -= 100000000;
    plan->rent[3] = -1;
    must_fail(kvr_optimum_verify(costs, plan, &err), KVR_ERR_INTERNAL,
              "token 3");
    plan->rent[3] = 0;
    plan->visible[39]--;
    must_fail(kvr_optimum_verify(costs, plan, &err), KVR_ERR_INPUT,
              "step 39 sees 10 tokens, the budget is 9");
    plan->visible[39]++;
    plan->evict[39] = 39;
    must_fail(kvr_optimum_verify(costs, plan, &err), KVR_ERR_INPUT, "token 39");
    kvr_optimum_free(optimum);
    kvr_optimum_costs_free(costs);
    instance_free(&in);
}
END_TEST

START_TEST(stops_at_the_least_budget_asked_for)
{
    const struct kvr_optimum_problem problem = {
        .n_token = 50, .prompt_len = 20, .protect_recent = 1};
    const uint32_t budgets[] = {30, 12, 99};
    const struct kvr_optimum_request request = {.budgets = budgets,
                                                .n_budget = 3};
    struct instance in;
    instance_make(&in, 4, SPARSE, &problem);
    struct kvr_optimum_costs *costs = costs_of(&in);
    struct kvr_optimum *all = solve_all(costs, 50), *some;
    must(kvr_optimum_solve(&some, costs, &request, &err));
    for (uint32_t k = 0; k <= 50; k++)
        ck_assert_int_eq(kvr_optimum_curve(some)[k],
                         k < 12 ? KVR_OPTIMUM_NOT_COMPUTED
                                : kvr_optimum_curve(all)[k]);
    ck_assert_int_eq(kvr_optimum_plan(some, 99)->cost, 0);
    ck_assert_int_eq(kvr_optimum_plan(some, 12)->cost,
                     kvr_optimum_curve(all)[12]);
    ck_assert_ptr_null(kvr_optimum_plan(some, 13));
    kvr_optimum_free(some);
    kvr_optimum_free(all);
    kvr_optimum_costs_free(costs);
    instance_free(&in);
}
END_TEST

START_TEST(every_instruction_set_gives_the_same_prices)
{
    const struct kvr_optimum_problem problem = {
        .n_token = 400, .prompt_len = 100, .protect_recent = 2};
    const uint32_t k = 60;
    const struct kvr_optimum_request request = {.budgets = &k, .n_budget = 1};
    struct instance in;
    struct kvr_optimum *base = NULL;
    instance_make(&in, 2, WIDE_RANGE, &problem);
    struct kvr_optimum_costs *costs = costs_of(&in);

    for (int isa = 0; isa < KVR_N_ISA; isa++) {
        struct kvr_optimum *here;
        if (!kvr_isa_available((enum kvr_isa)isa)) {
            printf("skipped: %s\n", kvr_isa_name((enum kvr_isa)isa));
            continue;
        }
        setenv("KVREPLAY_ISA", kvr_isa_name((enum kvr_isa)isa), 1);
        must(kvr_isa_init(&err));
        must(kvr_optimum_solve(&here, costs, &request, &err));
        if (base == NULL) {
            base = here;
            continue;
        }
        const struct kvr_optimum_plan *a = kvr_optimum_plan(base, k);
        const struct kvr_optimum_plan *b = kvr_optimum_plan(here, k);
        ck_assert_mem_eq(a->evict, b->evict, 400 * sizeof *a->evict);
        ck_assert_mem_eq(a->price, b->price, 400 * sizeof *a->price);
        ck_assert_mem_eq(a->rent, b->rent, 400 * sizeof *a->rent);
        kvr_optimum_free(here);
    }
    kvr_optimum_free(base);
    kvr_optimum_costs_free(costs);
    instance_free(&in);
}
END_TEST

START_TEST(weights_that_are_not_exact_are_refused)
{
    struct kvr_optimum_problem problem = {
        .n_token = 4, .prompt_len = 2, .protect_recent = 1};
    double rows[8] = {1, 2, 3, 0, 4, 5, 6, 7};
    struct kvr_optimum_matrix matrix = {
        .first = rows, .stride = 4, .prompt_len = 2};
    struct kvr_optimum_costs *costs;

#define REFUSED(status, text) \
    must_fail(kvr_optimum_costs_new(&costs, &problem, kvr_optimum_matrix_row, \
                                    &matrix, &err), \
              status, text)
    rows[1] = 2.5;
    REFUSED(KVR_ERR_INPUT, "step 2 token 1: weight 2.5");
    rows[1] = -1;
    REFUSED(KVR_ERR_INPUT, "step 2 token 1: weight -1");
    rows[1] = 0.0 / 0.0;
    REFUSED(KVR_ERR_INPUT, "step 2 token 1");
    rows[1] = 1.0 / 0.0;
    REFUSED(KVR_ERR_LIMIT, "sum to inf");
    rows[1] = KVR_OPTIMUM_MASS_LIMIT - 20;
    REFUSED(KVR_ERR_LIMIT, "the limit of exact arithmetic");
    rows[1] = KVR_OPTIMUM_MASS_LIMIT - 27;
    must(kvr_optimum_costs_new(&costs, &problem, kvr_optimum_matrix_row,
                               &matrix, &err));
    ck_assert_int_eq(kvr_optimum_total(costs), INT64_C(2251799813685247));
    kvr_optimum_free(solve_all(costs, 4));
    kvr_optimum_costs_free(costs);
    problem.prompt_len = 4;
    REFUSED(KVR_ERR_NOTHING, "leave no step");
    problem.prompt_len = 0;
    REFUSED(KVR_ERR_INPUT, "prompt length 0");
#undef REFUSED
}
END_TEST

START_TEST(memory_is_told_beforehand)
{
    const struct kvr_optimum_problem problem = {.n_token = 1024,
                                                .prompt_len = 256};
    uint64_t costs, solver;

    ck_assert(kvr_optimum_bytes(&costs, &solver, &problem));
    ck_assert_uint_eq(costs, 8u * 1024 * 768);
    ck_assert_uint_ge(solver, costs);
    ck_assert_uint_lt(solver, costs + costs / 16);
}
END_TEST

/* Every number of the costs, changed once. */
static uint32_t costs_are_noticed(struct kvr_optimum_costs *costs,
                                  struct instance *in)
{
    const uint32_t steps = in->problem.n_token - in->problem.prompt_len;
    const size_t cells = steps * costs->stride;

    must(kvr_optimum_costs_check(costs, kvr_optimum_matrix_row, &in->matrix,
                                 &err));
    for (size_t i = 0; i <= cells; i++) {
        double *at = i < cells ? &costs->cost[i] : NULL;
        const double kept = at != NULL ? *at : 0;
        if (at != NULL)
            *at = kept == KVR__FORBIDDEN ? 0 : kept + 1;
        else
            costs->total++;
        ck_assert_int_eq(kvr_optimum_costs_check(costs, kvr_optimum_matrix_row,
                                                 &in->matrix, &err),
                         KVR_ERR_INTERNAL);
        if (at != NULL)
            *at = kept;
        else
            costs->total--;
    }
    return (uint32_t)cells;
}

/* Every number of a plan, changed once. A token's step may move to one where
 * it costs the same and a place is free: that is a proof of the same. */
static void plans_are_noticed(const struct kvr_optimum_costs *costs,
                              struct kvr_optimum_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_token; i++) {
        const uint32_t evict = plan->evict[i];
        int64_t before, now = -1;
        plan->rent[i]++;
        ck_assert_int_eq(kvr_optimum_verify(costs, plan, &err),
                         KVR_ERR_INTERNAL);
        plan->rent[i]--;
        must(kvr_optimum_cost(&before, costs, plan->evict, NULL, &err));
        plan->evict[i] =
            evict < plan->n_token ? plan->n_token : plan->prompt_len;
        const bool same = kvr_optimum_cost(&now, costs, plan->evict,
                                           plan->visible, &err) == KVR_OK &&
                          now == before;
        ck_assert_int_eq(kvr_optimum_verify(costs, plan, &err) == KVR_OK, same);
        plan->evict[i] = evict;
        if (i < plan->prompt_len)
            continue;
        plan->price[i]++;
        ck_assert_int_eq(kvr_optimum_verify(costs, plan, &err),
                         KVR_ERR_INTERNAL);
        plan->price[i]--;
        plan->mu[i]++;
        ck_assert_int_eq(kvr_optimum_verify(costs, plan, &err),
                         KVR_ERR_INTERNAL);
        plan->mu[i]--;
    }
    plan->cost++;
    ck_assert_int_eq(kvr_optimum_verify(costs, plan, &err), KVR_ERR_INTERNAL);
    plan->cost--;
    must(kvr_optimum_verify(costs, plan, &err));
}

START_TEST(one_changed_number_is_noticed)
{
    uint32_t cells = 0;

    for (uint32_t number = 0; number < 60; number++) {
        struct instance in;
        instance_random(&in, number + 300, 12);
        struct kvr_optimum_costs *costs = costs_of(&in);
        struct kvr_optimum *optimum = solve_all(costs, in.problem.n_token);
        cells += costs_are_noticed(costs, &in);
        for (uint32_t k = 0; k <= in.problem.n_token; k++) {
            struct kvr_optimum_plan *plan =
                (struct kvr_optimum_plan *)kvr_optimum_plan(optimum, k);
            if (plan != NULL && plan->feasible)
                plans_are_noticed(costs, plan);
        }
        kvr_optimum_free(optimum);
        kvr_optimum_costs_free(costs);
        instance_free(&in);
    }
    ck_assert_uint_gt(cells, 10000);
}
END_TEST

KVR_SUITE("optimum", one_changed_number_is_noticed,
          equals_a_walk_over_all_subsets,
          equals_subsets_under_budgets_that_change, equals_a_dense_assignment,
          equals_a_dense_assignment_at_300_tokens,
          curve_is_convex_and_its_slope_is_the_earliest_price,
          regret_sums_exactly, a_plan_that_is_not_optimal_is_refused,
          stops_at_the_least_budget_asked_for,
          every_instruction_set_gives_the_same_prices,
          weights_that_are_not_exact_are_refused, memory_is_told_beforehand)
