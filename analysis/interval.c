/* interval.c -- an interval for a share, from rows that resemble each other.
 *
 * The method and its sources: kvr_interval.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_interval.h"

#include "kvr_memory.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_fft_halfcomplex.h>
#include <gsl/gsl_fft_real.h>
#include <math.h>
#include <stdlib.h>

static const double least_freedom = 1.3;

/* The linear term of the share's error in each row; returns the share. */
static double influence(double *z, const double *missed, const double *other,
                        const double *recorded, uint32_t n)
{
    double lost = 0, all = 0;

    for (uint32_t t = 0; t < n; t++) {
        z[t] = missed[t] - (other != NULL ? other[t] : 0);
        lost += z[t];
        all += recorded[t];
    }
    const double share = all > 0 ? lost / all : NAN;
    for (uint32_t t = 0; t < n; t++)
        z[t] = (z[t] - share * recorded[t]) * (n / all);
    return share;
}

/* Replaces z by its autocovariances of lags 0..n-1 (divided by n): the inverse
 * transform of the squared transform. size: a power of two, at least 2n. */
static bool autocovariances(double *z, size_t size, uint32_t n)
{
    if (gsl_fft_real_radix2_transform(z, 1, size) != GSL_SUCCESS)
        return false;
    z[0] *= z[0];
    z[size / 2] *= z[size / 2];
    for (size_t i = 1; i < size / 2; i++) {
        z[i] = z[i] * z[i] + z[size - i] * z[size - i];
        z[size - i] = 0;
    }
    if (gsl_fft_halfcomplex_radix2_inverse(z, 1, size) != GSL_SUCCESS)
        return false;
    for (uint32_t k = 0; k < n; k++)
        z[k] /= n;
    return true;
}

/* The first lag behind which correlations cannot be told from chance. */
static uint32_t memory_of(const double *cov, uint32_t n)
{
    const double log_n = log10(n);
    const uint32_t run = sqrt(log_n) > 5 ? (uint32_t)ceil(sqrt(log_n)) : 5;
    const double least = 2 * sqrt(log_n / n) * cov[0];
    uint32_t quiet = 0;

    for (uint32_t k = 1; k < n; k++) {
        quiet = fabs(cov[k]) < least ? quiet + 1 : 0;
        if (quiet == run)
            return k - run > 0 ? k - run : 1;
        if (k - quiet >= n / 2)
            break;
    }
    return n / 2;
}

/* Half the interval's width with blocks of `block` rows; NaN: too few. */
static double half_width(double *freedom, const double *cov, uint32_t block,
                         uint32_t n)
{
    double sum = cov[0], window = 1;

    for (uint32_t k = 1; k <= block && k < n; k++) {
        const double u = (double)k / block;
        const double weight = u <= 0.5 ? 1 : 2 * (1 - u);
        sum += 2 * weight * cov[k];
        window += 2 * weight;
    }
    *freedom = 0.75 * n / block;
    const double left = 1 - window / n;
    if (*freedom < least_freedom || left < 0.25)
        return NAN;
    /* A window that is not positive throughout may give less than nothing. */
    if (sum < 0.2 * cov[0])
        sum = 0.2 * cov[0];
    return gsl_cdf_tdist_Pinv(0.5 + KVR_INTERVAL_LEVEL / 2, *freedom) *
           sqrt(sum / left / n);
}

static void widest(struct kvr_interval *out, const double *cov, uint32_t n)
{
    const uint32_t memory = memory_of(cov, n);
    const uint32_t blocks[] = {2 * memory, n / 6, n / 3};
    double most = NAN;

    out->block = blocks[0];
    for (int i = 0; i < (memory > 2 ? 3 : 1); i++) {
        double freedom;
        const double half = half_width(&freedom, cov, blocks[i], n);
        if (isnan(half) && i == 0)
            break;
        if (blocks[i] == 0 || isnan(half) || half <= most)
            continue;
        most = half;
        out->block = blocks[i];
        out->freedom = freedom;
    }
    out->low = out->estimate - most;
    out->high = out->estimate + most;
    if (isnan(most))
        out->reason = "cannot tell: too few rows for how alike they are";
}

enum kvr_status kvr_interval_of(struct kvr_interval *out, const double *missed,
                                const double *other, const double *recorded,
                                uint32_t n, struct kvr_error *err)
{
    size_t size = 2;

    gsl_set_error_handler_off(); /* it aborts; calls are checked here */
    *out = (struct kvr_interval){.estimate = NAN, .low = NAN, .high = NAN};
    while (size < 2 * (size_t)n)
        size *= 2;
    double *z = kvr_calloc(size, sizeof *z);
    if (z == NULL)
        return kvr_no_memory(err, "an interval", size * sizeof *z);
    out->estimate = influence(z, missed, other, recorded, n);
    if (n < 8 || isnan(out->estimate)) {
        out->reason =
            n < 8 ? "cannot tell: fewer than 8 rows" : "no mass was recorded";
    } else if (!autocovariances(z, size, n)) {
        out->reason = "cannot tell: the transform failed";
    } else if (z[0] <= 0) { /* every row alike: nothing varies */
        out->low = out->high = out->estimate;
        out->block = 1;
        out->freedom = n - 1;
    } else {
        widest(out, z, n);
    }
    if (other == NULL) { /* a share */
        out->low = out->low < 0 ? 0 : out->low;
        out->high = out->high > 1 ? 1 : out->high;
    }
    free(z);
    return KVR_OK;
}

bool kvr_interval_tells(const struct kvr_interval *difference)
{
    return difference->low > 0 || difference->high < 0;
}
