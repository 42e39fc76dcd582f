/* quant_32.c -- stored types with blocks of 32 values.
 *
 * A block begins with an f16 scale d, in the _1 types followed by an f16
 * offset m. In the four- and five-bit types byte j of 16 holds value j in its
 * low and value j + 16 in its high nibble; a fifth bit is bit j of a 32-bit
 * mask in front of them. A value is d * q + m, in the _0 types d * (q - half
 * the range). d * q fits a float exactly, so the one rounding is that of the
 * sum, with or without fused multiply-add.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "quant_private.h"

enum { BLOCK = 32, HALF = BLOCK / 2 };

KVR_INLINE void q4_0(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += 18, out += BLOCK) {
        const float d = kvr_half_at(in);
        for (int j = 0; j < HALF; j++) {
            out[j] = (float)((in[2 + j] & 15) - 8) * d;
            out[j + HALF] = (float)((in[2 + j] >> 4) - 8) * d;
        }
    }
}
KVR_EXPAND(q4_0)

KVR_INLINE void q4_1(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += 20, out += BLOCK) {
        const float d = kvr_half_at(in), m = kvr_half_at(in + 2);
        for (int j = 0; j < HALF; j++) {
            out[j] = (float)(in[4 + j] & 15) * d + m;
            out[j + HALF] = (float)(in[4 + j] >> 4) * d + m;
        }
    }
}
KVR_EXPAND(q4_1)

/* The 32 quants of a five-bit block: mask, then nibbles. */
KVR_INLINE void five_bits(int q[BLOCK], const uint8_t *in)
{
    uint32_t mask;

    memcpy(&mask, in, sizeof mask);
    for (int j = 0; j < HALF; j++) {
        q[j] = (in[4 + j] & 15) | (int)(mask >> j & 1) << 4;
        q[j + HALF] = in[4 + j] >> 4 | (int)(mask >> (j + HALF) & 1) << 4;
    }
}

KVR_INLINE void q5_0(float *restrict out, const uint8_t *restrict in, size_t n)
{
    int q[BLOCK];

    for (size_t b = 0; b < n / BLOCK; b++, in += 22, out += BLOCK) {
        const float d = kvr_half_at(in);
        five_bits(q, in + 2);
        for (int j = 0; j < BLOCK; j++)
            out[j] = (float)(q[j] - 16) * d;
    }
}
KVR_EXPAND(q5_0)

KVR_INLINE void q5_1(float *restrict out, const uint8_t *restrict in, size_t n)
{
    int q[BLOCK];

    for (size_t b = 0; b < n / BLOCK; b++, in += 24, out += BLOCK) {
        const float d = kvr_half_at(in), m = kvr_half_at(in + 2);
        five_bits(q, in + 4);
        for (int j = 0; j < BLOCK; j++)
            out[j] = (float)q[j] * d + m;
    }
}
KVR_EXPAND(q5_1)

KVR_INLINE void q8_0(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += 34, out += BLOCK) {
        const float d = kvr_half_at(in);
        for (int j = 0; j < BLOCK; j++)
            out[j] = (float)(int8_t)in[2 + j] * d;
    }
}
KVR_EXPAND(q8_0)
