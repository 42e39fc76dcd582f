/* made_rows.c -- see made_rows.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made_rows.h"

#include "suite.h"

#include <math.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t roll(struct dice *dice)
{
    uint64_t z = dice->state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t dice_below(struct dice *dice, uint32_t n)
{
    return (uint32_t)(((roll(dice) >> 32) * n) >> 32);
}

double dice_real(struct dice *dice)
{
    return (double)(roll(dice) >> 11) * 0x1p-53;
}

/* The nearest f16: 11 bits, and nothing finer than 2^-24. */
static double to_half(double x)
{
    int exponent;

    if (x <= 0)
        return 0;
    frexp(x, &exponent);
    const int bit = exponent - 11 > -24 ? exponent - 11 : -24;
    return ldexp(rint(ldexp(x, -bit)), bit);
}

static double on_grid(enum made_kind kind, double x)
{
    if (kind == MADE_OFFGRID)
        return x;
    return kind == MADE_FINE ? rint((double)(float)x * 0x1p30) * 0x1p-30
                             : to_half(x);
}

/* A few levels over a power of two, so that equals stay equal. */
static void ties(struct dice *dice, double *row, uint32_t from, uint32_t t)
{
    static const double level[] = {0, 0, 1, 1, 1, 2, 2, 4};
    double sum = 0;

    for (uint32_t i = from; i <= t; i++)
        sum += row[i] = level[dice_below(dice, 8)];
    if (sum == 0 && dice_below(dice, 4) != 0)
        sum = row[t] = 1;
    for (uint32_t i = from; i <= t && sum > 0; i++)
        row[i] /= exp2(ceil(log2(sum)));
}

static double raw_weight(struct dice *dice, enum made_kind kind, uint32_t t,
                         uint32_t i, uint32_t peak)
{
    const double u = dice_real(dice);

    if (kind == MADE_FINE)
        return 1 + floor(3 * u);
    if (kind == MADE_SINK)
        return i == 0 ? 1 + 0.5 * t : exp(9 * (u - 1)) / (1 + 0.1 * (t - i));
    if (kind == MADE_PEAKED)
        return (i == peak ? t + 1.0 : 1e-3) * (0.5 + u);
    return -log(1 - u) + 1e-3;
}

static void make_row(struct dice *dice, enum made_kind kind, double *row,
                     uint32_t from, uint32_t t)
{
    const uint32_t peak = from + dice_below(dice, t - from + 1);
    double sum = 0;

    if (kind == MADE_TIES) {
        ties(dice, row, from, t);
        return;
    }
    for (uint32_t i = from; i <= t; i++)
        sum += row[i] = raw_weight(dice, kind, t, i, peak);
    for (uint32_t i = from; i <= t; i++)
        row[i] = on_grid(kind, row[i] / sum);
}

double *made_cells(struct dice *dice, enum made_kind kind, uint32_t n_layer,
                   uint32_t n_head, uint32_t T, const enum kvr_mask *mask,
                   const uint32_t *span)
{
    double *cell = calloc((size_t)n_layer * n_head * T * T, sizeof *cell);

    for (uint32_t at = 0; at < n_layer * n_head * T; at++) {
        const uint32_t t = at % T, l = at / T / n_head;
        uint32_t from = 0;
        if (mask != NULL && mask[l] == KVR_MASK_WINDOW)
            from = t + 1 > span[l] ? t + 1 - span[l] : 0;
        else if (mask != NULL && mask[l] == KVR_MASK_CHUNK)
            from = t / span[l] * span[l];
        make_row(dice, kind, cell + (size_t)at * T, from, t);
    }
    return cell;
}

struct kvr_budget budget_of(uint32_t tokens)
{
    struct kvr_budget budget = {.tokens = tokens};

    snprintf(budget.spec, sizeof budget.spec, "%u", tokens);
    return budget;
}

struct kvr_sim_options plain_options(const struct kvr_budget *budgets,
                                     size_t n_budget)
{
    return (struct kvr_sim_options){.budgets = budgets,
                                    .n_budget = n_budget,
                                    .observe = -1,
                                    .group = -1,
                                    .when = {.n = 1},
                                    .schedules = true,
                                    .seed = 1,
                                    .threads = 1};
}

enum kvr_status replay_try(struct replay *replay,
                           const struct matrix_rows *rows, const char *policies,
                           const struct kvr_sim_options *options)
{
    struct kvr_sim_options o = *options;
    struct kvr_error err = {0};

    *replay = (struct replay){0};
    must(kvr_registry_new(&replay->registry, &err));
    must(kvr_policy_specs_parse(&replay->specs, &replay->n_spec,
                                replay->registry, policies, &err));
    o.specs = replay->specs;
    o.n_spec = replay->n_spec;
    return kvr_sim_run(&replay->sim, &rows->rows, &o, &replay->err);
}

void replay_run(struct replay *replay, const struct matrix_rows *rows,
                const char *policies, const struct kvr_sim_options *options)
{
    const enum kvr_status status = replay_try(replay, rows, policies, options);

    ck_assert_msg(status == KVR_OK, "%s: %s", policies, replay->err.message);
    for (size_t i = 0; i < replay->sim->n_run; i++)
        ck_assert_msg(replay->sim->runs[i].status == KVR_OK, "%s",
                      replay->sim->runs[i].error);
}

