/* replay_run.c -- from options and traces to a report.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "replay_run.h"

#include "replay_json.h"

static void progress(void *ud, uint32_t done, uint32_t total)
{
    kvr__cli_progress(ud, "layers", done, total);
}

static bool failed(const struct kvr_sim *sim)
{
    for (size_t i = 0; i < sim->n_run; i++)
        if (sim->runs[i].status != KVR_OK)
            return true;
    return false;
}

static void add_trace(struct cli_report *report, const struct replay_options *o,
                      const struct kvr_sim *sim, const struct kvr_trace *trace,
                      int index)
{
    json_t *about = kvr__cli_trace_json(trace);

    if (index < 0)
        report->trace = about;
    else
        kvr__cli_add(report->traces, about);
    if (report->settings == NULL)
        report->settings = kvr__replay_settings(o, sim);
}

static enum kvr_status one_trace(struct cli_report *report,
                                 struct replay_options *o, const char *path,
                                 int index, replay_items_fn add_items,
                                 bool *any_failed, struct kvr_error *err)
{
    struct replay_setup setup;
    struct kvr_sim *sim = NULL;
    enum kvr_status status = kvr__replay_setup_open(&setup, o, path, err);

    if (status == KVR_OK) {
        setup.sim.progress = progress;
        setup.sim.progress_ud = &o->common;
        status = kvr_sim_run(&sim, setup.rows, &setup.sim, err);
    }
    if (status == KVR_OK)
        add_items(report, sim, setup.trace, index);
    if (status == KVR_OK && o->evictions != NULL)
        status = kvr__replay_write_evictions(o, sim, err);
    if (status == KVR_OK && o->steps != NULL)
        status = kvr__replay_write_steps(o, sim, err);
    if (status == KVR_OK) {
        add_trace(report, o, sim, setup.trace, index);
        *any_failed = *any_failed || failed(sim);
    }
    kvr_sim_free(sim);
    kvr__replay_setup_close(&setup);
    return status;
}

enum kvr_status kvr__replay_and_report(struct cli_report *report,
                                       struct replay_options *o,
                                       const char **paths, size_t n,
                                       replay_items_fn add_items,
                                       struct kvr_error *err)
{
    bool any_failed = false;
    enum kvr_status status = KVR_OK;

    if (n > 1 && (o->evictions != NULL || o->steps != NULL))
        status = kvr_fail(err, KVR_ERR_USAGE,
                          "--evictions and --steps take one trace");
    if (n > 1)
        report->traces = json_array();
    for (size_t i = 0; i < n && status == KVR_OK; i++)
        status = one_trace(report, o, paths[i], n > 1 ? (int)i : -1, add_items,
                           &any_failed, err);
    if (status == KVR_OK)
        status = kvr__cli_report(&o->common, report, err);
    kvr__cli_report_free(report);
    if (status == KVR_OK && any_failed)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "a policy failed; its item has the error");
    return status;
}

enum kvr_status kvr__replay_command(const struct cli_command *self, int argc,
                                    char **argv, replay_fn fn,
                                    struct kvr_error *err)
{
    struct replay_options o;
    const char **operands;
    size_t n;
    bool done;

    kvr__replay_options_init(&o);
    enum kvr_status status = kvr__cli_parse(self, argc, argv, &o, &operands, &n,
                                            1, 1000, &done, err);
    const char *const outputs[] = {o.common.output, o.evictions, o.steps};
    if (status == KVR_OK && !done)
        status =
            kvr__cli_check_outputs(&o.common, outputs, 3, operands, n, err);
    if (status == KVR_OK && !done)
        status = fn(&o, operands, n, err);
    kvr__cli_parse_free(self, &o, operands);
    return status;
}
