/* streaming_llm.c -- the first few tokens stay, then the oldest leaves.
 *
 * Xiao et al., Efficient Streaming Language Models with Attention Sinks, ICLR
 * 2024 (arXiv 2309.17453). Positions inside the cache are not assigned anew:
 * replay knows the set, not re-rotated keys. Known answer: c01_sink with one
 * sink evicts 1, 2, 3 (tests/golden/policy_cases.json, streaming_llm).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

enum { SINKS };

static const struct kvr_param params[] = {
    [SINKS] = {.name = "sinks",
               .type = KVR_PARAM_TOKENS,
               .fallback = "4",
               .help = "first tokens that never leave, within B"},
    {.name = NULL},
};

static void window(const struct kvr_setting *setting, struct kvr_window *out)
{
    out->first = setting->arg[SINKS].count;
}

KVR_INLINE uint32_t oldest(void *state, const struct kvr_view *view)
{
    (void)state;
    return kvr_oldest(view);
}
KVR_VICTIM(oldest)

const struct kvr_policy kvr__policy_streaming_llm = {
    .abi = KVR_POLICY_ABI,
    .name = "streaming-llm",
    .summary = "keeps the first tokens and the most recent ones",
    .cite = "Xiao et al. 2024, arXiv 2309.17453",
    .budget_note = "B = start_size + recent_size",
    .params = params,
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_NONE,
    .window = window,
    .victim = oldest_isa,
};
