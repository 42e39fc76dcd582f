/* quant_private.h -- the expansions that the table of quant.c lists, and what
 * they share.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef QUANT_PRIVATE_H
#define QUANT_PRIVATE_H

#include "block.h"
#include "kvr_isa.h"
#include "quant.h"

#define KVR_INLINE static inline __attribute__((always_inline))

#define KVR_EXPAND_PLAIN(name) \
    void kvr__expand_##name(float *out, const uint8_t *in, size_t n) \
    { \
        name(out, in, n); \
    }

/* The same loop compiled for the wider registers where the processor has
 * them; the values are the same. */
#if defined(__x86_64__)
#define KVR_EXPAND(name) \
    __attribute__((target("avx2"))) static void name##_avx2( \
        float *out, const uint8_t *in, size_t n) \
    { \
        name(out, in, n); \
    } \
    void kvr__expand_##name(float *out, const uint8_t *in, size_t n) \
    { \
        if (kvr_isa() >= KVR_ISA_AVX2) \
            name##_avx2(out, in, n); \
        else \
            name(out, in, n); \
    }
#else
#define KVR_EXPAND(name) KVR_EXPAND_PLAIN(name)
#endif

/* quant_k.c: blocks of 256 */
void kvr__expand_q2_k(float *out, const uint8_t *in, size_t n);
void kvr__expand_q3_k(float *out, const uint8_t *in, size_t n);
void kvr__expand_q4_k(float *out, const uint8_t *in, size_t n);
void kvr__expand_q5_k(float *out, const uint8_t *in, size_t n);
void kvr__expand_q6_k(float *out, const uint8_t *in, size_t n);
/* quant_iq4.c: four bits through a table of 16 values */
void kvr__expand_iq4_nl(float *out, const uint8_t *in, size_t n);
void kvr__expand_iq4_xs(float *out, const uint8_t *in, size_t n);
/* quant_32.c: blocks of 32 */
void kvr__expand_q4_0(float *out, const uint8_t *in, size_t n);
void kvr__expand_q4_1(float *out, const uint8_t *in, size_t n);
void kvr__expand_q5_0(float *out, const uint8_t *in, size_t n);
void kvr__expand_q5_1(float *out, const uint8_t *in, size_t n);
void kvr__expand_q8_0(float *out, const uint8_t *in, size_t n);

#endif
