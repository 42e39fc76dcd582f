/* cpu_kernels.c -- dot products and activations.
 *
 * Dot products with stored rows are written twice, plainly and for AVX2; the
 * loops over activations once, compiled for both.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cpu_kernels.h"

#include "block.h"
#include "kvr_isa.h"
#include "kvr_softmax.h"

#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* A dot product keeps 32 sums, sum j over the values j, j + 32, ..., and adds
 * them in one order, so that both versions give the same bits. */
enum { LANES = 32 };

static float sum_lanes(const float acc[LANES])
{
    float s[8];

    for (int j = 0; j < 8; j++)
        s[j] = (acc[j] + acc[j + 8]) + (acc[j + 16] + acc[j + 24]);
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

static float dot_base(const float *a, const float *b, size_t n)
{
    float acc[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            acc[j] += a[i + j] * b[i + j];
    float sum = sum_lanes(acc);
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float dot_q4_1_base(const uint8_t *row, const float *x, size_t n)
{
    float acc[LANES] = {0};

    for (size_t i = 0; i < n; i += LANES, row += 20, x += LANES) {
        const float d = kvr_half_at(row), m = kvr_half_at(row + 2);
        for (int j = 0; j < LANES / 2; j++) {
            acc[j] += ((float)(row[4 + j] & 15) * d + m) * x[j];
            acc[j + 16] += ((float)(row[4 + j] >> 4) * d + m) * x[j + 16];
        }
    }
    return sum_lanes(acc);
}

static float dot_q8_0_base(const uint8_t *row, const float *x, size_t n)
{
    float acc[LANES] = {0};

    for (size_t i = 0; i < n; i += LANES, row += 34, x += LANES) {
        const float d = kvr_half_at(row);
        for (int j = 0; j < LANES; j++)
            acc[j] += (float)(int8_t)row[2 + j] * d * x[j];
    }
    return sum_lanes(acc);
}

#if defined(__x86_64__)
/* every processor with AVX2 that kvr_isa accepts has F16C and FMA */
#define AVX2 __attribute__((target("avx2,f16c,fma")))

/* sum_lanes, in registers. */
AVX2 static inline float sum_avx2(const __m256 acc[4])
{
    const __m256 s = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]),
                                   _mm256_add_ps(acc[2], acc[3]));
    const __m128 t =
        _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    const __m128 u = _mm_hadd_ps(t, t);

    return _mm_cvtss_f32(_mm_hadd_ps(u, u));
}

/* The two halves at `in`, as floats in the lowest places. */
AVX2 static inline __m128 two_halves(const uint8_t *in)
{
    int32_t pair;

    memcpy(&pair, in, sizeof pair);
    return _mm_cvtph_ps(_mm_cvtsi32_si128(pair));
}

AVX2 static float dot_avx2(const float *a, const float *b, size_t n)
{
    __m256 acc[4] = {{0}, {0}, {0}, {0}};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < 4; k++)
            acc[k] = _mm256_add_ps(
                acc[k], _mm256_mul_ps(_mm256_loadu_ps(a + i + 8 * k),
                                      _mm256_loadu_ps(b + i + 8 * k)));
    float sum = sum_avx2(acc);
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* acc + (q * d + m) * x[0..8). q * d, of 4 and 11 bits, is exact, so that one
 * rounding is as good as two. */
AVX2 static inline __m256 add_q4(__m256 acc, __m256i q, __m256 d, __m256 m,
                                 const float *x)
{
    const __m256 w = _mm256_fmadd_ps(_mm256_cvtepi32_ps(q), d, m);

    return _mm256_add_ps(acc, _mm256_mul_ps(w, _mm256_loadu_ps(x)));
}

/* Eight bytes as integers. */
AVX2 static inline __m256i widen(const uint8_t *in)
{
    return _mm256_cvtepu8_epi32(
        _mm_loadl_epi64((const __m128i *)(const void *)in));
}

