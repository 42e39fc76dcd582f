/* kernels.c -- sums and minima of a step, written once for all sets.
 *
 * Vectors of 8 lanes are GNU C; the compiler splits them where registers are
 * narrower, so one source serves SSE2, AVX2 and AVX-512 and the order of
 * additions is fixed. Needs -fopenmp-simd and no contraction.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kernels.h"

#include "kvr_elementwise.h"

#include <math.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

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
KVR_INLINE lvec mask_at(const int32_t *resident, uint32_t i)
{
    return __builtin_convertvector(*(const ivec *)(resident + i), lvec);
}

KVR_INLINE vec masked(const kvr_real *row, lvec mask, uint32_t i)
{
    return (vec)(mask & *(const lvec *)(const void *)(row + i));
}

KVR_INLINE kvr_real combine(vec a, vec b, vec c, vec d)
{
    kvr_real sum = 0;

    a = (a + b) + (c + d);
    for (int l = 0; l < LANES; l++)
        sum += a[l];
    return sum;
}

/* What one lane adds to the exact sum: whole units in the float build. */
#ifdef KVR_REAL_DOUBLE
typedef vec exact_vec;
KVR_INLINE exact_vec exact_of(vec v, kvr_real scale)
{
    return v * scale;
}
#else
typedef ivec exact_vec;
KVR_INLINE exact_vec exact_of(vec v, kvr_real scale)
{
    return __builtin_convertvector(v * scale, ivec);
}
#endif

KVR_INLINE double mass_of(const int32_t *resident, const uint64_t *bits,
                          const kvr_real *row, const kvr_real *loss,
                          kvr_real scale, uint32_t n, kvr_real *sum)
{
    vec s[4] = {{0}};
    exact_vec e[2] = {{0}};
    double exact = 0;

    for (uint32_t i = 0; i < n; i += BLOCK) {
        if (bits[i / 64] == 0)
            continue;
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t at = i + LANES * k;
            const lvec m = mask_at(resident, at);
            const vec kept = masked(row, m, at);
            s[k] += kept;
            e[k % 2] +=
                exact_of(loss == row ? kept : masked(loss, m, at), scale);
        }
    }
    *sum = combine(s[0], s[1], s[2], s[3]);
    for (int l = 0; l < LANES; l++)
        exact += (double)e[0][l] + (double)e[1][l];
    return exact;
}

/* Two copies: the loss is the mass itself unless --loss says otherwise. */
KVR_INLINE double mass(const int32_t *resident, const uint64_t *bits,
                       const kvr_real *row, const kvr_real *loss,
                       kvr_real scale, uint32_t n, kvr_real *sum)
{
    if (loss == row)
        return mass_of(resident, bits, row, row, scale, n, sum);
    return mass_of(resident, bits, row, loss, scale, n, sum);
}

