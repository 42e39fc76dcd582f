/* mass.c -- the token that has drawn the least attention so far leaves.
 *
 * A whole plug-in, to copy from: build it as a shared library against
 * kvr_policy.h and kvr_elementwise.h, and name it with --plugin. Known answer:
 * the same evictions as h2o:recent=0 (tests/sim/check_plugin.c); see also
 * tests/install/install.sh.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

KVR_INLINE kvr_real add(kvr_real score, kvr_real weight, uint32_t step,
                        kvr_real constant)
{
    (void)step, (void)constant;
    return score + weight;
}
KVR_ELEMENTWISE(add)

static const struct kvr_policy mass = {
    .abi = KVR_POLICY_ABI,
    .name = "mass",
    .summary = "least accumulated attention leaves",
    .cite = "baseline",
    .budget_note = "B tokens between steps",
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_RENORM,
    .group = KVR_GROUP_MEAN,
    .update = add_update,
};
KVR_PLUGIN(mass)
