/* kernels.c -- sums and minima of a step, written once for all sets.
 *
 * Vectors of 8 lanes are GNU C; the compiler splits them where registers are
 * narrower, so one source serves SSE2, AVX2 and AVX-512 and the order of
 * additions is fixed. Needs -fopenmp-simd and no contraction.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kernels.h"

#include "kernels_lanes.h"
#include "kernels_lowest.h"
#include "kvr_elementwise.h"

#include <math.h>
#include <string.h>

/* What one lane adds to the exact sum: whole units in the float build. */
#ifdef KVR_REAL_DOUBLE
typedef vec exact_vec;
KVR_INLINE exact_vec exact_of(vec v, kvr_real scale)
{
    return v * scale;
}

KVR_INLINE double add_lanes(exact_vec a, exact_vec b)
{
    double sum = 0;

    for (int l = 0; l < LANES; l++)
        sum += a[l] + b[l];
    return sum;
}
#else
typedef ivec exact_vec;
KVR_INLINE exact_vec exact_of(vec v, kvr_real scale)
{
    return __builtin_convertvector(v * scale, ivec);
}

/* A row is below 2: of at most 2^30 units each, no lane overflows. */
KVR_INLINE double add_lanes(exact_vec a, exact_vec b)
{
    return (double)add_across(a + b);
}
#endif

KVR_INLINE double mass_of(const int32_t *resident, const uint64_t *bits,
                          const kvr_real *row, kvr_real scale, uint32_t n)
{
    exact_vec e[2] = {{0}};

    for (size_t i = 0; i < n; i += 64) {
        if (bits[i / 64] == 0)
            continue;
        for (size_t k = 0; k < 8; k++) {
            const size_t at = i + LANES * k;
            e[k % 2] += exact_of(masked(row, mask_at(resident, at), at), scale);
        }
    }
    return add_lanes(e[0], e[1]);
}

enum { TOGETHER = 3 }; /* rows at most that one reading of residents serves */

/* One row's lanes in units, if they are exact: multiples of 2^-24 below 1 are.
 * Else the row is added up in whole units. */
KVR_INLINE int exact_lanes(double *out, vec a, vec b, kvr_real scale)
{
    *out = add_lanes(exact_of(a, scale), exact_of(b, scale));
    return add_across((a < 1) & (b < 1)) == -LANES;
}

/* n_row is a constant where it is called: each number has its own loop. */
KVR_INLINE void mass_together(double *out, const int32_t *resident,
                              const uint64_t *bits, const kvr_real *const *row,
                              int n_row, kvr_real scale, uint32_t n)
{
    const vec none = {0};
    vec even[TOGETHER] = {none, none, none}, odd[TOGETHER] = {none, none, none};

    for (size_t i = 0; i < n; i += 64) {
        if (bits[i / 64] == 0)
            continue;
        for (size_t at = i; at < i + 64; at += 2 * LANES) {
            const lvec mask = mask_at(resident, at);
            const lvec next = mask_at(resident, at + LANES);
            for (int h = 0; h < n_row; h++) {
                even[h] += masked(row[h], mask, at);
                odd[h] += masked(row[h], next, at + LANES);
            }
        }
    }
    for (int h = 0; h < n_row; h++)
        if (!exact_lanes(&out[h], even[h], odd[h], scale))
            out[h] = mass_of(resident, bits, row[h], scale, n);
}

KVR_INLINE void mass(double *out, const int32_t *resident, const uint64_t *bits,
                     const kvr_real *const *row, uint32_t n_row, kvr_real scale,
                     uint32_t n)
{
    uint32_t h = 0;

    if (sizeof(kvr_real) != sizeof(float) || scale > (kvr_real)0x1p24) {
        for (; h < n_row; h++)
            out[h] = mass_of(resident, bits, row[h], scale, n);
        return;
    }
    for (; h + TOGETHER <= n_row; h += TOGETHER)
        mass_together(out + h, resident, bits, row + h, TOGETHER, scale, n);
    if (n_row - h == 2)
        mass_together(out + h, resident, bits, row + h, 2, scale, n);
    else if (n_row - h == 1)
        mass_together(out + h, resident, bits, row + h, 1, scale, n);
}

