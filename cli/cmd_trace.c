/* cmd_trace.c -- kvreplay trace: hands over to its subcommands.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "trace_commands.h"

#include <stdio.h>
#include <string.h>

static const struct cli_command *const subcommands[] = {
    &kvr__cmd_trace_info,   &kvr__cmd_trace_check, &kvr__cmd_trace_show,
    &kvr__cmd_trace_import, &kvr__cmd_trace_synth, &kvr__cmd_trace_repair,
};

enum { N_SUBCOMMAND = sizeof subcommands / sizeof subcommands[0] };

void kvr__trace_provenance_init(struct trace_provenance *out,
                                const struct cli_common *common)
{
    *out = (struct trace_provenance){0};
    if (common->no_provenance)
        return;
    if (kvr_trace_time(out->time, NULL) != KVR_OK)
        return; /* refused before: see trace_need_output */
    out->writer = "kvreplay " KVREPLAY_VERSION;
    out->created = out->time;
    out->options = kvr__cli_command_line();
}

enum kvr_status kvr__trace_need_output(const struct cli_command *self,
                                       const struct cli_common *common,
                                       struct kvr_error *err)
{
    char now[KVR_TIME_TEXT];

    if (common->output != NULL)
        return kvr_trace_time(now, err);
    return kvr_fail(err, KVR_ERR_USAGE, "%s: -o OUT is missing", self->name);
}

static void print_subcommands(FILE *out)
{
    fputs("usage: kvreplay trace COMMAND [options]   "
          "(kvreplay trace COMMAND --help for each)\n\n",
          out);
    for (size_t i = 0; i < N_SUBCOMMAND; i++)
        fprintf(out, "  %-14s %s\n", subcommands[i]->name,
                subcommands[i]->summary);
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    (void)self;
    if (argc > 0 &&
        (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        print_subcommands(stdout);
        return KVR_OK;
    }
    if (argc < 1) {
        print_subcommands(stderr);
        return kvr_fail(err, KVR_ERR_USAGE, "trace: which command?");
    }
    for (size_t i = 0; i < N_SUBCOMMAND; i++)
        if (strcmp(argv[0], subcommands[i]->name + strlen("trace ")) == 0)
            return subcommands[i]->run(subcommands[i], argc - 1, argv + 1, err);
    return kvr_fail(err, KVR_ERR_USAGE,
                    "trace: unknown command '%s'; kvreplay trace --help lists "
                    "them",
                    argv[0]);
}

const struct cli_command kvr__cmd_trace = {
    .name = "trace",
    .group = "Traces",
    .operands = "info|check|show|import|synth|repair",
    .summary = "look at traces, check, import, make and repair them",
    .run = run,
};
