/* greedy_future.c -- the token with the least recorded mass to come leaves.
 *
 * The obvious oracle, and not the optimum: it loses 9 to 15 % more on real
 * heads. `oracle` is the exact one. Known answer: c01_sink evicts 1, 2, 0
 * (tests/golden/policy_cases.json, oracle_future_mass).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

KVR_INLINE uint32_t least_future(void *state, const struct kvr_view *view)
{
    (void)state;
    return kvr_lowest(view, view->future_mass, 0);
}
KVR_VICTIM(least_future)

const struct kvr_policy kvr__policy_greedy_future = {
    .abi = KVR_POLICY_ABI,
    .name = "greedy-future",
    .summary = "the token with the least mass to come leaves",
    .cite = "clairvoyant baseline",
    .budget_note = "B tokens between steps",
    .class_of = KVR_CLASS_OFFLINE,
    .observe = KVR_OBSERVE_RAW,
    .group = KVR_GROUP_SUM,
    .needs = KVR_NEEDS_FUTURE_MASS,
    .victim = least_future_isa,
};
