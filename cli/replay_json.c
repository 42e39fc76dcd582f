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
    return b > 0 ? kvr__cli_real(a / b) : json_null();
}

static json_t *miss_json(const struct kvr_tally *t,
                         const struct kvr_percentiles *p)
{
    json_t *miss = json_object();

    kvr__cli_set(miss, "mean", ratio(t->missed, t->recorded));
    kvr__cli_set(miss, "p50", kvr__cli_real(p->p50));
    kvr__cli_set(miss, "p95", kvr__cli_real(p->p95));
    kvr__cli_set(miss, "p99", kvr__cli_real(p->p99));
    kvr__cli_set(miss, "max", kvr__cli_real(p->max));
    return miss;
}

static json_t *bins_json(const double *bins, double recorded)
{
    json_t *list = json_array();
    uint32_t n = KVR_LAG_BINS;

    while (n > 0 && bins[n - 1] == 0)
        n--;
    for (uint32_t i = 0; i < n; i++)
        kvr__cli_add(list, ratio(bins[i], recorded));
    return list;
}

static void set_bound(json_t *item, const char *key, double lost,
                      double recorded, const char *reason)
{
    if (isnan(lost) || recorded <= 0)
        kvr__cli_null(item, key, reason != NULL ? reason : "not computed");
    else
        kvr__cli_set(item, key, kvr__cli_real(lost / recorded));
}

/* Counts are sums over replicates: their mean. */
static json_t *count(uint64_t sum, const struct kvr_run_result *run)
{
    if (run->n_replicate == 1)
        return json_integer((json_int_t)sum);
    return kvr__cli_real((double)sum / run->n_replicate);
}

/* What a tally says, at any scope. */
static void set_tally(json_t *item, const struct kvr_tally *t,
                      const struct kvr_percentiles *p,
                      const struct kvr_run_result *run)
{
    const double rows = (double)t->rows;

    kvr__cli_set(item, "miss_mass", miss_json(t, p));
    kvr__cli_set(item, "kl",
                 json_pack("{s:o, s:o}", "mean",
                           ratio(t->kl, (double)t->kl_rows), "infinite_rows",
                           count(t->infinite_rows, run)));
    if (t->accesses > 0)
        kvr__cli_set(item, "hit_ratio",
                     ratio((double)t->hits, (double)t->accesses));
    else
        kvr__cli_null(item, "hit_ratio", "no accesses of past tokens");
    kvr__cli_set(item, "recall", ratio(t->kept, t->best));
    kvr__cli_set(item, "recall_head", ratio(t->head_kept, t->head_best));
    kvr__cli_set(item, "overlap", ratio((double)t->overlap, (double)t->wanted));
    kvr__cli_set(item, "occupancy",
                 json_pack("{s:o, s:I, s:o}", "mean",
                           ratio((double)t->visible, rows), "peak",
                           (json_int_t)t->peak, "entry_steps",
                           count(t->visible, run)));
    kvr__cli_set(item, "evictions", count(t->evictions, run));
    kvr__cli_set(item, "tie_share",
                 t->evictions > 0 ? ratio((double)t->tied, (double)t->evictions)
                                  : kvr__cli_real(0));
    kvr__cli_set(item, "tie_share_zero",
                 t->evictions > 0
                     ? ratio((double)t->tied_at_zero, (double)t->evictions)
                     : kvr__cli_real(0));
    kvr__cli_set(item, "late_importance", ratio(t->late, t->recorded));
    kvr__cli_set(item, "blind_rows", count(t->blind_rows, run));
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
            kvr__cli_add(each, ratio(r->missed[h], r->recorded[h]));
        set_tally(item, &r->tally, &r->miss, run);
        kvr__cli_set(item, "per_query_head", each);
        kvr__cli_add(list, item);
    }
    return list;
}

static json_t *params_json(const struct kvr_run_result *run)
{
    json_t *params = json_object();
    const struct kvr_param *p = run->spec->policy->params;

    for (size_t i = 0; p != NULL && p[i].name != NULL; i++) {
        if (p[i].type == KVR_PARAM_REAL) {
            kvr__cli_set(params, p[i].name, kvr__cli_real(run->arg[i].real));
        } else if (p[i].type == KVR_PARAM_CHOICE) {
            const char *c = p[i].choices;
            for (uint32_t k = run->arg[i].count; k > 0; k--)
                c += strcspn(c, "|") + 1;
            kvr__cli_set(params, p[i].name,
                         kvr__cli_text_of(c, strcspn(c, "|")));
        } else {
            kvr__cli_set(params, p[i].name,
                         json_integer((json_int_t)run->arg[i].count));
        }
    }
    return params;
}

