/* cuda_bf16.h -- bfloat16 for the emulation: storage and exact conversions,
 * to nearest even.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_CUDA_BF16_H
#define SIMT_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short simt_bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return {bits};
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.simt_bits;
}

inline float __bfloat162float(__nv_bfloat16 value)
{
    return __uint_as_float((unsigned)value.simt_bits << 16);
}

inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    const unsigned bits = __float_as_uint(value);

    if (std::isnan(value))
        return {0x7fff};
    return {(unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

#endif
