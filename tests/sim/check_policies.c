/* check_policies.c -- what holds for every rule, looped over the registry.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made_rows.h"
#include "suite.h"

#include <string.h>

enum { T = 96, P = 40 };

/* Forks that the plain names do not reach. */
static const char forks[] =
    "h2o:statistic=global,h2o:average=1,h2o:decay=0.8,"
    "h2o:graduation=forced,h2o:recent=1,graduation=gap,tova:per-head=1,lfu:"
    "aging=5,"
    "streaming-llm:sinks=2,submodular-greedy:shrink=forward,"
    "submodular-greedy:h=log,history=9";

/* Every registered policy but those that need `without`, and the forks. */
static void list_all(char out[1024], uint32_t without)
{
    struct kvr_error err = {0};
    struct kvr_registry *registry;
    size_t n = 0;

    must(kvr_registry_new(&registry, &err));
    for (size_t i = 0; i < kvr_registry_size(registry); i++) {
        const struct kvr_policy *p = kvr_registry_at(registry, i);
        if ((p->needs & without) == 0)
            n += (size_t)snprintf(out + n, 1024 - n, "%s,", p->name);
    }
    snprintf(out + n, 1024 - n, "%s", forks);
    kvr_registry_free(registry);
}

static void cut(char *list, const char *item)
{
    char *at = strstr(list, item);

    ck_assert_ptr_nonnull(at);
    memmove(at, at + strlen(item), strlen(at + strlen(item)) + 1);
}

static double *make(struct matrix_rows *rows, uint32_t n_layer, uint32_t n_head,
                    uint32_t n_kv_head, enum made_kind kind, uint64_t seed)
{
    struct dice dice = {.state = seed};
    double *cell = made_cells(&dice, kind, n_layer, n_head, T, NULL, NULL);

    matrix_rows_init(rows, cell, n_layer, n_head, n_kv_head, T, P, 0x1p-24);
    return cell;
}

START_TEST(tables_are_whole)
{
    struct kvr_error err = {0};
    struct kvr_registry *registry;

    must(kvr_registry_new(&registry, &err));
    ck_assert_uint_ge(kvr_registry_size(registry), 13);
    for (size_t i = 0; i < kvr_registry_size(registry); i++) {
        const struct kvr_policy *p = kvr_registry_at(registry, i);
        must(kvr_policy_valid(p, &err));
        ck_assert_ptr_eq(kvr_registry_find(registry, p->name, strlen(p->name)),
                         p);
        for (size_t k = 0; k < i; k++)
            ck_assert_str_ne(kvr_registry_at(registry, k)->name, p->name);
    }
    kvr_registry_free(registry);
}
END_TEST

START_TEST(nothing_is_lost_when_all_fits)
{
    static const enum kvr_mask masks[] = {KVR_MASK_CAUSAL, KVR_MASK_WINDOW,
                                          KVR_MASK_CHUNK};
    static const uint32_t spans[] = {0, 17, 20};
    const struct kvr_budget budgets[] = {budget_of(T), budget_of(T + 9)};
    struct kvr_sim_options o = plain_options(budgets, 2);
    struct dice dice = {.state = 2};
    struct matrix_rows rows;
    struct replay r;
    char list[1024];
    double *cell = made_cells(&dice, MADE_TIES, 3, 4, T, masks, spans);

    matrix_rows_init(&rows, cell, 3, 4, 2, T, P, 0x1p-24);
    for (uint32_t l = 0; l < 3; l++) {
        rows.layer[l].mask = masks[l];
        rows.layer[l].span = spans[l];
    }
    for (int stream = 0; stream < 2; stream++) {
        o.stream_prefill = stream != 0;
        list_all(list, stream ? KVR_NEEDS_SCHEDULE : 0);
        /* The gap hides one token even where the layer's mask is full. */
        cut(list, "h2o:recent=1,graduation=gap,");
        replay_run(&r, &rows, list, &o);
        for (size_t i = 0; i < r.sim->n_run; i++) {
            const struct kvr_run_result *run = &r.sim->runs[i];
            ck_assert_msg(run->model.missed == 0, "%s loses %g",
                          run->spec->text, run->model.missed);
            ck_assert_msg(run->model.evictions == 0, "%s evicts",
                          run->spec->text);
            ck_assert(run->model.recorded > 0);
        }
        replay_free(&r);
    }
    free(cell);
}
END_TEST

START_TEST(a_row_sees_the_budget_and_the_newest)
{
    const struct kvr_budget budgets[] = {budget_of(7), budget_of(24)};
    struct kvr_sim_options o = plain_options(budgets, 2);
    struct matrix_rows rows;
    struct replay r;
    char list[1024];
    double *cell = make(&rows, 1, 2, 1, MADE_SINK, 3);

    o.steps = true;
    list_all(list, KVR_KEEPS_ALL);
    replay_run(&r, &rows, list, &o);
    for (size_t i = 0; i < r.sim->n_run; i++) {
        const struct kvr_run_result *run = &r.sim->runs[i];
        size_t n;
        const struct kvr_step_row *s = kvr_sim_steps(r.sim, i, 0, &n);
        ck_assert_uint_eq(n, T - P);
        /* utils_hh counts the newest token in its budget. */
        const bool gap = strstr(run->spec->text, "=gap") != NULL;
        for (size_t k = 0; k < n; k++)
            ck_assert_msg(s[k].visible == run->budget->tokens + !gap &&
                              s[k].step == P + k,
                          "%s: step %u sees %u, B = %u", run->spec->text,
                          s[k].step, s[k].visible, run->budget->tokens);
    }
    replay_free(&r);
    free(cell);
}
END_TEST

