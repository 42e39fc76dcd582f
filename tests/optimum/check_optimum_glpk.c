/* check_optimum_glpk.c -- the direct linear programme, solved by glpsol.
 *
 * x[i,t] in 0..1 is the share of token i that is in the cache at step t:
 *     min  sum of a_t(i) (1 - x[i,t]),   sum over i of x[i,t] <= k,
 *     x[i,t+1] <= x[i,t],   x = 1 where protected.
 * No slots and no assignment in it. Skipped where glpsol is not installed.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "instances.h"

#include "suite.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kvr_error err;

static bool is_protected(const struct kvr_optimum_problem *p, uint32_t i,
                         uint32_t t)
{
    return i < p->protect_first || i + p->protect_recent > t;
}

/* Maximises the mass kept, in the LP format of CPLEX. */
static void write_lp(FILE *f, const struct instance *in, uint32_t k)
{
    const struct kvr_optimum_problem *p = &in->problem;

    fprintf(f, "Maximize\n kept:");
    for (uint32_t t = p->prompt_len; t < p->n_token; t++)
        for (uint32_t i = 0; i <= t; i++)
            fprintf(f, " + %.0f x%u_%u\n", instance_weight(in, t, i), i, t);
    fprintf(f, "Subject To\n");
    for (uint32_t t = p->prompt_len; t < p->n_token; t++) {
        for (uint32_t i = 0; i <= t; i++)
            fprintf(f, " + x%u_%u", i, t);
        fprintf(f, " <= %u\n", k);
        for (uint32_t i = 0; i < t && t > p->prompt_len; i++)
            fprintf(f, " x%u_%u - x%u_%u <= 0\n", i, t, i, t - 1);
    }
    fprintf(f, "Bounds\n");
    for (uint32_t t = p->prompt_len; t < p->n_token; t++)
        for (uint32_t i = 0; i <= t; i++)
            fprintf(f, " %d <= x%u_%u <= 1\n", is_protected(p, i, t), i, t);
    fprintf(f, "End\n");
}

/* Mass kept at the optimum; -1 if the programme has no solution. */
static double solve_lp(const struct instance *in, uint32_t k)
{
    char model[] = "/tmp/kvr_lp_XXXXXX", answer[] = "/tmp/kvr_out_XXXXXX";
    char command[128], line[256];
    double kept = -1;
    bool optimal = false;
    const int fd = mkstemp(model), out = mkstemp(answer);
    FILE *f = fdopen(fd, "w");

    close(out);
    write_lp(f, in, k);
    fclose(f);
    snprintf(command, sizeof command, "glpsol --lp %s -o %s > /dev/null", model,
             answer);
    ck_assert_int_eq(system(command), 0);
    f = fopen(answer, "r");
    while (fgets(line, sizeof line, f) != NULL) {
        const char *equals = strchr(line, '=');
        if (strncmp(line, "Status:", 7) == 0)
            optimal = strstr(line, "OPTIMAL") != NULL;
        if (strncmp(line, "Objective:", 10) == 0 && equals != NULL)
            kept = strtod(equals + 1, NULL);
    }
    fclose(f);
    remove(model);
    remove(answer);
    return optimal ? kept : -1;
}

START_TEST(the_linear_programme_has_the_same_optimum)
{
    uint32_t feasible = 0;

    if (system("command -v glpsol > /dev/null") != 0) {
        printf("skipped: glpsol is not installed\n");
        return;
    }
    for (uint32_t number = 0; number < 12; number++) {
        const struct kvr_optimum_problem problem = {
            .n_token = 12 + number % 9,
            .prompt_len = 2 + number % 5,
            .protect_recent = number % 3,
            .protect_first = number % 2};
        const enum kind kinds[] = {MANY_TIES, PEAKED, SPARSE};
        const uint32_t k = 2 + number % 6;
        const struct kvr_optimum_request request = {.budgets = &k,
                                                    .n_budget = 1};
        struct instance in;
        struct kvr_optimum_costs *costs;
        struct kvr_optimum *optimum;
        instance_make(&in, number, kinds[number % 3], &problem);
        must(kvr_optimum_costs_new(&costs, &problem, kvr_optimum_matrix_row,
                                   &in.matrix, &err));
        must(kvr_optimum_solve(&optimum, costs, &request, &err));
        const double kept = solve_lp(&in, k);
        const int64_t cost = kvr_optimum_curve(optimum)[k];
        /* glpsol prints ten digits; the sums here have at most six. */
        ck_assert((kept < 0) == (cost < 0));
        if (kept >= 0)
            ck_assert_int_eq(cost, kvr_optimum_total(costs) - llround(kept));
        ck_assert(fabs(kept - (double)llround(kept)) < 1e-3);
        feasible += kept >= 0;
        kvr_optimum_free(optimum);
        kvr_optimum_costs_free(costs);
        instance_free(&in);
    }
    ck_assert_uint_ge(feasible, 8);
}
END_TEST

KVR_SUITE("optimum_glpk", the_linear_programme_has_the_same_optimum)
