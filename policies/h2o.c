/* h2o.c -- the token that has drawn the least attention so far leaves, the
 * most recent ones excepted (heavy hitters and a recent window).
 *
 * Zhang et al., H2O: Heavy-Hitter Oracle, NeurIPS 2023 (arXiv 2306.14048),
 * as its real-drop code does it: scores are sums of rows renormalised over the
 * cache, prompt rows included. The forks in the wild are parameters. Known
 * answer: c01_sink with recent=1 evicts 2, 3, 4
 * (tests/golden/policy_cases.json, h2o).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

#include <string.h>

enum { RECENT, STATISTIC, AVERAGE, DECAY, GRADUATION };
enum { LOCAL, GLOBAL };
enum { FREE, GAP, FORCED };

static const struct kvr_param params[] = {
    [RECENT] = {.name = "recent",
                .type = KVR_PARAM_TOKENS,
                .fallback = "B/2",
                .help = "newest tokens that never leave; heavy is the rest"},
    [STATISTIC] = {.name = "statistic",
                   .type = KVR_PARAM_CHOICE,
                   .fallback = "local",
                   .choices = "local|global",
                   .help = "global: sums over all rows, future ones too "
                           "(utils_lm_eval for LLaMA)"},
    [AVERAGE] = {.name = "average",
                 .type = KVR_PARAM_COUNT,
                 .fallback = "0",
                 .max = 1,
                 .help = "1: divide by the rows that could see the token "
                         "(ObservedAttention of kvpress)"},
    [DECAY] = {.name = "decay",
               .type = KVR_PARAM_REAL,
               .fallback = "1",
               .min = 1e-6,
               .max = 1,
               .help = "multiply scores by it each row (KVCache-Factory, "
                       "EasyKV)"},
    [GRADUATION] = {.name = "graduation",
                    .type = KVR_PARAM_CHOICE,
                    .fallback = "free",
                    .choices = "free|gap|forced",
                    .help = "a token leaving the window: competes (real "
                            "drop), is hidden for one row (utils_hh), takes "
                            "a heavy place for certain (FlexGen)"},
    {.name = NULL},
};

static void window(const struct kvr_setting *setting, struct kvr_window *out)
{
    const uint32_t recent = setting->arg[RECENT].count;

    out->last = recent;
    if (setting->arg[GRADUATION].count == FORCED && recent < setting->budget)
        out->last = recent + 1;
}

static void constants(const struct kvr_setting *setting, kvr_real out[4])
{
    out[0] = (kvr_real)setting->arg[DECAY].real;
}

static const char *check(const struct kvr_setting *setting)
{
    const struct kvr_arg *a = setting->arg;

    if (a[STATISTIC].count == GLOBAL && a[DECAY].real < 1)
        return "statistic=global and decay do not go together";
    if (a[GRADUATION].count == GAP && a[RECENT].count == 0)
        return "graduation=gap needs recent of at least 1 token";
    if (a[GRADUATION].count == GAP &&
        (a[STATISTIC].count == GLOBAL || a[AVERAGE].count != 0 ||
         a[DECAY].real < 1))
        return "graduation=gap goes with no other fork";
    return NULL;
}

KVR_INLINE kvr_real accumulate(kvr_real score, kvr_real weight, uint32_t step,
                               kvr_real decay)
{
    (void)step;
    return score * decay + weight;
}
KVR_ELEMENTWISE(accumulate)

KVR_INLINE kvr_real mean(kvr_real score, kvr_real rows)
{
    return score / rows;
}
KVR_RANK(mean)

/* statistic=global: the score is known before the first row. */
static size_t keys_size(const struct kvr_setting *setting)
{
    return (setting->n_token + 64) * sizeof(double);
}

KVR_INLINE uint32_t least_in_all(void *state, const struct kvr_view *view)
{
    const struct kvr_setting *s = view->setting;
    double *key = (double *)state;

    for (uint32_t i = view->first; i < view->last; i++)
        key[i] = s->arg[AVERAGE].count != 0
                     ? view->column_mass[i] / (double)(s->n_token - i)
                     : view->column_mass[i];
    return kvr_lowest(view, key, 0);
}
KVR_VICTIM(least_in_all)