AVX2 static float dot_q4_1_avx2(const uint8_t *row, const float *x, size_t n)
{
    const __m256i low = _mm256_set1_epi32(15);
    __m256 acc[4] = {{0}, {0}, {0}, {0}};

    for (size_t i = 0; i < n; i += LANES, row += 20, x += LANES) {
        const __m128 scales = two_halves(row);
        const __m256 d = _mm256_broadcastss_ps(scales);
        const __m256 m = _mm256_broadcastss_ps(_mm_movehdup_ps(scales));
        const __m256i a = widen(row + 4), b = widen(row + 12);
        acc[0] = add_q4(acc[0], _mm256_and_si256(a, low), d, m, x);
        acc[1] = add_q4(acc[1], _mm256_and_si256(b, low), d, m, x + 8);
        acc[2] = add_q4(acc[2], _mm256_srli_epi32(a, 4), d, m, x + 16);
        acc[3] = add_q4(acc[3], _mm256_srli_epi32(b, 4), d, m, x + 24);
    }
    return sum_avx2(acc);
}

AVX2 static float dot_q8_0_avx2(const uint8_t *row, const float *x, size_t n)
{
    __m256 acc[4] = {{0}, {0}, {0}, {0}};

    for (size_t i = 0; i < n; i += LANES, row += 34, x += LANES) {
        const __m256 d = _mm256_broadcastss_ps(two_halves(row));
        for (int k = 0; k < 4; k++) {
            const __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64(
                (const __m128i *)(const void *)(row + 2 + 8 * k)));
            const __m256 w = _mm256_mul_ps(_mm256_cvtepi32_ps(q), d);
            acc[k] = _mm256_add_ps(
                acc[k], _mm256_mul_ps(w, _mm256_loadu_ps(x + 8 * k)));
        }
    }
    return sum_avx2(acc);
}
#endif

/* x / (1 + exp(-y)), where y is far from overflow or its side is clear. */
INLINE float times_sigmoid(float x, float y)
{
    const float below = y < -88.0f ? -88.0f : y;
    const float bounded = below > 88.0f ? 88.0f : below;

    return x / (1.0f + kvr_exp(-bounded));
}

INLINE void silu(float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = times_sigmoid(x[i], x[i]);
}

/* x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3) is x times the
 * logistic function of 2 u. */
INLINE void gelu_tanh(float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float v = x[i];
        x[i] =
            times_sigmoid(v, 1.5957691216057308f * (v + 0.044715f * v * v * v));
    }
}

INLINE void gelu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = 0.5f * x[i] * erfcf(-0.70710678118654752f * x[i]);
}

INLINE void relu(float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < 0.0f ? 0.0f : x[i]; /* NaN stays */
}

INLINE void activate(float *restrict gate, const float *restrict up, size_t n,
                     enum kvr_activation activation)
{
    switch (activation) {
    case KVR_SILU:
        silu(gate, n);
        break;
    case KVR_GELU:
        gelu(gate, n);
        break;
    case KVR_GELU_TANH:
        gelu_tanh(gate, n);
        break;
    case KVR_RELU:
        relu(gate, n);
        break;
    case KVR_N_ACTIVATION:
        break;
    }
    if (up == NULL)
        return;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        gate[i] *= up[i];
}

/* tanh by its series where it is nearly a line, else by exp(-2 |x|). */
INLINE void soft_cap(float *row, size_t n, float cap)
{
    const float factor = 1.0f / cap;

#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float x = row[i] * factor, size = fabsf(x), s = x * x;
        const float t = kvr_exp(-2.0f * size);
        const float far = copysignf((1.0f - t) / (1.0f + t), x);
        const float near =
            x +
            x * s *
                (-0.333333333f +
                 s * (0.133333333f - s * (0.0539682540f - s * 0.0218694885f)));
        row[i] = cap * (size < 0.25f ? near : far);
    }
}

#define VARIANT(isa, target) \
    target static void activate_##isa(float *gate, const float *up, size_t n, \
                                      enum kvr_activation activation) \
    { \
        activate(gate, up, n, activation); \
    } \
    target static void soft_cap_##isa(float *row, size_t n, float cap) \
    { \
        soft_cap(row, n, cap); \
    } \
    static const struct kvr_cpu_kernels isa##_kernels = { \
        .dot = dot_##isa, \
        .dot_q4_1 = dot_q4_1_##isa, \
        .dot_q8_0 = dot_q8_0_##isa, \
        .activate = activate_##isa, \
        .soft_cap = soft_cap_##isa, \
    };

VARIANT(base, )
#if defined(__x86_64__)
VARIANT(avx2, AVX2)
#endif

const struct kvr_cpu_kernels *kvr__cpu_kernels(void)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2)
        return &avx2_kernels;
#endif
    return &base_kernels;
}
