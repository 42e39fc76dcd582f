/* random.c -- a uniformly drawn token leaves.
 *
 * The draw depends on (seed, layer, head, step) only, not on the order of the
 * replay. Known answer: two runs with one seed are equal, two seeds differ
 * (tests/sim/check_policies.c).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

KVR_INLINE uint32_t draw(void *state, const struct kvr_view *view)
{
    (void)state;
    const uint32_t m = kvr_n_candidate(view);
    return kvr_candidate(view, view->below(view, view->n_resident, m));
}
KVR_VICTIM(draw)

const struct kvr_policy kvr__policy_random = {
    .abi = KVR_POLICY_ABI,
    .name = "random",
    .summary = "a uniformly drawn token leaves",
    .cite = "baseline; RandomPress of kvpress",
    .budget_note = "B tokens between steps",
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_NONE,
    .needs = KVR_NEEDS_RANDOM,
    .victim = draw_isa,
};
