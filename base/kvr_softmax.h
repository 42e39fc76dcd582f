/* kvr_softmax.h -- exp and softmax over floats, with the same bits from every
 * instruction set.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_SOFTMAX_H
#define KVR_SOFTMAX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* exp for x <= 88, within 2 units in the last place: x = n ln 2 + r, a
 * polynomial for exp(r) (coefficients of Cephes' expf), times 2^n. Below
 * -87.3 the result, a subnormal, is taken as 0. NaN stays NaN. Here so that
 * loops over it become vector code. */
static inline float kvr_exp(float x)
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
    /* no shift of a negative, and a NaN is no int */
    const float safe = x >= -87.3f ? n : -126.0f;
    const int32_t bits = (int32_t)((uint32_t)((int32_t)safe + 127) << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.3f ? 0.0f : p * power;
}

/* In place, n > 0. Returns the log of the sum of exp(row); NaN if the largest
 * is not finite, with the row as it was. *mass (may be NULL): the sum of the
 * result. */
double kvr_softmax(float *row, size_t n, float *mass);

/* Sum of exp(x - *max) with *max the largest; n > 0. */
double kvr_sum_exp(const float *x, size_t n, float *max);

#ifdef __cplusplus
}
#endif

#endif
