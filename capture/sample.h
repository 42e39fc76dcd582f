/* sample.h -- choosing the next token.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SAMPLE_H
#define SAMPLE_H

#include "kvr_error.h"

#include <stddef.h>
#include <stdint.h>

struct kvr_sampler {
    double temperature; /* 0: the largest logit, the lowest id of equals */
    double top_p;       /* the smallest set of the likeliest that reaches it */
    uint64_t seed;
    size_t n_vocab;
    struct kvr_choice *choices; /* [n_vocab] scratch */
};

enum kvr_status kvr__sampler_init(struct kvr_sampler *sampler,
                                  double temperature, double top_p,
                                  uint64_t seed, size_t n_vocab,
                                  struct kvr_error *err) KVR_MUST_CHECK;
void kvr__sampler_fini(struct kvr_sampler *sampler);

/* The token after finite logits; its draw is keyed by `step`, its position. */
int32_t kvr__sampler_next(struct kvr_sampler *sampler, const float *logits,
                          uint32_t step);

/* log p(id) of the model itself, whatever the temperature. */
float kvr__log_prob_of(const float *logits, size_t n, int32_t id);

#endif
