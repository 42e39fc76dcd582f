/* check_reference.c -- the engine against the slow reference.
 *
 * Random matrices, random settings, every rule: evictions must be equal, and
 * so must all sums, bit for bit, in the float and in the double build: weights
 * are on a grid, so sums are exact whatever their order. KL alone is compared
 * with a tolerance. Off the grid (double build) sums agree to 1e-12.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made_rows.h"
#include "reference.h"
#include "suite.h"

#include <math.h>
#include <string.h>

enum { SPECS = 24, BUDGETS = 3 };

/* One random case: a recording, settings, and what both sides are asked. */
struct trial {
    struct dice dice;
    struct ref_trace trace;
    enum kvr_mask mask[REF_LAYERS];
    double *cell, *loss;
    float *sink, *value;
    struct matrix_rows rows;
    struct kvr_sim_options options;
    struct kvr_budget budget[BUDGETS];
    uint32_t room; /* what protection may take at the least budget */
    struct ref_question asked[SPECS];
    char text[SPECS][128];
    size_t n_asked;
    double slack; /* relative, of sums */
    char name[160];
};

static void pick_shape(struct trial *x, enum made_kind kind, bool local)
{
    struct ref_trace *t = &x->trace;
    struct dice *d = &x->dice;
    static const uint32_t groups[] = {1, 1, 2, 3, 4};
    /* both sides of a tile, of a word of a set, and of a strip */
    static const uint32_t lengths[] = {15, 16,  17,  63,  64,  65,
                                       66, 127, 128, 129, 150, 193};
    const uint32_t g = groups[dice_below(d, 5)];

    t->T = dice_below(d, 3) == 0 ? lengths[dice_below(d, 12)]
                                 : 2 + dice_below(d, 40);
    if (kind == MADE_FINE) /* sums long enough to round */
        t->T = 100 + dice_below(d, 50);
    t->n_layer = 1 + dice_below(d, t->T < 60 ? 3 : 2);
    t->n_kv_head = 1 + dice_below(d, t->T < 60 ? 3 : 2);
    t->n_head = g * t->n_kv_head;
    t->P = 1 + dice_below(d, t->T - 1);
    for (uint32_t l = 0; l < t->n_layer; l++) {
        const uint32_t m = local ? dice_below(d, 3) : 0;
        t->mask[l] = m == 0 ? REF_CAUSAL : m == 1 ? REF_LOCAL : REF_CHUNK;
        x->mask[l] = m == 0   ? KVR_MASK_CAUSAL
                     : m == 1 ? KVR_MASK_WINDOW
                              : KVR_MASK_CHUNK;
        t->span[l] = m == 0 ? 0 : 4 + dice_below(d, t->T);
    }
    x->cell =
        made_cells(d, kind, t->n_layer, t->n_head, t->T, x->mask, t->span);
    t->cell = x->cell;
    matrix_rows_init(&x->rows, x->cell, t->n_layer, t->n_head, t->n_kv_head,
                     t->T, t->P,
                     kind == MADE_OFFGRID ? 0
                     : kind == MADE_FINE  ? 0x1p-30
                                          : 0x1p-24);
    for (uint32_t l = 0; l < t->n_layer; l++) {
        x->rows.layer[l].mask = x->mask[l];
        x->rows.layer[l].span = t->span[l];
    }
}

static void add_sink(struct trial *x)
{
    const size_t n = (size_t)x->trace.n_layer * x->trace.n_head * x->trace.T;

    x->sink = calloc(n, sizeof *x->sink);
    for (size_t i = 0; i < n; i++)
        x->sink[i] = (float)(rint(dice_real(&x->dice) * 0x1p12) * 0x1p-13);
    x->trace.sink = x->rows.sink = x->sink;
}

/* --loss value: weights times the norm of their value, on a grid of 2^-30 of
 * the layer's largest norm, rounded up to a power of two. Layers differ by
 * powers of ten. */
