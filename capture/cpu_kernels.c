/* cpu_kernels.c -- dot products, softmax and SiLU, eight lanes at a time.
 *
 * Each body is written once over vectors of eight floats and compiled for the
 * plain instruction set and for AVX2; the order of the sums is the same.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cpu_kernels.h"

#include "kvr_half.h"
#include "kvr_isa.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint8_t v8b __attribute__((vector_size(8)));
typedef int8_t v8c __attribute__((vector_size(8)));

INLINE void load(v8 *out, const float *in)
{
    memcpy(out, in, sizeof *out);
}

INLINE float sum_lanes(const v8 *acc)
{
    const v8 s = (acc[0] + acc[1]) + (acc[2] + acc[3]);

    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

INLINE float dot(const float *a, const float *b, size_t n)
{
    v8 acc[4] = {{0}}, x, y;
    size_t i = 0;

    for (; i + 32 <= n; i += 32)
        for (int k = 0; k < 4; k++) {
            load(&x, a + i + 8 * k);
            load(&y, b + i + 8 * k);
            acc[k] += x * y;
        }
    float sum = sum_lanes(acc);
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

INLINE float half_at(const uint8_t *in)
{
    uint16_t half;

    memcpy(&half, in, sizeof half);
    return kvr_f16_to_f32(half);
}

INLINE void add_q4(v8 *acc, v8b q, float d, float m, const float *x)
{
    v8 y;

    load(&y, x);
    *acc +=
        (__builtin_convertvector(__builtin_convertvector(q, v8i), v8) * d + m) *
        y;
}

INLINE float dot_q4_1(const uint8_t *row, const float *x, size_t n)
{
    v8 acc[4] = {{0}};
    v8b q[2];

    for (size_t i = 0; i < n; i += 32, row += 20, x += 32) {
        const float d = half_at(row), m = half_at(row + 2);
        memcpy(q, row + 4, sizeof q);
        add_q4(&acc[0], q[0] & 15, d, m, x);
        add_q4(&acc[1], q[1] & 15, d, m, x + 8);
        add_q4(&acc[2], q[0] >> 4, d, m, x + 16);
        add_q4(&acc[3], q[1] >> 4, d, m, x + 24);
    }
    return sum_lanes(acc);
}

INLINE float dot_q8_0(const uint8_t *row, const float *x, size_t n)
{
    v8 acc[4] = {{0}}, y;
    v8c q[4];

    for (size_t i = 0; i < n; i += 32, row += 34, x += 32) {
        const float d = half_at(row);
        memcpy(q, row + 2, sizeof q);
        for (int k = 0; k < 4; k++) {
            load(&y, x + 8 * k);
            acc[k] += __builtin_convertvector(
                          __builtin_convertvector(q[k], v8i), v8) *
                      d * y;
        }
    }
    return sum_lanes(acc);
}

/* exp for x <= 88, within 2 units in the last place: x = n ln 2 + r, a
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

INLINE float softmax(float *row, size_t n, float *mass)
{
    const float max = max_of(row, n);
    double sum = 0, total = 0;

    if (!isfinite(max))
        return NAN;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) {
        row[i] = exp_of(row[i] - max);
        sum += (double)row[i];
    }
    const float factor = (float)(1.0 / sum);
#pragma omp simd reduction(+ : total)
    for (size_t i = 0; i < n; i++) {
        row[i] *= factor;
        total += (double)row[i];
    }
    *mass = (float)total;
    return (float)((double)max + log(sum));
}

INLINE double sum_exp(const float *x, size_t n, float *max_out)
{
    const float max = max_of(x, n);
    double sum = 0;

    *max_out = max;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += (double)exp_of(x[i] - max);
    return sum;
}

INLINE void silu_mul(float *restrict gate, const float *restrict up, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float x = gate[i];
        const float below = x < -88.0f ? -88.0f : x; /* exp stays finite */
        const float bounded = below > 88.0f ? 88.0f : below;
        gate[i] = x / (1.0f + exp_of(-bounded)) * up[i];
    }
}

#define VARIANT(isa, target) \
    target static float dot_##isa(const float *a, const float *b, size_t n) \
    { \
        return dot(a, b, n); \
    } \
    target static float dot_q4_1_##isa(const uint8_t *row, const float *x, \
                                       size_t n) \
    { \
        return dot_q4_1(row, x, n); \
    } \
    target static float dot_q8_0_##isa(const uint8_t *row, const float *x, \
                                       size_t n) \
    { \
        return dot_q8_0(row, x, n); \
    } \
    target static float softmax_##isa(float *row, size_t n, float *mass) \
    { \
        return softmax(row, n, mass); \
    } \
    target static double sum_exp_##isa(const float *x, size_t n, float *max) \
    { \
        return sum_exp(x, n, max); \
    } \
    target static void silu_mul_##isa(float *gate, const float *up, size_t n) \
    { \
        silu_mul(gate, up, n); \
    } \
    static const struct kvr_cpu_kernels isa##_kernels = { \
        .dot = dot_##isa, \
        .dot_q4_1 = dot_q4_1_##isa, \
        .dot_q8_0 = dot_q8_0_##isa, \
        .softmax = softmax_##isa, \
        .sum_exp = sum_exp_##isa, \
        .silu_mul = silu_mul_##isa, \
    };

VARIANT(base, )
#if defined(__x86_64__)
VARIANT(avx2, __attribute__((target("avx2"))))
#endif

const struct kvr_cpu_kernels *kvr_cpu_kernels(void)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2)
        return &avx2_kernels;
#endif
    return &base_kernels;
}
