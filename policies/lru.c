/* lru.c -- the token whose last access is longest ago leaves.
 *
 * An access is what --access says (default: weight above 1/|C_t|); insertion
 * is one. Ties: see --ties. A rule written with `score`: it keeps its own
 * record and tells the engine what to rank. Known answer: c09_lru_vs_lfu
 * evicts 1, 0, 3, 4 (tests/golden/policy_cases.json, lru).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

#include <string.h>

static size_t state_size(const struct kvr_setting *setting)
{
    return (setting->n_token + 64) * sizeof(kvr_real);
}

static void insert(void *state, const struct kvr_view *view)
{
    kvr_real *last = (kvr_real *)state;

    last[view->step] = (kvr_real)view->step;
}

KVR_INLINE void mark(void *state, const struct kvr_view *view)
{
    kvr_real *restrict last = (kvr_real *)KVR_ALIGNED(state);
    const int32_t *restrict accessed =
        (const int32_t *)KVR_ALIGNED(view->accessed);
    const kvr_real now = (kvr_real)view->step;

    for (uint32_t i = 0; i < view->n; i++)
        last[i] = accessed[i] != 0 ? now : last[i];
}
KVR_OBSERVED(mark)

KVR_INLINE void last_access(const void *state, const struct kvr_view *view,
                            kvr_real *score, kvr_real *second)
{
    (void)second;
    memcpy(score, state, view->n * sizeof *score);
}
KVR_SCORE(last_access)

const struct kvr_policy kvr__policy_lru = {
    .abi = KVR_POLICY_ABI,
    .name = "lru",
    .summary = "the token accessed longest ago leaves",
    .cite = "classic; access rule after Scissorhands (arXiv 2305.17118)",
    .budget_note = "B tokens between steps",
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_RENORM,
    .group = KVR_GROUP_MEAN,
    .needs = KVR_NEEDS_ACCESS,
    .state_size = state_size,
    .insert = insert,
    .observed = mark_isa,
    .score = last_access_isa,
};
