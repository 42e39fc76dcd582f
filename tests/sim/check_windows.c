/* check_windows.c -- a budget that covers the mask loses nothing.
 *
 * Where the mask never shows more than B tokens no rule, schedule, convention
 * or protection evicts anything: no loss, and every ratio is 1. Random
 * combinations of all options, on causal, window and chunk layers.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made_rows.h"
#include "suite.h"

#include <math.h>

static const char rules[] =
    "full,window,random,streaming-llm:sinks=1,h2o:recent=1,"
    "h2o:recent=1,statistic=global,graduation=forced,h2o:recent=1,decay=0.5,"
    "lru,lfu,"
    "lfu:aging=3,tova:per-head=1,tova,submodular-greedy:recent=1,"
    "submodular-greedy:recent=1,shrink=forward,greedy-future,belady,topk";

struct covered {
    struct matrix_rows rows;
    enum kvr_mask mask[2];
    uint32_t span[2];
    double *cell;
    uint32_t most; /* tokens that a mask ever shows */
};

static void make_covered(struct covered *x, struct dice *dice)
{
    static const uint32_t lengths[] = {17, 40, 63, 64, 65, 127, 128, 129};
    const uint32_t T = lengths[dice_below(dice, 8)];
    const uint32_t g = 1 + dice_below(dice, 3);

    x->most = 0;
    for (uint32_t l = 0; l < 2; l++) {
        const uint32_t m = dice_below(dice, 5);
        x->mask[l] = m == 0  ? KVR_MASK_CAUSAL
                     : m < 3 ? KVR_MASK_WINDOW
                             : KVR_MASK_CHUNK;
        x->span[l] = m == 0 ? 0 : 1 + dice_below(dice, T - 1);
        const uint32_t here = m == 0 ? T : x->span[l];
        x->most = here > x->most ? here : x->most;
    }
    x->cell = made_cells(dice, (enum made_kind)dice_below(dice, MADE_FINE), 2,
                         2 * g, T, x->mask, x->span);
    matrix_rows_init(&x->rows, x->cell, 2, 2 * g, 2, T,
                     1 + dice_below(dice, T - 1), 0x1p-24);
    for (uint32_t l = 0; l < 2; l++) {
        x->rows.layer[l].mask = x->mask[l];
        x->rows.layer[l].span = x->span[l];
    }
}

static void pick(struct kvr_sim_options *o, struct dice *dice, uint32_t B)
{
    static const int groups[] = {-1, KVR_GROUP_MAX, KVR_GROUP_SUM,
                                 KVR_GROUP_PER_QUERY_HEAD};
    static const struct kvr_access access[] = {{KVR_ACCESS_ABOVE_UNIFORM, 0},
                                               {KVR_ACCESS_RELMAX, 0},
                                               {KVR_ACCESS_ABS, 0},
                                               {KVR_ACCESS_TOPM, 9},
                                               {KVR_ACCESS_MASS, 1}};
    const uint32_t kind = dice_below(dice, 4);
    uint32_t room = B;

    o->stream_prefill = dice_below(dice, 3) == 0;
    o->when.kind = kind == 3 && o->stream_prefill ? KVR_WHEN_STEP
                                                  : (enum kvr_when_kind)kind;
    o->when.n = kind == 1 || kind == 2 ? 1 + dice_below(dice, B) : 1;
    o->budget_is_floor = dice_below(dice, 2) == 0;
    if (!o->budget_is_floor)
        room -= o->when.n - 1;
    if (room > 4) { /* the rules' own windows need places too */
        o->protect_first.tokens = dice_below(dice, room - 3);
        o->protect_last.tokens =
            dice_below(dice, room - 2 - o->protect_first.tokens);
    }
    o->group = groups[dice_below(dice, 4)];
    o->observe = dice_below(dice, 2) == 0 ? -1 : KVR_OBSERVE_RAW;
    o->ties = (enum kvr_ties)dice_below(dice, 3);
    o->access = access[dice_below(dice, 5)];
    o->hit_prompt_only = dice_below(dice, 3) == 0;
    o->bounds = !o->stream_prefill && dice_below(dice, 2) == 0;
}