KVR_INLINE kvr_real sum(const int32_t *resident, const uint64_t *bits,
                        const kvr_real *row, uint32_t n)
{
    vec s[4] = {{0}};

    for (size_t i = 0; i < n; i += BLOCK) {
        if (bits[i / 64] == 0)
            continue;
        for (size_t k = 0; k < 4; k++) {
            const size_t at = i + LANES * k;
            s[k] += masked(row, mask_at(resident, at), at);
        }
    }
    return combine(s[0], s[1], s[2], s[3]);
}

KVR_INLINE void weigh(kvr_real *out, const kvr_real *const *row,
                      const kvr_real *by, uint32_t n_row, kvr_real last,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n; i += BLOCK) {
        const vec *in = (const vec *)(row[0] + i);
        vec *to = (vec *)(out + i);
        vec a = in[0] * by[0], b = in[1] * by[0];
        vec c = in[2] * by[0], d = in[3] * by[0];
        for (uint32_t h = 1; h < n_row; h++) {
            in = (const vec *)(row[h] + i);
            a += in[0] * by[h];
            b += in[1] * by[h];
            c += in[2] * by[h];
            d += in[3] * by[h];
        }
        to[0] = a * last;
        to[1] = b * last;
        to[2] = c * last;
        to[3] = d * last;
    }
}

KVR_INLINE void weigh_max(kvr_real *out, const kvr_real *const *row,
                          const kvr_real *by, uint32_t n_row, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        kvr_real most = row[0][i] * by[0];
        for (uint32_t h = 1; h < n_row; h++) {
            const kvr_real w = row[h][i] * by[h];
            most = w > most ? w : most;
        }
        out[i] = most;
    }
}

KVR_INLINE struct lowest lowest(const kvr_real *score, const int32_t *resident,
                                uint32_t first, uint32_t end)
{
    const struct field f = {
        .key = score, .resident = resident, .first = first, .end = end};

    return lowest_of(&f);
}

KVR_INLINE struct lowest lowest_second(const kvr_real *score, kvr_real low,
                                       const kvr_real *second,
                                       const int32_t *resident, uint32_t first,
                                       uint32_t end)
{
    const struct field f = {.key = second,
                            .score = score,
                            .resident = resident,
                            .first = first,
                            .end = end,
                            .low = low};

    return lowest_of(&f);
}

KVR_INLINE void above(int32_t *out, const kvr_real *weight, kvr_real least,
                      int inclusive, uint32_t n)
{
    int32_t *restrict o = KVR_ALIGNED(out);
    const kvr_real *restrict w = KVR_ALIGNED(weight);

    if (inclusive)
        for (uint32_t i = 0; i < n; i++)
            o[i] = w[i] >= least ? -1 : 0;
    else
        for (uint32_t i = 0; i < n; i++)
            o[i] = w[i] > least ? -1 : 0;
}

KVR_INLINE void add_units(double *out, const kvr_real *row, double scale,
                          int anew, uint32_t n)
{
    double *restrict o = KVR_ALIGNED(out);
    const kvr_real *restrict w = KVR_ALIGNED(row);

    if (anew)
        for (uint32_t i = 0; i < n; i++)
            o[i] = (double)w[i] * scale;
    else
        for (uint32_t i = 0; i < n; i++)
            o[i] += (double)w[i] * scale;
}

