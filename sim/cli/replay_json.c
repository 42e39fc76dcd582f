/* replay_json.c -- one policy at one budget as a JSON item.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "replay_json.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *ratio(double a, double b)
{
    return b > 0 ? cli_real(a / b) : json_null();
}

static json_t *miss_json(const struct kvr_tally *t,
                         const struct kvr_percentiles *p)
{
    json_t *miss = json_object();

    json_object_set_new(miss, "mean", ratio(t->missed, t->recorded));
    json_object_set_new(miss, "p50", cli_real(p->p50));
    json_object_set_new(miss, "p95", cli_real(p->p95));
    json_object_set_new(miss, "p99", cli_real(p->p99));
    json_object_set_new(miss, "max", cli_real(p->max));
    return miss;
}

static json_t *bins_json(const double *bins, double recorded)
{
    json_t *list = json_array();
    uint32_t n = KVR_LAG_BINS;

    while (n > 0 && bins[n - 1] == 0)
        n--;
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, ratio(bins[i], recorded));
    return list;
}

static void set_bound(json_t *item, const char *key, double lost,
                      double recorded, const char *reason)
{
    if (isnan(lost) || recorded <= 0)
        cli_null(item, key, reason != NULL ? reason : "not computed");
    else
        json_object_set_new(item, key, cli_real(lost / recorded));
}

/* What a tally says, at any scope. */
static void set_tally(json_t *item, const struct kvr_tally *t,
                      const struct kvr_percentiles *p,
                      const struct kvr_run_result *run)
{
    const double rows = (double)t->rows;

    json_object_set_new(item, "miss_mass", miss_json(t, p));
    json_object_set_new(
        item, "kl",
        json_pack("{s:o, s:I}", "mean", ratio(t->kl, (double)t->kl_rows),
                  "infinite_rows", (json_int_t)t->infinite_rows));
    if (t->accesses > 0)
        json_object_set_new(item, "hit_ratio",
                            ratio((double)t->hits, (double)t->accesses));
    else
        cli_null(item, "hit_ratio", "no accesses of past tokens");
    json_object_set_new(item, "recall", ratio(t->kept, t->best));
    json_object_set_new(item, "recall_head", ratio(t->head_kept, t->head_best));
    json_object_set_new(item, "overlap",
                        ratio((double)t->overlap, (double)t->wanted));
    json_object_set_new(item, "occupancy",
                        json_pack("{s:o, s:I, s:I}", "mean",
                                  ratio((double)t->visible, rows), "peak",
                                  (json_int_t)t->peak, "entry_steps",
                                  (json_int_t)t->visible));
    json_object_set_new(item, "evictions",
                        json_integer((json_int_t)t->evictions));
    json_object_set_new(item, "tie_share",
                        t->evictions > 0
                            ? ratio((double)t->tied, (double)t->evictions)
                            : cli_real(0));
    json_object_set_new(
        item, "tie_share_zero",
        t->evictions > 0 ? ratio((double)t->tied_at_zero, (double)t->evictions)
                         : cli_real(0));
    json_object_set_new(item, "late_importance", ratio(t->late, t->recorded));
    json_object_set_new(item, "blind_rows",
                        json_integer((json_int_t)t->blind_rows));
    set_bound(item, "topk", t->topk, t->recorded, NULL);
    set_bound(item, "oracle", t->oracle, t->recorded, run->oracle_reason);
    set_bound(item, "oracle_matched", t->resized > 0 ? t->oracle_matched : NAN,
              t->recorded, run->matched_reason);
}

