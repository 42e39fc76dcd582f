/* check_agreement.c -- settings under which rules must coincide, and what a
 * rule must leave alone.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made_rows.h"
#include "suite.h"

#include <string.h>

enum { T = 80, P = 30 };

static double *make(struct matrix_rows *rows, uint32_t n_layer, uint32_t n_head,
                    uint32_t n_kv_head, enum made_kind kind, uint64_t seed)
{
    struct dice dice = {.state = seed};
    double *cell = made_cells(&dice, kind, n_layer, n_head, T, NULL, NULL);

    matrix_rows_init(rows, cell, n_layer, n_head, n_kv_head, T, P, 0x1p-24);
    return cell;
}

/* Two policies of one list must do the same at every budget. */
static void assert_alike(const struct matrix_rows *rows, const char *list,
                         const struct kvr_sim_options *o)
{
    struct replay r;

    replay_run(&r, rows, list, o);
    ck_assert_uint_eq(r.n_spec, 2);
    for (size_t b = 0; b < o->n_budget; b++)
        assert_same_sets(r.sim, b, r.sim, o->n_budget + b, list);
    ck_assert(r.sim->runs[0].model.evictions > 0);
    replay_free(&r);
}

START_TEST(degenerate_settings_are_the_window)
{
    static const char *const lists[] = {
        "h2o:recent=100%,window", "h2o:recent=100%,average=1,window",
        "streaming-llm:sinks=0,window", "submodular-greedy:recent=100%,window"};
    const struct kvr_budget budgets[] = {budget_of(2), budget_of(11),
                                         budget_of(50)};
    struct kvr_sim_options o = plain_options(budgets, 3);

    for (int kind = 0; kind < MADE_FINE; kind++) {
        struct matrix_rows rows;
        double *cell = make(&rows, 2, 4, 2, (enum made_kind)kind, 11);
        for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
            assert_alike(&rows, lists[i], &o);
        free(cell);
    }
}
END_TEST

START_TEST(no_access_is_the_window)
{
    const struct kvr_budget budgets[] = {budget_of(5), budget_of(23)};
    struct kvr_sim_options o = plain_options(budgets, 2);
    struct matrix_rows rows;
    double *cell = make(&rows, 1, 3, 1, MADE_SMOOTH, 12);

    /* No weight of a smooth row over several tokens reaches 1. */
    o.access = (struct kvr_access){KVR_ACCESS_ABS, 1};
    assert_alike(&rows, "lru,window", &o);
    assert_alike(&rows, "lfu,window", &o);
    free(cell);
}
END_TEST

START_TEST(one_cache_makes_scopes_and_groups_alike)
{
    const struct kvr_budget budgets[] = {budget_of(5), budget_of(23)};
    struct kvr_sim_options o = plain_options(budgets, 2);
    struct matrix_rows rows;
    struct replay a, b;
    double *cell = make(&rows, 2, 1, 1, MADE_SINK, 13);
    static const char list[] =
        "h2o,lru,lfu,tova,submodular-greedy,greedy-future,belady,topk";

    assert_alike(&rows, "tova,tova:per-head=1", &o);
    replay_run(&a, &rows, list, &o);
    for (int group = KVR_GROUP_MEAN; group <= KVR_GROUP_PER_QUERY_HEAD;
         group++) {
        o.group = group;
        replay_run(&b, &rows, list, &o);
        assert_same_sim(a.sim, b.sim, kvr_group_name((enum kvr_group)group));
        replay_free(&b);
    }
    replay_free(&a);
    free(cell);
}
END_TEST

/* One eviction a step leaves a forward shrink nothing to choose. */
START_TEST(forward_and_delete_agree_on_single_evictions)
{
    const struct kvr_budget budgets[] = {budget_of(P + 3), budget_of(50)};
    const struct kvr_sim_options o = plain_options(budgets, 2);
    struct matrix_rows rows;
    double *cell = make(&rows, 1, 2, 1, MADE_SMOOTH, 14);

    assert_alike(&rows, "submodular-greedy,submodular-greedy:shrink=forward",
                 &o);
    free(cell);
}
END_TEST