static void lost_nothing(const struct kvr_run_result *run, uint32_t trial)
{
    const struct kvr_tally *t = &run->model;
    const char *text = run->spec->text;

    ck_assert_msg(t->evictions == 0, "%u %s: %llu evictions", trial, text,
                  (unsigned long long)t->evictions);
    ck_assert_msg(t->missed == 0 && t->prompt_missed == 0 && t->late == 0 &&
                      t->kl == 0 && t->topk == 0 && t->topk_b == 0 &&
                      t->head_bound == 0,
                  "%u %s: missed %g", trial, text, t->missed);
    ck_assert_msg(t->kept == t->best && t->head_kept == t->head_best,
                  "%u %s: recall %g of %g", trial, text, t->kept, t->best);
    ck_assert_msg(t->overlap == t->wanted, "%u %s: overlap %llu of %llu", trial,
                  text, (unsigned long long)t->overlap,
                  (unsigned long long)t->wanted);
    ck_assert_msg(t->hits == t->accesses, "%u %s: %llu hits of %llu", trial,
                  text, (unsigned long long)t->hits,
                  (unsigned long long)t->accesses);
    ck_assert_msg(isnan(t->oracle_matched) || t->oracle_matched == 0,
                  "%u %s: optimum %g", trial, text, t->oracle_matched);
    ck_assert(run->model_miss.max == 0);
}

START_TEST(nothing_is_lost_that_the_mask_shows)
{
    for (uint32_t i = 0; i < 150; i++) {
        struct dice dice = {.state = 977 + i * 7919};
        struct covered x;
        struct replay r;
        make_covered(&x, &dice);
        const uint32_t B = x.most + dice_below(&dice, 3) * dice_below(&dice, 9);
        const struct kvr_budget budget = budget_of(B < 3 ? 3 : B);
        struct kvr_sim_options o = plain_options(&budget, 1);
        pick(&o, &dice, budget.tokens);
        replay_run(&r, &x.rows, rules, &o);
        for (size_t k = 0; k < r.sim->n_run; k++)
            lost_nothing(&r.sim->runs[k], i);
        replay_free(&r);
        free(x.cell);
    }
}
END_TEST

/* A rule with one set for a layer: its age and lag are those of the caches
 * that were asked for. */
START_TEST(late_bins_are_of_the_caches_asked_for)
{
    for (uint32_t i = 0; i < 20; i++) {
        struct dice dice = {.state = 41 + i};
        struct covered x;
        struct replay all, one;
        bool second[] = {false, true};
        const struct kvr_budget budget = budget_of(6);
        struct kvr_sim_options o = plain_options(&budget, 1);
        make_covered(&x, &dice);
        replay_run(&all, &x.rows, "tova", &o);
        o.heads = second;
        replay_run(&one, &x.rows, "tova", &o);
        for (uint32_t l = 0; l < 2; l++) {
            const struct kvr_tally *a = &one.sim->runs[0].caches[l].tally;
            const struct kvr_tally *b =
                &all.sim->runs[0].caches[2 * l + 1].tally;
            double age = 0, lag = 0;
            for (uint32_t k = 0; k < KVR_LAG_BINS; k++) {
                ck_assert(a->late_by_age[k] == b->late_by_age[k]);
                ck_assert(a->late_by_lag[k] == b->late_by_lag[k]);
                age += a->late_by_age[k];
                lag += a->late_by_lag[k];
            }
            ck_assert(age == a->late && lag == a->late);
        }
        replay_free(&all);
        replay_free(&one);
        free(x.cell);
    }
}
END_TEST

KVR_SUITE("windows", nothing_is_lost_that_the_mask_shows,
          late_bins_are_of_the_caches_asked_for)
