/* plugin_slips.c -- plug-ins that lie or slip, one fault each: PLUGIN_SLIP.
 *
 * Those with a table that can be judged are refused when they are loaded; the
 * others run, and their rule fails by name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

#include <math.h>
#include <string.h>

enum slip {
    BAD_CLASS,
    BAD_OBSERVE,
    BAD_GROUP,
    BAD_SCOPE,
    BAD_NEEDS,
    NULL_SLOT,
    NULL_OBSERVED,
    BAD_DEFAULT,
    TWICE,
    BAD_VARIANT,
    ONE_NAN,
    LEAVES_OUT,
    READS_FUTURE,
    READS_ROW,
    READS_ACCESS,
    DRAWS,
    SMALL_STATE,
    TWO_CONSTANTS,
    SEES_THE_FUTURE, /* and says that it is online */
};

static void by_position(const void *state, const struct kvr_view *view,
                        kvr_real *score, kvr_real *second)
{
    (void)state, (void)second;
    for (uint32_t i = 0; i < view->n; i++) {
        score[i] = (kvr_real)i;
        if (PLUGIN_SLIP == ONE_NAN && i == 7)
            score[i] = (kvr_real)NAN;
        if (PLUGIN_SLIP == READS_FUTURE || PLUGIN_SLIP == SEES_THE_FUTURE)
            score[i] = (kvr_real)view->future_mass[i];
        if (PLUGIN_SLIP == READS_ROW)
            score[i] = view->weight[i];
        if (PLUGIN_SLIP == READS_ACCESS && view->accessed[i] != 0 &&
            view->accessed[i] != -1)
            score[i] = (kvr_real)NAN;
    }
}

static void half(const void *state, const struct kvr_view *view,
                 kvr_real *score, kvr_real *second)
{
    (void)state, (void)second;
    for (uint32_t i = 0; i < view->n / 2; i++)
        score[i] = 0;
}

static uint32_t draws(void *state, const struct kvr_view *view)
{
    (void)state;
    return kvr_candidate(view, view->below(view, 0, kvr_n_candidate(view)));
}

static size_t eight(const struct kvr_setting *setting)
{
    (void)setting;
    return 8;
}

static uint32_t scribbles(void *state, const struct kvr_view *view)
{
    memset(state, 1, 12);
    return kvr_oldest(view);
}

static void two(const struct kvr_setting *setting, kvr_real out[4])
{
    (void)setting;
    out[0] = 1;
    out[1] = 2;
}

KVR_INLINE kvr_real add(kvr_real score, kvr_real weight, uint32_t step,
                        kvr_real constant)
{
    (void)step, (void)constant;
    return score + weight;
}
KVR_ELEMENTWISE(add)

static const kvr_score_fn scores[KVR_ISA_SLOTS] = {by_position, by_position,
                                                   by_position};
static const kvr_score_fn halves[KVR_ISA_SLOTS] = {half, half, half};
static const kvr_score_fn none[KVR_ISA_SLOTS] = {by_position, NULL,
                                                 by_position};
static const kvr_victim_fn victims[KVR_ISA_SLOTS] = {draws, draws, draws};
static const kvr_victim_fn scribblers[KVR_ISA_SLOTS] = {scribbles, scribbles,
                                                        scribbles};
static const kvr_observe_fn blind[KVR_ISA_SLOTS] = {NULL, NULL, NULL};

static const struct kvr_param params[] = {
    {.name = "keep",
     .type = KVR_PARAM_COUNT,
     .fallback = PLUGIN_SLIP == BAD_DEFAULT ? "many" : "4",
     .max = 9,
     .help = "a count"},
    {.name = PLUGIN_SLIP == TWICE ? "keep" : "drop",
     .type = KVR_PARAM_COUNT,
     .fallback = "4",
     .max = 9,
     .help = "a count"},
    {.name = NULL},
};

static const struct kvr_policy *empty(const struct kvr_setting *setting)
{
    static const struct kvr_policy nothing = {.abi = KVR_POLICY_ABI,
                                              .name = "nothing",
                                              .summary = "none",
                                              .cite = "test"};

    (void)setting;
    return &nothing;
}

#define IS(slip) (PLUGIN_SLIP == (slip))
static const struct kvr_policy slips = {
    .abi = KVR_POLICY_ABI,
    .name = "slips",
    .summary = "a rule with a fault",
    .cite = "test",
    .params = params,
    .class_of = IS(BAD_CLASS) ? (enum kvr_class)77 : KVR_CLASS_ONLINE,
    .observe = IS(BAD_OBSERVE) ? (enum kvr_observe) - 3
               : IS(READS_ROW) ? KVR_OBSERVE_NONE
                               : KVR_OBSERVE_RENORM,
    .group = IS(BAD_GROUP) ? (enum kvr_group)9 : KVR_GROUP_MEAN,
    .scope = IS(BAD_SCOPE) ? (enum kvr_scope)2 : KVR_SCOPE_CACHE,
    .needs = IS(BAD_NEEDS)         ? 1 << 20
             : IS(SEES_THE_FUTURE) ? KVR_NEEDS_FUTURE_MASS
                                   : 0,
    .variant = IS(BAD_VARIANT) ? empty : NULL,
    .observed = IS(NULL_OBSERVED) ? blind : NULL,
    .state_size = IS(SMALL_STATE) ? eight : NULL,
    .constants = IS(TWO_CONSTANTS) ? two : NULL,
    .update = IS(TWO_CONSTANTS) ? add_update : NULL,
    .victim = IS(DRAWS)         ? victims
              : IS(SMALL_STATE) ? scribblers
                                : NULL,
    .score = IS(DRAWS) || IS(SMALL_STATE) || IS(TWO_CONSTANTS) ? NULL
             : IS(LEAVES_OUT)                                  ? halves
             : IS(NULL_SLOT)                                   ? none
                                                               : scores,
};
KVR_PLUGIN(slips)
