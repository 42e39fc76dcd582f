/* cuda_fp16.h -- binary16 for the emulation: storage and exact conversions,
 * to nearest even.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_CUDA_FP16_H
#define SIMT_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
    unsigned short simt_bits;
};

inline __half __ushort_as_half(unsigned short bits)
{
    return {bits};
}

inline unsigned short __half_as_ushort(__half value)
{
    return value.simt_bits;
}

inline float __half2float(__half value)
{
    const unsigned sign = (value.simt_bits & 0x8000u) << 16;
    const unsigned exponent = value.simt_bits >> 10 & 31;
    const unsigned mantissa = value.simt_bits & 0x3ffu;

    if (exponent == 31)
        return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) { /* a multiple of 2^-24 */
        const float size = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -size : size;
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

inline __half __float2half_rn(float value)
{
    const unsigned bits = __float_as_uint(value);
    const unsigned short sign = (unsigned short)(bits >> 16 & 0x8000u);
    const float size = std::fabs(value);

    if (std::isnan(value))
        return {0x7fff};
    if (size >= 65520.0f) /* half way to what would come after 65504 */
        return {(unsigned short)(sign | 0x7c00u)};
    if (size < 0x1p-14f) /* the default rounding is to nearest even */
        return {(unsigned short)(sign | (unsigned)std::nearbyint(
                                            std::ldexp(size, 24)))};
    const unsigned kept = (bits & 0x7fffffffu) - (112u << 23);
    const unsigned round = 0xfffu + (kept >> 13 & 1);
    return {(unsigned short)(sign | (kept + round) >> 13)};
}

inline __half __float2half(float value)
{
    return __float2half_rn(value);
}

#endif
