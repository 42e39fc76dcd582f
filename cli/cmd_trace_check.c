/* cmd_trace_check.c -- kvreplay trace check: can a trace be trusted?
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "trace_commands.h"

#include "kvr_journal.h"

struct check_command {
    struct cli_common common; /* first: see cli.h */
};

static const struct cli_column columns[] = {
    {.path = "path", .title = "trace"},
    {.path = "ok", .title = "ok"},
    {.path = "complete"},
    {.path = "closed_rows", .title = "closed rows"},
    {.path = "n_problem", .title = "problems"},
    {.path = "problem", .title = "the first"},
    {.path = NULL},
};

static void add_item(json_t *results, const char *path,
                     const struct kvr_trace_report *found)
{
    json_t *problems = json_array();

    for (size_t i = 0; i < found->n_problem; i++)
        kvr__cli_add(problems, kvr__cli_text(found->problems[i]));
    json_t *item = json_object();
    kvr__cli_set(item, "path", kvr__cli_text(path));
    kvr__cli_set(item, "ok", json_boolean(found->ok));
    kvr__cli_set(item, "complete", json_boolean(found->complete));
    kvr__cli_set(item, "closed_rows", json_integer(found->closed_rows));
    kvr__cli_set(item, "n_problem", json_integer((json_int_t)found->n_problem));
    kvr__cli_set(item, "problem",
                 found->n_problem > 0 ? kvr__cli_text(found->problems[0])
                                      : json_null());
    kvr__cli_set(item, "problems", problems);
    kvr__cli_add(results, item);
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    struct check_command options = {0};
    const char **operands = NULL;
    size_t n = 0;
    bool done = false, whole = true;
    struct cli_report report = {.command = "trace.check",
                                .settings = json_object(),
                                .results = json_array(),
                                .columns = columns};

    enum kvr_status status = kvr__cli_parse(
        self, argc, argv, &options, &operands, &n, 1, SIZE_MAX, &done, err);
    for (size_t i = 0; status == KVR_OK && !done && i < n; i++) {
        struct kvr_trace_report found;
        status = kvr_trace_check(&found, operands[i], options.common.threads,
                                 kvr__cli_memory(&options.common), err);
        if (status != KVR_OK)
            break;
        add_item(report.results, operands[i], &found);
        whole = whole && found.ok;
        kvr_trace_report_free(&found);
    }
    if (status == KVR_OK && !done)
        status = kvr__cli_report(&options.common, &report, err);
    if (status == KVR_OK && !whole)
        status = KVR_ERR_NO;
    kvr__cli_report_free(&report);
    kvr__cli_parse_free(self, &options, operands);
    return status;
}

const struct cli_command kvr__cmd_trace_check = {
    .name = "trace check",
    .group = "Traces",
    .operands = "TRACE..",
    .summary = "read all of it; exit 1 where it is damaged or unfinished",
    .obeys = CLI_THREADS | CLI_MEMORY | CLI_OUTPUT | CLI_REPORT,
    .run = run,
};
