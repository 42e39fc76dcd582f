/* half.c -- half precision, in integers and with F16C.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_half.h"

#include "kvr_isa.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static float from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float kvr_f16_to_f32(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu, rest = half & 0x3ffu;

    if (exponent == 0x1f)
        return from_bits(sign | 0x7f800000u | rest << 13);
    if (exponent != 0)
        return from_bits(sign | (exponent + 112) << 23 | rest << 13);
    const float tiny = (float)rest * 0x1p-24f;
    return sign != 0 ? -tiny : tiny;
}

float kvr_bf16_to_f32(uint16_t half)
{
    return from_bits((uint32_t)half << 16);
}

/* Drops `shift` low bits of m, to nearest, ties to even. */
static uint32_t round_off(uint32_t m, uint32_t shift)
{
    const uint32_t half = 1u << (shift - 1), odd = (m >> shift) & 1u;

    return (m + half - 1 + odd) >> shift;
}

uint16_t kvr_f32_to_f16(float value)
{
    const uint32_t bits = to_bits(value), sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x47800000u) /* 65536 and more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) /* normal: from 2^-14 */
        return (uint16_t)(sign | (round_off(magnitude, 13) - (112u << 10)));
    if (magnitude < 0x33000000u) /* below 2^-25 */
        return (uint16_t)sign;
    const uint32_t shift = 126u - (magnitude >> 23);
    const uint32_t m = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | round_off(m, shift));
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static size_t
widen(float *out, const uint16_t *in, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                      (const __m128i *)(in + i))));
    return i;
}

__attribute__((target("avx,f16c"))) static size_t
narrow(uint16_t *out, const float *in, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), 0));
    return i;
}
#endif

void kvr_f16_to_f32_n(float *out, const uint16_t *in, size_t n)
{
    size_t i = 0;

#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2)
        i = widen(out, in, n);
#endif
    for (; i < n; i++)
        out[i] = kvr_f16_to_f32(in[i]);
}

void kvr_f32_to_f16_n(uint16_t *out, const float *in, size_t n)
{
    size_t i = 0;

#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2)
        i = narrow(out, in, n);
#endif
    for (; i < n; i++)
        out[i] = kvr_f32_to_f16(in[i]);
}
