/* belady.c -- the token whose next access is farthest in the future leaves.
 *
 * Belady's MIN (IBM Systems Journal 5, 1966) on thresholded accesses of the
 * recorded row. Its optimality needs unit costs and readmission, which a KV
 * cache has neither of: it is no bound here. Known answer: c12_belady_not_opt
 * evicts 2, 1, 3, 0 (tests/golden/policy_cases.json, belady).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

static size_t state_size(const struct kvr_setting *setting)
{
    return (setting->n_token + 64) * sizeof(double);
}

KVR_INLINE uint32_t farthest(void *state, const struct kvr_view *view)
{
    double *key = (double *)state;

    for (uint32_t i = view->first; i < view->last; i++)
        key[i] = -(double)view->next_access[i];
    return kvr_lowest(view, key, 0);
}
KVR_VICTIM(farthest)

const struct kvr_policy kvr__policy_belady = {
    .abi = KVR_POLICY_ABI,
    .name = "belady",
    .summary = "the token accessed again last leaves",
    .cite = "Belady 1966; no bound for KV caches (H2O, arXiv 2306.14048)",
    .budget_note = "B tokens between steps",
    .class_of = KVR_CLASS_OFFLINE,
    .observe = KVR_OBSERVE_RAW,
    .group = KVR_GROUP_MEAN,
    .needs = KVR_NEEDS_NEXT_ACCESS,
    .state_size = state_size,
    .victim = farthest_isa,
};