void replay_free(struct replay *replay)
{
    kvr_sim_free(replay->sim);
    kvr_policy_specs_free(replay->specs, replay->n_spec);
    kvr_registry_free(replay->registry);
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void assert_same_cache(const struct kvr_cache_result *a,
                              const struct kvr_cache_result *b,
                              const char *what)
{
    /* Field by field: the padding of a struct may differ. */
    const double pairs[][2] = {
        {a->tally.missed, b->tally.missed},
        {a->tally.recorded, b->tally.recorded},
        {a->tally.prompt_missed, b->tally.prompt_missed},
        {a->tally.kl, b->tally.kl},
        {a->tally.kept, b->tally.kept},
        {a->tally.best, b->tally.best},
        {a->tally.head_kept, b->tally.head_kept},
        {a->tally.head_best, b->tally.head_best},
        {a->tally.late, b->tally.late},
        {a->tally.topk, b->tally.topk},
        {a->tally.topk_b, b->tally.topk_b},
        {a->tally.head_bound, b->tally.head_bound},
        {a->tally.oracle, b->tally.oracle},
        {a->tally.oracle_matched, b->tally.oracle_matched},
        {a->miss.p50, b->miss.p50},
        {a->miss.p95, b->miss.p95},
        {a->miss.p99, b->miss.p99},
        {a->miss.max, b->miss.max},
        {(double)a->tally.hits, (double)b->tally.hits},
        {(double)a->tally.accesses, (double)b->tally.accesses},
        {(double)a->tally.overlap, (double)b->tally.overlap},
        {(double)a->tally.visible, (double)b->tally.visible},
        {(double)a->tally.peak, (double)b->tally.peak},
        {(double)a->tally.evictions, (double)b->tally.evictions},
        {(double)a->tally.blind_rows, (double)b->tally.blind_rows},
        {(double)a->tally.infinite_rows, (double)b->tally.infinite_rows},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        ck_assert_msg(same_bits(pairs[i][0], pairs[i][1]) ||
                          (isnan(pairs[i][0]) && isnan(pairs[i][1])),
                      "%s: figure %zu is %.17g and %.17g", what, i, pairs[i][0],
                      pairs[i][1]);
}

static int by_step(const void *a, const void *b)
{
    const struct kvr_eviction *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

/* Evictions of one cache; a shrink's in the order of positions if `sorted`. */
static struct kvr_eviction *list_of(const struct kvr_sim *sim, size_t run,
                                    uint32_t cache, bool sorted, size_t *n)
{
    const struct kvr_eviction *e = kvr_sim_evictions(sim, run, cache, n);
    struct kvr_eviction *copy = calloc(*n + 1, sizeof *copy);

    if (*n > 0)
        memcpy(copy, e, *n * sizeof *copy);
    if (sorted)
        qsort(copy, *n, sizeof *copy, by_step);
    return copy;
}

static void same_run(const struct kvr_sim *a, size_t run_a,
                     const struct kvr_sim *b, size_t run_b, bool sorted,
                     const char *what)
{
    ck_assert_uint_eq(a->n_cache, b->n_cache);
    for (uint32_t c = 0; c < a->n_cache; c++) {
        size_t n, m;
        struct kvr_eviction *x = list_of(a, run_a, c, sorted, &n);
        struct kvr_eviction *y = list_of(b, run_b, c, sorted, &m);
        ck_assert_msg(n == m, "%s: %zu and %zu evictions", what, n, m);
        for (size_t i = 0; i < n; i++)
            ck_assert_msg(
                x[i].step == y[i].step && x[i].position == y[i].position,
                "%s: cache %u eviction %zu: %u@%u and %u@%u", what, c, i,
                x[i].position, x[i].step, y[i].position, y[i].step);
        assert_same_cache(&a->runs[run_a].caches[c], &b->runs[run_b].caches[c],
                          what);
        free(x);
        free(y);
    }
}

void assert_same_run(const struct kvr_sim *a, size_t run_a,
                     const struct kvr_sim *b, size_t run_b, const char *what)
{
    same_run(a, run_a, b, run_b, false, what);
}

void assert_same_sets(const struct kvr_sim *a, size_t run_a,
                      const struct kvr_sim *b, size_t run_b, const char *what)
{
    same_run(a, run_a, b, run_b, true, what);
}

void assert_same_sim(const struct kvr_sim *a, const struct kvr_sim *b,
                     const char *what)
{
    ck_assert_uint_eq(a->n_run, b->n_run);
    for (size_t r = 0; r < a->n_run; r++) {
        char text[256];
        snprintf(text, sizeof text, "%s: %s", what, a->runs[r].spec->text);
        assert_same_run(a, r, b, r, text);
        ck_assert_uint_eq(a->runs[r].model.tied, b->runs[r].model.tied);
        ck_assert(same_bits(a->runs[r].model.missed, b->runs[r].model.missed));
        ck_assert(same_bits(a->runs[r].model.kl, b->runs[r].model.kl));
        ck_assert(
            same_bits(a->runs[r].model_miss.p95, b->runs[r].model_miss.p95));
    }
}
