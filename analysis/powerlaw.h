/* powerlaw.h -- sorted data of a fit, and its pieces (private to analysis/).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef POWERLAW_H
#define POWERLAW_H

#include "kvr_powerlaw.h"

/* Values above 0, sorted, each distinct one once. */
struct kvr__sample {
    size_t n; /* values */
    size_t n_distinct;
    uint64_t n_dropped;
    double *value;     /* [n_distinct] rising */
    double *log_value; /* [n_distinct] */
    size_t *before;    /* [n_distinct + 1] values smaller than value[j] */
};

enum kvr_status kvr__sample_new(struct kvr__sample *sample,
                                const double *values, size_t n,
                                struct kvr_error *err) KVR_MUST_CHECK;
void kvr__sample_free(struct kvr__sample *sample);

/* First index whose value is >= xmin; n_distinct if there is none. */
size_t kvr__sample_find(const struct kvr__sample *sample, double xmin);

/* A law on the tail that starts at index `from`. log_xmin differs from
 * log_value[from] where x_min is given and does not occur. */
struct kvr__law {
    const struct kvr__sample *sample;
    size_t from;
    double xmin, log_xmin;
    double alpha;
    double log_zeta; /* of (alpha, xmin); discrete only */
    bool discrete;
    enum kvr_ks ks;
};

/* Sum of ln(x/xmin) over the tail. */
double kvr__law_log_sum(const struct kvr__law *law);
/* Sets alpha (and log_zeta) by maximum likelihood, from that sum > 0. */
void kvr__law_fit(struct kvr__law *law, double log_sum);

/* Greatest distance that value j of the tail takes part in. */
double kvr__law_distance_at(const struct kvr__law *law, size_t j);
/* The greatest over the tail; stops early at or above `bound`. *worst: where
 * it was found. */
double kvr__law_distance(const struct kvr__law *law, double bound,
                         size_t *worst);

/* Index of the best candidate, each distinct value but the largest whose tail
 * holds min_tail values; n_distinct if there is none. `like` has the sample,
 * the kind and the distance. */
enum kvr_status kvr__law_search(size_t *best, const struct kvr__law *like,
                                uint64_t min_tail,
                                const struct kvr_powerlaw_options *options,
                                struct kvr_error *err) KVR_MUST_CHECK;

#endif
