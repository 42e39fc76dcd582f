/* tova.c -- the token with the least weight in the newest row leaves.
 *
 * Oren et al., Transformers are Multi-State RNNs, 2024 (arXiv 2401.06104). One
 * set for the whole layer, from the mean over all its query heads; the newest
 * token is not protected. Known answer: c01_sink evicts 1, 2, 3
 * (tests/golden/policy_cases.json, tova).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

enum { PER_HEAD };

static const struct kvr_param params[] = {
    [PER_HEAD] = {.name = "per-head",
                  .type = KVR_PARAM_COUNT,
                  .fallback = "0",
                  .max = 1,
                  .help = "1: each KV head decides for itself (EasyKV)"},
    {.name = NULL},
};

KVR_INLINE kvr_real newest_row(kvr_real score, kvr_real weight, uint32_t step,
                               kvr_real constant)
{
    (void)score, (void)step, (void)constant;
    return weight;
}
KVR_ELEMENTWISE(newest_row)

#define TOVA(scope_) \
    .abi = KVR_POLICY_ABI, .name = "tova", \
    .summary = "least weight in the newest row leaves", \
    .cite = "Oren et al. 2024, arXiv 2401.06104", \
    .budget_note = "B = cache_size", .params = params, \
    .class_of = KVR_CLASS_ONLINE, .observe = KVR_OBSERVE_RENORM, \
    .group = KVR_GROUP_MEAN, .scope = scope_, .update = newest_row_update

static const struct kvr_policy per_head = {TOVA(KVR_SCOPE_CACHE)};

static const struct kvr_policy *variant(const struct kvr_setting *setting)
{
    return setting->arg[PER_HEAD].count != 0 ? &per_head : NULL;
}

const struct kvr_policy kvr__policy_tova = {TOVA(KVR_SCOPE_LAYER),
                                            .variant = variant};
