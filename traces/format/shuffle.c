/* shuffle.c -- HDF5's byte shuffle, and the one place in traces/ where an
 * instruction set is chosen. The loops are the same text; only the compiler's
 * target differs, so the bits are the same.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "codec.h"

#include "kvr_isa.h"

#include <string.h>

static inline __attribute__((always_inline)) void
split(uint8_t *restrict out, const uint8_t *restrict in, size_t n, size_t size)
{
    if (size == 2) {
        for (size_t i = 0; i < n; i++) {
            out[i] = in[2 * i];
            out[n + i] = in[2 * i + 1];
        }
        return;
    }
    for (size_t b = 0; b < size; b++)
        for (size_t i = 0; i < n; i++)
            out[b * n + i] = in[i * size + b];
}

/* The planes lie n bytes apart, `in` points at the first byte wanted. */
static inline __attribute__((always_inline)) void
join(uint8_t *restrict out, const uint8_t *restrict in, size_t n, size_t count,
     size_t size)
{
    if (size == 2) {
        for (size_t i = 0; i < count; i++) {
            out[2 * i] = in[i];
            out[2 * i + 1] = in[n + i];
        }
        return;
    }
    if (size == 4) {
        for (size_t i = 0; i < count; i++) {
            out[4 * i] = in[i];
            out[4 * i + 1] = in[n + i];
            out[4 * i + 2] = in[2 * n + i];
            out[4 * i + 3] = in[3 * n + i];
        }
        return;
    }
    for (size_t b = 0; b < size; b++)
        for (size_t i = 0; i < count; i++)
            out[i * size + b] = in[b * n + i];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void
split_avx2(uint8_t *out, const uint8_t *in, size_t n, size_t size)
{
    split(out, in, n, size);
}

__attribute__((target("avx2"))) static void
join_avx2(uint8_t *out, const uint8_t *in, size_t n, size_t count, size_t size)
{
    join(out, in, n, count, size);
}
#endif

void kvr__shuffle(uint8_t *out, const uint8_t *in, size_t n, size_t size)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2) {
        split_avx2(out, in, n, size);
        return;
    }
#endif
    split(out, in, n, size);
}

void kvr__unshuffle_part(uint8_t *out, const uint8_t *in, size_t n,
                         size_t first, size_t count, size_t size)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2) {
        join_avx2(out, in + first, n, count, size);
        return;
    }
#endif
    join(out, in + first, n, count, size);
}

void kvr__unshuffle(uint8_t *out, const uint8_t *in, size_t n, size_t size)
{
    kvr__unshuffle_part(out, in, n, 0, n, size);
}
