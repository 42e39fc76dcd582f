/* concentration.c -- Gini, shares, effective support.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_concentration.h"

#include <math.h>
#include <stdlib.h>

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void kvr_sort_values(double *values, size_t n)
{
    if (n > 1)
        qsort(values, n, sizeof *values, rising);
}

double kvr_gini(const double *sorted, size_t n)
{
    double sum = 0, weighted = 0;

    for (size_t i = 0; i < n; i++) {
        sum += sorted[i];
        weighted += (2 * ((double)i + 1) - (double)n - 1) * sorted[i];
    }
    return sum > 0 ? weighted / ((double)n * sum) : NAN;
}

double kvr_top_share(const double *sorted, size_t n, double q)
{
    /* ceil(q n), where the product may come out just above an integer. */
    const double exact = q * (double)n, near = floor(exact + 0.5);
    const size_t k = (size_t)(fabs(exact - near) < 1e-9 ? near : ceil(exact));
    double sum = 0, top = 0;

    for (size_t i = 0; i < n; i++) {
        sum += sorted[i];
        if (i + k >= n)
            top += sorted[i];
    }
    return sum > 0 ? top / sum : NAN;
}

double kvr_effective_support(const float *weight, size_t n)
{
    double sum = 0, logs = 0;

    /* With p = a / sum: -sum p ln p = ln sum - (sum a ln a) / sum. */
    for (size_t i = 0; i < n; i++) {
        const double a = (double)weight[i];
        sum += a;
        if (a > 0)
            logs += a * log(a);
    }
    return sum > 0 ? exp(log(sum) - logs / sum) : NAN;
}
