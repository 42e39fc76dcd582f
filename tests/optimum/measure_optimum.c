/* measure_optimum.c -- CPU seconds of one head, all budgets (not a test).
 *
 *     KVREPLAY_ISA=avx2 measure_optimum [T [P]]
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_isa.h"
#include "kvr_optimum.h"
#include "kvr_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Softmax rows with a sink, some lasting heavy tokens and noise, in units of
 * 2^-24. */
static void fill_row(double *row, uint32_t step)
{
    const struct kvr_random stream = {.seed = 1, .purpose = KVR_RANDOM_TEST};
    double sum = 0;

    for (uint32_t i = 0; i <= step; i++) {
        const double lasting = kvr_random_real(&stream, i, 0, 1);
        const double now = kvr_random_real(&stream, step, i, 2);
        const double age = log(1.0 + step - i);
        row[i] = exp(4 * lasting * lasting + 3 * now - 0.5 * age);
        row[i] *= i == 0 ? 20 : 1;
        sum += row[i];
    }
    for (uint32_t i = 0; i <= step; i++)
        row[i] = floor(ldexp(row[i] / sum, 24));
}

static enum kvr_status row_of(double *row, uint32_t step, void *ud,
                              struct kvr_error *err)
{
    (void)ud;
    (void)err;
    fill_row(row, step);
    return KVR_OK;
}

int main(int argc, char **argv)
{
    const uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1024;
    const struct kvr_optimum_problem problem = {
        .n_token = n,
        .prompt_len = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : n / 4,
        .protect_recent = 1};
    const uint32_t budgets[] = {n / 20, n / 10, n / 5, n * 2 / 5};
    const struct kvr_optimum_request request = {
        .budgets = budgets, .n_budget = 4, .whole_curve = true};
    struct kvr_optimum_costs *costs;
    struct kvr_optimum *optimum;
    struct kvr_error err = {0};

    if (kvr_isa_init(&err) != KVR_OK)
        return EXIT_FAILURE;
    if (kvr_optimum_costs_new(&costs, &problem, row_of, NULL, &err) != KVR_OK)
        return EXIT_FAILURE;
    for (int again = 0; again < 3; again++) {
        const double start = seconds();
        if (kvr_optimum_solve(&optimum, costs, &request, &err) != KVR_OK)
            return EXIT_FAILURE;
        printf("T %u P %u: %.3f s for all budgets, 4 certificates; miss", n,
               problem.prompt_len, seconds() - start);
        for (int b = 0; b < 4; b++)
            printf(" %.4f", (double)kvr_optimum_curve(optimum)[budgets[b]] /
                                (double)kvr_optimum_total(costs));
        printf("\n");
        kvr_optimum_free(optimum);
    }
    kvr_optimum_costs_free(costs);
    return EXIT_SUCCESS;
}
