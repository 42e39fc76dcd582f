/* full.c -- nothing is evicted: the row that all others are held against.
 *
 * Known answer: miss mass 0 on every trace (tests/sim/check_policies.c).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_policy.h"

const struct kvr_policy kvr__policy_full = {
    .abi = KVR_POLICY_ABI,
    .name = "full",
    .summary = "keeps every token",
    .cite = "baseline",
    .budget_note = "ignores B",
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_NONE,
    .needs = KVR_KEEPS_ALL,
};
