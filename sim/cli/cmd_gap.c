/* cmd_gap.c -- how much of a policy's loss was avoidable.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_gap.h"
#include "replay_json.h"

#include <math.h>
#include <string.h>

static void progress(void *ud, uint32_t done, uint32_t total)
{
    cli_progress(ud, "layers", done, total);
}

static void set(json_t *item, const char *key, double value,
                const char *reason)
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
    {.path = "head_bound", .title = "head bound", .digits = 2,
     .percent = true},
    {.path = "sharing", .title = "+ sharing", .digits = 2, .percent = true},
    {.path = "topk"},
    {.path = "irrevocability", .title = "+ irrevocability", .digits = 2,
     .percent = true},
    {.path = "oracle", .title = "= oracle", .digits = 2, .percent = true},
    {.path = "regret", .title = "+ regret", .digits = 2, .percent = true},
    {.path = "avoidable", .title = "avoidable", .digits = 0,
     .percent = true},
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

static enum kvr_status one_trace(struct cli_report *report,
                                 struct replay_options *o, const char *path,
                                 int index, bool *any_failed,
                                 struct kvr_error *err)
{
    struct replay_setup setup;
    struct kvr_sim *sim = NULL;
    enum kvr_status status = replay_setup_open(&setup, o, path, err);

    if (status == KVR_OK) {
        setup.sim.bounds = true;
        setup.sim.n_seed = 1;
        setup.sim.progress = progress;
        setup.sim.progress_ud = &o->common;
        status = kvr_sim_run(&sim, setup.rows, &setup.sim, err);
    }
    for (size_t i = 0; status == KVR_OK && i < sim->n_run; i++) {
        json_t *item = gap_item(sim, i, o, report->csv_rows);
        *any_failed = *any_failed || sim->runs[i].status != KVR_OK;
        if (index >= 0)
            json_object_set_new(item, "trace", json_integer(index));
        json_array_append_new(report->results, item);
    }
    if (status == KVR_OK && o->evictions != NULL)
        status = replay_write_evictions(o, sim, err);
    if (status == KVR_OK && o->steps != NULL)
        status = replay_write_steps(o, sim, err);
    if (status == KVR_OK) {
        json_t *trace = cli_trace_json(setup.trace);
        if (index < 0)
            report->trace = trace;
        else
            json_array_append_new(report->traces, trace);
        if (report->settings == NULL)
            report->settings = replay_settings(o, sim);
    }
    kvr_sim_free(sim);
    replay_setup_close(&setup);
    return status;
}

static enum kvr_status gap(struct replay_options *o, const char **paths,
                           size_t n, struct kvr_error *err)
{
    struct cli_report report = {.command = "gap",
                                .results = json_array(),
                                .csv_rows = json_array(),
                                .columns = columns,
                                .lines = lines};
    bool any_failed = false;
    enum kvr_status status = KVR_OK;

    if (n > 1 && (o->evictions != NULL || o->steps != NULL))
        status = kvr_fail(err, KVR_ERR_USAGE,
                          "--evictions and --steps take one trace");
    if (n > 1)
        report.traces = json_array();
    for (size_t i = 0; i < n && status == KVR_OK; i++)
        status = one_trace(&report, o, paths[i], n > 1 ? (int)i : -1,
                           &any_failed, err);
    if (status == KVR_OK)
        status = cli_report(&o->common, &report, err);
    cli_report_free(&report);
    if (status == KVR_OK && any_failed)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "a policy failed; its item has the error");
    return status;
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    struct replay_options o;
    const char **operands;
    size_t n;
    bool done;

    replay_options_init(&o);
    enum kvr_status status = cli_parse(self, argc, argv, &o, &operands, &n,
                                       1, 1000, &done, err);
    if (status == KVR_OK && !done)
        status = gap(&o, operands, n, err);
    cli_parse_free(self, &o, operands);
    return status;
}

const struct cli_command cmd_gap = {
    .name = "gap",
    .group = "Replay",
    .operands = "TRACE..",
    .summary = "how much of a policy's loss was avoidable",
    .options = replay_option_rows,
    .run = run,
};
