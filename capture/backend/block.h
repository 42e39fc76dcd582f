/* block.h -- the half-precision scales inside quantised blocks.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef BLOCK_H
#define BLOCK_H

#include <stdint.h>
#include <string.h>

/* kvr_f16_to_f32 of the two bytes at `in`, small enough to be inlined into
 * loops over blocks: exponent and mantissa are moved into place and the
 * exponent's bias is put right by an exact product, subnormals included. */
static inline __attribute__((always_inline)) float
kvr_half_at(const uint8_t *in)
{
    uint16_t half;
    uint32_t bits;
    float value;

    memcpy(&half, in, sizeof half);
    bits = (uint32_t)(half & 0x7fffu) << 13;
    memcpy(&value, &bits, sizeof value);
    value *= 0x1p112f;
    memcpy(&bits, &value, sizeof bits);
    if ((half & 0x7c00u) == 0x7c00u) /* infinity or NaN */
        bits = 0x7f800000u | (uint32_t)(half & 0x3ffu) << 13;
    bits |= (uint32_t)(half & 0x8000u) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
