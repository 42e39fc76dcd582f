/* kernels_lanes.h -- vectors of 8 lanes, and what goes across them.
 *
 * GNU C: the compiler splits them where registers are narrower. Private to
 * kernels.c.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KERNELS_LANES_H
#define KERNELS_LANES_H

#include "kvr_elementwise.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 8, BLOCK = 32 };

#ifdef KVR_REAL_DOUBLE
typedef int64_t lane_int;
#define KVR_HUGE HUGE_VAL
#else
typedef int32_t lane_int;
#define KVR_HUGE HUGE_VALF
#endif

typedef kvr_real vec
    __attribute__((vector_size(LANES * sizeof(kvr_real)), may_alias));
typedef lane_int lvec
    __attribute__((vector_size(LANES * sizeof(lane_int)), may_alias));
typedef int32_t ivec
    __attribute__((vector_size(LANES * sizeof(int32_t)), may_alias));

/* -1 where resident, as wide as a weight. */
KVR_INLINE lvec mask_at(const int32_t *resident, size_t i)
{
    return __builtin_convertvector(*(const ivec *)(resident + i), lvec);
}

KVR_INLINE vec masked(const kvr_real *row, lvec mask, size_t i)
{
    return (vec)(mask & *(const lvec *)(const void *)(row + i));
}

/* Lanes meet their opposites in three steps. */
#define KVR__HALVES(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3)
#define KVR__QUARTERS(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5)
#define KVR__PAIRS(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6)

KVR_INLINE lane_int add_across(lvec v)
{
    v += KVR__HALVES(v);
    v += KVR__QUARTERS(v);
    v += KVR__PAIRS(v);
    return v[0];
}

KVR_INLINE lvec pick(lvec mask, lvec yes, lvec no)
{
    return (mask & yes) | (~mask & no);
}

KVR_INLINE vec lower(vec a, vec b)
{
    return (vec)pick(a < b, (lvec)a, (lvec)b);
}

KVR_INLINE kvr_real least_across(vec v)
{
    v = lower(v, KVR__HALVES(v));
    v = lower(v, KVR__QUARTERS(v));
    v = lower(v, KVR__PAIRS(v));
    return v[0];
}

KVR_INLINE lvec lower_index(lvec a, lvec b)
{
    return pick(a < b, a, b);
}

KVR_INLINE lane_int least_index(lvec v)
{
    v = lower_index(v, KVR__HALVES(v));
    v = lower_index(v, KVR__QUARTERS(v));
    v = lower_index(v, KVR__PAIRS(v));
    return v[0];
}

/* 32 sums of floats, in one order. */
KVR_INLINE kvr_real combine(vec a, vec b, vec c, vec d)
{
    kvr_real sum = 0;

    a = (a + b) + (c + d);
    for (int l = 0; l < LANES; l++)
        sum += a[l];
    return sum;
}

#endif