/* Rows that sum to exactly 1, as no rounding makes them. */
static void fill_to_one(double *cell, uint32_t n_head, struct dice *dice)
{
    for (uint32_t at = 0; at < n_head * T; at++) {
        double *row = cell + (size_t)at * T;
        uint32_t left = 1u << 20;
        for (uint32_t i = 0; i < at % T; i++) {
            const uint32_t part = dice_below(dice, left / 4 + 1);
            row[i] = part * 0x1p-20;
            left -= part;
        }
        row[at % T] = left * 0x1p-20;
    }
}

/* Dividing by a mass of 1 changes nothing, so a rule that sees raw rows makes
 * the same first choice; later ones see less than 1. */
START_TEST(raw_is_renorm_until_the_first_eviction)
{
    static const char list[] = "h2o,lru,lfu,tova";
    const struct kvr_budget budgets[] = {budget_of(P - 1), budget_of(45)};
    struct kvr_sim_options o = plain_options(budgets, 2);
    struct dice dice = {.state = 15};
    struct matrix_rows rows;
    struct replay raw, renorm;
    uint32_t later = 0;
    double *cell = make(&rows, 1, 2, 1, MADE_SMOOTH, 15);

    fill_to_one(cell, 2, &dice);
    o.observe = KVR_OBSERVE_RAW;
    replay_run(&raw, &rows, list, &o);
    o.observe = KVR_OBSERVE_RENORM;
    replay_run(&renorm, &rows, list, &o);
    for (size_t i = 0; i < raw.sim->n_run; i++) {
        size_t n, m;
        const struct kvr_eviction *a = kvr_sim_evictions(raw.sim, i, 0, &n);
        const struct kvr_eviction *b = kvr_sim_evictions(renorm.sim, i, 0, &m);
        ck_assert(n > 1 && n == m);
        ck_assert_int_eq(memcmp(a, b, sizeof *a), 0);
        later += memcmp(a, b, n * sizeof *a) != 0;
    }
    ck_assert_uint_gt(later, 0); /* or the test tests nothing */
    replay_free(&raw);
    replay_free(&renorm);
    free(cell);
}
END_TEST

/* KV heads 0, 1, 2 become 2, 0, 1, and the two heads of a group swap. */
START_TEST(permuting_heads_permutes_results)
{
    static const uint32_t to[] = {2, 0, 1};
    static const char list[] = "window,streaming-llm,h2o,h2o:average=1,lru,"
                               "lfu,tova:per-head=1,submodular-greedy,"
                               "greedy-future,belady,oracle,topk";
    const struct kvr_budget budgets[] = {budget_of(6), budget_of(25)};
    const struct kvr_sim_options o = plain_options(budgets, 2);
    struct matrix_rows rows, permuted;
    struct replay a, b;
    double *cell = make(&rows, 1, 6, 3, MADE_TIES, 16);
    double *moved = calloc(6 * T * T, sizeof *moved);

    for (uint32_t h = 0; h < 6; h++)
        memcpy(moved + (size_t)(to[h / 2] * 2 + 1 - h % 2) * T * T,
               cell + (size_t)h * T * T, (size_t)T * T * sizeof *cell);
    matrix_rows_init(&permuted, moved, 1, 6, 3, T, P, 0x1p-24);
    replay_run(&a, &rows, list, &o);
    replay_run(&b, &permuted, list, &o);
    for (size_t i = 0; i < a.sim->n_run; i++)
        for (uint32_t c = 0; c < 3; c++) {
            size_t n, m;
            const struct kvr_eviction *x = kvr_sim_evictions(a.sim, i, c, &n);
            const struct kvr_eviction *y =
                kvr_sim_evictions(b.sim, i, to[c], &m);
            const char *text = a.sim->runs[i].spec->text;
            ck_assert_msg(n == m, "%s", text);
            if (n > 0)
                ck_assert_msg(memcmp(x, y, n * sizeof *x) == 0, "%s", text);
            ck_assert_msg(a.sim->runs[i].caches[c].tally.missed ==
                              b.sim->runs[i].caches[to[c]].tally.missed,
                          "%s", text);
        }
    replay_free(&a);
    replay_free(&b);
    free(cell);
    free(moved);
}
END_TEST

