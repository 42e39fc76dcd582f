/* powerlaw.c -- the fit as a whole.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_powerlaw.h"
#include "powerlaw.h"
#include "zeta.h"

#include "kvr_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static size_t first_fraction(const struct kvr__sample *s)
{
    size_t j = 0;

    while (j < s->n_distinct && s->value[j] >= 1 &&
           s->value[j] == floor(s->value[j]))
        j++;
    return j;
}

static enum kvr_status choose_kind(bool *discrete, const struct kvr__sample *s,
                                   const struct kvr_powerlaw_options *options,
                                   struct kvr_error *err)
{
    const size_t odd = first_fraction(s);

    *discrete = options->kind == KVR_POWERLAW_DISCRETE ||
                (options->kind == KVR_POWERLAW_AUTO && odd == s->n_distinct);
    if (!*discrete)
        return KVR_OK;
    if (odd < s->n_distinct)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "discrete data must be integers of at least 1, found "
                        "%.17g",
                        s->value[odd]);
    if (options->xmin > 0 && options->xmin != floor(options->xmin))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "x_min %.17g of discrete data must be an integer",
                        options->xmin);
    if (options->ks == KVR_KS_LEFT_SAMPLE)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "the left-sample distance is for continuous data");
    return KVR_OK;
}

static enum kvr_status check_enough(const struct kvr__sample *s,
                                    struct kvr_error *err)
{
    if (s->n == 0)
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "cannot fit: no positive values, %" PRIu64 " dropped",
                        s->n_dropped);
    if (s->n_distinct < 2)
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "cannot fit: fewer than 2 distinct values (%zu times "
                        "%.17g)",
                        s->n, s->value[0]);
    return KVR_OK;
}

/* Where the tail starts: by search, or at the x_min given. */
static enum kvr_status place(struct kvr__law *law,
                             const struct kvr_powerlaw_options *options,
                             struct kvr_error *err)
{
    const struct kvr__sample *s = law->sample;
    const uint64_t least = options->min_tail > 2 ? options->min_tail : 2;

    if (options->xmin > 0) {
        law->from = kvr__sample_find(s, options->xmin);
        law->xmin = options->xmin;
        law->log_xmin = log(options->xmin);
        const size_t tail = s->n - s->before[law->from];
        if (tail < least)
            return kvr_fail(err, KVR_ERR_NOTHING,
                            "cannot fit: %zu values from x_min %.17g on, "
                            "expected at least %" PRIu64,
                            tail, options->xmin, least);
        return KVR_OK;
    }
    const enum kvr_status status =
        kvr__law_search(&law->from, law, least, options, err);
    if (status != KVR_OK)
        return status;
    if (law->from == s->n_distinct)
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "cannot fit: no tail of at least %" PRIu64
                        " of the %zu values",
                        least, s->n);
    law->xmin = s->value[law->from];
    law->log_xmin = s->log_value[law->from];
    return KVR_OK;
}

static double cv2(const struct kvr__law *law, double mean)
{
    const struct kvr__sample *s = law->sample;
    const double n = (double)(s->n - s->before[law->from]);
    double sum = 0;

    for (size_t j = law->from; j < s->n_distinct; j++) {
        const double y = s->log_value[j] - law->log_xmin - mean;
        sum += (double)(s->before[j + 1] - s->before[j]) * y * y;
    }
    return sum / n / (mean * mean);
}

static enum kvr_status finish(struct kvr_powerlaw *fit, struct kvr__law *law,
                              struct kvr_error *err)
{
    const struct kvr__sample *s = law->sample;
    const double log_sum = kvr__law_log_sum(law);
    const double n = (double)(s->n - s->before[law->from]);
    size_t worst;

    if (!(log_sum > 0))
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "cannot fit: all %g values of the tail are x_min "
                        "%.17g",
                        n, law->xmin);
    kvr__law_fit(law, log_sum);
    *fit = (struct kvr_powerlaw){
        .discrete = law->discrete,
        .n = s->n,
        .n_dropped = s->n_dropped,
        .n_tail = s->n - s->before[law->from],
        .n_distinct = s->n_distinct - law->from,
        .xmin = law->xmin,
        .alpha = law->alpha,
        .ks = kvr__law_distance(law, INFINITY, &worst),
        .cv2 = NAN,
    };
    const double a = law->alpha;
    if (law->discrete) {
        /* CSN (3.6); the likelihood as in (3.5). */
        fit->sigma = 1 / sqrt(n * kvr__zeta(a, law->xmin).var_log);
        fit->loglik = -n * (law->log_zeta + a * law->log_xmin) - a * log_sum;
    } else {
        fit->sigma = (a - 1) / sqrt(n); /* CSN (3.2) */
        fit->loglik = n * (log(a - 1) - law->log_xmin) - a * log_sum;
        fit->cv2 = cv2(law, log_sum / n);
    }
    return KVR_OK;
}

enum kvr_status kvr_powerlaw_fit(struct kvr_powerlaw *fit, const double *values,
                                 size_t n,
                                 const struct kvr_powerlaw_options *options,
                                 struct kvr_error *err)
{
    struct kvr__sample sample;
    struct kvr__law law = {.sample = &sample, .ks = options->ks};
    enum kvr_status status = kvr__sample_new(&sample, values, n, err);

    if (status != KVR_OK)
        return status;
    status = check_enough(&sample, err);
    if (status == KVR_OK)
        status = choose_kind(&law.discrete, &sample, options, err);
    if (status == KVR_OK)
        status = place(&law, options, err);
    if (status == KVR_OK)
        status = finish(fit, &law, err);
    kvr__sample_free(&sample);
    return status;
}

enum kvr_status kvr_powerlaw_distance(double *distance, const double *values,
                                      size_t n, bool discrete, double xmin,
                                      double alpha, enum kvr_ks ks,
                                      struct kvr_error *err)
{
    struct kvr__sample sample;
    const enum kvr_status status = kvr__sample_new(&sample, values, n, err);

    if (status != KVR_OK)
        return status;
    struct kvr__law law = {
        .sample = &sample,
        .from = kvr__sample_find(&sample, xmin),
        .xmin = xmin,
        .log_xmin = log(xmin),
        .alpha = alpha,
        .discrete = discrete,
        .ks = ks,
    };
    size_t worst;
    if (discrete)
        law.log_zeta = kvr__zeta(alpha, xmin).log_zeta;
    *distance = kvr__law_distance(&law, INFINITY, &worst);
    kvr__sample_free(&sample);
    return KVR_OK;
}

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

enum kvr_status kvr_hill(double *alpha, const double *values, size_t n,
                         size_t k, struct kvr_error *err)
{
    if (k == 0 || k >= n)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "hill: the %zu largest of %zu values", k, n);
    double *sorted = kvr_calloc(n, sizeof *sorted);
    if (sorted == NULL)
        return kvr_no_memory(err, "values", n * sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = values[i];
    qsort(sorted, n, sizeof *sorted, falling);
    const double floor_value = sorted[k];
    double sum = 0;
    for (size_t i = k; floor_value > 0 && i-- > 0;)
        sum += log(sorted[i]) - log(floor_value);
    free(sorted);
    if (!(sum > 0))
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "hill: value %zu from above is %g, those before it "
                        "are no larger",
                        k + 1, floor_value);
    *alpha = 1 + (double)k / sum;
    return KVR_OK;
}