static const char *unrealisable(const struct kvr_run_result *run)
{
    const enum kvr_class class_of = kvr_policy_class(run->policy);

    if (class_of == KVR_CLASS_OFFLINE || class_of == KVR_CLASS_LOOK_AHEAD)
        return "knows rows to come";
    if (class_of == KVR_CLASS_BOUND)
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

    kvr__cli_set(
        item, "budget",
        json_pack("{s:s, s:I, s:I, s:I, s:I}", "spec", run->budget->spec,
                  "tokens", (json_int_t)run->budget->tokens, "first",
                  (json_int_t)first, "recent", (json_int_t)last, "scored",
                  (json_int_t)(run->budget->tokens - first - last)));
}

/* Deviation over replicates of what each of them missed. */
static void set_seeds(json_t *item, const struct kvr_run_result *run)
{
    const double n = run->n_replicate, recorded = run->model.recorded / n;
    json_t *each = json_array();
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < run->n_replicate; i++) {
        kvr__cli_add(each, ratio(run->replicate_missed[i], recorded));
        sum += run->replicate_missed[i] / recorded;
    }
    for (uint32_t i = 0; i < run->n_replicate; i++) {
        const double d = run->replicate_missed[i] / recorded - sum / n;
        squares += d * d;
    }
    kvr__cli_set(item, "seeds", json_integer((json_int_t)run->n_replicate));
    kvr__cli_set(item, "miss_mass_seeds", each);
    if (n > 1 && recorded > 0)
        kvr__cli_set(item, "miss_mass_sd",
                     kvr__cli_real(sqrt(squares / (n - 1))));
    else
        kvr__cli_null(item, "miss_mass_sd", n > 1 ? "no mass" : "one seed");
    if (n > 1)
        kvr__cli_set(
            item, "over_seeds",
            kvr__cli_text("shares, means, quantiles and the interval: over the "
                          "rows of all replicates; counts: mean of the "
                          "replicates; peak: the largest"));
}

static void set_identity(json_t *item, const struct kvr_run_result *run)
{
    const char *why = unrealisable(run);

    kvr__cli_set(item, "policy", kvr__cli_text(run->spec->policy->name));
    kvr__cli_set(item, "spec", kvr__cli_text(run->spec->text));
    kvr__cli_set(item, "params", params_json(run));
    kvr__cli_set(item, "class",
                 kvr__cli_text(kvr_class_name(kvr_policy_class(run->policy))));
    kvr__cli_set(item, "observe",
                 kvr__cli_text(kvr_observe_name(run->observe)));
    kvr__cli_set(item, "group",
                 kvr__cli_text(run->observe == KVR_OBSERVE_NONE
                                   ? "none"
                                   : kvr_group_name(run->group)));
    set_parts(item, run);
    kvr__cli_set(item, "realisable", json_boolean(why == NULL));
    if (why != NULL)
        kvr__cli_set(item, "realisable_reason", kvr__cli_text(why));
}

json_t *kvr__replay_item(const struct kvr_sim *sim, size_t index)
{
    const struct kvr_run_result *run = &sim->runs[index];
    json_t *item = json_object();

    if (run->status != KVR_OK) {
        kvr__cli_set(item, "policy", kvr__cli_text(run->spec->policy->name));
        kvr__cli_set(item, "spec", kvr__cli_text(run->spec->text));
        set_parts(item, run);
        kvr__cli_set(item, "error", kvr__cli_text(run->error));
        return item;
    }
    set_identity(item, run);
    kvr__cli_set(item, "scope", kvr__cli_text("model"));
    set_tally(item, &run->model, &run->model_miss, run);
    set_seeds(item, run);
    kvr__replay_set_intervals(item, sim, index);
    kvr__cli_set(item, "late_by_age",
                 bins_json(run->model.late_by_age, run->model.recorded));
    kvr__cli_set(item, "late_by_lag",
                 bins_json(run->model.late_by_lag, run->model.recorded));
    if (run->model.prompt_recorded > 0)
        kvr__cli_set(
            item, "prompt_miss",
            ratio(run->model.prompt_missed, run->model.prompt_recorded));
    if (sim->has_local && run->global.rows > 0) {
        json_t *global = json_object();
        set_tally(global, &run->global, &run->global_miss, run);
        kvr__cli_set(item, "global_layers", global);
    }
    kvr__cli_set(item, "heads", heads_json(sim, run));
    return item;
}

/* A flat row: the item's identity with another scope's figures. */
static json_t *csv_row(json_t *item, const char *scope)
{
    static const char *const kept[] = {"policy",  "spec",       "class",
                                       "observe", "group",      "budget",
                                       "trace",   "trace_path", "seeds"};
    json_t *row = json_object();

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        kvr__cli_copy(row, item, kept[i]);
    kvr__cli_set(row, "scope", kvr__cli_text(scope));
    return row;
}

