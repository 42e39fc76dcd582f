/* cmd_trace_repair.c -- kvreplay trace repair: keep what was closed.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "trace_commands.h"

#include "kvr_journal.h"
#include "kvr_log.h"

struct repair_command {
    struct cli_common common; /* first: see cli.h */
};

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    struct repair_command options = {0};
    const char **operands = NULL;
    size_t n = 0;
    bool done = false;

    enum kvr_status status = kvr__cli_parse(self, argc, argv, &options,
                                            &operands, &n, 1, 1, &done, err);
    if (status == KVR_OK && !done)
        status = kvr__trace_need_output(self, &options.common, err);
    if (status == KVR_OK && !done) {
        status = kvr_trace_repair(operands[0], options.common.output,
                                  options.common.force, err);
        if (status == KVR_OK)
            kvr_log(KVR_LOG_NOTE, "wrote %s", options.common.output);
    }
    kvr__cli_parse_free(self, &options, operands);
    return status;
}

const struct cli_command kvr__cmd_trace_repair = {
    .name = "trace repair",
    .group = "Traces",
    .operands = "IN.part|IN.h5 -o OUT",
    .summary = "a finished file from a journal or one left open; of inputs "
               "only OUT.part is removed",
    .obeys = CLI_OUTPUT,
    .run = run,
};