/* 32 comparisons as half a word: each lane gathers every eighth bit. */
KVR_INLINE uint64_t compare32(const kvr_real *weight, kvr_real least,
                              int inclusive)
{
    lvec word = {0}, bit = {1, 2, 4, 8, 16, 32, 64, 128};

    for (uint32_t k = 0; k < BLOCK; k += LANES) {
        const vec v = *(const vec *)(weight + k);
        word |= bit & (inclusive ? v >= least : v > least);
        bit <<= LANES;
    }
    return (uint32_t)add_across(word);
}

KVR_INLINE void bits_of_row(uint64_t *out, const kvr_real *weight,
                            kvr_real least, int inclusive, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 64)
        out[i / 64] = compare32(weight + i, least, inclusive) |
                      compare32(weight + i + BLOCK, least, inclusive) << BLOCK;
}

/* Four doubles: what one register of AVX2 holds. */
enum { DLANES = 4 };
typedef int64_t dmask __attribute__((vector_size(DLANES * 8), may_alias));
typedef double dvec __attribute__((vector_size(DLANES * 8), may_alias));

/* How many of a row are above each of the cuts; sums of them and the least.
 * Once for rows, once for rows summed over heads. */
KVR_INLINE void count_row(uint32_t *count, const kvr_real *row,
                          const kvr_real *at, uint32_t n)
{
    lvec a = {0}, b = {0}, c = {0}, d = {0};

    for (size_t i = 0; i < n; i += 2 * LANES) {
        const vec v = *(const vec *)(row + i);
        const vec w = *(const vec *)(row + i + LANES);
        a = a - (v > at[0]) - (w > at[0]);
        b = b - (v > at[1]) - (w > at[1]);
        c = c - (v > at[2]) - (w > at[2]);
        d = d - (v > at[3]) - (w > at[3]);
    }
    count[0] = (uint32_t)add_across(a);
    count[1] = (uint32_t)add_across(b);
    count[2] = (uint32_t)add_across(c);
    count[3] = (uint32_t)add_across(d);
}

KVR_INLINE void count_wide(uint32_t *count, const double *value,
                           const double *at, uint32_t n)
{
    dmask a = {0}, b = {0}, c = {0}, d = {0};

    for (size_t i = 0; i < n; i += 2 * DLANES) {
        const dvec v = *(const dvec *)(value + i);
        const dvec w = *(const dvec *)(value + i + DLANES);
        a = a - (v > at[0]) - (w > at[0]);
        b = b - (v > at[1]) - (w > at[1]);
        c = c - (v > at[2]) - (w > at[2]);
        d = d - (v > at[3]) - (w > at[3]);
    }
    memset(count, 0, KVR_CUTS * sizeof *count);
    for (int l = 0; l < DLANES; l++) {
        count[0] += (uint32_t)a[l];
        count[1] += (uint32_t)b[l];
        count[2] += (uint32_t)c[l];
        count[3] += (uint32_t)d[l];
    }
}

KVR_INLINE exact_vec units_above(exact_vec units, vec v, kvr_real at)
{
    return (exact_vec)((v > at) & (lvec)units);
}

KVR_INLINE void sum_row(double *sum, const kvr_real *row, const kvr_real *at,
                        kvr_real scale, uint32_t n)
{
    exact_vec a = {0}, b = {0}, c = {0}, d = {0};

    for (size_t i = 0; i < n; i += LANES) {
        const vec v = *(const vec *)(row + i);
        const exact_vec units = exact_of(v, scale);
        a += units_above(units, v, at[0]);
        b += units_above(units, v, at[1]);
        c += units_above(units, v, at[2]);
        d += units_above(units, v, at[3]);
    }
    const exact_vec none = {0};
    sum[0] = add_lanes(a, none);
    sum[1] = add_lanes(b, none);
    sum[2] = add_lanes(c, none);
    sum[3] = add_lanes(d, none);
}

KVR_INLINE dmask pick_wide(dmask mask, dmask yes, dmask no)
{
    return (mask & yes) | (~mask & no);
}

