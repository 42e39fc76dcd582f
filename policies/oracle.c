/* oracle.c -- the exact offline optimum of irrevocable eviction.
 *
 * The simulator computes the schedule (sim/optimum/kvr_optimum.h: shortest
 * augmenting paths over eviction slots, with an exact dual certificate) and
 * evicts by it. Known answers: tests/golden/oracle, and oracle_opt_permanent of
 * tests/golden/policy_cases.json.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_policy.h"

const struct kvr_policy kvr__policy_oracle = {
    .abi = KVR_POLICY_ABI,
    .name = "oracle",
    .summary = "the least loss that any eviction schedule can have",
    .cite = "exact optimum, this project (docs/optimum.md)",
    .budget_note = "B tokens between steps; k = B + 1 in the literature",
    .class_of = KVR_CLASS_OFFLINE,
    .observe = KVR_OBSERVE_RAW,
    .group = KVR_GROUP_SUM,
    .needs = KVR_NEEDS_SCHEDULE,
};
