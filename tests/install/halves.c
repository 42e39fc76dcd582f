/* halves.c -- a policy built outside the tree: what was not used for long is
 * worth half. Attention decays by `keep` each step and the least leaves.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

enum { KEEP };

static const struct kvr_param params[] = {
    [KEEP] = {.name = "keep",
              .type = KVR_PARAM_REAL,
              .fallback = "0.5",
              .min = 0,
              .max = 1,
              .help = "share of the old score that stays"},
    {.name = NULL},
};

static void constants(const struct kvr_setting *setting, kvr_real out[4])
{
    out[0] = (kvr_real)setting->arg[KEEP].real;
}

KVR_INLINE kvr_real fade(kvr_real score, kvr_real weight, uint32_t step,
                         kvr_real keep)
{
    (void)step;
    return keep * score + weight;
}
KVR_ELEMENTWISE(fade)

static const struct kvr_policy halves = {
    .abi = KVR_POLICY_ABI,
    .name = "halves",
    .summary = "least attention leaves, where old attention fades",
    .cite = "docs/policies.md",
    .params = params,
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_RENORM,
    .group = KVR_GROUP_MEAN,
    .constants = constants,
    .update = fade_update,
};

const struct kvr_policy *kvr_plugin_policy(void);

const struct kvr_policy *kvr_plugin_policy(void)
{
    return &halves;
}
