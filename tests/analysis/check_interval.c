/* check_interval.c -- how often the interval holds the truth.
 *
 * Rows are drawn from processes whose mean is known: independent ones, such
 * that forget within 5, 20 or 57 rows, and a mixture whose correlations are
 * .57 at lag 32 and .32 at lag 128, as rows of real traces have.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_interval.h"
#include "kvr_random.h"

#include "suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct kvr_error err;

/* Parts of a process: share of the variance, rows within which it forgets
 * (0: at once). */
struct part {
    double share, rows;
};

struct process {
    const char *name;
    struct part part[3];
    uint32_t n;
    double least; /* coverage that the interval must reach */
};

enum { TIMES = 500 };

static double normal(uint32_t step, uint32_t replicate, uint32_t index)
{
    const struct kvr_random s = {.seed = 3, .purpose = KVR_RANDOM_TEST};
    const double u = kvr_random_real(&s, step, replicate, 2 * index);
    const double v = kvr_random_real(&s, step, replicate, 2 * index + 1);

    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

/* Adds one part to x: a first-order autoregression that is in balance from its
 * first row on. */
static void add_part(double *x, uint32_t n, const struct part *part,
                     uint32_t replicate, uint32_t index)
{
    const double a = part->rows > 0 ? exp(-1 / part->rows) : 0;
    double state = normal(n, replicate, index);

    for (uint32_t t = 0; t < n; t++) {
        x[t] += sqrt(part->share) * state;
        state = a * state + sqrt(1 - a * a) * normal(t, replicate, index);
    }
}

/* Shares around 0.2, of rows that record unequal masses. */
static void draw(double *missed, double *recorded, const struct process *p,
                 uint32_t replicate)
{
    double *x = calloc(p->n, sizeof *x);

    for (uint32_t i = 0; i < 3 && p->part[i].share > 0; i++)
        add_part(x, p->n, &p->part[i], replicate, i);
    for (uint32_t t = 0; t < p->n; t++) {
        recorded[t] = 100 + t % 7;
        missed[t] = recorded[t] * (0.2 + 0.02 * x[t]);
    }
    free(x);
}

/* Blocks of 32 rows, whatever the data say: what must not be done. */
static bool covered_by_32(const double *missed, const double *recorded,
                          uint32_t n)
{
    const uint32_t blocks = n / 32;
    double mean = 0, squares = 0;

    for (uint32_t b = 0; b < blocks; b++) {
        double lost = 0, all = 0;
        for (uint32_t t = 32 * b; t < 32 * b + 32; t++) {
            lost += missed[t];
            all += recorded[t];
        }
        mean += lost / all / blocks;
        squares += lost / all * lost / all / blocks;
    }
    const double se = sqrt((squares - mean * mean) / blocks);
    return fabs(mean - 0.2) <= 1.96 * se;
}

static void coverage(double *ours, double *of_32, double *width,
                     const struct process *p)
{
    double *missed = calloc(p->n, sizeof *missed);
    double *recorded = calloc(p->n, sizeof *recorded);
    uint32_t held = 0, told = 0, held_by_32 = 0;
    double sum = 0;

    for (uint32_t i = 0; i < TIMES; i++) {
        struct kvr_interval v;
        draw(missed, recorded, p, i);
        must(kvr_interval_of(&v, missed, NULL, recorded, p->n, &err));
        held_by_32 += covered_by_32(missed, recorded, p->n);
        if (isnan(v.low)) {
            ck_assert_ptr_nonnull(v.reason);
            continue;
        }
        ck_assert(v.low <= v.estimate && v.estimate <= v.high);
        told++;
        held += v.low <= 0.2 && 0.2 <= v.high;
        sum += v.high - v.low;
    }
    ck_assert_uint_gt(told, TIMES * 9 / 10);
    *ours = (double)held / told;
    *of_32 = (double)held_by_32 / TIMES;
    *width = sum / told;
    free(missed);
    free(recorded);
}

/* The worst case is the last but one: half of what 653 rows hold is memory. */
static const struct process processes[] = {
    {"independent", {{1, 0}}, 253, 0.93},
    {"independent", {{1, 0}}, 653, 0.93},
    {"5 rows", {{1, 5}}, 253, 0.93},
    {"5 rows", {{1, 5}}, 653, 0.93},
    {"20 rows", {{1, 20}}, 253, 0.93},
    {"20 rows", {{1, 20}}, 653, 0.93},
    {"57 rows", {{1, 57}}, 653, 0.92},
    {"57 rows", {{1, 57}}, 2000, 0.93},
    {"as real rows", {{0.607, 200}, {0.26, 20}, {0.133, 0}}, 653, 0.87},
    {"as real rows", {{0.607, 200}, {0.26, 20}, {0.133, 0}}, 2000, 0.92},
};

START_TEST(the_truth_is_held_as_often_as_said)
{
    for (size_t i = 0; i < sizeof processes / sizeof processes[0]; i++) {
        const struct process *p = &processes[i];
        double ours, of_32, width;
        coverage(&ours, &of_32, &width, p);
        printf("%-14s %4u rows: holds %.3f, width %.4f; blocks of 32 %.3f\n",
               p->name, p->n, ours, width, of_32);
        ck_assert_msg(ours >= p->least,
                      "%s, %u rows: holds in %.3f, at least "
                      "%.3f",
                      p->name, p->n, ours, p->least);
        /* and no wider than it must be where rows are independent */
        if (p->part[0].rows == 0)
            ck_assert_double_le(width, 1.1 * 2 * 1.96 * 0.02 / sqrt(p->n));
    }
}
END_TEST

/* Two rules that differ by little in the same rows: paired, it shows. */
START_TEST(a_difference_is_paired)
{
    const struct process *p = &processes[5];
    double *missed = calloc(p->n, sizeof *missed);
    double *recorded = calloc(p->n, sizeof *recorded);
    double *other = calloc(p->n, sizeof *other);
    struct kvr_interval a, b, d;

    draw(missed, recorded, p, 1);
    for (uint32_t t = 0; t < p->n; t++)
        other[t] = missed[t] + 0.05 + 0.2 * normal(t, 9, 9);
    must(kvr_interval_of(&a, missed, NULL, recorded, p->n, &err));
    must(kvr_interval_of(&b, other, NULL, recorded, p->n, &err));
    must(kvr_interval_of(&d, missed, other, recorded, p->n, &err));
    ck_assert(b.low < a.high && a.low < b.high); /* apart: no word */
    ck_assert(kvr_interval_tells(&d) && d.high < 0);
    must(kvr_interval_of(&d, missed, missed, recorded, p->n, &err));
    ck_assert(d.low == 0 && d.high == 0 && !kvr_interval_tells(&d));
    for (uint32_t t = 0; t < p->n; t++) /* the same up to noise */
        other[t] = missed[t] + 0.2 * normal(t, 9, 9);
    must(kvr_interval_of(&d, missed, other, recorded, p->n, &err));
    ck_assert(!kvr_interval_tells(&d));
    free(missed);
    free(recorded);
    free(other);
}
END_TEST

START_TEST(what_cannot_be_told_is_said)
{
    double missed[300], recorded[300];
    struct kvr_interval v;

    for (uint32_t t = 0; t < 300; t++) { /* a trend has no blocks */
        recorded[t] = 1;
        missed[t] = t / 1000.0;
    }
    must(kvr_interval_of(&v, missed, NULL, recorded, 7, &err));
    ck_assert(isnan(v.low) && isnan(v.high));
    ck_assert_str_eq(v.reason, "cannot tell: fewer than 8 rows");
    must(kvr_interval_of(&v, missed, NULL, recorded, 300, &err));
    ck_assert(isnan(v.low) || (v.low <= v.estimate && v.estimate <= v.high));
    memset(recorded, 0, sizeof recorded);
    must(kvr_interval_of(&v, missed, NULL, recorded, 300, &err));
    ck_assert(isnan(v.estimate) && isnan(v.low));
    for (uint32_t t = 0; t < 300; t++) {
        recorded[t] = 2;
        missed[t] = 1;
    }
    must(kvr_interval_of(&v, missed, NULL, recorded, 300, &err));
    ck_assert(v.low == 0.5 && v.high == 0.5);
}
END_TEST

KVR_SUITE("interval", the_truth_is_held_as_often_as_said,
          a_difference_is_paired, what_cannot_be_told_is_said)
