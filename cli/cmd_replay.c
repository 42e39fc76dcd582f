/* cmd_replay.c -- policies over recorded attention: what each one loses.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "replay_json.h"
#include "replay_run.h"

#include "kvr_log.h"

#include <stdio.h>
#include <string.h>

static void note_protection(const struct replay_options *o)
{
    if (strcmp(o->protect_first, "0") == 0 && strcmp(o->protect_last, "0") == 0)
        kvr_log(KVR_LOG_NOTE,
                "no token is protected; protecting the first and last ones "
                "often decides the ranking (--protect-first, "
                "--protect-last)");
}

static void add_items(struct cli_report *report, const struct kvr_sim *sim,
                      const struct kvr_trace *trace, int index)
{
    for (size_t i = 0; i < sim->n_run; i++) {
        json_t *item = kvr__replay_item(sim, i);
        kvr__cli_name_trace(item, index, trace);
        kvr__replay_csv_rows(report->csv_rows, sim, i, item);
        kvr__cli_add(report->results, item);
    }
}

static enum kvr_status replay(struct replay_options *o, const char **paths,
                              size_t n, struct kvr_error *err)
{
    char holds[160];
    const char *lines[] = {
        "", holds,
        "open loop: keys and queries are those of the full-cache run; "
        "evicted keys would have changed later rows",
        "from, to: 95 % interval of this text; vs least: paired with the "
        "online rule of least loss at that budget",
        NULL};
    struct cli_report report = {.command = "replay",
                                .results = json_array(),
                                .csv_rows = json_array(),
                                .columns = kvr__replay_columns,
                                .lines = lines};

    note_protection(o);
    snprintf(holds, sizeof holds,
             "a budget of B holds B tokens between steps, a row sees B+1; "
             "access: %s; first %s and last %s protected",
             o->access, o->protect_first, o->protect_last);
    return kvr__replay_and_report(&report, o, paths, n, add_items, err);
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    return kvr__replay_command(self, argc, argv, replay, err);
}

const struct cli_command kvr__cmd_replay = {
    .name = "replay",
    .group = "Replay",
    .operands = "TRACE..",
    .summary = "what eviction policies lose on recorded attention",
    .options = kvr__replay_option_rows,
    .obeys = CLI_THREADS | CLI_MEMORY | CLI_SEED | CLI_OUTPUT | CLI_REPORT |
             CLI_PICKS,
    .run = run,
};
