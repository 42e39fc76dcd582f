/* cmd_gap.c -- how much of a policy's loss was avoidable.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_gap.h"
#include "replay_json.h"
#include "replay_run.h"

#include <math.h>
#include <string.h>

static void set(json_t *item, const char *key, double value, const char *reason)
{
    if (isnan(value))
        cli_null(item, key, reason != NULL ? reason : "not known");
    else
        json_object_set_new(item, key, cli_real(value));
}

static void set_gap(json_t *item, const struct kvr_tally *tally,
                    const char *reason)
{
    const struct kvr_gap g = kvr_gap_of(tally);

    set(item, "miss", g.miss, reason);
    set(item, "head_bound", g.head_bound, reason);
    set(item, "sharing", g.sharing, reason);
    set(item, "topk", g.topk, reason);
    set(item, "irrevocability", g.irrevocability, reason);
    set(item, "oracle", g.oracle, reason);
    set(item, "regret", g.regret, reason);
    set(item, "avoidable", g.miss > 0 ? g.regret / g.miss : 0, reason);
    if (isnan(g.oracle))
        cli_null(item, "certificate", reason);
    else
        json_object_set_new(item, "certificate", json_string("exact"));
}

static json_t *gap_item(const struct kvr_sim *sim, size_t i,
                        const struct replay_options *o, json_t *rows)
{
    const struct kvr_run_result *run = &sim->runs[i];
    json_t *item = replay_item(sim, i, 1, o);

    if (run->status != KVR_OK)
        return item;
    set_gap(item, &run->model, run->oracle_reason);
    json_array_append(rows, item);
    json_t *heads = json_object_get(item, "heads"), *head;
    size_t c;
    json_array_foreach(heads, c, head)
    {
        set_gap(head, &run->caches[c].tally, run->oracle_reason);
        json_t *row = json_copy(head);
        json_object_set(row, "policy", json_object_get(item, "policy"));
        json_object_set(row, "class", json_object_get(item, "class"));
        json_object_set(row, "budget", json_object_get(item, "budget"));
        json_object_set_new(row, "scope", json_string("kv_head"));
        json_array_append_new(rows, row);
    }
    return item;
}

static const struct cli_column columns[] = {
    {.path = "trace"},
    {.path = "policy", .title = "policy"},
    {.path = "class", .title = "class"},
    {.path = "budget.spec", .title = "budget"},
    {.path = "budget.tokens", .title = "holds"},
    {.path = "scope"},
    {.path = "layer"},
    {.path = "kv_head"},
    {.path = "miss", .title = "miss", .digits = 2, .percent = true},
    {.path = "head_bound", .title = "head bound", .digits = 2, .percent = true},
    {.path = "sharing", .title = "+ sharing", .digits = 2, .percent = true},
    {.path = "topk"},
    {.path = "irrevocability",
     .title = "+ irrevocability",
     .digits = 2,
     .percent = true},
    {.path = "oracle", .title = "= oracle", .digits = 2, .percent = true},
    {.path = "regret", .title = "+ regret", .digits = 2, .percent = true},
    {.path = "avoidable", .title = "avoidable", .digits = 0, .percent = true},
    {.path = "certificate", .title = "certificate"},
    {.path = NULL},
};

static const char *const lines[] = {
    "",
    "miss = head bound + sharing + irrevocability + regret, shares of the "
    "recorded mass;",
    "only the regret is the rule's own: avoidable = regret / miss. The "
    "oracle is exact,",
    "certified in integers. Open loop: rows are those of the full-cache run.",
    NULL};

static void add_items(struct cli_report *report, const struct kvr_sim *sim,
                      const struct replay_options *o, int trace)
{
    for (size_t i = 0; i < sim->n_run; i++) {
        json_t *item = gap_item(sim, i, o, report->csv_rows);
        if (trace >= 0)
            json_object_set_new(item, "trace", json_integer(trace));
        json_array_append_new(report->results, item);
    }
}

static enum kvr_status gap(struct replay_options *o, const char **paths,
                           size_t n, struct kvr_error *err)
{
    struct cli_report report = {.command = "gap",
                                .results = json_array(),
                                .csv_rows = json_array(),
                                .columns = columns,
                                .lines = lines};

    o->bounds = true;
    o->seeds = 1;
    return replay_and_report(&report, o, paths, n, add_items, err);
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    return replay_command(self, argc, argv, gap, err);
}

const struct cli_command cmd_gap = {
    .name = "gap",
    .group = "Replay",
    .operands = "TRACE..",
    .summary = "how much of a policy's loss was avoidable",
    .options = replay_option_rows,
    .run = run,
};