/* Fewer layers than threads: layers are shared out by caches, where no rule has
 * one set for all of them, or each query head has a set of its own. */
START_TEST(parts_of_a_layer_do_not_show)
{
    const struct kvr_budget budgets[] = {budget_of(9), budget_of(33)};
    static const bool some[] = {false, true, true, false, true, false, true};
    struct matrix_rows rows;
    struct replay first, r;
    char list[1024];
    double *cell = make(&rows, 2, 14, 7, MADE_TIES, 11);

    for (int i = 0; i < 5; i++) {
        struct kvr_sim_options o = plain_options(budgets, 2);
        list_all(list, 0);
        if (i != 1)
            cut(list, "tova,");
        o.bounds = i != 2;
        o.schedules = o.steps = i == 0;
        o.group = i == 1 ? KVR_GROUP_PER_QUERY_HEAD : -1;
        o.ties = i == 2 ? KVR_TIES_RANDOM : KVR_TIES_OLDEST;
        o.n_seed = i == 2 ? 3 : 1;
        o.heads = i == 3 ? some : NULL;
        o.score_first = i == 4 ? P + 2 : 0;
        o.score_last = i == 4 ? P + 9 : 0;
        o.threads = 1;
        replay_run(&first, &rows, list, &o);
        for (o.threads = 3; o.threads <= 20; o.threads += 4) {
            replay_run(&r, &rows, list, &o);
            assert_same_sim(first.sim, r.sim, "parts of a layer");
            replay_free(&r);
        }
        replay_free(&first);
    }
    free(cell);
}
END_TEST

START_TEST(threads_and_instruction_sets_do_not_show)
{
    const struct kvr_budget budgets[] = {budget_of(9), budget_of(33)};
    struct kvr_sim_options o = plain_options(budgets, 2);
    struct kvr_error err = {0};
    struct matrix_rows rows;
    struct replay first, r;
    char list[1024];
    double *cell = make(&rows, 3, 6, 2, MADE_SINK, 4);

    o.bounds = true;
    list_all(list, 0);
    setenv("KVREPLAY_ISA", "base", 1);
    must(kvr_isa_init(&err));
    replay_run(&first, &rows, list, &o);
    for (int isa = 0; isa < KVR_N_ISA; isa++) {
        const char *name = kvr_isa_name((enum kvr_isa)isa);
        if (!kvr_isa_available((enum kvr_isa)isa)) {
            fprintf(stderr, "skipped: this processor lacks %s\n", name);
            continue;
        }
        setenv("KVREPLAY_ISA", name, 1);
        must(kvr_isa_init(&err));
        for (o.threads = 1; o.threads <= 2; o.threads++) {
            replay_run(&r, &rows, list, &o);
            assert_same_sim(first.sim, r.sim, name);
            replay_free(&r);
        }
    }
    unsetenv("KVREPLAY_ISA");
    must(kvr_isa_init(&err));
    replay_free(&first);
    free(cell);
}
END_TEST

START_TEST(one_call_for_all_is_one_call_for_each)
{
    const struct kvr_budget budgets[] = {budget_of(31), budget_of(5),
                                         budget_of(12)};
    struct kvr_sim_options o = plain_options(budgets, 3);
    struct matrix_rows rows;
    struct replay all, one;
    char list[1024];
    double *cell = make(&rows, 2, 4, 2, MADE_PEAKED, 5);

    o.bounds = true;
    list_all(list, 0);
    replay_run(&all, &rows, list, &o);
    for (size_t i = 0; i < all.sim->n_run; i++) {
        const struct kvr_run_result *run = &all.sim->runs[i];
        o.budgets = run->budget;
        o.n_budget = 1;
        replay_run(&one, &rows, run->spec->text, &o);
        assert_same_run(all.sim, i, one.sim, 0, run->spec->text);
        replay_free(&one);
    }
    replay_free(&all);
    free(cell);
}
END_TEST