static void add_values(struct trial *x)
{
    const uint32_t T = x->trace.T;
    const size_t n = (size_t)x->trace.n_layer * x->trace.n_head * T;
    const size_t each = n / x->trace.n_layer;

    x->value = calloc(n, sizeof *x->value);
    x->loss = calloc(n * T, sizeof *x->loss);
    for (uint32_t l = 0; l < x->trace.n_layer; l++) {
        float *value = x->value + l * each;
        double most = 0;
        for (size_t i = 0; i < each; i++) {
            value[i] = (float)((0.1 + 7 * dice_real(&x->dice)) * pow(10, l));
            most = fmax(most, (double)value[i]);
        }
        const double scale = exp2(ceil(log2(most)));
        for (size_t i = 0; i < each * T; i++) {
            const size_t key = i % T, head = i / T / T;
            const double share = x->cell[l * each * T + i] *
                                 (double)value[head * T + key] / scale;
            x->loss[l * each * T + i] =
                (double)(kvr_real)(rint(share * 0x1p30) * 0x1p-30) * scale;
        }
    }
    x->rows.value = x->value;
    x->trace.loss = x->loss;
    x->options.loss = KVR_LOSS_VALUE;
}

static struct kvr_when pick_when(struct trial *x, bool stream, uint32_t most)
{
    const uint32_t n = 1 + dice_below(&x->dice, most < 6 ? most : 6);

    switch (dice_below(&x->dice, 6)) {
    case 0:
        return (struct kvr_when){KVR_WHEN_EVERY, n};
    case 1:
        return (struct kvr_when){KVR_WHEN_OVERFLOW, n};
    case 2:
        if (!stream)
            return (struct kvr_when){KVR_WHEN_PROMPT_END, 1};
        break;
    default:
        break;
    }
    return (struct kvr_when){KVR_WHEN_STEP, 1};
}

static struct kvr_access pick_access(struct dice *d)
{
    switch (dice_below(d, 6)) {
    case 0:
        return (struct kvr_access){KVR_ACCESS_RELMAX, 0.25};
    case 1:
        return (struct kvr_access){KVR_ACCESS_ABS, 0.0625};
    case 2:
        return (struct kvr_access){KVR_ACCESS_TOPM, 1 + dice_below(d, 4)};
    case 3:
        return (struct kvr_access){KVR_ACCESS_MASS, 0.75};
    default:
        return (struct kvr_access){KVR_ACCESS_ABOVE_UNIFORM, 0};
    }
}

/* Budgets and all that is the same for every rule. */
static void pick_settings(struct trial *x, bool overrides)
{
    static const int groups[] = {-1,
                                 -1,
                                 KVR_GROUP_MEAN,
                                 KVR_GROUP_MAX,
                                 KVR_GROUP_SUM,
                                 KVR_GROUP_PER_QUERY_HEAD};
    struct dice *d = &x->dice;
    struct kvr_sim_options *o = &x->options;
    const uint32_t T = x->trace.T;
    uint32_t least = UINT32_MAX;

    for (uint32_t b = 0; b < BUDGETS; b++) {
        const uint32_t most = b == 2 ? T + 3 : 1 + T / 2;
        x->budget[b] = budget_of(1 + dice_below(d, most));
        least = x->budget[b].tokens < least ? x->budget[b].tokens : least;
    }
    for (uint32_t l = 0; l < x->trace.n_layer; l++)
        if (x->trace.span[l] > 0 && x->trace.span[l] - 1 < least)
            least = x->trace.span[l] - 1;
    *o = plain_options(x->budget, BUDGETS);
    o->steps = true;
    o->access = pick_access(d);
    o->stream_prefill = dice_below(d, 5) == 0;
    o->when = pick_when(x, o->stream_prefill, least);
    o->budget_is_floor = dice_below(d, 4) == 0;
    o->ties = dice_below(d, 3) == 0 ? KVR_TIES_NEWEST : KVR_TIES_OLDEST;
    o->hit_prompt_only = dice_below(d, 4) == 0;
    x->room = o->budget_is_floor ? least : least - o->when.n + 1;
    if (dice_below(d, 3) == 0) {
        o->protect_first.tokens = dice_below(d, x->room);
        x->room -= o->protect_first.tokens;
        o->protect_last.tokens = dice_below(d, x->room + 1);
    }
    if (dice_below(d, 4) == 0) {
        const uint32_t n = T - x->trace.P;
        o->score_first = x->trace.P + dice_below(d, n);
        o->score_last = o->score_first + dice_below(d, T - o->score_first);
    }
    if (overrides) {
        o->observe = (int)dice_below(d, 3) - 1;
        o->observe = o->observe == 0  ? KVR_OBSERVE_RENORM
                     : o->observe > 0 ? KVR_OBSERVE_RAW
                                      : -1;
        o->group = groups[dice_below(d, 6)];
    }
}

