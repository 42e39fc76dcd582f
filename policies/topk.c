/* topk.c -- each row sees the newest token and its own B heaviest ones.
 *
 * No rule that evicts for good can lose less, since here every token may come
 * back: a lower bound, not a rule. It ignores protection. Known answer: total
 * miss of oracle_topk_step in tests/golden/policy_cases.json.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

KVR_INLINE void heaviest(void *state, const struct kvr_view *view,
                         int32_t *visible)
{
    const double least = view->top_least;
    uint32_t n = 0;

    (void)state;
    for (uint32_t i = 0; i + 1 < view->n; i++) {
        visible[i] = view->recorded[i] > least ? -1 : 0;
        n -= (uint32_t)visible[i];
    }
    visible[view->step] = -1;
    /* Places left go to the newest of those that equal the B-th. */
    for (uint32_t i = view->step; i-- > 0 && n < view->setting->budget;)
        if (visible[i] == 0 && view->recorded[i] >= least) {
            visible[i] = -1;
            n++;
        }
}
KVR_MASK(heaviest)

const struct kvr_policy kvr__policy_topk = {
    .abi = KVR_POLICY_ABI,
    .name = "topk",
    .summary = "each row's own heaviest tokens: the bound on every rule",
    .cite = "bound",
    .budget_note = "B heaviest past tokens and the newest",
    .class_of = KVR_CLASS_BOUND,
    .observe = KVR_OBSERVE_RAW,
    .group = KVR_GROUP_SUM,
    .needs = KVR_NEEDS_TOP,
    .mask = heaviest_isa,
};