START_TEST(a_selection_is_that_part_of_the_whole)
{
    static const bool layers[] = {false, true, true};
    static const bool heads[] = {true, false, true};
    const struct kvr_budget budgets[] = {budget_of(14)};
    struct kvr_sim_options o = plain_options(budgets, 1);
    struct matrix_rows rows;
    struct replay all, some;
    char list[1024];
    double *cell = make(&rows, 3, 6, 3, MADE_SMOOTH, 6);

    list_all(list, 0);
    replay_run(&all, &rows, list, &o);
    o.layers = layers;
    o.heads = heads;
    replay_run(&some, &rows, list, &o);
    ck_assert_uint_eq(some.sim->n_cache, 4);
    for (size_t i = 0; i < all.sim->n_run; i++)
        for (uint32_t c = 0; c < 4; c++) {
            const struct kvr_cache_result *a = &some.sim->runs[i].caches[c];
            const struct kvr_cache_result *b =
                &all.sim->runs[i].caches[a->layer * 3 + a->kv_head];
            ck_assert_uint_eq(a->layer, 1 + c / 2);
            ck_assert_uint_eq(a->kv_head, c % 2 * 2);
            ck_assert_uint_eq(b->layer, a->layer);
            ck_assert_uint_eq(b->kv_head, a->kv_head);
            ck_assert_msg(a->tally.missed == b->tally.missed, "%s",
                          all.sim->runs[i].spec->text);
            ck_assert(a->miss.p95 == b->miss.p95);
        }
    replay_free(&all);
    replay_free(&some);
    free(cell);
}
END_TEST

START_TEST(topk_loses_no_more_than_any_rule)
{
    const struct kvr_budget budgets[] = {budget_of(2), budget_of(8),
                                         budget_of(40)};
    struct kvr_sim_options o = plain_options(budgets, 3);
    char list[1024];

    list_all(list, 0);
    for (int kind = 0; kind < MADE_FINE; kind++) {
        struct matrix_rows rows;
        struct replay r;
        double *cell =
            make(&rows, 1, 4, 2, (enum made_kind)kind, 7 + (uint64_t)kind);
        replay_run(&r, &rows, list, &o);
        const size_t n = r.n_spec;
        size_t topk = n;
        for (size_t s = 0; s < n; s++)
            if (strcmp(r.specs[s].text, "topk") == 0)
                topk = s;
        ck_assert_uint_lt(topk, n);
        for (size_t i = 0; i < n * 3; i++) {
            const struct kvr_run_result *run = &r.sim->runs[i];
            const double least = r.sim->runs[topk * 3 + i % 3].model.missed;
            if (strcmp(run->spec->text, "full") != 0)
                ck_assert_msg(least <= run->model.missed,
                              "%s loses %.17g, topk %.17g", run->spec->text,
                              run->model.missed, least);
            ck_assert(run->model.topk <= run->model.missed);
            ck_assert(run->model.head_bound <= run->model.topk_b);
        }
        replay_free(&r);
        free(cell);
    }
}
END_TEST

/* Two replicates draw differently; what they lose together is the result's,
 * at every level. */
static void pooled(const struct kvr_run_result *run)
{
    const double *each = run->replicate_missed;
    double rows = 0, caches = 0;

    ck_assert(each[0] != each[1]);
    ck_assert(each[0] + each[1] == run->model.missed);
    for (uint32_t t = 0; t < T; t++)
        rows += run->row_missed[t];
    for (uint32_t c = 0; c < 4; c++)
        caches += run->caches[c].tally.missed;
    ck_assert(rows == run->model.missed && caches == run->model.missed);
    ck_assert_uint_eq(run->model.rows, 2 * 4 * (T - P));
}

/* Random draws are legal, keyed, and replicated. */
START_TEST(random_follows_its_seed)
{
    const struct kvr_budget budgets[] = {budget_of(20)};
    struct kvr_sim_options o = plain_options(budgets, 1);
    struct matrix_rows rows;
    struct replay a, b, c;
    size_t n, m;
    double *cell = make(&rows, 2, 2, 2, MADE_SMOOTH, 8);

    o.n_seed = 2;
    replay_run(&a, &rows, "random", &o);
    replay_run(&b, &rows, "random", &o);
    o.seed = 99;
    replay_run(&c, &rows, "random", &o);
    assert_same_sim(a.sim, b.sim, "random");
    ck_assert_uint_eq(a.sim->n_run, 1);
    ck_assert_uint_eq(a.sim->runs[0].n_replicate, 2);
    pooled(&a.sim->runs[0]);
    const struct kvr_eviction *x = kvr_sim_evictions(a.sim, 0, 0, &n);
    const struct kvr_eviction *others[] = {
        kvr_sim_evictions(c.sim, 0, 0, &m),  /* another seed */
        kvr_sim_evictions(a.sim, 0, 1, &m),  /* head */
        kvr_sim_evictions(a.sim, 0, 2, &m)}; /* layer */
    ck_assert_uint_eq(n, m);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_ne(memcmp(x, others[i], n * sizeof *x), 0);
    replay_free(&a);
    replay_free(&b);
    replay_free(&c);
    free(cell);
}
END_TEST

KVR_SUITE("policies", tables_are_whole, nothing_is_lost_when_all_fits,
          a_row_sees_the_budget_and_the_newest, parts_of_a_layer_do_not_show,
          threads_and_instruction_sets_do_not_show,
          one_call_for_all_is_one_call_for_each,
          a_selection_is_that_part_of_the_whole,
          topk_loses_no_more_than_any_rule, random_follows_its_seed)
