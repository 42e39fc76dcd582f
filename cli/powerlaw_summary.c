/* powerlaw_summary.c -- the last line under a table of fits.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "powerlaw_summary.h"

#include "kvr_memory.h"

#include <stdio.h>
#include <stdlib.h>

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of a field over the n items that have it; not set without any. */
static enum kvr_status median(double *out, size_t *n, const json_t *results,
                              const char *key, struct kvr_error *err)
{
    double *values = kvr_calloc(json_array_size(results), sizeof *values);
    size_t i, m = 0;
    json_t *item;

    if (values == NULL)
        return kvr_no_memory(err, "a median",
                             json_array_size(results) * sizeof *values);
    json_array_foreach(results, i, item)
    {
        const json_t *value = json_object_get(item, key);
        if (json_is_number(value))
            values[m++] = json_number_value(value);
    }
    if (m > 0) {
        qsort(values, m, sizeof *values, rising);
        *out = (values[(m - 1) / 2] + values[m / 2]) / 2;
    }
    free(values);
    *n = m;
    return KVR_OK;
}

enum kvr_status kvr__cli_powerlaw_summary(char *out, size_t size,
                                          const json_t *results,
                                          struct kvr_error *err)
{
    const size_t all = json_array_size(results);
    double alpha = 0, tail = 0;
    size_t n = 0;

    enum kvr_status status = median(&alpha, &n, results, "alpha", err);
    if (status == KVR_OK)
        status = median(&tail, &n, results, "tail_fraction", err);
    if (status != KVR_OK)
        return status;
    if (n == 0)
        snprintf(out, size, "none of %zu fitted.", all);
    else
        snprintf(out, size,
                 "%zu of %zu fitted; median alpha %.3f, median tail %.1f%% of "
                 "the values used.",
                 n, all, alpha, 100 * tail);
    return KVR_OK;
}
