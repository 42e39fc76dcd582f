/* check_refusals.c -- rules that answer illegally, and settings that cannot be.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"
#include "made_rows.h"
#include "suite.h"

#include <math.h>
#include <string.h>

enum { T = 50, P = 20 };

/* ---- rules that break their word, in one way each ---- */

static uint32_t beyond(void *state, const struct kvr_view *view)
{
    (void)state;
    return view->n + 5;
}

static uint32_t nobody(void *state, const struct kvr_view *view)
{
    (void)state, (void)view;
    return UINT32_MAX;
}

/* The oldest position, which left long ago after the first answer. */
static uint32_t twice(void *state, const struct kvr_view *view)
{
    (void)state, (void)view;
    return 2;
}

static uint32_t sheltered(void *state, const struct kvr_view *view)
{
    (void)state;
    return view->step;
}

static void hides_newest(void *state, const struct kvr_view *view,
                         int32_t *visible)
{
    (void)state;
    memset(visible, 0, view->n * sizeof *visible);
}

static void no_numbers(const void *state, const struct kvr_view *view,
                       kvr_real *score, kvr_real *second)
{
    (void)state, (void)second;
    for (uint32_t i = 0; i < view->n; i++)
        score[i] = (kvr_real)NAN;
}

KVR_INLINE kvr_real spoil(kvr_real score, kvr_real weight, uint32_t step,
                          kvr_real constant)
{
    (void)score, (void)weight, (void)constant;
    return step >= 30 ? (kvr_real)NAN : 0;
}
KVR_ELEMENTWISE(spoil)

#define THREE(fn) \
    { \
        fn, fn, fn \
    }
static const kvr_victim_fn beyond_isa[] = THREE(beyond);
static const kvr_victim_fn nobody_isa[] = THREE(nobody);
static const kvr_victim_fn twice_isa[] = THREE(twice);
static const kvr_victim_fn sheltered_isa[] = THREE(sheltered);
static const kvr_mask_fn hides_newest_isa[] = THREE(hides_newest);
static const kvr_score_fn no_numbers_isa[] = THREE(no_numbers);

#define ROGUE \
    .abi = KVR_POLICY_ABI, .name = "rogue", .summary = "wrong", \
    .cite = "test", .observe = KVR_OBSERVE_RENORM

static const struct rogue {
    struct kvr_policy policy;
    const char *step; /* in the message */
} rogues[] = {
    {{ROGUE, .victim = beyond_isa}, "step 19"},
    {{ROGUE, .victim = nobody_isa}, "step 19"},
    {{ROGUE, .victim = twice_isa}, "step 19"},
    {{ROGUE, .victim = sheltered_isa}, "step 19"},
    {{ROGUE, .class_of = KVR_CLASS_MASK, .mask = hides_newest_isa}, "step 20"},
    {{ROGUE, .score = no_numbers_isa}, "step 19"},
    {{ROGUE, .update = spoil_update}, "step 30"},
};

static double *make(struct matrix_rows *rows)
{
    struct dice dice = {.state = 21};
    double *cell = made_cells(&dice, MADE_SMOOTH, 2, 4, T, NULL, NULL);

    matrix_rows_init(rows, cell, 2, 4, 2, T, P, 0x1p-24);
    return cell;
}

START_TEST(an_illegal_answer_names_the_place_and_spares_the_others)
{
    static char name[] = "rogue";
    const struct kvr_budget budgets[] = {budget_of(12)};
    struct kvr_sim_options o = plain_options(budgets, 1);
    struct kvr_error err = {0};
    struct matrix_rows rows;
    struct replay alone;
    double *cell = make(&rows);

    o.protect_last.tokens = 1;
    replay_run(&alone, &rows, "h2o,lru", &o);
    for (size_t i = 0; i < sizeof rogues / sizeof rogues[0]; i++) {
        struct kvr_sim *sim;
        struct kvr_policy_spec specs[3] = {alone.specs[0], {0}, alone.specs[1]};
        specs[1].policy = &rogues[i].policy;
        specs[1].text = name;
        must(kvr_policy_valid(&rogues[i].policy, &err));
        o.specs = specs;
        o.n_spec = 3;
        must(kvr_sim_run(&sim, &rows.rows, &o, &err));
        const struct kvr_run_result *bad = &sim->runs[1];
        ck_assert_msg(bad->status == KVR_ERR_POLICY, "rogue %zu passes", i);
        ck_assert_msg(strstr(bad->error, "policy rogue") != NULL &&
                          strstr(bad->error, "layer 0") != NULL &&
                          strstr(bad->error, "kv head 0") != NULL &&
                          strstr(bad->error, rogues[i].step) != NULL,
                      "rogue %zu: %s", i, bad->error);
        ck_assert_int_eq(sim->runs[0].status, KVR_OK);
        ck_assert_int_eq(sim->runs[2].status, KVR_OK);
        assert_same_run(sim, 0, alone.sim, 0, "h2o beside a rogue");
        assert_same_run(sim, 2, alone.sim, 1, "lru beside a rogue");
        kvr_sim_free(sim);
    }
    replay_free(&alone);
    free(cell);
}
END_TEST

