/* quant_k.c -- stored types with blocks of 256 values and scaled groups.
 *
 * A block has an f16 scale d (Q2_K, Q4_K, Q5_K also an f16 dmin), and each of
 * its groups a small integer scale s (and minimum m). A value is
 * (d * s) * q - dmin * m. d * s * q has at most 24 significant bits, and
 * dmin * m at most 17, so again one rounding decides the value.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "quant_private.h"

enum { BLOCK = 256 };

/* 16 groups of 16: a byte with the scale in its low and the minimum in its
 * high nibble each [16], two-bit quants [64], d, dmin. Each half block of 128
 * has 32 bytes of quants, whose bit pairs are four runs of 32 values. */
KVR_INLINE void q2_k(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += 84) {
        const float d = kvr_half_at(in + 80), dmin = kvr_half_at(in + 82);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *q = in + 16 + g / 8 * 32 + g % 2 * 16;
            const int shift = g % 8 / 2 * 2;
            const float scale = d * (float)(in[g] & 15);
            const float minimum = dmin * (float)(in[g] >> 4);
            for (int j = 0; j < 16; j++)
                out[j] = scale * (float)(q[j] >> shift & 3) - minimum;
        }
    }
}
KVR_EXPAND_PLAIN(q2_k) /* half as quick when compiled for AVX2 */

/* Scale of group g in Q3_K's 12 bytes: the low four bits of groups 0 to 7 are
 * the low nibbles of bytes 0 to 7, those of 8 to 15 their high nibbles; the
 * upper two bits stand in bytes 8 to 11. */
KVR_INLINE int scale_q3(const uint8_t *s, int g)
{
    const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;

    return (low | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32;
}

/* Groups and runs as in Q2_K: high bits [32], quants [64], scales [12], d.
 * The high bit of value j of run r is bit r of byte j; 0 means minus 4. */
KVR_INLINE void q3_k(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += 110) {
        const float d = kvr_half_at(in + 108);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *high = in + g % 2 * 16;
            const uint8_t *q = in + 32 + g / 8 * 32 + g % 2 * 16;
            const int shift = g % 8 / 2 * 2;
            const float scale = d * (float)scale_q3(in + 96, g);
            for (int j = 0; j < 16; j++) {
                const int bit = high[j] >> g / 2 & 1;
                out[j] = scale * (float)((q[j] >> shift & 3) + 4 * bit - 4);
            }
        }
    }
}
KVR_EXPAND_PLAIN(q3_k) /* likewise */

/* Six-bit scale and minimum of group g of 8 in the 12 bytes of Q4_K and Q5_K:
 * groups 0 to 3 in the low six bits of bytes 0 to 3 and 4 to 7, groups 4 to 7
 * in the nibbles of bytes 8 to 11 with the left-over upper two bits. */
KVR_INLINE void scales_q4(float *scale, float *minimum, const uint8_t *s, int g,
                          float d, float dmin)
{
    const int a = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    const int m = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;

    *scale = d * (float)a;
    *minimum = dmin * (float)m;
}

/* d, dmin, scales [12], nibbles [128]: 32 bytes hold group 2i in their low
 * and group 2i + 1 in their high nibbles. */
KVR_INLINE void q4_k(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += 144) {
        const float d = kvr_half_at(in), dmin = kvr_half_at(in + 2);
        for (int g = 0; g < 8; g++, out += 32) {
            const uint8_t *q = in + 16 + g / 2 * 32;
            const int shift = g % 2 * 4;
            float scale, minimum;
            scales_q4(&scale, &minimum, in + 4, g, d, dmin);
            for (int j = 0; j < 32; j++)
                out[j] = scale * (float)(q[j] >> shift & 15) - minimum;
        }
    }
}
KVR_EXPAND(q4_k)

/* As Q4_K with fifth bits [32] before the nibbles: bit g of byte j. */
KVR_INLINE void q5_k(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += 176) {
        const float d = kvr_half_at(in), dmin = kvr_half_at(in + 2);
        for (int g = 0; g < 8; g++, out += 32) {
            const uint8_t *high = in + 16, *q = in + 48 + g / 2 * 32;
            const int shift = g % 2 * 4;
            float scale, minimum;
            scales_q4(&scale, &minimum, in + 4, g, d, dmin);
            for (int j = 0; j < 32; j++) {
                const int bits = (q[j] >> shift & 15) | (high[j] >> g & 1) << 4;
                out[j] = scale * (float)bits - minimum;
            }
        }
    }
}
KVR_EXPAND(q5_k)

/* Low nibbles [128], upper bit pairs [64], signed scales [16], d. Each half
 * block has four runs of 32 values: low nibbles of 32 bytes, of the next 32,
 * high nibbles of both; the bit pairs of its 32 bytes in the same order. */
KVR_INLINE void q6_k(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += 210) {
        const float d = kvr_half_at(in + 208);
        for (int g = 0; g < 16; g++, out += 16) {
            const int run = g % 8 / 2, at = g % 2 * 16;
            const uint8_t *low = in + g / 8 * 64 + run % 2 * 32 + at;
            const uint8_t *high = in + 128 + g / 8 * 32 + at;
            const float scale = d * (float)(int8_t)in[192 + g];
            for (int j = 0; j < 16; j++) {
                const int bits = (low[j] >> run / 2 * 4 & 15) |
                                 (high[j] >> run * 2 & 3) << 4;
                out[j] = scale * (float)(bits - 32);
            }
        }
    }
}
KVR_EXPAND(q6_k)