static json_t *heads_json(const struct kvr_sim *sim,
                          const struct kvr_run_result *run)
{
    json_t *list = json_array();

    for (uint32_t c = 0; c < sim->n_cache; c++) {
        const struct kvr_cache_result *r = &run->caches[c];
        json_t *each = json_array();
        json_t *item = json_pack("{s:I, s:I}", "layer", (json_int_t)r->layer,
                                 "kv_head", (json_int_t)r->kv_head);
        for (uint32_t h = 0; h < r->n_query_head; h++)
            json_array_append_new(each, ratio(r->missed[h], r->recorded[h]));
        set_tally(item, &r->tally, &r->miss, run);
        json_object_set_new(item, "per_query_head", each);
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *params_json(const struct kvr_run_result *run)
{
    json_t *params = json_object();
    const struct kvr_param *p = run->spec->policy->params;

    for (size_t i = 0; p != NULL && p[i].name != NULL; i++) {
        if (p[i].type == KVR_PARAM_REAL) {
            json_object_set_new(params, p[i].name, cli_real(run->arg[i].real));
        } else if (p[i].type == KVR_PARAM_CHOICE) {
            const char *c = p[i].choices;
            for (uint32_t k = run->arg[i].count; k > 0; k--)
                c += strcspn(c, "|") + 1;
            json_object_set_new(params, p[i].name,
                                json_stringn(c, strcspn(c, "|")));
        } else {
            json_object_set_new(params, p[i].name,
                                json_integer((json_int_t)run->arg[i].count));
        }
    }
    return params;
}

static const char *unrealisable(const struct kvr_run_result *run)
{
    if (run->policy->class_of == KVR_CLASS_OFFLINE ||
        run->policy->class_of == KVR_CLASS_LOOK_AHEAD)
        return "knows rows to come";
    if (run->policy->class_of == KVR_CLASS_BOUND)
        return "a bound, not a rule";
    if (run->group == KVR_GROUP_PER_QUERY_HEAD)
        return "a set for each query head takes the group's size times the "
               "memory";
    if (run->observe == KVR_OBSERVE_RAW)
        return "raw rows need the full cache's normaliser";
    return NULL;
}

static void set_parts(json_t *item, const struct kvr_run_result *run)
{
    const uint32_t first = run->protect_first > run->window.first
                               ? run->protect_first
                               : run->window.first;
    const uint32_t last = run->protect_last > run->window.last
                              ? run->protect_last
                              : run->window.last;

    json_object_set_new(
        item, "budget",
        json_pack("{s:s, s:I, s:I, s:I, s:I}", "spec", run->budget->spec,
                  "tokens", (json_int_t)run->budget->tokens, "first",
                  (json_int_t)first, "recent", (json_int_t)last, "scored",
                  (json_int_t)(run->budget->tokens - first - last)));
}

size_t replay_replicates(const struct kvr_sim *sim, size_t first)
{
    size_t n = 1;

    while (first + n < sim->n_run && sim->runs[first + n].replicate > 0)
        n++;
    return n;
}

static double share(const struct kvr_run_result *run)
{
    return run->model.recorded > 0 ? run->model.missed / run->model.recorded
                                   : NAN;
}

/* Mean and sd over replicates; their tallies are pooled. */
static void set_seeds(json_t *item, const struct kvr_sim *sim, size_t first,
                      size_t n)
{
    double sum = 0, squares = 0;

    for (size_t i = 0; i < n; i++)
        sum += share(&sim->runs[first + i]);
    for (size_t i = 0; i < n; i++) {
        const double d = share(&sim->runs[first + i]) - sum / (double)n;
        squares += d * d;
    }
    json_object_set_new(item, "seeds", json_integer((json_int_t)n));
    if (n > 1)
        json_object_set_new(item, "miss_mass_sd",
                            cli_real(sqrt(squares / (double)(n - 1))));
    else
        cli_null(item, "miss_mass_sd", "one seed");
}

static void set_interval(json_t *item, const struct kvr_sim *sim,
                         const struct kvr_run_result *run, uint64_t seed)
{
    double bounds[2];
    json_t *interval;

    kvr_sim_interval(bounds, sim, run, NULL, seed);
    interval = json_pack("{s:o, s:o, s:f, s:s}", "low", cli_real(bounds[0]),
                         "high", cli_real(bounds[1]), "level", 0.95, "method",
                         "circular blocks of 32 rows of this text");
    json_object_set_new(json_object_get(item, "miss_mass"), "interval",
                        interval);
}

static void set_identity(json_t *item, const struct kvr_run_result *run)
{
    const char *why = unrealisable(run);

    json_object_set_new(item, "policy", json_string(run->spec->text));
    json_object_set_new(item, "params", params_json(run));
    json_object_set_new(item, "class",
                        json_string(kvr_class_name(run->policy->class_of)));
    json_object_set_new(item, "observe",
                        json_string(kvr_observe_name(run->observe)));
    json_object_set_new(item, "group",
                        json_string(run->observe == KVR_OBSERVE_NONE
                                        ? "none"
                                        : kvr_group_name(run->group)));
    set_parts(item, run);
    json_object_set_new(item, "realisable", json_boolean(why == NULL));
    if (why != NULL)
        json_object_set_new(item, "realisable_reason", json_string(why));
}

json_t *replay_item(const struct kvr_sim *sim, size_t first, size_t n,
                    const struct replay_options *options)
{
    const struct kvr_run_result *run = &sim->runs[first];
    json_t *item = json_object();
    struct kvr_tally pooled = {0};

    if (run->status != KVR_OK) {
        json_object_set_new(item, "policy", json_string(run->spec->text));
        set_parts(item, run);
        json_object_set_new(item, "error", json_string(run->error));
        return item;
    }
    set_identity(item, run);
    json_object_set_new(item, "scope", json_string("model"));
    for (size_t i = 0; i < n; i++)
        kvr_tally_add(&pooled, &sim->runs[first + i].model);
    set_tally(item, &pooled, &run->model_miss, run);
    set_seeds(item, sim, first, n);
    set_interval(item, sim, run, options->common.seed);
    json_object_set_new(item, "late_by_age",
                        bins_json(pooled.late_by_age, pooled.recorded));
    json_object_set_new(item, "late_by_lag",
                        bins_json(pooled.late_by_lag, pooled.recorded));
    if (pooled.prompt_recorded > 0)
        json_object_set_new(
            item, "prompt_miss",
            ratio(pooled.prompt_missed, pooled.prompt_recorded));
    if (sim->has_local && run->global.rows > 0) {
        json_t *global = json_object();
        set_tally(global, &run->global, &run->global_miss, run);
        json_object_set_new(item, "global_layers", global);
    }
    json_object_set_new(item, "heads", heads_json(sim, run));
    return item;
}

/* A flat row: the item's identity with another scope's figures. */
static json_t *csv_row(json_t *item, const char *scope)
{
    static const char *const kept[] = {"policy", "class",  "observe",
                                       "group",  "budget", "trace"};
    json_t *row = json_object();

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        json_object_set(row, kept[i], json_object_get(item, kept[i]));
    json_object_set_new(row, "scope", json_string(scope));
    return row;
}

void replay_csv_rows(json_t *rows, const struct kvr_sim *sim, size_t first,
                     size_t n, json_t *item)
{
    const struct kvr_run_result *run = &sim->runs[first];
    size_t i;
    json_t *head;

    (void)n;
    json_array_append(rows, item);
    if (run->status != KVR_OK)
        return;
    if (sim->has_local && run->global.rows > 0) {
        json_t *row = csv_row(item, "global-layers");
        set_tally(row, &run->global, &run->global_miss, run);
        json_array_append_new(rows, row);
    }
    for (uint32_t l = 0; l < sim->n_layer; l++) {
        json_t *row = csv_row(item, "layer");
        json_object_set_new(row, "layer", json_integer(sim->layer_number[l]));
        set_tally(row, &run->layers[l], &run->layer_miss[l], run);
        json_array_append_new(rows, row);
    }
    json_array_foreach(json_object_get(item, "heads"), i, head)
    {
        json_t *row = csv_row(item, "kv_head");
        json_object_update(row, head);
        json_array_append_new(rows, row);
    }
}

const struct cli_column replay_columns[] = {
    {.path = "trace"},
    {.path = "policy", .title = "policy"},
    {.path = "class", .title = "class"},
    {.path = "observe"},
    {.path = "group"},
    {.path = "budget.spec", .title = "budget"},
    {.path = "budget.tokens", .title = "holds"},
    {.path = "scope"},
    {.path = "layer"},
    {.path = "kv_head"},
    {.path = "miss_mass.mean", .title = "miss", .digits = 2, .percent = true},
    {.path = "miss_mass.p50"},
    {.path = "miss_mass.p95", .title = "p95", .digits = 1, .percent = true},
    {.path = "miss_mass.p99"},
    {.path = "miss_mass.max"},
    {.path = "miss_mass.interval.low"},
    {.path = "miss_mass.interval.high"},
    {.path = "oracle", .title = "oracle", .digits = 2, .percent = true},
    {.path = "oracle_matched"},
    {.path = "topk", .title = "topk", .digits = 2, .percent = true},
    {.path = "kl.mean", .title = "KL", .digits = 4},
    {.path = "kl.infinite_rows"},
    {.path = "hit_ratio", .title = "hit", .digits = 1, .percent = true},
    {.path = "recall", .title = "recall", .digits = 1, .percent = true},
    {.path = "recall_head"},
    {.path = "overlap", .title = "overlap", .digits = 1, .percent = true},
    {.path = "late_importance", .title = "late", .digits = 2, .percent = true},
    {.path = "occupancy.mean", .title = "sees", .digits = 1},
    {.path = "occupancy.peak", .title = "peak"},
    {.path = "occupancy.entry_steps"},
    {.path = "evictions"},
    {.path = "tie_share", .title = "ties", .digits = 1, .percent = true},
    {.path = "tie_share_zero"},
    {.path = "blind_rows"},
    {.path = "prompt_miss"},
    {.path = "miss_mass_sd"},
    {.path = "error"},
    {.path = NULL},
};

json_t *replay_settings(const struct replay_options *o,
                        const struct kvr_sim *sim)
{
    static const char *const words[][3] = {
        {"total", "prompt", "visible"}, {"cap", "floor", NULL},
        {"whole", "stream", NULL},      {"oldest", "newest", "random"},
        {"mass", "value", NULL},        {"all", "prompt", NULL}};
    json_t *s = json_object();

    json_object_set_new(s, "access", json_string(o->access));
    json_object_set_new(s, "when", json_string(o->when));
    json_object_set_new(s, "budget_of", json_string(words[0][o->budget_of]));
    json_object_set_new(s, "budget_is", json_string(words[1][o->budget_is]));
    json_object_set_new(s, "prefill", json_string(words[2][o->prefill]));
    json_object_set_new(s, "ties", json_string(words[3][o->ties]));
    json_object_set_new(s, "loss", json_string(words[4][o->loss]));
    json_object_set_new(s, "hit_scope", json_string(words[5][o->hit_scope]));
    json_object_set_new(s, "protect_first", json_string(o->protect_first));
    json_object_set_new(s, "protect_last", json_string(o->protect_last));
    json_object_set_new(s, "prompt_len", json_integer(sim->prompt_len));
    json_object_set_new(s, "score_rows",
                        json_pack("[I, I]", (json_int_t)sim->score_first,
                                  (json_int_t)sim->score_last));
    json_object_set_new(s, "seed", json_integer((json_int_t)o->common.seed));
    json_object_set_new(s, "open_loop", json_true());
    return s;
}