/* One cut: adds v where it is above, and keeps the least of those. */
KVR_INLINE void note_above(dvec *sum, dvec *least, dvec v, double at)
{
    const dmask over = v > at, less = over & (v < *least);

    *sum += (dvec)(over & (dmask)v);
    *least = (dvec)pick_wide(less, (dmask)v, (dmask)*least);
}

KVR_INLINE double least_lane(dvec v)
{
    double least = v[0];

    for (int l = 1; l < DLANES; l++)
        least = v[l] < least ? v[l] : least;
    return least;
}

KVR_INLINE void sum_wide(double *sum, double *least, const double *value,
                         const double *at, uint32_t n)
{
    dvec a = {0}, b = {0}, c = {0}, d = {0};
    dvec p = a + HUGE_VAL, q = p, r = p, s = p;

    for (size_t i = 0; i < n; i += DLANES) {
        const dvec v = *(const dvec *)(value + i);
        note_above(&a, &p, v, at[0]);
        note_above(&b, &q, v, at[1]);
        note_above(&c, &r, v, at[2]);
        note_above(&d, &s, v, at[3]);
    }
    memset(sum, 0, KVR_CUTS * sizeof *sum);
    for (int l = 0; l < DLANES; l++) {
        sum[0] += a[l];
        sum[1] += b[l];
        sum[2] += c[l];
        sum[3] += d[l];
    }
    least[0] = least_lane(p);
    least[1] = least_lane(q);
    least[2] = least_lane(r);
    least[3] = least_lane(s);
}

KVR_INLINE void add_above(double *out, const double *value, double least,
                          uint32_t n)
{
    for (size_t i = 0; i < n; i += DLANES) {
        const dvec v = *(const dvec *)(value + i);
        *(dvec *)(out + i) += (dvec)((dmask)v & (v > least));
    }
}

KVR_INLINE struct overlap overlap(const uint64_t *over,
                                  const uint64_t *at_least,
                                  const uint64_t *accessed,
                                  const uint64_t *resident, uint32_t words)
{
    struct overlap n = {0};

    for (uint32_t i = 0; i < words; i++) {
        const uint64_t r = resident[i];
        n.over += (uint32_t)__builtin_popcountll(over[i]);
        n.ties += (uint32_t)__builtin_popcountll(at_least[i] & ~over[i] & r);
        n.at_least += (uint32_t)__builtin_popcountll(at_least[i] & r);
        n.accessed += (uint32_t)__builtin_popcountll(accessed[i] & r);
    }
    return n;
}

/* 64 comparisons as one word: each lane gathers every fourth bit. */
KVR_INLINE void bits_above(uint64_t *over, uint64_t *at_least,
                           const double *value, double least, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 64) {
        dmask more = {0}, same = {0}, bit = {1, 2, 4, 8};
        for (uint32_t k = 0; k < 64; k += DLANES) {
            const dvec v = *(const dvec *)(value + i + k);
            more |= bit & (v > least);
            same |= bit & (v >= least);
            bit <<= DLANES;
        }
        over[i / 64] = (uint64_t)(more[0] | more[1] | more[2] | more[3]);
        at_least[i / 64] = (uint64_t)(same[0] | same[1] | same[2] | same[3]);
    }
}

