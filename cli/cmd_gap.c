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
        kvr__cli_null(item, key, reason != NULL ? reason : "not known");
    else
        kvr__cli_set(item, key, kvr__cli_real(value));
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
        kvr__cli_null(item, "certificate", reason);
    else
        kvr__cli_set(item, "certificate", kvr__cli_text("exact"));
}

static void add_item(struct cli_report *report, const struct kvr_sim *sim,
                     size_t i, const struct kvr_trace *trace, int index)
{
    static const char *const kept[] = {"policy", "spec",  "class",
                                       "budget", "trace", "trace_path"};
    const struct kvr_run_result *run = &sim->runs[i];
    json_t *item = kvr__replay_item(sim, i), *head;
    size_t c;

    kvr__cli_name_trace(item, index, trace);
    kvr__cli_add(report->results, item);
    kvr__cli_add(report->csv_rows, json_incref(item));
    if (run->status != KVR_OK)
        return;
    set_gap(item, &run->model, run->oracle_reason);
    json_array_foreach(json_object_get(item, "heads"), c, head)
    {
        set_gap(head, &run->caches[c].tally, run->oracle_reason);
        json_t *row = json_copy(head);
        for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++)
            kvr__cli_copy(row, item, kept[k]);
        kvr__cli_set(row, "scope", kvr__cli_text("kv_head"));
        kvr__cli_add(report->csv_rows, row);
    }
}

static const struct cli_column columns[] = {
    {.path = "trace"},
    {.path = "trace_path", .title = "trace", .optional = true},
    {.path = "policy"},
    {.path = "spec", .title = "policy"},
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
    {.path = "oracle_matched",
     .title = "matched oracle",
     .digits = 2,
     .percent = true,
     .optional = true},
    {.path = "versus.rule"},
    {.path = "versus.difference"},
    {.path = "versus.low"},
    {.path = "versus.high"},
    {.path = "versus.verdict", .title = "vs least"},
    {.path = "seeds"},
    {.path = "miss_mass_sd"},
    {.path = "error"},
    {.path = NULL},
};

static const char *const lines[] = {
    "",
    "miss = head bound + sharing + irrevocability + regret, shares of the "
    "recorded mass;",
    "only the regret is the rule's own: avoidable = regret / miss. The "
    "oracle is exact,",
    "certified in integers, from the rows as read. Open loop: rows are those "
    "of the full-cache run.",
    "Where other sizes than B were held the parts are not known: matched "
    "oracle is the optimum",
    "of the places there were. vs least: paired with the online rule of least "
    "loss at that budget.",
    NULL};

static void add_items(struct cli_report *report, const struct kvr_sim *sim,
                      const struct kvr_trace *trace, int index)
{
    for (size_t i = 0; i < sim->n_run; i++)
        add_item(report, sim, i, trace, index);
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
    return kvr__replay_and_report(&report, o, paths, n, add_items, err);
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    return kvr__replay_command(self, argc, argv, gap, err);
}

const struct cli_command kvr__cmd_gap = {
    .name = "gap",
    .group = "Replay",
    .operands = "TRACE..",
    .summary = "how much of a policy's loss was avoidable",
    .options = kvr__replay_option_rows,
    .obeys = CLI_THREADS | CLI_MEMORY | CLI_SEED | CLI_OUTPUT | CLI_REPORT |
             CLI_PICKS,
    .run = run,
};