/* A question with the settings of the trial and a rule's own defaults. */
static struct ref_question *ask(struct trial *x, enum ref_rule rule, bool raw,
                                enum ref_group group)
{
    static const enum ref_access access[] = {[KVR_ACCESS_ABOVE_UNIFORM] =
                                                 REF_ABOVE_UNIFORM,
                                             [KVR_ACCESS_RELMAX] = REF_RELMAX,
                                             [KVR_ACCESS_ABS] = REF_ABS,
                                             [KVR_ACCESS_TOPM] = REF_TOPM,
                                             [KVR_ACCESS_MASS] = REF_MASS};
    const struct kvr_sim_options *o = &x->options;
    struct ref_question *q = &x->asked[x->n_asked++];

    *q = (struct ref_question){.trace = &x->trace,
                               .rule = rule,
                               .raw = raw,
                               .group = group,
                               .decay = 1,
                               .history = 400,
                               .eps = 0.01,
                               .tau = 0.5,
                               .access = access[o->access.kind],
                               .access_x = o->access.x,
                               .newest_leaves = o->ties == KVR_TIES_NEWEST,
                               .protect_first = o->protect_first.tokens,
                               .protect_last = o->protect_last.tokens,
                               .when = (enum ref_when)o->when.kind,
                               .n = o->when.n,
                               .floor = o->budget_is_floor,
                               .stream = o->stream_prefill,
                               .hit_prompt_only = o->hit_prompt_only,
                               .score_first = o->score_first,
                               .score_last = o->score_last};
    if (o->score_last == 0) {
        q->score_first = x->trace.P;
        q->score_last = x->trace.T - 1;
    }
    if (o->observe >= 0)
        q->raw = o->observe == KVR_OBSERVE_RAW;
    if (o->group == KVR_GROUP_MEAN)
        q->group = REF_MEAN;
    else if (o->group == KVR_GROUP_MAX)
        q->group = REF_MAX;
    else if (o->group == KVR_GROUP_SUM)
        q->group = REF_SUM;
    q->apart = o->group == KVR_GROUP_PER_QUERY_HEAD;
    return q;
}

static char *text_of(struct trial *x)
{
    return x->text[x->n_asked - 1];
}

static void ask_h2o(struct trial *x)
{
    for (uint32_t i = 0; i < 5; i++) {
        struct ref_question *q = ask(x, REF_H2O, false, REF_MEAN);
        q->recent = dice_below(&x->dice, x->room + 1);
        q->forced =
            i >= 2 && q->recent < x->room && dice_below(&x->dice, 2) == 0;
        q->average = i == 1 || i == 4;
        q->global = i >= 3;
        q->decay = i == 2 ? 0.75 : 1;
        snprintf(text_of(x), 128,
                 "h2o:recent=%u,average=%d,decay=%g,statistic=%s,"
                 "graduation=%s",
                 q->recent, q->average, q->decay,
                 q->global ? "global" : "local", q->forced ? "forced" : "free");
    }
}

static void ask_submodular(struct trial *x)
{
    static const char *const h[] = {"sqrt", "log", "cap"};

    for (uint32_t i = 0; i < 4; i++) {
        struct ref_question *q = ask(x, REF_SUBMODULAR, true, REF_MEAN);
        q->recent = dice_below(&x->dice, x->room + 1);
        q->history = i == 0 ? 400 : 1 + dice_below(&x->dice, 20);
        q->h = (enum ref_h)dice_below(&x->dice, 3);
        q->forward = i >= 2;
        snprintf(text_of(x), 128,
                 "submodular-greedy:recent=%u,history=%u,h=%s,shrink=%s",
                 q->recent, q->history, h[q->h],
                 q->forward ? "forward" : "delete");
    }
}