#define KVR__KERNELS(target, suffix) \
    target static void mass_##suffix( \
        double *out, const int32_t *resident, const uint64_t *bits, \
        const kvr_real *const *row, uint32_t n_row, kvr_real scale, \
        uint32_t n) \
    { \
        mass(out, resident, bits, row, n_row, scale, n); \
    } \
    target static kvr_real sum_##suffix(const int32_t *resident, \
                                        const uint64_t *bits, \
                                        const kvr_real *row, uint32_t n) \
    { \
        return sum(resident, bits, row, n); \
    } \
    target static void weigh_##suffix( \
        kvr_real *out, const kvr_real *const *row, const kvr_real *by, \
        uint32_t n_row, kvr_real last, uint32_t n) \
    { \
        weigh(out, row, by, n_row, last, n); \
    } \
    target static void weigh_max_##suffix( \
        kvr_real *out, const kvr_real *const *row, const kvr_real *by, \
        uint32_t n_row, uint32_t n) \
    { \
        weigh_max(out, row, by, n_row, n); \
    } \
    target static struct lowest lowest_##suffix(const kvr_real *score, \
                                                const int32_t *resident, \
                                                uint32_t first, uint32_t end) \
    { \
        return lowest(score, resident, first, end); \
    } \
    target static struct lowest lowest_second_##suffix( \
        const kvr_real *score, kvr_real low, const kvr_real *second, \
        const int32_t *resident, uint32_t first, uint32_t end) \
    { \
        return lowest_second(score, low, second, resident, first, end); \
    } \
    target static void above_##suffix(int32_t *out, const kvr_real *weight, \
                                      kvr_real least, int inclusive, \
                                      uint32_t n) \
    { \
        above(out, weight, least, inclusive, n); \
    } \
    target static void add_units_##suffix(double *out, const kvr_real *row, \
                                          double scale, int anew, uint32_t n) \
    { \
        add_units(out, row, scale, anew, n); \
    } \
    target static void count_row_##suffix( \
        uint32_t *count, const kvr_real *row, const kvr_real *at, uint32_t n) \
    { \
        count_row(count, row, at, n); \
    } \
    target static void count_wide_##suffix( \
        uint32_t *count, const double *value, const double *at, uint32_t n) \
    { \
        count_wide(count, value, at, n); \
    } \
    target static void sum_row_##suffix(double *sum, const kvr_real *row, \
                                        const kvr_real *at, kvr_real scale, \
                                        uint32_t n) \
    { \
        sum_row(sum, row, at, scale, n); \
    } \
    target static void sum_wide_##suffix(double *sum, double *least, \
                                         const double *value, \
                                         const double *at, uint32_t n) \
    { \
        sum_wide(sum, least, value, at, n); \
    } \
    target static struct overlap overlap_##suffix( \
        const uint64_t *over, const uint64_t *at_least, \
        const uint64_t *accessed, const uint64_t *resident, uint32_t words) \
    { \
        return overlap(over, at_least, accessed, resident, words); \
    } \
    target static void add_above_##suffix(double *out, const double *value, \
                                          double least, uint32_t n) \
    { \
        add_above(out, value, least, n); \
    } \
    target static void bits_of_row_##suffix( \
        uint64_t *out, const kvr_real *weight, kvr_real least, int inclusive, \
        uint32_t n) \
    { \
        bits_of_row(out, weight, least, inclusive, n); \
    } \
    target static void bits_above_##suffix(uint64_t *over, uint64_t *at_least, \
                                           const double *value, double least, \
                                           uint32_t n) \
    { \
        bits_above(over, at_least, value, least, n); \
    }

KVR__KERNELS(, base)
KVR__KERNELS(KVR_TARGET_AVX2, avx2)
KVR__KERNELS(KVR_TARGET_AVX512, avx512)

#define KVR__TABLE(suffix) \
    { \
        mass_##suffix, sum_##suffix, weigh_##suffix, weigh_max_##suffix, \
            lowest_##suffix, lowest_second_##suffix, above_##suffix, \
            add_units_##suffix, count_row_##suffix, count_wide_##suffix, \
            sum_row_##suffix, sum_wide_##suffix, overlap_##suffix, \
            add_above_##suffix, bits_of_row_##suffix, bits_above_##suffix \
    }

static const struct kernels tables[KVR_N_ISA] = {
    [KVR_ISA_BASE] = KVR__TABLE(base),
    [KVR_ISA_AVX2] = KVR__TABLE(avx2),
    [KVR_ISA_AVX512] = KVR__TABLE(avx512),
};

const struct kernels *kvr__kernels_for(enum kvr_isa isa)
{
    return &tables[isa];
}