static void assert_protected(const struct replay *r, uint32_t first,
                             uint32_t last)
{
    for (size_t i = 0; i < r->sim->n_run; i++)
        for (uint32_t c = 0; c < r->sim->n_cache; c++) {
            size_t n;
            const struct kvr_eviction *e = kvr_sim_evictions(r->sim, i, c, &n);
            for (size_t k = 0; k < n; k++)
                ck_assert_msg(
                    e[k].position >= first && e[k].position + last <= e[k].step,
                    "%s evicts %u after row %u", r->sim->runs[i].spec->text,
                    e[k].position, e[k].step);
            if (r->sim->runs[i].policy->mask == NULL &&
                (r->sim->runs[i].policy->needs & KVR_KEEPS_ALL) == 0)
                ck_assert_uint_gt(n, 0);
        }
}

START_TEST(protected_tokens_stay)
{
    static const char list[] =
        "full,window,random,streaming-llm:sinks=1,h2o:recent=2,"
        "h2o:recent=2,statistic=global,lru,lfu,tova,"
        "submodular-greedy:recent=1,submodular-greedy:recent=1,"
        "shrink=forward,greedy-future,belady,topk";
    const struct kvr_budget budgets[] = {budget_of(10), budget_of(30)};
    struct kvr_sim_options o = plain_options(budgets, 2);

    for (int kind = 0; kind < MADE_FINE; kind++) {
        struct matrix_rows rows;
        struct replay r;
        double *cell = make(&rows, 1, 4, 2, (enum made_kind)kind, 17);
        o.protect_first = (struct kvr_protect){.tokens = 3};
        o.protect_last = (struct kvr_protect){.share = 0.4};
        replay_run(&r, &rows, list, &o);
        assert_protected(&r, 3, 4); /* 40 % of 10 and more of 30 */
        replay_free(&r);
        replay_run(&r, &rows, "oracle", &o);
        assert_protected(&r, 3, 4);
        replay_free(&r);
        o.when = (struct kvr_when){KVR_WHEN_EVERY, 4};
        replay_run(&r, &rows, list, &o);
        assert_protected(&r, 3, 4);
        replay_free(&r);
        o.when = (struct kvr_when){KVR_WHEN_STEP, 1};
        free(cell);
    }
}
END_TEST

START_TEST(own_windows_stay)
{
    const struct kvr_budget budgets[] = {budget_of(10)};
    const struct kvr_sim_options o = plain_options(budgets, 1);
    struct matrix_rows rows;
    struct replay r;
    double *cell = make(&rows, 1, 2, 1, MADE_TIES, 18);

    replay_run(&r, &rows, "h2o:recent=6,submodular-greedy:recent=6", &o);
    assert_protected(&r, 0, 6);
    replay_free(&r);
    replay_run(&r, &rows, "streaming-llm:sinks=7", &o);
    assert_protected(&r, 7, 0);
    replay_free(&r);
    free(cell);
}
END_TEST

KVR_SUITE("agreement", degenerate_settings_are_the_window,
          no_access_is_the_window, one_cache_makes_scopes_and_groups_alike,
          forward_and_delete_agree_on_single_evictions,
          raw_is_renorm_until_the_first_eviction,
          permuting_heads_permutes_results, protected_tokens_stay,
          own_windows_stay)
