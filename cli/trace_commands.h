/* trace_commands.h -- the subcommands of kvreplay trace, and what they share.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TRACE_COMMANDS_H
#define TRACE_COMMANDS_H

#include "cli.h"

extern const struct cli_command kvr__cmd_trace_info;
extern const struct cli_command kvr__cmd_trace_check;
extern const struct cli_command kvr__cmd_trace_show;
extern const struct cli_command kvr__cmd_trace_import;
extern const struct cli_command kvr__cmd_trace_synth;
extern const struct cli_command kvr__cmd_trace_repair;

/* Provenance of a trace that a command writes; members are NULL with
 * --no-provenance. Plain data. */
struct trace_provenance {
    const char *writer, *created, *options;
    char time[KVR_TIME_TEXT];
};
void kvr__trace_provenance_init(struct trace_provenance *out,
                                const struct cli_common *common);

/* KVR_ERR_USAGE where -o is missing, or SOURCE_DATE_EPOCH is no time. */
enum kvr_status kvr__trace_need_output(const struct cli_command *self,
                                       const struct cli_common *common,
                                       struct kvr_error *err) KVR_MUST_CHECK;

#endif
