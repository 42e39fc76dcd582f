/* softmax.c -- the softmax of rows, as they are made and made again.
 *
 * Sums run in 16 lanes (lane = position mod 16) that are added in one order,
 * and nothing is contracted: every instruction set gives the same bits.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_softmax.h"

#include "kvr_isa.h"

#include <math.h>

enum { LANES = 16 };

#define INLINE static inline __attribute__((always_inline))

INLINE float max_of(const float *x, size_t n)
{
    float max = x[0];

#pragma omp simd reduction(max : max)
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

INLINE double add_lanes(double lane[LANES])
{
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

INLINE double sum_of(const float *x, size_t n)
{
    double lane[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j];
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += (double)x[i];
    return add_lanes(lane);
}

INLINE double softmax(float *row, size_t n, float *mass)
{
    const float max = max_of(row, n);

    if (!isfinite(max))
        return NAN;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        row[i] = kvr_exp(row[i] - max);
    const double sum = sum_of(row, n);
    const float factor = (float)(1.0 / sum);
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        row[i] *= factor;
    if (mass != NULL)
        *mass = (float)sum_of(row, n);
    return (double)max + log(sum);
}

INLINE double sum_exp(const float *x, size_t n, float *max_out)
{
    const float max = max_of(x, n);
    double lane[LANES] = {0};
    size_t i = 0;

    *max_out = max;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)kvr_exp(x[i + j] - max);
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += (double)kvr_exp(x[i] - max);
    return add_lanes(lane);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static double softmax_avx2(float *row, size_t n,
                                                           float *mass)
{
    return softmax(row, n, mass);
}

__attribute__((target("avx2"))) static double sum_exp_avx2(const float *x,
                                                           size_t n, float *max)
{
    return sum_exp(x, n, max);
}
#endif

double kvr_softmax(float *row, size_t n, float *mass)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2)
        return softmax_avx2(row, n, mass);
#endif
    return softmax(row, n, mass);
}

double kvr_sum_exp(const float *x, size_t n, float *max)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2)
        return sum_exp_avx2(x, n, max);
#endif
    return sum_exp(x, n, max);
}