/* graduation=gap. State: scores, then the last row's visibility. All tokens
 * stay stored; a row sees the `recent` newest and the heaviest of those that
 * left the window before it. The one that leaves just now is hidden. */
static size_t room(const struct kvr_setting *setting)
{
    return ((size_t)setting->n_token + 127) / 64 * 64;
}

static size_t gap_size(const struct kvr_setting *setting)
{
    return room(setting) * (sizeof(kvr_real) + 1);
}

/* Marks the `heavy` best of score[first..end), the newer of equals first. */
static void select_heavy(const kvr_real *score, uint32_t first, uint32_t end,
                         uint32_t heavy, int32_t *visible)
{
    for (; heavy > 0; heavy--) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = first; i < end; i++)
            if (visible[i] == 0 &&
                (best == UINT32_MAX || score[i] >= score[best]))
                best = i;
        if (best == UINT32_MAX)
            return;
        visible[best] = -1;
    }
}

static uint32_t gap_from(const struct kvr_view *view)
{
    const uint32_t recent = view->setting->arg[RECENT].count;

    return view->n > recent ? view->n - recent : 0;
}

KVR_INLINE void gap_visible(void *state, const struct kvr_view *view,
                            int32_t *visible)
{
    const uint32_t budget = view->setting->budget;
    const uint32_t from = gap_from(view);
    const uint32_t heavy =
        budget - (view->n - from < budget ? view->n - from : budget);

    memset(visible, 0, view->n * sizeof *visible);
    for (uint32_t i = from; i < view->n; i++)
        visible[i] = -1;
    if (view->n - view->first <= budget) /* nothing to hide yet */
        for (uint32_t i = view->first; i < from; i++)
            visible[i] = -1;
    else if (from > 0)
        select_heavy((const kvr_real *)state, view->first, from - 1, heavy,
                     visible);
}
KVR_MASK(gap_visible)

/* Rows are added for what they saw; hidden tokens start from zero, except the
 * one in the gap. */
KVR_INLINE void gap_observed(void *state, const struct kvr_view *view)
{
    kvr_real *score = (kvr_real *)state;
    const uint32_t from = gap_from(view);
    const int whole = view->step < view->setting->prompt_len;

    for (uint32_t i = 0; i < view->n; i++) {
        if (view->resident[i] != 0)
            score[i] += view->weight[i];
        else if (!whole && i + 1 != from)
            score[i] = 0;
    }
}
KVR_OBSERVED(gap_observed)

#define H2O \
    .abi = KVR_POLICY_ABI, .name = "h2o", \
    .summary = "least accumulated attention leaves, the newest excepted", \
    .cite = "Zhang et al. 2023, arXiv 2306.14048", \
    .budget_note = "B = hh_size + recent_size; the paper's 20 % is of the " \
                   "prompt (--budget-of prompt)", \
    .params = params, .observe = KVR_OBSERVE_RENORM, .group = KVR_GROUP_MEAN, \
    .window = window, .check = check

static const struct kvr_policy average = {
    H2O, .class_of = KVR_CLASS_ONLINE, .constants = constants,
    .update = accumulate_update, .rank = mean_rank};
static const struct kvr_policy global = {
    H2O, .class_of = KVR_CLASS_LOOK_AHEAD, .needs = KVR_NEEDS_COLUMN_MASS,
    .state_size = keys_size, .victim = least_in_all_isa};
static const struct kvr_policy gap = {
    H2O, .class_of = KVR_CLASS_MASK, .state_size = gap_size,
    .observed = gap_observed_isa, .mask = gap_visible_isa};

static const struct kvr_policy *variant(const struct kvr_setting *setting)
{
    if (setting->arg[GRADUATION].count == GAP)
        return &gap;
    if (setting->arg[STATISTIC].count == GLOBAL)
        return &global;
    return setting->arg[AVERAGE].count != 0 ? &average : NULL;
}

const struct kvr_policy kvr__policy_h2o = {
    H2O, .class_of = KVR_CLASS_ONLINE, .variant = variant,
    .constants = constants, .update = accumulate_update};
