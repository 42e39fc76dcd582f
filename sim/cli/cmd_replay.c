/* cmd_replay.c -- policies over recorded attention: what each one loses.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "replay_json.h"

#include "kvr_log.h"

#include <stdio.h>
#include <string.h>

static void progress(void *ud, uint32_t done, uint32_t total)
{
    cli_progress(ud, "layers", done, total);
}

static bool failed(const struct kvr_sim *sim)
{
    for (size_t i = 0; i < sim->n_run; i++)
        if (sim->runs[i].status != KVR_OK)
            return true;
    return false;
}

static void note_protection(const struct replay_options *o)
{
    if (strcmp(o->protect_first, "0") == 0 &&
        strcmp(o->protect_last, "0") == 0)
        kvr_log(KVR_LOG_NOTE,
                "no token is protected; protecting the first and last ones "
                "often decides the ranking (--protect-first, "
                "--protect-last)");
}

/* One trace: its results are added to the report. */
static enum kvr_status one_trace(struct cli_report *report,
                                 struct replay_options *o, const char *path,
                                 int index, bool *any_failed,
                                 struct kvr_error *err)
{
    struct replay_setup setup;
    struct kvr_sim *sim = NULL;
    enum kvr_status status = replay_setup_open(&setup, o, path, err);

    if (status == KVR_OK) {
        setup.sim.progress = progress;
        setup.sim.progress_ud = &o->common;
        status = kvr_sim_run(&sim, setup.rows, &setup.sim, err);
    }
    for (size_t i = 0; status == KVR_OK && i < sim->n_run;) {
        const size_t n = replay_replicates(sim, i);
        json_t *item = replay_item(sim, i, n, o);
        if (index >= 0)
            json_object_set_new(item, "trace", json_integer(index));
        replay_csv_rows(report->csv_rows, sim, i, n, item);
        json_array_append_new(report->results, item);
        i += n;
    }
    if (status == KVR_OK && o->evictions != NULL)
        status = replay_write_evictions(o, sim, err);
    if (status == KVR_OK && o->steps != NULL)
        status = replay_write_steps(o, sim, err);
    if (status == KVR_OK) {
        json_t *trace = cli_trace_json(setup.trace);
        *any_failed = *any_failed || failed(sim);
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

static enum kvr_status replay(struct replay_options *o, const char **paths,
                              size_t n, struct kvr_error *err)
{
    char holds[160];
    const char *lines[] = {
        "", holds,
        "open loop: keys and queries are those of the full-cache run; "
        "evicted keys would have changed later rows",
        NULL};
    struct cli_report report = {.command = "replay",
                                .results = json_array(),
                                .csv_rows = json_array(),
                                .columns = replay_columns,
                                .lines = lines};
    bool any_failed = false;
    enum kvr_status status = KVR_OK;

    if (n > 1 && (o->evictions != NULL || o->steps != NULL))
        status = kvr_fail(err, KVR_ERR_USAGE,
                          "--evictions and --steps take one trace");
    if (n > 1)
        report.traces = json_array();
    note_protection(o);
    for (size_t i = 0; i < n && status == KVR_OK; i++)
        status = one_trace(&report, o, paths[i], n > 1 ? (int)i : -1,
                           &any_failed, err);
    snprintf(holds, sizeof holds,
             "a budget of B holds B tokens between steps, a row sees B+1; "
             "access: %s; first %s and last %s protected",
             o->access, o->protect_first, o->protect_last);
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
        status = replay(&o, operands, n, err);
    cli_parse_free(self, &o, operands);
    return status;
}

const struct cli_command cmd_replay = {
    .name = "replay",
    .group = "Replay",
    .operands = "TRACE..",
    .summary = "what eviction policies lose on recorded attention",
    .options = replay_option_rows,
    .run = run,
};
