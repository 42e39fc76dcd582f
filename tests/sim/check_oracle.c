/* check_oracle.c -- topk <= oracle <= every rule, in exact sums.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made_rows.h"
#include "suite.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const char rules[] =
    "oracle,window,random,streaming-llm:sinks=1,h2o:recent=1,"
    "h2o:recent=1,average=1,h2o:recent=1,statistic=global,lru,lfu,"
    "tova:per-head=1,tova,submodular-greedy:recent=1,"
    "submodular-greedy:recent=1,shrink=forward,greedy-future,belady,topk";

struct small {
    struct matrix_rows rows;
    double *cell;
    enum kvr_mask mask[2];
    uint32_t span[2];
};

static void make_small(struct small *s, struct dice *dice, bool local)
{
    const uint32_t T = 3 + dice_below(dice, 38);
    const uint32_t g = 1 + dice_below(dice, 3);
    const uint32_t P = 1 + dice_below(dice, T - 1);

    for (uint32_t l = 0; l < 2; l++) {
        const uint32_t m = local ? dice_below(dice, 3) : 0;
        s->mask[l] = m == 0   ? KVR_MASK_CAUSAL
                     : m == 1 ? KVR_MASK_WINDOW
                              : KVR_MASK_CHUNK;
        s->span[l] = m == 0 ? 0 : 4 + dice_below(dice, T);
    }
    s->cell = made_cells(dice, (enum made_kind)dice_below(dice, MADE_FINE), 2,
                         2 * g, T, s->mask, s->span);
    matrix_rows_init(&s->rows, s->cell, 2, 2 * g, 2, T, P, 0x1p-24);
    for (uint32_t l = 0; l < 2; l++) {
        s->rows.layer[l].mask = s->mask[l];
        s->rows.layer[l].span = s->span[l];
    }
}

static size_t index_of(const struct replay *r, const char *text)
{
    size_t i = 0;

    while (i < r->n_spec && strcmp(r->specs[i].text, text) != 0)
        i++;
    ck_assert_uint_lt(i, r->n_spec);
    return i;
}

/* Every cache: the bound at |C_t|, the optimum, the rule. */
static void assert_order(const struct replay *r, size_t run, double oracle,
                         uint32_t c)
{
    const struct kvr_run_result *result = &r->sim->runs[run];
    const struct kvr_tally *t = &result->caches[c].tally;
    const char *text = result->spec->text;

    ck_assert_msg(t->topk <= t->missed, "%s: %.17g < topk %.17g", text,
                  t->missed, t->topk);
    if (result->policy->mask != NULL) {
        ck_assert_msg(t->missed <= oracle, "%s is above the optimum", text);
        return;
    }
    ck_assert_msg(t->topk_b <= oracle, "%s: optimum %.17g < topk %.17g", text,
                  oracle, t->topk_b);
    ck_assert_msg(oracle <= t->missed, "%s: %.17g < optimum %.17g", text,
                  t->missed, oracle);
    ck_assert_msg(
        t->oracle == oracle && t->oracle_matched == oracle && t->resized == 0,
        "%s: optimum %.17g beside it, %.17g alone", text, t->oracle, oracle);
}

static void bounds_hold(uint32_t n, bool local, bool some_rows)
{
    for (uint32_t i = 0; i < n; i++) {
        struct dice dice = {.state = 31 + i};
        struct small s;
        struct replay r;
        make_small(&s, &dice, local);
        const uint32_t T = s.rows.rows.n_token;
        struct kvr_budget budgets[] = {budget_of(5 + dice_below(&dice, T)),
                                       budget_of(4 + dice_below(&dice, 5))};
        struct kvr_sim_options o = plain_options(budgets, 2);
        o.bounds = true;
        if (dice_below(&dice, 2) == 0) {
            o.protect_first.tokens = dice_below(&dice, 3);
            o.protect_last.tokens = dice_below(&dice, 3);
        }
        if (some_rows) {
            const uint32_t P = s.rows.rows.prompt_len;
            o.score_first = P + dice_below(&dice, T - P);
            o.score_last = o.score_first + dice_below(&dice, T - o.score_first);
        }
        replay_run(&r, &s.rows, rules, &o);
        const size_t oracle = index_of(&r, "oracle") * 2;
        for (size_t k = 0; k < r.sim->n_run; k++)
            for (uint32_t c = 0; c < r.sim->n_cache; c++)
                assert_order(&r, k,
                             r.sim->runs[oracle + k % 2].caches[c].tally.missed,
                             c);
        replay_free(&r);
        free(s.cell);
    }
}

START_TEST(topk_optimum_rule_in_this_order)
{
    bounds_hold(60, false, false);
}
END_TEST

START_TEST(the_order_holds_in_window_and_chunk_layers)
{
    bounds_hold(60, true, false);
}
END_TEST

/* --score-rows: the optimum is that of the rows that count, no other. */
START_TEST(the_order_holds_where_some_rows_count)
{
    bounds_hold(60, false, true);
    bounds_hold(30, true, true);
}
END_TEST

/* A call with bounds alone gives the same optimum as the rule's own replay. */
START_TEST(bounds_need_no_oracle_in_the_list)
{
    struct dice dice = {.state = 77};
    struct small s;
    struct replay with, without;
    const struct kvr_budget budgets[] = {budget_of(3)};
    struct kvr_sim_options o = plain_options(budgets, 1);

    make_small(&s, &dice, false);
    replay_run(&without, &s.rows, "window", &o);
    ck_assert(isnan(without.sim->runs[0].model.oracle));
    ck_assert_str_eq(without.sim->runs[0].oracle_reason, "not computed");
    replay_free(&without);
    o.bounds = true;
    replay_run(&without, &s.rows, "window", &o);
    replay_run(&with, &s.rows, "oracle", &o);
    ck_assert(without.sim->runs[0].model.oracle ==
              with.sim->runs[0].model.missed);
    replay_free(&with);
    replay_free(&without);
    free(s.cell);
}
END_TEST

