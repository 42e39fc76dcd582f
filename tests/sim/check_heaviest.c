/* check_heaviest.c -- the heaviest tokens of a row against a sort.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_random.h"
#include "suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 200, BUDGETS = 6 };

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* A few levels, neighbours among floats: of weights above 1/128 these are one
 * unit of 2^-30 apart or more. */
static uint32_t make_row(float *row, uint32_t trial)
{
    const struct kvr_random stream = {.seed = 3, .purpose = KVR_RANDOM_TEST};
    const uint32_t shift = 4 + trial % 4;
    const uint32_t fit = 7 << (shift - 2); /* they sum to less than 1.99 */
    const uint32_t n = 8 + trial / 4 % ((fit < MOST ? fit : MOST) - 8);

    memset(row, 0, MOST * 2 * sizeof *row);
    for (uint32_t i = 0; i < n; i++) {
        float w = ldexpf(1.0f, -(int)shift);
        uint32_t up = kvr_random_below(&stream, trial, 0, i, 5);
        for (; up > 0; up--)
            w = nextafterf(w, 2);
        row[i] = w;
    }
    return n;
}

static void check_row(const struct plan *plan, const float *row,
                      const double *wide, uint32_t n, double *least)
{
    double sorted[MOST], mass[BUDGETS], total = 0;

    for (uint32_t i = 0; i < n; i++) {
        sorted[i] = wide[i];
        total += wide[i];
    }
    qsort(sorted, n, sizeof *sorted, falling);
    kvr__heaviest_at_budgets(plan, row, wide, n, total, mass, least);
    for (size_t b = 0; b < BUDGETS; b++) {
        const uint32_t tokens = plan->options->budgets[b].tokens;
        double expected = 0;
        for (uint32_t i = 0; i < tokens && i < n; i++)
            expected += sorted[i];
        ck_assert_double_eq(mass[b], expected);
        if (row == NULL)
            ck_assert_double_eq(least[b],
                                tokens >= n ? -1 : sorted[tokens - 1]);
    }
}

START_TEST(equals_a_sort_where_floats_are_neighbours)
{
    static const uint32_t tokens[BUDGETS] = {1, 2, 3, 7, 20, 60};
    struct kvr_budget budgets[BUDGETS];
    size_t rising[BUDGETS];
    const struct kvr_sim_options options = {.budgets = budgets,
                                            .n_budget = BUDGETS};
    const struct plan plan = {.options = &options,
                              .kernels = kvr__kernels_for(kvr_isa()),
                              .rising = rising,
                              .scale = 0x1p30,
                              .whole_units = true};
    float *row = aligned_alloc(64, 2 * MOST * sizeof *row);
    double *wide = aligned_alloc(64, 2 * MOST * sizeof *wide);
    double least_row[BUDGETS] = {0}, least_wide[BUDGETS] = {0};

    for (size_t b = 0; b < BUDGETS; b++) {
        budgets[b] = (struct kvr_budget){.tokens = tokens[b]};
        rising[b] = b;
    }
    for (uint32_t trial = 0; trial < 3000; trial++) {
        const uint32_t n = make_row(row, trial);
        for (uint32_t i = 0; i < 2 * MOST; i++)
            wide[i] = (double)row[i] * 0x1p30;
        check_row(&plan, row, wide, n, least_row);
        check_row(&plan, NULL, wide, n, least_wide);
    }
    free(row);
    free(wide);
}
END_TEST

KVR_SUITE("heaviest", equals_a_sort_where_floats_are_neighbours)
