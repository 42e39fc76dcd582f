/* kvr_concentration.h -- how unevenly a total is spread.
 *
 * Values are >= 0, finite, and sorted in rising order (kvr_sort_values).
 * Results are NaN where the sum is 0 or there are no values.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CONCENTRATION_H
#define KVR_CONCENTRATION_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

void kvr_sort_values(double *values, size_t n);

/* sum of (2i - n - 1) x_(i) over n times the sum, i = 1..n: 0 even, 1 - 1/n
 * all in one. */
double kvr_gini(const double *sorted, size_t n);

/* Share of the ceil(q n) largest, 0 < q <= 1. */
double kvr_top_share(const double *sorted, size_t n, double q);

/* exp of the entropy of weight[0..n) divided by its sum: as many values, if
 * equal, would have it. Need not be sorted. */
double kvr_effective_support(const float *weight, size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
