/* optimum_pass.c -- the inner loop of the optimum, for each instruction set.
 *
 * Only sums and minima of integers held in doubles: every instruction set
 * gives the same bits.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "optimum.h"

#include "kvr_isa.h"

#define INLINE static inline __attribute__((always_inline))

INLINE double lesser(double a, double b)
{
    return a < b ? a : b;
}

/* n is a constant in every call, so that only its terms are compiled. */
INLINE void scan(const struct kvr__pass *pass, const uint32_t n)
{
    const double *const r0 = pass->row[0], *const r1 = pass->row[1];
    const double *const r2 = pass->row[2], *const r3 = pass->row[3];
    const double *const r4 = pass->row[4], *const r5 = pass->row[5];
    const double b0 = pass->base[0], b1 = pass->base[1], b2 = pass->base[2];
    const double b3 = pass->base[3], b4 = pass->base[4], b5 = pass->base[5];
    const double *restrict rent = pass->rent, *restrict closed = pass->closed;
    double *restrict label = pass->label, *restrict via = pass->via;
    const double batch = pass->batch;

    for (size_t b = 0; b < pass->n_block; b++) {
        const size_t first = b * KVR__BLOCK;
        double open = KVR__FORBIDDEN;
#pragma omp simd reduction(min : open)
        for (size_t i = first; i < first + KVR__BLOCK; i++) {
            double reach = r0[i] + b0;
            if (n > 1)
                reach = lesser(reach, r1[i] + b1);
            if (n > 2)
                reach = lesser(reach, r2[i] + b2);
            if (n > 3)
                reach = lesser(reach, r3[i] + b3);
            if (n > 4)
                reach = lesser(lesser(reach, r4[i] + b4), r5[i] + b5);
            reach += rent[i];
            const double old = label[i], from = via[i];
            const double now = reach < old ? reach : old;
            via[i] = reach < old ? batch : from;
            label[i] = now;
            const double left = now < closed[i] ? now : KVR__FORBIDDEN;
            open = left < open ? left : open;
        }
        pass->open[b] = open;
    }
}

INLINE void scan_any(const struct kvr__pass *pass)
{
    switch (pass->n) {
    case 1:
        scan(pass, 1);
        break;
    case 2:
        scan(pass, 2);
        break;
    case 3:
        scan(pass, 3);
        break;
    case 4:
        scan(pass, 4);
        break;
    default:
        scan(pass, KVR__WIDE);
        break;
    }
}

static void scan_base(const struct kvr__pass *pass)
{
    scan_any(pass);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void
scan_avx2(const struct kvr__pass *pass)
{
    scan_any(pass);
}

__attribute__((target("avx2,avx512f,avx512vl"))) static void
scan_avx512(const struct kvr__pass *pass)
{
    scan_any(pass);
}
#endif

kvr__pass_fn kvr__optimum_pass(void)
{
#if defined(__x86_64__)
    switch (kvr_isa()) {
    case KVR_ISA_AVX512:
        return scan_avx512;
    case KVR_ISA_AVX2:
        return scan_avx2;
    default:
        break;
    }
#endif
    return scan_base;
}
