/* quant.c -- the table of tensor types, and their expansion.
 *
 * Q4_1: f16 scale d, f16 offset m, 16 bytes; byte j holds value j in its low
 * and value j + 16 in its high nibble; a value is d * q + m. Q8_0: f16 scale,
 * 32 signed bytes. d * q fits a float exactly, so the one rounding is that of
 * the sum, with or without fused multiply-add.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "quant.h"

#include "block.h"
#include "kvr_half.h"
#include "kvr_isa.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 32, Q4_1_BYTES = 20, Q8_0_BYTES = 34 };

static void expand_f32(float *out, const uint8_t *in, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}

static void expand_f16(float *out, const uint8_t *in, size_t n)
{
    uint16_t half[256];

    for (size_t i = 0; i < n; i += 256) {
        const size_t some = n - i < 256 ? n - i : 256;
        memcpy(half, in + 2 * i, 2 * some);
        kvr_f16_to_f32_n(out + i, half, some);
    }
}

static void expand_bf16(float *out, const uint8_t *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, in + 2 * i, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static inline __attribute__((always_inline)) void
q4_1(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += Q4_1_BYTES, out += BLOCK) {
        const float d = kvr_half_at(in), m = kvr_half_at(in + 2);
        for (int j = 0; j < BLOCK / 2; j++) {
            out[j] = (float)(in[4 + j] & 15) * d + m;
            out[j + BLOCK / 2] = (float)(in[4 + j] >> 4) * d + m;
        }
    }
}

static inline __attribute__((always_inline)) void
q8_0(float *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, in += Q8_0_BYTES, out += BLOCK) {
        const float d = kvr_half_at(in);
        for (int j = 0; j < BLOCK; j++)
            out[j] = (float)(int8_t)in[2 + j] * d;
    }
}

/* The same loops compiled for the wider registers where the processor has
 * them; the values are the same. */
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void
q4_1_avx2(float *out, const uint8_t *in, size_t n)
{
    q4_1(out, in, n);
}

__attribute__((target("avx2"))) static void
q8_0_avx2(float *out, const uint8_t *in, size_t n)
{
    q8_0(out, in, n);
}
#else
#define q4_1_avx2 q4_1
#define q8_0_avx2 q8_0
#endif

static void expand_q4_1(float *out, const uint8_t *in, size_t n)
{
    if (kvr_isa() >= KVR_ISA_AVX2)
        q4_1_avx2(out, in, n);
    else
        q4_1(out, in, n);
}

static void expand_q8_0(float *out, const uint8_t *in, size_t n)
{
    if (kvr_isa() >= KVR_ISA_AVX2)
        q8_0_avx2(out, in, n);
    else
        q8_0(out, in, n);
}

static const struct kvr_quant_row table[] = {
    {KVR_QUANT_F32, "F32", 1, 4, expand_f32},
    {KVR_QUANT_F16, "F16", 1, 2, expand_f16},
    {2, "Q4_0", 32, 18, NULL},
    {KVR_QUANT_Q4_1, "Q4_1", BLOCK, Q4_1_BYTES, expand_q4_1},
    {6, "Q5_0", 32, 22, NULL},
    {7, "Q5_1", 32, 24, NULL},
    {KVR_QUANT_Q8_0, "Q8_0", BLOCK, Q8_0_BYTES, expand_q8_0},
    {9, "Q8_1", 32, 36, NULL},
    {10, "Q2_K", 256, 84, NULL},
    {11, "Q3_K", 256, 110, NULL},
    {12, "Q4_K", 256, 144, NULL},
    {13, "Q5_K", 256, 176, NULL},
    {14, "Q6_K", 256, 210, NULL},
    {15, "Q8_K", 256, 292, NULL},
    {16, "IQ2_XXS", 256, 66, NULL},
    {17, "IQ2_XS", 256, 74, NULL},
    {18, "IQ3_XXS", 256, 98, NULL},
    {19, "IQ1_S", 256, 50, NULL},
    {20, "IQ4_NL", 32, 18, NULL},
    {21, "IQ3_S", 256, 110, NULL},
    {22, "IQ2_S", 256, 82, NULL},
    {23, "IQ4_XS", 256, 136, NULL},
    {24, "I8", 1, 1, NULL},
    {25, "I16", 1, 2, NULL},
    {26, "I32", 1, 4, NULL},
    {27, "I64", 1, 8, NULL},
    {28, "F64", 1, 8, NULL},
    {29, "IQ1_M", 256, 56, NULL},
    {KVR_QUANT_BF16, "BF16", 1, 2, expand_bf16},
    {34, "TQ1_0", 256, 54, NULL},
    {35, "TQ2_0", 256, 66, NULL},
    {39, "MXFP4", 32, 17, NULL},
};

const struct kvr_quant_row *kvr_quant_find(uint32_t type)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].type == type)
            return &table[i];
    return NULL;
}

void kvr_quant_list(char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].expand == NULL || used + 16 > size)
            continue;
        const int n = snprintf(out + used, size - used, "%s%s",
                               used > 0 ? " " : "", table[i].name);
        used += (size_t)n;
    }
}