void kvr__replay_csv_rows(json_t *rows, const struct kvr_sim *sim, size_t index,
                          json_t *item)
{
    const struct kvr_run_result *run = &sim->runs[index];
    size_t i;
    json_t *head;

    kvr__cli_add(rows, json_incref(item));
    if (run->status != KVR_OK)
        return;
    if (sim->has_local && run->global.rows > 0) {
        json_t *row = csv_row(item, "global-layers");
        set_tally(row, &run->global, &run->global_miss, run);
        kvr__cli_add(rows, row);
    }
    for (uint32_t l = 0; l < sim->n_layer; l++) {
        json_t *row = csv_row(item, "layer");
        kvr__cli_set(row, "layer", json_integer(sim->layer_number[l]));
        set_tally(row, &run->layers[l], &run->layer_miss[l], run);
        kvr__cli_add(rows, row);
    }
    json_array_foreach(json_object_get(item, "heads"), i, head)
    {
        json_t *row = csv_row(item, "kv_head");
        const char *key;
        json_t *value;
        json_object_foreach(head, key, value) kvr__cli_copy(row, head, key);
        kvr__cli_add(rows, row);
    }
}

const struct cli_column kvr__replay_columns[] = {
    {.path = "trace"},
    {.path = "trace_path", .title = "trace", .optional = true},
    {.path = "policy"},
    {.path = "spec", .title = "policy"},
    {.path = "class", .title = "class"},
    {.path = "observe"},
    {.path = "group"},
    {.path = "budget.spec", .title = "budget"},
    {.path = "budget.tokens", .title = "holds"},
    {.path = "scope"},
    {.path = "layer"},
    {.path = "kv_head"},
    {.path = "miss_mass.mean", .title = "miss", .digits = 2, .percent = true},
    {.path = "global_layers.miss_mass.mean",
     .title = "global",
     .digits = 2,
     .percent = true,
     .optional = true},
    {.path = "miss_mass.p50"},
    {.path = "miss_mass.p95", .title = "p95", .digits = 1, .percent = true},
    {.path = "miss_mass.p99"},
    {.path = "miss_mass.max"},
    {.path = "miss_mass.interval.low",
     .title = "from",
     .digits = 2,
     .percent = true},
    {.path = "miss_mass.interval.high",
     .title = "to",
     .digits = 2,
     .percent = true},
    {.path = "versus.rule"},
    {.path = "versus.difference"},
    {.path = "versus.low"},
    {.path = "versus.high"},
    {.path = "versus.verdict", .title = "vs least"},
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
    {.path = "seeds"},
    {.path = "miss_mass_sd",
     .title = "sd",
     .digits = 3,
     .percent = true,
     .optional = true},
    {.path = "error"},
    {.path = NULL},
};

json_t *kvr__replay_settings(const struct replay_options *o,
                             const struct kvr_sim *sim)
{
    static const char *const words[][3] = {
        {"total", "prompt", "visible"}, {"cap", "floor", NULL},
        {"whole", "stream", NULL},      {"oldest", "newest", "random"},
        {"mass", "value", NULL},        {"all", "prompt", NULL}};
    json_t *s = json_object();

    kvr__cli_set(s, "access", kvr__cli_text(o->access));
    kvr__cli_set(s, "when", kvr__cli_text(o->when));
    kvr__cli_set(s, "budget_of", kvr__cli_text(words[0][o->budget_of]));
    kvr__cli_set(s, "budget_is", kvr__cli_text(words[1][o->budget_is]));
    kvr__cli_set(s, "prefill", kvr__cli_text(words[2][o->prefill]));
    kvr__cli_set(s, "ties", kvr__cli_text(words[3][o->ties]));
    kvr__cli_set(s, "loss", kvr__cli_text(words[4][o->loss]));
    kvr__cli_set(s, "hit_scope", kvr__cli_text(words[5][o->hit_scope]));
    kvr__cli_set(s, "protect_first", kvr__cli_text(o->protect_first));
    kvr__cli_set(s, "protect_last", kvr__cli_text(o->protect_last));
    kvr__cli_set(s, "prompt_len", json_integer(sim->prompt_len));
    kvr__cli_set(s, "score_rows",
                 json_pack("[I, I]", (json_int_t)sim->score_first,
                           (json_int_t)sim->score_last));
    kvr__cli_set(s, "seed", json_integer((json_int_t)o->common.seed));
    kvr__cli_set(s, "seeds", json_integer((json_int_t)o->seeds));
    kvr__cli_set(s, "open_loop", json_true());
    return s;
}