/* A trace of some layers and heads: messages have the model's numbers. */
START_TEST(a_message_has_the_numbers_of_the_model)
{
    static const uint32_t heads[] = {8, 9, 12, 13};
    static char name[] = "rogue";
    const struct kvr_budget budgets[] = {budget_of(12)};
    struct kvr_sim_options o = plain_options(budgets, 1);
    struct kvr_policy_spec spec = {.policy = &rogues[0].policy, .text = name};
    struct kvr_error err = {0};
    struct matrix_rows rows;
    struct kvr_sim *sim;
    double *cell = make(&rows);

    for (uint32_t l = 0; l < 2; l++) {
        rows.layer[l].layer = 7 + l;
        rows.layer[l].head_index = heads;
    }
    o.specs = &spec;
    o.n_spec = 1;
    o.threads = 2; /* whichever layer ends first, the first is named */
    for (int i = 0; i < 20; i++) {
        must(kvr_sim_run(&sim, &rows.rows, &o, &err));
        ck_assert_uint_eq(sim->runs[0].caches[1].kv_head, 6);
        ck_assert_msg(strstr(sim->runs[0].error, "layer 7, kv head 4") != NULL,
                      "%s", sim->runs[0].error);
        kvr_sim_free(sim);
    }
    free(cell);
}
END_TEST

START_TEST(tables_that_are_not_whole_are_refused)
{
    static const struct kvr_param nameless[] = {
        {.name = "", .fallback = "1", .help = "x"}, {.name = NULL}};
    static const struct kvr_param choiceless[] = {
        {.name = "x", .type = KVR_PARAM_CHOICE, .fallback = "a", .help = "x"},
        {.name = NULL}};
    const struct {
        struct kvr_policy policy;
        const char *says;
    } bad[] = {
        {{.abi = KVR_POLICY_ABI + 1, .name = "x"}, "interface"},
        {{ROGUE}, "0 ways to decide"},
        {{ROGUE, .victim = beyond_isa, .score = no_numbers_isa},
         "2 ways to decide"},
        {{.abi = KVR_POLICY_ABI,
          .name = "Upper Case",
          .summary = "s",
          .cite = "c",
          .victim = beyond_isa},
         "lower-case"},
        {{.abi = KVR_POLICY_ABI, .name = "x", .victim = beyond_isa}, "summary"},
        {{.abi = KVR_POLICY_ABI,
          .name = "x",
          .summary = "s",
          .cite = "c",
          .update = spoil_update},
         "observes none"},
        {{ROGUE, .victim = beyond_isa, .params = nameless}, "parameter 0"},
        {{ROGUE, .victim = beyond_isa, .params = choiceless}, "no choices"},
    };
    struct kvr_error err = {0};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (struct kvr_error){0};
        must_fail(kvr_policy_valid(&bad[i].policy, &err), KVR_ERR_POLICY,
                  bad[i].says);
    }
}
END_TEST

/* Runs `list` and expects this failure. */
static void refused(const struct matrix_rows *rows, const char *list,
                    const struct kvr_sim_options *o, enum kvr_status expected,
                    const char *says)
{
    struct replay r;
    const enum kvr_status status = replay_try(&r, rows, list, o);

    ck_assert_msg(status == expected, "%s: status %d: %s", list, (int)status,
                  r.err.message);
    ck_assert_msg(strstr(r.err.message, says) != NULL,
                  "message '%s' lacks '%s'", r.err.message, says);
    ck_assert_ptr_null(r.sim);
    replay_free(&r);
}

