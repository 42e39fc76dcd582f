/* kvr_powerlaw.h -- does a tail follow a power law, and which one.
 *
 * Clauset, Shalizi and Newman, SIAM Review 51, 661 (2009): maximum likelihood
 * for the exponent, and for x_min the value whose tail is nearest to its own
 * fit in Kolmogorov-Smirnov distance. Density exponent alpha: p(x) ~ x^-alpha
 * for x >= x_min, continuous, or the zeta law on integers. Exact: every
 * candidate x_min is tried and there is no grid of exponents.
 *
 * A power law that fits best need not fit: that is what a p-value is for.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_POWERLAW_H
#define KVR_POWERLAW_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum kvr_powerlaw_kind {
    KVR_POWERLAW_AUTO, /* discrete if all values kept are integers >= 1 */
    KVR_POWERLAW_CONTINUOUS,
    KVR_POWERLAW_DISCRETE,
};

/* Which distance between the empirical distribution S and the model P. */
enum kvr_ks {
    /* Supremum over all x >= x_min (discrete: all integers, those that do
     * not occur included): both sides of each jump. */
    KVR_KS_SUP,
    /* |P(x_i) - (i-1)/n| at each sorted sample: the script of the paper's
     * authors. Continuous data only. */
    KVR_KS_LEFT_SAMPLE,
    /* The lower side of each jump, once for a distinct value: the Python
     * package powerlaw. Too small on tied data. */
    KVR_KS_LEFT_UNIQUE,
};

struct kvr_powerlaw_options {
    enum kvr_powerlaw_kind kind;
    enum kvr_ks ks;
    uint64_t min_tail; /* a tail holds at least so many values; 0: 2 */
    double xmin;       /* > 0: this x_min, no search */
    /* Called while x_min is searched for, now and then; NULL: not. */
    void (*progress)(void *ud, uint64_t done, uint64_t total);
    void *progress_ud;
};

struct kvr_powerlaw {
    bool discrete;
    uint64_t n;          /* values used: those above 0 */
    uint64_t n_dropped;  /* zeros and negative values */
    uint64_t n_tail;     /* values >= xmin */
    uint64_t n_distinct; /* distinct ones among them */
    double xmin, alpha;
    double sigma;  /* standard error of alpha, from the tail alone */
    double ks;     /* distance at the fit, in the convention asked for */
    double loglik; /* of the tail */
    /* Squared coefficient of variation of ln(x/xmin), divisor n. Below 1 a
     * lognormal fits the tail better than a power law does, otherwise not
     * (both exact). Continuous; NaN for discrete data. */
    double cv2;
};

/* Fits values[0..n), in any order. On a tie of distances the smallest x_min
 * wins. KVR_ERR_INPUT: a value that is not finite, by its index from 0; a
 * kind or x_min that the values do not allow. KVR_ERR_NOTHING: fewer than two
 * distinct positive values, or no tail with min_tail values. KVR_ERR_USAGE:
 * KVR_KS_LEFT_SAMPLE with discrete data. */
enum kvr_status kvr_powerlaw_fit(struct kvr_powerlaw *fit, const double *values,
                                 size_t n,
                                 const struct kvr_powerlaw_options *options,
                                 struct kvr_error *err) KVR_MUST_CHECK;

/* Distance of a given law from the values >= xmin among values[0..n), which
 * must be finite (and integers if discrete); 0 if there are none. */
enum kvr_status kvr_powerlaw_distance(double *distance, const double *values,
                                      size_t n, bool discrete, double xmin,
                                      double alpha, enum kvr_ks ks,
                                      struct kvr_error *err) KVR_MUST_CHECK;

/* Hill's estimate from the k largest of values[0..n), 0 < k < n, as a density
 * exponent: 1 + 1 / mean of ln(x_(i) / x_(k+1)), i = 1..k. Its standard error
 * is (alpha - 1) / sqrt(k). KVR_ERR_NOTHING where the mean is 0 or the value
 * x_(k+1) is not positive. */
enum kvr_status kvr_hill(double *alpha, const double *values, size_t n,
                         size_t k, struct kvr_error *err) KVR_MUST_CHECK;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
