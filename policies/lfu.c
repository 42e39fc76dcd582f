/* lfu.c -- the token with the fewest accesses leaves.
 *
 * A token enters with count 1 and its own first row does not count again;
 * between equal counts the one accessed longest ago leaves. Newcomers are the
 * natural victims: use it with --protect-last, or with aging. Known answer:
 * c09_lru_vs_lfu evicts 1, 3, 4, 5 (tests/golden/policy_cases.json, lfu).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

#include <string.h>

enum { AGING };

static const struct kvr_param params[] = {
    [AGING] = {.name = "aging",
               .type = KVR_PARAM_COUNT,
               .fallback = "0",
               .max = 1e9,
               .help = "halve all counts every n rows; 0: never"},
    {.name = NULL},
};

static size_t room(const struct kvr_setting *setting)
{
    return ((size_t)setting->n_token + 127) / 64 * 64;
}

static size_t state_size(const struct kvr_setting *setting)
{
    return 2 * room(setting) * sizeof(kvr_real);
}

static void insert(void *state, const struct kvr_view *view)
{
    kvr_real *count = (kvr_real *)state;
    kvr_real *last = count + room(view->setting);

    count[view->step] = 1;
    last[view->step] = (kvr_real)view->step;
}

KVR_INLINE void count_accesses(void *state, const struct kvr_view *view)
{
    kvr_real *restrict count = (kvr_real *)KVR_ALIGNED(state);
    kvr_real *restrict last = count + room(view->setting);
    const int32_t *restrict accessed =
        (const int32_t *)KVR_ALIGNED(view->accessed);
    const uint32_t aging = view->setting->arg[AGING].count;
    const kvr_real now = (kvr_real)view->step;

    for (uint32_t i = 0; i + 1 < view->n; i++) {
        count[i] += accessed[i] != 0 ? (kvr_real)1 : (kvr_real)0;
        last[i] = accessed[i] != 0 ? now : last[i];
    }
    if (aging != 0 && (view->step + 1) % aging == 0)
        for (uint32_t i = 0; i < view->n; i++)
            count[i] *= (kvr_real)0.5;
}
KVR_OBSERVED(count_accesses)

KVR_INLINE void frequency(const void *state, const struct kvr_view *view,
                          kvr_real *score, kvr_real *second)
{
    const kvr_real *count = (const kvr_real *)state;

    memcpy(score, count, view->n * sizeof *score);
    memcpy(second, count + room(view->setting), view->n * sizeof *second);
}
KVR_SCORE(frequency)

const struct kvr_policy kvr__policy_lfu = {
    .abi = KVR_POLICY_ABI,
    .name = "lfu",
    .summary = "the token with the fewest accesses leaves",
    .cite = "classic; access rule after Scissorhands (arXiv 2305.17118)",
    .budget_note = "B tokens between steps",
    .params = params,
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_RENORM,
    .group = KVR_GROUP_MEAN,
    .needs = KVR_NEEDS_ACCESS,
    .state_size = state_size,
    .insert = insert,
    .observed = count_accesses_isa,
    .score = frequency_isa,
    .two_keys = 1,
};