START_TEST(budgets_that_cannot_hold_are_refused)
{
    const struct kvr_budget ten = budget_of(10), none = budget_of(0);
    struct kvr_sim_options o = plain_options(&ten, 1);
    struct matrix_rows rows;
    double *cell = make(&rows);

    o.budgets = &none;
    refused(&rows, "window", &o, KVR_ERR_USAGE, "0 tokens");
    o.budgets = &ten;
    o.protect_first.tokens = 6;
    o.protect_last.tokens = 5;
    refused(&rows, "window", &o, KVR_ERR_USAGE, "11 protected");
    o.protect_last.tokens = 0;
    refused(&rows, "h2o", &o, KVR_ERR_USAGE, "newest 5");
    o.protect_first.tokens = 0;
    o.when = (struct kvr_when){KVR_WHEN_EVERY, 11};
    refused(&rows, "window", &o, KVR_ERR_USAGE, "leaves none");
    /* What holds between steps counts, not what a row may see. */
    o.when.n = 8;
    o.protect_last.tokens = 4;
    refused(&rows, "window", &o, KVR_ERR_USAGE, "3 tokens after");
    o.protect_last.tokens = 3;
    refused(&rows, "h2o", &o, KVR_ERR_USAGE, "newest 5");
    o.budget_is_floor = true;
    struct replay r;
    replay_run(&r, &rows, "window,h2o", &o);
    replay_free(&r);
    free(cell);
}
END_TEST

START_TEST(settings_that_cannot_be_are_refused)
{
    const struct kvr_budget ten = budget_of(10);
    struct kvr_sim_options o = plain_options(&ten, 1);
    struct matrix_rows rows;
    static const bool none[] = {false, false};
    double *cell = make(&rows);

    o.stream_prefill = true;
    refused(&rows, "oracle", &o, KVR_ERR_USAGE, "policy oracle");
    o.when.kind = KVR_WHEN_PROMPT_END;
    refused(&rows, "window", &o, KVR_ERR_USAGE, "prompt-end");
    o.stream_prefill = false;
    refused(&rows, "oracle", &o, KVR_ERR_USAGE, "policy oracle");
    o = plain_options(&ten, 1);
    o.score_first = P - 1;
    o.score_last = P + 3;
    refused(&rows, "window", &o, KVR_ERR_USAGE, "19..23");
    o.score_first = P;
    o.score_last = T;
    refused(&rows, "window", &o, KVR_ERR_USAGE, "20..50");
    o = plain_options(&ten, 1);
    o.heads = none;
    refused(&rows, "window", &o, KVR_ERR_USAGE, "no layer and head");
    o = plain_options(&ten, 1);
    o.memory = 1000;
    refused(&rows, "window", &o, KVR_ERR_LIMIT, "MiB");
    o.memory = 0;
    o.loss = KVR_LOSS_VALUE;
    refused(&rows, "window", &o, KVR_ERR_INPUT, "value_norm2");
    o.loss = KVR_LOSS_MASS;
    refused(&rows, "h2o:statistic=global,decay=0.5", &o, KVR_ERR_USAGE,
            "do not go together");
    refused(&rows, "h2o:recent=0,graduation=gap", &o, KVR_ERR_USAGE,
            "at least 1");
    rows.rows.prompt_len = T;
    refused(&rows, "window", &o, KVR_ERR_NOTHING, "50 of 50");
    free(cell);
}
END_TEST

START_TEST(rows_that_are_no_attention_are_refused)
{
    const struct kvr_budget ten = budget_of(10);
    const struct kvr_sim_options o = plain_options(&ten, 1);
    struct matrix_rows rows;
    double *cell = make(&rows);
    double *row = cell + ((size_t)(1 * 4 + 2) * T + 33) * T;

    row[5] += 1.5;
    refused(&rows, "window", &o, KVR_ERR_INPUT, "layer 1 head 2 row 33");
    row[5] = NAN;
    refused(&rows, "h2o,topk", &o, KVR_ERR_INPUT, "layer 1 head 2 row 33");
    free(cell);
}
END_TEST

KVR_SUITE("refusals", an_illegal_answer_names_the_place_and_spares_the_others,
          a_message_has_the_numbers_of_the_model,
          tables_that_are_not_whole_are_refused,
          budgets_that_cannot_hold_are_refused,
          settings_that_cannot_be_are_refused,
          rows_that_are_no_attention_are_refused)
