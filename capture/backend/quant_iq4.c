/* quant_iq4.c -- stored types whose four bits choose one of 16 uneven values.
 *
 * IQ4_NL: f16 d, nibbles [16]; a value is d * values[q]. IQ4_XS: blocks of 256
 * with f16 d, the upper two bits of eight six-bit scales as a 16-bit word,
 * their lower four bits [4], nibbles [128]. In 16 bytes the low nibbles are
 * the first 16 values, the high ones the next. All products are exact.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "quant_private.h"

static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

KVR_INLINE void group(float *restrict out, const uint8_t *restrict q, float d)
{
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)values[q[j] & 15];
        out[j + 16] = d * (float)values[q[j] >> 4];
    }
}

KVR_INLINE void iq4_nl(float *restrict out, const uint8_t *restrict in,
                       size_t n)
{
    for (size_t b = 0; b < n / 32; b++, in += 18, out += 32)
        group(out, in + 2, kvr_half_at(in));
}
KVR_EXPAND(iq4_nl)

KVR_INLINE void iq4_xs(float *restrict out, const uint8_t *restrict in,
                       size_t n)
{
    for (size_t b = 0; b < n / 256; b++, in += 136) {
        const float d = kvr_half_at(in);
        uint16_t upper;
        memcpy(&upper, in + 2, sizeof upper);
        for (int g = 0; g < 8; g++, out += 32) {
            const int low = in[4 + g / 2] >> g % 2 * 4 & 15;
            const int scale = (low | (upper >> 2 * g & 3) << 4) - 32;
            group(out, in + 8 + 16 * g, d * (float)scale);
        }
    }
}
KVR_EXPAND(iq4_xs)
