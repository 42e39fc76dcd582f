/* powerlaw_sample.c -- data of a fit, sorted and counted.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "powerlaw.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void kvr__sample_free(struct kvr__sample *sample)
{
    free(sample->value);
    free(sample->log_value);
    free(sample->before);
    *sample = (struct kvr__sample){0};
}

/* Copies what is above 0. */
static enum kvr_status keep_positive(struct kvr__sample *sample,
                                     const double *values, size_t n,
                                     struct kvr_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "value %zu is %g, expected a finite number", i,
                            values[i]);
        if (values[i] > 0)
            sample->value[sample->n++] = values[i];
        else
            sample->n_dropped++;
    }
    return KVR_OK;
}

enum kvr_status kvr__sample_new(struct kvr__sample *sample,
                                const double *values, size_t n,
                                struct kvr_error *err)
{
    *sample = (struct kvr__sample){
        .value = kvr_calloc(n, sizeof(double)),
        .log_value = kvr_calloc(n, sizeof(double)),
        .before = kvr_calloc(n + 1, sizeof(size_t)),
    };
    enum kvr_status status = KVR_OK;
    if (!sample->value || !sample->log_value || !sample->before)
        status = kvr_no_memory(err, "values", 3 * n * sizeof(double));
    if (status == KVR_OK)
        status = keep_positive(sample, values, n, err);
    if (status != KVR_OK) {
        kvr__sample_free(sample);
        return status;
    }
    if (sample->n > 0)
        qsort(sample->value, sample->n, sizeof(double), rising);
    size_t m = 0;
    for (size_t i = 0; i < sample->n; i++) {
        if (m > 0 && sample->value[m - 1] == sample->value[i])
            continue;
        sample->value[m] = sample->value[i];
        sample->log_value[m] = log(sample->value[m]);
        sample->before[m++] = i;
    }
    sample->before[m] = sample->n;
    sample->n_distinct = m;
    return KVR_OK;
}

size_t kvr__sample_find(const struct kvr__sample *sample, double xmin)
{
    size_t low = 0, high = sample->n_distinct;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (sample->value[middle] < xmin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