static void ask_all(struct trial *x)
{
    struct ref_question *q;

    x->n_asked = 0;
    ask(x, REF_FULL, false, REF_MEAN);
    snprintf(text_of(x), 128, "full");
    ask(x, REF_WINDOW, false, REF_MEAN);
    snprintf(text_of(x), 128, "window");
    q = ask(x, REF_STREAMING, false, REF_MEAN);
    q->sinks = dice_below(&x->dice, x->room + 1);
    if (x->options.protect_last.tokens > 0)
        q->sinks = 0;
    snprintf(text_of(x), 128, "streaming-llm:sinks=%u", q->sinks);
    ask(x, REF_LRU, false, REF_MEAN);
    snprintf(text_of(x), 128, "lru");
    for (uint32_t i = 0; i < 2; i++) {
        q = ask(x, REF_LFU, false, REF_MEAN);
        q->aging = i == 0 ? 0 : 1 + dice_below(&x->dice, 9);
        snprintf(text_of(x), 128, "lfu:aging=%u", q->aging);
    }
    ask(x, REF_TOVA, false, REF_MEAN);
    snprintf(text_of(x), 128, "tova");
    q = ask(x, REF_TOVA, false, REF_MEAN);
    q->per_head = true;
    snprintf(text_of(x), 128, "tova:per-head=1");
    ask(x, REF_GREEDY_FUTURE, true, REF_SUM);
    snprintf(text_of(x), 128, "greedy-future");
    ask(x, REF_BELADY, true, REF_MEAN);
    snprintf(text_of(x), 128, "belady");
    ask(x, REF_TOPK, true, REF_SUM);
    snprintf(text_of(x), 128, "topk");
    ask_h2o(x);
    ask_submodular(x);
}

static void same_evictions(const struct trial *x, const struct ref_cache *c,
                           const struct kvr_eviction *got, size_t n,
                           const char *who)
{
    for (size_t i = 0; i < n && i < c->n_evicted; i++)
        ck_assert_msg(got[i].step == c->evicted[i].step &&
                          got[i].position == c->evicted[i].position,
                      "%s, %s: eviction %zu is %u@%u, expected %u@%u", x->name,
                      who, i, got[i].position, got[i].step,
                      c->evicted[i].position, c->evicted[i].step);
    ck_assert_msg(n == c->n_evicted, "%s, %s: %zu evictions, expected %zu",
                  x->name, who, n, c->n_evicted);
}

static void same_sums(const struct trial *x, const struct ref_cache *c,
                      const struct kvr_cache_result *r, const char *who)
{
    const struct kvr_tally *t = &r->tally;
    const struct {
        const char *name;
        double got, expected, slack;
    } figures[] = {
        {"missed", t->missed, c->missed, x->slack},
        {"recorded", t->recorded, c->recorded, x->slack},
        {"prompt_missed", t->prompt_missed, c->prompt_missed, x->slack},
        {"prompt_recorded", t->prompt_recorded, c->prompt_recorded, x->slack},
        {"kept", t->kept, c->kept, x->slack},
        {"best", t->best, c->best, x->slack},
        {"head_kept", t->head_kept, c->head_kept, x->slack},
        {"head_best", t->head_best, c->head_best, x->slack},
        {"late", t->late, c->late, x->slack},
        {"topk", t->topk, c->topk, x->slack},
        {"topk_b", t->topk_b, c->topk_b, x->slack},
        {"head_bound", t->head_bound, c->head_bound, x->slack},
        {"p50", r->miss.p50, c->p50, x->slack},
        {"p95", r->miss.p95, c->p95, x->slack},
        {"p99", r->miss.p99, c->p99, x->slack},
        {"max", r->miss.max, c->max, x->slack},
        {"kl", t->kl, c->kl, x->slack > 0 ? 1e-9 : 1e-12},
    };

    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        const double scale = fmax(1, fabs(figures[i].expected));
        ck_assert_msg(fabs(figures[i].got - figures[i].expected) <=
                          figures[i].slack * scale,
                      "%s, %s: %s is %.17g, expected %.17g", x->name, who,
                      figures[i].name, figures[i].got, figures[i].expected);
    }
}

