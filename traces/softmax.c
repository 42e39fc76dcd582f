/* softmax.c -- the softmax of rows that are recomputed, and the rounding of
 * f32 rows.
 *
 * Sums run in 16 lanes (lane = position mod 16) that are added in one order,
 * and nothing is contracted: every instruction set gives the same bits.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader.h"

#include "kvr_isa.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

#define INLINE static inline __attribute__((always_inline))

/* exp for x <= 0, within 2 units in the last place: x = n ln 2 + r, a
 * polynomial for exp(r) (coefficients of Cephes' expf), times 2^n. Below
 * -87.3 the result, a subnormal, is taken as 0. NaN stays NaN. */
INLINE float exp_of(float x)
{
    const float n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;

    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    const float safe = x < -87.3f ? -126.0f : n; /* no shift of a negative */
    const int32_t bits = (int32_t)((uint32_t)((int32_t)safe + 127) << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.3f ? 0.0f : p * power;
}

INLINE float max_of(const float *x, size_t n)
{
    float max = x[0];

#pragma omp simd reduction(max : max)
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
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
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

INLINE double softmax(float *row, size_t n)
{
    const float max = max_of(row, n);

    if (!isfinite(max))
        return NAN;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        row[i] = exp_of(row[i] - max);
    const double sum = sum_of(row, n);
    const float factor = (float)(1.0 / sum);
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        row[i] *= factor;
    return (double)max + log(sum);
}

/* To multiples of 2^-30, so that sums in doubles are exact. Adding and taking
 * away 2^23 rounds to even; from 2^23 on a float is whole already. */
INLINE void round_f32(float *value, uint32_t n)
{
#pragma omp simd
    for (uint32_t i = 0; i < n; i++) {
        const float scaled = value[i] * 0x1p30f;
        const float whole = (scaled + 0x1p23f) - 0x1p23f;
        value[i] = (scaled < 0x1p23f ? whole : scaled) * 0x1p-30f;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static double softmax_avx2(float *row, size_t n)
{
    return softmax(row, n);
}

__attribute__((target("avx2"))) static void round_avx2(float *value, uint32_t n)
{
    round_f32(value, n);
}
#endif

double kvr__softmax(float *row, size_t n)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2)
        return softmax_avx2(row, n);
#endif
    return softmax(row, n);
}

void kvr__round_f32(float *value, uint32_t n)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2) {
        round_avx2(value, n);
        return;
    }
#endif
    round_f32(value, n);
}