KVR_INLINE void weigh(kvr_real *out, const kvr_real *const *row,
                      const kvr_real *by, uint32_t n_row, kvr_real last,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        vec sum = *(const vec *)(row[0] + i) * by[0];
        for (uint32_t h = 1; h < n_row; h++)
            sum += *(const vec *)(row[h] + i) * by[h];
        *(vec *)(out + i) = sum * last;
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

/* A second pass finds the oldest of the lowest: no branch to mispredict. */
KVR_INLINE struct lowest lowest(const kvr_real *score, const int32_t *resident,
                                uint32_t first, uint32_t end)
{
    const int32_t from = (int32_t)first, to = (int32_t)end;
    int32_t oldest = INT32_MAX, n = 0;
    kvr_real low = KVR_HUGE;

#pragma omp simd reduction(min : low)
    for (int32_t i = from; i < to; i++) {
        const kvr_real s = resident[i] != 0 ? score[i] : KVR_HUGE;
        low = s < low ? s : low;
    }
#pragma omp simd reduction(min : oldest) reduction(+ : n)
    for (int32_t i = from; i < to; i++) {
        const int32_t hit = score[i] == low ? resident[i] : 0;
        const int32_t at = hit != 0 ? i : INT32_MAX;
        oldest = at < oldest ? at : oldest;
        n -= hit;
    }
    return (struct lowest){low, (uint32_t)oldest, (uint32_t)n};
}

KVR_INLINE struct lowest lowest_second(const kvr_real *score, kvr_real low,
                                       const kvr_real *second,
                                       const int32_t *resident, uint32_t first,
                                       uint32_t end)
{
    const int32_t from = (int32_t)first, to = (int32_t)end;
    int32_t oldest = INT32_MAX, n = 0;
    kvr_real low2 = KVR_HUGE;

#pragma omp simd reduction(min : low2)
    for (int32_t i = from; i < to; i++) {
        const int32_t hit = score[i] == low ? resident[i] : 0;
        const kvr_real s = hit != 0 ? second[i] : KVR_HUGE;
        low2 = s < low2 ? s : low2;
    }
#pragma omp simd reduction(min : oldest) reduction(+ : n)
    for (int32_t i = from; i < to; i++) {
        const int32_t same = score[i] == low ? resident[i] : 0;
        const int32_t hit = second[i] == low2 ? same : 0;
        const int32_t at = hit != 0 ? i : INT32_MAX;
        oldest = at < oldest ? at : oldest;
        n -= hit;
    }
    return (struct lowest){low2, (uint32_t)oldest, (uint32_t)n};
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

/* Four doubles: what one register of AVX2 holds. */
enum { DLANES = 4 };
typedef int64_t dmask __attribute__((vector_size(DLANES * 8), may_alias));
typedef double dvec __attribute__((vector_size(DLANES * 8), may_alias));

KVR_INLINE dmask inside(dvec v, double low, double high)
{
    return (dmask)(v >= low) & (dmask)(v < high);
}

KVR_INLINE double range_sum(const double *value, double low, double high,
                            uint32_t n)
{
    dvec a = {0}, b = {0};
    double sum = 0;
    uint32_t i = 0;

    for (; i + 2 * DLANES <= n; i += 2 * DLANES) {
        const dvec v = *(const dvec *)(value + i);
        const dvec w = *(const dvec *)(value + i + DLANES);
        a += (dvec)((dmask)v & inside(v, low, high));
        b += (dvec)((dmask)w & inside(w, low, high));
    }
    a += b;
    for (uint32_t k = 0; k < DLANES; k++)
        sum += a[k];
    for (; i < n; i++)
        sum += value[i] >= low && value[i] < high ? value[i] : 0;
    return sum;
}

/* Which of two neighbours are in the range, as bits. */
#if defined(__x86_64__)
KVR_INLINE uint32_t pair_inside(const double *value, double low, double high)
{
    const __m128d v = _mm_loadu_pd(value);

    return (uint32_t)_mm_movemask_pd(_mm_and_pd(
        _mm_cmpge_pd(v, _mm_set1_pd(low)), _mm_cmplt_pd(v, _mm_set1_pd(high))));
}
#else
KVR_INLINE uint32_t pair_inside(const double *value, double low, double high)
{
    return (uint32_t)(value[0] >= low && value[0] < high) |
           (uint32_t)(value[1] >= low && value[1] < high) << 1;
}
#endif

KVR_INLINE uint32_t range_values(double *out, const double *value, double low,
                                 double high, uint32_t n)
{
    uint32_t count = 0, i = 0;

    for (; i + 32 <= n; i += 32) {
        uint32_t hits = 0;
        for (uint32_t k = 0; k < 32; k += 2)
            hits |= pair_inside(value + i + k, low, high) << k;
        for (; hits != 0; hits &= hits - 1)
            out[count++] = value[i + (uint32_t)__builtin_ctz(hits)];
    }
    for (; i < n; i++)
        if (value[i] >= low && value[i] < high)
            out[count++] = value[i];
    return count;
}

KVR_INLINE struct overlap overlap(const uint64_t *over,
                                  const uint64_t *at_least,
                                  const uint64_t *accessed,
                                  const uint64_t *resident, uint64_t *gone,
                                  uint32_t words)
{
    struct overlap n = {0};

    for (uint32_t i = 0; i < words; i++) {
        const uint64_t r = resident[i];
        gone[i] = over[i] & ~r;
        n.over += (uint32_t)__builtin_popcountll(over[i]);
        n.ties += (uint32_t)__builtin_popcountll(at_least[i] & ~over[i] & r);
        n.at_least += (uint32_t)__builtin_popcountll(at_least[i] & r);
        n.accessed += (uint32_t)__builtin_popcountll(accessed[i] & r);
    }
    return n;
}

/* 64 comparisons as one word. */
#if defined(__x86_64__)
KVR_INLINE uint64_t compare64(const double *value, double least, int inclusive)
{
    const __m128d at = _mm_set1_pd(least);
    uint64_t word = 0;

    for (uint32_t k = 0; k < 64; k += 2) {
        const __m128d v = _mm_load_pd(value + k);
        const __m128d hit =
            inclusive ? _mm_cmpge_pd(v, at) : _mm_cmpgt_pd(v, at);
        word |= (uint64_t)(uint32_t)_mm_movemask_pd(hit) << k;
    }
    return word;
}
#else
KVR_INLINE uint64_t compare64(const double *value, double least, int inclusive)
{
    uint64_t word = 0;

    for (uint32_t k = 0; k < 64; k++)
        word |= (uint64_t)(inclusive ? value[k] >= least : value[k] > least)
                << k;
    return word;
}
#endif

KVR_INLINE void bits_above(uint64_t *out, const double *value, double least,
                           int inclusive, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 64)
        out[i / 64] = compare64(value + i, least, inclusive);
}

#define KVR__KERNELS(target, suffix) \
    target static double mass_##suffix( \
        const int32_t *resident, const uint64_t *bits, const kvr_real *row, \
        const kvr_real *loss, kvr_real scale, uint32_t n, kvr_real *sum) \
    { \
        return mass(resident, bits, row, loss, scale, n, sum); \
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
    target static double range_sum_##suffix(const double *value, double low, \
                                            double high, uint32_t n) \
    { \
        return range_sum(value, low, high, n); \
    } \
    target static uint32_t range_values_##suffix( \
        double *out, const double *value, double low, double high, uint32_t n) \
    { \
        return range_values(out, value, low, high, n); \
    } \
    target static struct overlap overlap_##suffix( \
        const uint64_t *over, const uint64_t *at_least, \
        const uint64_t *accessed, const uint64_t *resident, uint64_t *gone, \
        uint32_t words) \
    { \
        return overlap(over, at_least, accessed, resident, gone, words); \
    } \
    target static void bits_above_##suffix(uint64_t *out, const double *value, \
                                           double least, int inclusive, \
                                           uint32_t n) \
    { \
        bits_above(out, value, least, inclusive, n); \
    }

KVR__KERNELS(, base)
KVR__KERNELS(KVR_TARGET_AVX2, avx2)
KVR__KERNELS(KVR_TARGET_AVX512, avx512)

#define KVR__TABLE(suffix) \
    { \
        mass_##suffix, weigh_##suffix, weigh_max_##suffix, lowest_##suffix, \
            lowest_second_##suffix, above_##suffix, add_units_##suffix, \
            range_sum_##suffix, range_values_##suffix, overlap_##suffix, \
            bits_above_##suffix \
    }

static const struct kernels tables[KVR_N_ISA] = {
    [KVR_ISA_BASE] = KVR__TABLE(base),
    [KVR_ISA_AVX2] = KVR__TABLE(avx2),
    [KVR_ISA_AVX512] = KVR__TABLE(avx512),
};

const struct kernels *kernels_for(enum kvr_isa isa)
{
    return &tables[isa];
}
