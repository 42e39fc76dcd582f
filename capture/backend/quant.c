/* quant.c -- the table of tensor types, and those that are not quantised.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "quant.h"

#include "kvr_half.h"
#include "quant_private.h"

#include <stdio.h>
#include <string.h>

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

static const struct kvr_quant_row table[] = {
    {KVR_QUANT_F32, "F32", 1, 4, expand_f32},
    {KVR_QUANT_F16, "F16", 1, 2, expand_f16},
    {2, "Q4_0", 32, 18, kvr__expand_q4_0},
    {KVR_QUANT_Q4_1, "Q4_1", 32, 20, kvr__expand_q4_1},
    {6, "Q5_0", 32, 22, kvr__expand_q5_0},
    {7, "Q5_1", 32, 24, kvr__expand_q5_1},
    {KVR_QUANT_Q8_0, "Q8_0", 32, 34, kvr__expand_q8_0},
    {9, "Q8_1", 32, 36, NULL},
    {10, "Q2_K", 256, 84, kvr__expand_q2_k},
    {11, "Q3_K", 256, 110, kvr__expand_q3_k},
    {12, "Q4_K", 256, 144, kvr__expand_q4_k},
    {13, "Q5_K", 256, 176, kvr__expand_q5_k},
    {14, "Q6_K", 256, 210, kvr__expand_q6_k},
    {15, "Q8_K", 256, 292, NULL},
    {16, "IQ2_XXS", 256, 66, NULL},
    {17, "IQ2_XS", 256, 74, NULL},
    {18, "IQ3_XXS", 256, 98, NULL},
    {19, "IQ1_S", 256, 50, NULL},
    {20, "IQ4_NL", 32, 18, kvr__expand_iq4_nl},
    {21, "IQ3_S", 256, 110, NULL},
    {22, "IQ2_S", 256, 82, NULL},
    {23, "IQ4_XS", 256, 136, kvr__expand_iq4_xs},
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

const struct kvr_quant_row *kvr__quant_find(uint32_t type)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].type == type)
            return &table[i];
    return NULL;
}

void kvr__quant_list(char *out, size_t size)
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
