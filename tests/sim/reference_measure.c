/* reference_measure.c -- what a row costs a cache: section 2 of the design.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

/* One row of one cache, laid out. */
struct ref_row {
    double *summed;          /* [t + 1] over the query heads */
    double mass, sink, kept; /* of all query heads */
    uint32_t t, n_seen;
};

static double sink_of(const struct ref_walk *w, uint32_t head)
{
    const struct ref_trace *t = w->q->trace;

    if (t->sink == NULL)
        return 0;
    return rint((double)t->sink[((size_t)w->layer * t->n_head + head) * t->T +
                                w->step] *
                0x1p24) *
           0x1p-24;
}

static void count_head(struct ref_cache *k, double mass, double sink,
                       double kept)
{
    const double missed = mass - kept, recorded = mass + sink;
    const double m = recorded > 0 ? missed / recorded : 0;

    k->missed += missed;
    k->recorded += recorded;
    k->m[k->n_m++] = m;
    k->blind_rows += kept == 0;
    if (m == 1) {
        k->infinite_rows++;
    } else {
        k->kl -= log1p(-m);
        k->kl_rows++;
    }
}

/* Every query head's own row; returns the mass of its own B heaviest past
 * tokens, summed. */
static double count_heads(struct ref_walk *w, uint32_t c, struct ref_row *row,
                          bool counted)
{
    const uint32_t g = w->n_head / w->n_cache, t = row->t;
    double *past = calloc(t + 1, sizeof *past), top = 0;

    for (uint32_t h = c * g; h < (c + 1) * g; h++) {
        double mass = 0, kept = 0;
        for (uint32_t i = 0; i <= t; i++) {
            past[i] = ref_loss(w, w->first_head + h, t, i);
            mass += past[i];
            kept += w->seen[i] ? past[i] : 0;
        }
        const double sink = sink_of(w, w->first_head + h);
        row->mass += mass;
        row->kept += kept;
        row->sink += sink;
        top += ref_top(past, t, w->q->budget);
        if (counted)
            count_head(&w->cache[c], mass, sink, kept);
    }
    free(past);
    return top;
}

/* The heaviest past tokens against those that are there. */
static void count_overlap(struct ref_cache *k, const struct ref_walk *w,
                          const struct ref_row *row)
{
    const uint32_t t = row->t;
    const uint32_t past = t - ref_mask_from(w, t);
    const uint32_t wanted = w->q->budget < past ? w->q->budget : past;
    uint32_t there = 0, over = 0, ties_there = 0;
    double late = 0;

    if (wanted == 0)
        return;
    /* Hidden tokens weigh nothing: they come last. */
    double *sorted = ref_sorted(row->summed, t);
    const double least = wanted == t ? -1 : sorted[wanted - 1];
    free(sorted);
    for (uint32_t i = 0; i < t; i++) {
        const double a = row->summed[i];
        there += w->seen[i] && a >= least;
        over += a > least;
        ties_there += w->seen[i] && a == least;
        late += !w->seen[i] && a > least ? a : 0;
    }
    /* Equals of the last place: those that are there take it. */
    if (wanted > over + ties_there)
        late += (wanted - over - ties_there) * least;
    k->late += late;
    k->wanted += wanted;
    k->overlap += there < wanted ? there : wanted;
}

static void count_hits(struct ref_cache *k, const struct ref_walk *w,
                       uint32_t c)
{
    const uint32_t t = w->step, P = w->q->trace->P;
    const uint32_t end = w->q->hit_prompt_only && P < t ? P : t;

    for (uint32_t i = 0; i < end; i++) {
        const bool hit = ref_access(w, c, t, i);
        k->accesses += hit;
        k->hits += hit && w->seen[i];
    }
}

static double least_of(double a, double b)
{
    return a < b ? a : b;
}

static void measure(struct ref_walk *w, uint32_t c, struct ref_row *row)
{
    const struct ref_question *q = w->q;
    const uint32_t t = row->t;
    const bool counted = t >= q->score_first && t <= q->score_last;
    struct ref_cache *k = &w->cache[c];
    const double head_top = count_heads(w, c, row, counted);

    if (q->stream && t < q->trace->P) {
        k->prompt_missed += row->mass - row->kept;
        k->prompt_recorded += row->mass + row->sink;
    }
    if (!counted)
        return;
    const double newest = row->summed[t];
    const double top = ref_top(row->summed, t, q->budget);
    k->best += top + newest;
    k->kept += least_of(row->kept, top + newest);
    k->head_best += head_top + newest;
    k->head_kept += least_of(row->kept, head_top + newest);
    k->topk += row->mass - newest - ref_top(row->summed, t, row->n_seen - 1);
    k->topk_b += row->mass - newest - ref_top(row->summed, t, w->budget);
    k->head_bound += row->mass - newest - head_top;
    count_overlap(k, w, row);
    count_hits(k, w, c);
    k->visible += row->n_seen;
    k->rows++;
    if (row->n_seen > k->peak)
        k->peak = row->n_seen;
}

void ref_measure(struct ref_walk *w)
{
    const uint32_t t = w->step;

    for (uint32_t c = 0; c < w->n_cache; c++) {
        struct ref_row row = {.t = t};
        row.summed = calloc(t + 1, sizeof *row.summed);
        for (uint32_t i = 0; i <= t; i++) {
            row.summed[i] = ref_summed(w, c, t, i);
            row.n_seen += w->seen[i];
        }
        measure(w, c, &row);
        free(row.summed);
    }
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Nearest rank: the smallest value that `percent` % of all do not exceed. */
static double rank(const double *sorted, size_t n, uint64_t percent)
{
    const size_t at = (size_t)((percent * n + 99) / 100);

    return sorted[at > 0 ? at - 1 : 0];
}

void ref_percentiles(struct ref_cache *cache)
{
    const size_t n = cache->n_m;

    if (n == 0)
        return;
    qsort(cache->m, n, sizeof *cache->m, rising);
    cache->p50 = rank(cache->m, n, 50);
    cache->p95 = rank(cache->m, n, 95);
    cache->p99 = rank(cache->m, n, 99);
    cache->max = cache->m[n - 1];
}