static void same_counts(const struct trial *x, const struct ref_cache *c,
                        const struct kvr_tally *t, const char *who)
{
    const struct {
        const char *name;
        uint64_t got, expected;
    } figures[] = {
        {"kl_rows", t->kl_rows, c->kl_rows},
        {"infinite_rows", t->infinite_rows, c->infinite_rows},
        {"blind_rows", t->blind_rows, c->blind_rows},
        {"hits", t->hits, c->hits},
        {"accesses", t->accesses, c->accesses},
        {"overlap", t->overlap, c->overlap},
        {"wanted", t->wanted, c->wanted},
        {"visible", t->visible, c->visible},
        {"rows", t->rows, c->rows},
        {"peak", t->peak, c->peak},
        {"evictions", t->evictions, c->evictions},
        {"tied", t->tied, c->tied},
        {"tied_at_zero", t->tied_at_zero, c->tied_at_zero},
    };

    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        ck_assert_msg(figures[i].got == figures[i].expected,
                      "%s, %s: %s is %llu, expected %llu", x->name, who,
                      figures[i].name, (unsigned long long)figures[i].got,
                      (unsigned long long)figures[i].expected);
}

/* A layer's percentiles come from 4096 bins: within one of the exact ones. */
static void close_layers(const struct trial *x, const struct ref_answer *a,
                         const struct kvr_run_result *run, const char *who)
{
    const uint32_t each = a->n_cache / x->trace.n_layer;

    for (uint32_t l = 0; l < x->trace.n_layer; l++) {
        struct ref_cache all = {0};
        for (uint32_t c = l * each; c < (l + 1) * each; c++)
            all.n_m += a->cache[c].n_m;
        all.m = calloc(all.n_m, sizeof *all.m);
        all.n_m = 0;
        for (uint32_t c = l * each; c < (l + 1) * each; c++) {
            memcpy(all.m + all.n_m, a->cache[c].m,
                   a->cache[c].n_m * sizeof *all.m);
            all.n_m += a->cache[c].n_m;
        }
        ref_percentiles(&all);
        const struct kvr_percentiles *p = &run->layer_miss[l];
        ck_assert_msg(fabs(p->p50 - all.p50) <= 1.0 / 4096 &&
                          fabs(p->p95 - all.p95) <= 1.0 / 4096 &&
                          fabs(p->p99 - all.p99) <= 1.0 / 4096 &&
                          fabs(p->max - all.max) <= x->slack,
                      "%s, %s: layer %u: p50 %.6f, expected %.6f", x->name, who,
                      l, p->p50, all.p50);
        free(all.m);
    }
}

static void compare_run(struct trial *x, const struct kvr_sim *sim, size_t run,
                        const struct ref_question *asked)
{
    struct ref_question q = *asked;
    struct ref_answer answer;
    const struct kvr_run_result *r = &sim->runs[run];
    double missed = 0, by_row = 0;
    char who[200];

    q.budget = r->budget->tokens;
    ref_replay(&answer, &q);
    ck_assert_uint_eq(answer.n_cache, sim->n_cache);
    for (uint32_t c = 0; c < sim->n_cache; c++) {
        size_t n;
        const struct kvr_eviction *got = kvr_sim_evictions(sim, run, c, &n);
        snprintf(who, sizeof who, "%s, budget %u, cache %u", r->spec->text,
                 q.budget, c);
        same_evictions(x, &answer.cache[c], got, n, who);
        same_counts(x, &answer.cache[c], &r->caches[c].tally, who);
        same_sums(x, &answer.cache[c], &r->caches[c], who);
        missed += answer.cache[c].missed;
    }
    for (uint32_t t = x->options.score_first; t < x->trace.T; t++)
        by_row += r->row_missed[t];
    ck_assert_double_le(fabs(r->model.missed - missed),
                        x->slack * fmax(1, missed));
    ck_assert_double_le(fabs(by_row - missed), x->slack * fmax(1, missed));
    close_layers(x, &answer, r, who);
    ref_free(&answer);
}

