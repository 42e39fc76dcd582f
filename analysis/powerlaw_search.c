/* powerlaw_search.c -- x_min by the smallest distance, over all candidates.
 *
 * A candidate is left at the first point that is as far off as the best one's
 * distance; points that spoilt the last candidates are tried first. That
 * changes no result.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "powerlaw.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>

enum { N_WITNESS = 3 };

/* Points that were worst for earlier candidates, the latest first. */
struct witnesses {
    size_t at[N_WITNESS];
    size_t n;
};

static void remember(struct witnesses *w, size_t at)
{
    size_t i = 0;

    while (i < w->n && w->at[i] != at)
        i++;
    if (i == w->n)
        i = w->n < N_WITNESS ? w->n++ : N_WITNESS - 1;
    for (; i > 0; i--)
        w->at[i] = w->at[i - 1];
    w->at[0] = at;
}

static bool spoilt(const struct kvr__law *law, struct witnesses *w,
                   double bound)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->at[i] >= law->from &&
            kvr__law_distance_at(law, w->at[i]) >= bound) {
            remember(w, w->at[i]);
            return true;
        }
    return false;
}

/* tail[i]: sum of ln x over values from index i on, less its count times
 * ln x_i, all non-negative terms: each log gap counts for those above it. */
static double *gap_sums(const struct kvr__sample *s)
{
    double *tail = kvr_calloc(s->n_distinct, sizeof *tail);

    if (tail == NULL)
        return NULL;
    for (size_t i = s->n_distinct - 1; i-- > 0;) {
        const double above = (double)(s->n - s->before[i + 1]);
        tail[i] = tail[i + 1] + above * (s->log_value[i + 1] - s->log_value[i]);
    }
    return tail;
}

enum kvr_status kvr__law_search(size_t *best, const struct kvr__law *like,
                                uint64_t min_tail,
                                const struct kvr_powerlaw_options *options,
                                struct kvr_error *err)
{
    const struct kvr__sample *sample = like->sample;
    const size_t n = sample->n_distinct;
    double *sums = gap_sums(sample);
    double nearest = INFINITY;
    struct witnesses witnesses = {0};

    *best = n;
    if (sums == NULL)
        return kvr_no_memory(err, "sums of logarithms", n * sizeof *sums);
    for (size_t i = 0; i + 1 < n; i++) {
        struct kvr__law law = {
            .sample = sample,
            .from = i,
            .xmin = sample->value[i],
            .log_xmin = sample->log_value[i],
            .discrete = like->discrete,
            .ks = like->ks,
        };
        size_t worst;
        if (options->progress != NULL && i % 256 == 0)
            options->progress(options->progress_ud, i, n);
        if (sample->n - sample->before[i] < min_tail)
            break;
        kvr__law_fit(&law, sums[i]);
        if (spoilt(&law, &witnesses, nearest))
            continue;
        const double distance = kvr__law_distance(&law, nearest, &worst);
        remember(&witnesses, worst);
        if (distance < nearest) {
            nearest = distance;
            *best = i;
        }
    }
    if (options->progress != NULL)
        options->progress(options->progress_ud, n, n);
    free(sums);
    return KVR_OK;
}
