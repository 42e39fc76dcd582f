/* kvr_gap.h -- where a policy's loss comes from.
 *
 * miss = head bound       what B + 1 tokens lose even if each query head chose
 *                         its own, anew for each row
 *      + sharing          because the query heads of a cache share one set
 *      + irrevocability   because what was evicted does not come back
 *      + regret           because the rule did not know what was to come
 *
 * The first three are properties of the trace and the budget: no rule that
 * evicts for good can avoid them. Only the regret is the rule's own.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_GAP_H
#define KVR_GAP_H

#include "kvr_sim.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Shares of the recorded mass. NaN where the optimum is not known. */
struct kvr_gap {
    double miss;
    double head_bound, sharing;
    double topk; /* head_bound + sharing */
    double irrevocability;
    double oracle; /* topk + irrevocability: the exact optimum */
    double regret; /* miss - oracle */
};

/* Of any scope: a cache, a layer, the whole. The terms add up to miss but for
 * the rounding of the additions. */
struct kvr_gap kvr_gap_of(const struct kvr_tally *tally);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