static void run_trial(struct trial *x)
{
    char text[SPECS * 128] = "";
    struct replay replay;
    size_t used = 0;

    for (size_t i = 0; i < x->n_asked; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 i > 0 ? "," : "", x->text[i]);
    const enum kvr_status status =
        replay_try(&replay, &x->rows, text, &x->options);
    ck_assert_msg(status == KVR_OK, "%s: %s", x->name, replay.err.message);
    for (size_t i = 0; i < replay.sim->n_run; i++) {
        ck_assert_msg(replay.sim->runs[i].status == KVR_OK, "%s: %s", x->name,
                      replay.sim->runs[i].error);
        compare_run(x, replay.sim, i, &x->asked[i / BUDGETS]);
    }
    replay_free(&replay);
    free(x->cell);
    free(x->loss);
    free(x->sink);
    free(x->value);
}

enum { PLAIN = 0, LOCAL = 1, SINK = 2, OVERRIDES = 4, VALUES = 8 };

static void trials(enum made_kind kind, uint32_t n, unsigned with)
{
    for (uint32_t i = 0; i < n; i++) {
        struct trial x = {
            .dice = {.state = kind * 1000003u + i * 7919u + with * 31u}};
        pick_shape(&x, kind, (with & LOCAL) != 0);
        pick_settings(&x, (with & OVERRIDES) != 0);
        if ((with & SINK) != 0)
            add_sink(&x);
        if ((with & VALUES) != 0)
            add_values(&x);
        x.slack = kind == MADE_OFFGRID ? 1e-12 : 0;
        snprintf(x.name, sizeof x.name,
                 "kind %d with %u trial %u: T %u P %u heads %u/%u first %u "
                 "last %u when %d:%u%s%s",
                 (int)kind, with, i, x.trace.T, x.trace.P, x.trace.n_head,
                 x.trace.n_kv_head, x.options.protect_first.tokens,
                 x.options.protect_last.tokens, (int)x.options.when.kind,
                 x.options.when.n, x.options.budget_is_floor ? " floor" : "",
                 x.options.stream_prefill ? " stream" : "");
        ask_all(&x);
        run_trial(&x);
    }
}

START_TEST(equal_on_smooth_rows)
{
    trials(MADE_SMOOTH, 10, PLAIN);
    trials(MADE_PEAKED, 6, PLAIN);
}
END_TEST

START_TEST(equal_on_rows_with_a_sink)
{
    trials(MADE_SINK, 12, SINK);
}
END_TEST

START_TEST(equal_where_everything_ties)
{
    trials(MADE_TIES, 20, PLAIN);
}
END_TEST

/* Sums of f16 weights are exact in floats too; these round, so that the order
 * of additions shows. */
START_TEST(equal_on_rows_finer_than_a_float_sums)
{
    trials(MADE_FINE, 8, PLAIN);
}
END_TEST

START_TEST(equal_under_overrides)
{
    trials(MADE_TIES, 14, SINK | OVERRIDES);
    trials(MADE_SINK, 14, OVERRIDES);
}
END_TEST

START_TEST(equal_in_window_and_chunk_layers)
{
    trials(MADE_TIES, 14, LOCAL | OVERRIDES);
    trials(MADE_SMOOTH, 14, LOCAL);
}
END_TEST

START_TEST(equal_when_values_weigh_the_loss)
{
    trials(MADE_SMOOTH, 14, VALUES);
    trials(MADE_SINK, 8, VALUES);
    trials(MADE_TIES, 8, VALUES | LOCAL | OVERRIDES);
}
END_TEST

#ifdef KVR_REAL_DOUBLE /* floats are always on a grid */
START_TEST(close_on_weights_off_the_grid)
{
    trials(MADE_OFFGRID, 12, OVERRIDES);
}
END_TEST
#define OFF_GRID , close_on_weights_off_the_grid
#else
#define OFF_GRID
#endif

KVR_SUITE("reference", equal_on_smooth_rows, equal_on_rows_with_a_sink,
          equal_where_everything_ties, equal_on_rows_finer_than_a_float_sums,
          equal_under_overrides, equal_in_window_and_chunk_layers,
          equal_when_values_weigh_the_loss OFF_GRID)
