/* instances.h -- random problems and slow solvers for the optimum's tests.
 *
 * The slow solvers share nothing with sim/: one walks over all cache subsets,
 * one solves the assignment of slots to tokens with a dense shortest-path
 * method.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef INSTANCES_H
#define INSTANCES_H

#include "kvr_optimum.h"

#include <stdint.h>

enum kind { MANY_TIES, ONE_HOT, SPARSE, WIDE_RANGE, PEAKED, N_KIND };

struct instance {
    struct kvr_optimum_problem problem;
    struct kvr_optimum_matrix matrix;
    double *weights; /* (T - P) rows of T */
};

/* Problem number `number` of a fixed sequence: up to `most` tokens. */
void instance_random(struct instance *in, uint32_t number, uint32_t most);
/* One of T tokens, prompt P, rows of the given kind. */
void instance_make(struct instance *in, uint32_t number, enum kind kind,
                   const struct kvr_optimum_problem *problem);
void instance_free(struct instance *in);

static inline double instance_weight(const struct instance *in, uint32_t step,
                                     uint32_t token)
{
    return in->weights[(size_t)(step - in->problem.prompt_len) *
                           in->problem.n_token +
                       token];
}

/* Least loss over all sequences of caches with at most visible[t] tokens at
 * step t, every transition allowed; -1 if there is none. T <= 10. */
int64_t brute_force(const struct instance *in, const uint32_t *visible);

/* The same as an assignment problem, for budget k throughout. */
int64_t assignment(const struct instance *in, uint32_t k);

#endif
