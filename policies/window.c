/* window.c -- the sliding window: the oldest token leaves (FIFO).
 *
 * H2O's "local" baseline: heavy 0, recent B. Known answer: c01_sink evicts 0,
 * 1, 2 (tests/golden/policy_cases.json, fifo_local).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

KVR_INLINE uint32_t oldest(void *state, const struct kvr_view *view)
{
    (void)state;
    return kvr_oldest(view);
}
KVR_VICTIM(oldest)

const struct kvr_policy kvr__policy_window = {
    .abi = KVR_POLICY_ABI,
    .name = "window",
    .summary = "the oldest token leaves",
    .cite = "baseline; 'local' in H2O (Zhang et al., arXiv 2306.14048)",
    .budget_note = "B = H2O's recent budget with no heavy part",
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_NONE,
    .victim = oldest_isa,
};
