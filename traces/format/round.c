/* round.c -- rows on their way to storage and back: checked, summed, rounded.
 * The bits are the same with every instruction set.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "round.h"

#include "kvr_isa.h"

#define INLINE static inline __attribute__((always_inline))

/* To multiples of 2^-30, so that sums in doubles are exact. Adding and taking
 * away 2^23 rounds to even; from 2^23 on a float is whole already. */
INLINE void round_f32(float *value, uint32_t n)
{
#pragma omp simd
    for (uint32_t i = 0; i < n; i++) {
        const float scaled = value[i] * 0x1p30f;
        const float whole = (scaled + 0x1p23f) - 0x1p23f;
        value[i] = (scaled < 0x1p23f ? whole : scaled) * 0x1p-30f;
    }
}

/* Four running sums, by position mod 4, added in one order. */
INLINE bool sum_weights(double *sum, const float *in, size_t n, float most)
{
    double lane[4] = {0};
    unsigned bad = 0;
    size_t i = 0;

#pragma omp simd reduction(| : bad)
    for (size_t k = 0; k < n; k++)
        bad |= !(in[k] >= 0 && in[k] <= most);
    for (; i + 4 <= n; i += 4)
        for (size_t j = 0; j < 4; j++)
            lane[j] += (double)in[i + j];
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += (double)in[i];
    *sum = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    return bad == 0;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void round_avx2(float *value, uint32_t n)
{
    round_f32(value, n);
}

__attribute__((target("avx2"))) static bool
sum_weights_avx2(double *sum, const float *in, size_t n, float most)
{
    return sum_weights(sum, in, n, most);
}
#endif

void kvr__round_f32(float *value, uint32_t n)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2) {
        round_avx2(value, n);
        return;
    }
#endif
    round_f32(value, n);
}

bool kvr__sum_weights(double *sum, const float *in, size_t n, float most)
{
#if defined(__x86_64__)
    if (kvr_isa() >= KVR_ISA_AVX2)
        return sum_weights_avx2(sum, in, n, most);
#endif
    return sum_weights(sum, in, n, most);
}