/* Where another number than B + 1 is seen, the optimum is that of the places
 * there were; else it is the plain one. */
static void matched(const struct kvr_when when, bool floor, bool more)
{
    uint32_t n_matched = 0;

    for (uint32_t i = 0; i < 25; i++) {
        struct dice dice = {.state = 131 + i};
        struct small s;
        struct replay r;
        make_small(&s, &dice, false);
        const struct kvr_budget budgets[] = {budget_of(6), budget_of(9)};
        struct kvr_sim_options o = plain_options(budgets, 2);
        o.bounds = true;
        o.when = when;
        o.budget_is_floor = floor;
        o.protect_first.tokens = dice_below(&dice, 2);
        o.protect_last.share = 0.2 * dice_below(&dice, 2);
        replay_run(&r, &s.rows,
                   more ? "window,h2o:recent=2,lru,greedy-future,tova,full,"
                          "submodular-greedy:recent=0"
                        : "window,h2o:recent=2,lru,greedy-future,tova",
                   &o);
        for (size_t k = 0; k < r.sim->n_run; k++)
            for (uint32_t c = 0; c < r.sim->n_cache; c++) {
                const struct kvr_tally *t = &r.sim->runs[k].caches[c].tally;
                ck_assert(isnan(t->oracle) == (t->resized > 0));
                ck_assert(isnan(t->oracle) || t->oracle == t->oracle_matched);
                ck_assert(t->oracle_matched <= t->missed);
                ck_assert(t->topk <= t->oracle_matched);
                n_matched += t->resized;
            }
        replay_free(&r);
        free(s.cell);
    }
    ck_assert_int_eq(n_matched > 0, more);
}

START_TEST(more_than_the_budget_is_matched)
{
    matched((struct kvr_when){KVR_WHEN_PROMPT_END, 1}, false, true);
    matched((struct kvr_when){KVR_WHEN_EVERY, 4}, true, true);
    matched((struct kvr_when){KVR_WHEN_OVERFLOW, 4}, true, true);
}
END_TEST

/* Under a cap fewer than B are held at times: the plain optimum is another
 * schedule's. */
START_TEST(less_than_the_budget_is_matched)
{
    matched((struct kvr_when){KVR_WHEN_EVERY, 4}, false, true);
    matched((struct kvr_when){KVR_WHEN_OVERFLOW, 4}, false, true);
}
END_TEST

START_TEST(one_eviction_a_step_is_held_against_the_plain_optimum)
{
    matched((struct kvr_when){KVR_WHEN_STEP, 1}, false, false);
    matched((struct kvr_when){KVR_WHEN_EVERY, 1}, false, false);
}
END_TEST

static double number(const json_t *value)
{
    return json_is_string(value) ? strtod(json_string_value(value), NULL)
                                 : json_number_value(value);
}

/* The worked cases, their weights rounded to 2^-24. */
START_TEST(the_optimum_of_the_worked_cases)
{
    json_error_t why;
    json_t *root =
        json_load_file(KVR_TEST_DATA "/golden/policy_cases.json", 0, &why);
    size_t at;
    json_t *item;

    ck_assert_msg(root != NULL, "%s", why.text);
    json_array_foreach(json_object_get(root, "cases"), at, item)
    {
        const json_t *a = json_object_get(item, "attention");
        const json_t *want = json_object_get(json_object_get(item, "expected"),
                                             "oracle_opt_permanent");
        const uint32_t T = (uint32_t)json_array_size(a);
        const uint32_t P =
            (uint32_t)json_integer_value(json_object_get(item, "prefill"));
        const struct kvr_budget budget = budget_of(
            (uint32_t)json_integer_value(json_object_get(item, "budget")));
        const struct kvr_sim_options o = plain_options(&budget, 1);
        double *cell = calloc((size_t)T * T, sizeof *cell);
        struct matrix_rows rows;
        struct replay r;
        for (uint32_t t = 0; t < T; t++)
            for (uint32_t i = 0; i <= t; i++)
                cell[t * T + i] =
                    rint(number(json_array_get(json_array_get(a, t), i)) *
                         0x1p24) *
                    0x1p-24;
        matrix_rows_init(&rows, cell, 1, 1, 1, T, P, 0x1p-24);
        replay_run(&r, &rows, "oracle", &o);
        const double total = number(json_object_get(want, "total_miss_decode"));
        ck_assert_double_eq_tol(r.sim->runs[0].model.missed, total, 1e-6);
        ck_assert(r.sim->runs[0].model.oracle == r.sim->runs[0].model.missed);
        replay_free(&r);
        free(cell);
    }
    ck_assert_uint_ge(at, 12);
    json_decref(root);
}
END_TEST

KVR_SUITE("oracle", topk_optimum_rule_in_this_order,
          the_order_holds_in_window_and_chunk_layers,
          the_order_holds_where_some_rows_count,
          bounds_need_no_oracle_in_the_list, more_than_the_budget_is_matched,
          less_than_the_budget_is_matched,
          one_eviction_a_step_is_held_against_the_plain_optimum,
          the_optimum_of_the_worked_cases)
