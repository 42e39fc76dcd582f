/* result.c -- percentiles, sums over caches and layers, intervals.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bin_of(double m)
{
    const double at = m * BINS;

    return at >= BINS - 1 ? BINS - 1 : at > 0 ? (uint32_t)at : 0;
}

void kvr__histogram_add(uint32_t histogram[BINS], const double *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        histogram[bin_of(m[i])]++;
}

/* Nearest rank: the ceil(share * n)-th smallest, counted from 1. */
static uint64_t rank_of(double share, uint64_t n)
{
    const uint64_t rank = (uint64_t)ceil(share * (double)n);

    return rank > 0 ? rank : 1;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The rank-th smallest of m: its bin by counting, then the bin sorted. */
static double select_rank(const double *m, size_t n, uint64_t rank,
                          const uint32_t histogram[BINS], double *scratch)
{
    uint32_t bin = 0;
    uint64_t before = 0;
    size_t k = 0;
    double low = 2, high = -1;

    while (before + histogram[bin] < rank)
        before += histogram[bin++];
    for (size_t i = 0; i < n; i++)
        if (bin_of(m[i]) == bin) {
            low = m[i] < low ? m[i] : low;
            high = m[i] > high ? m[i] : high;
            scratch[k++] = m[i];
        }
    if (low == high) /* rows that lose nothing, often */
        return low;
    qsort(scratch, k, sizeof *scratch, ascending);
    return scratch[rank - before - 1];
}

enum kvr_status kvr__percentiles(struct kvr_percentiles *out, const double *m,
                                 size_t n, struct percentile_work *work,
                                 struct kvr_error *err)
{
    uint32_t histogram[BINS] = {0};

    if (!kvr_grow((void **)&work->sorted, &work->capacity, n,
                  sizeof *work->sorted))
        return kvr_no_memory(err, "percentiles", n * sizeof *work->sorted);
    kvr__histogram_add(histogram, m, n);
    out->p50 = select_rank(m, n, rank_of(0.50, n), histogram, work->sorted);
    out->p95 = select_rank(m, n, rank_of(0.95, n), histogram, work->sorted);
    out->p99 = select_rank(m, n, rank_of(0.99, n), histogram, work->sorted);
    out->max = 0;
    for (size_t i = 0; i < n; i++)
        out->max = m[i] > out->max ? m[i] : out->max;
    return KVR_OK;
}

static double histogram_rank(const uint32_t histogram[BINS], double share,
                             uint64_t n, double max)
{
    const uint64_t rank = rank_of(share, n);
    uint64_t sum = 0;
    uint32_t bin = 0;

    while (bin < BINS - 1 && sum + histogram[bin] < rank)
        sum += histogram[bin++];
    /* The middle of the bin; bin 0 holds the rows that lose nothing. */
    const double middle = bin == 0 ? 0 : ((double)bin + 0.5) / BINS;
    return middle < max ? middle : max;
}

void kvr__percentiles_of_histogram(struct kvr_percentiles *out,
                                   const uint32_t histogram[BINS], double max)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < BINS; i++)
        n += histogram[i];
    out->max = max;
    out->p50 = histogram_rank(histogram, 0.50, n, max);
    out->p95 = histogram_rank(histogram, 0.95, n, max);
    out->p99 = histogram_rank(histogram, 0.99, n, max);
}

void kvr_tally_add(struct kvr_tally *a, const struct kvr_tally *b)
{
    a->missed += b->missed;
    a->recorded += b->recorded;
    a->prompt_missed += b->prompt_missed;
    a->prompt_recorded += b->prompt_recorded;
    a->kl += b->kl;
    a->kl_rows += b->kl_rows;
    a->infinite_rows += b->infinite_rows;
    a->blind_rows += b->blind_rows;
    a->hits += b->hits;
    a->accesses += b->accesses;
    a->kept += b->kept;
    a->best += b->best;
    a->overlap += b->overlap;
    a->wanted += b->wanted;
    a->head_kept += b->head_kept;
    a->head_best += b->head_best;
    a->late += b->late;
    for (uint32_t i = 0; i < KVR_LAG_BINS; i++) {
        a->late_by_age[i] += b->late_by_age[i];
        a->late_by_lag[i] += b->late_by_lag[i];
    }
    a->visible += b->visible;
    a->rows += b->rows;
    a->peak = a->peak > b->peak ? a->peak : b->peak;
    a->evictions += b->evictions;
    a->tied += b->tied;
    a->tied_at_zero += b->tied_at_zero;
    a->topk += b->topk;
    a->topk_b += b->topk_b;
    a->head_bound += b->head_bound;
    a->oracle += b->oracle;
    a->oracle_matched += b->oracle_matched;
    a->resized += b->resized;
}
