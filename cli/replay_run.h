/* replay_run.h -- what replay and gap do alike: options, traces one after
 * another, lists, the report.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef REPLAY_RUN_H
#define REPLAY_RUN_H

#include "cli.h"
#include "kvr_sim.h"
#include "replay_options.h"

/* Adds one replayed trace to the report's results and CSV rows. index: its
 * place among several, or -1 if it is the only one. */
typedef void (*replay_items_fn)(struct cli_report *report,
                                const struct kvr_sim *sim,
                                const struct kvr_trace *trace, int index);

/* Replays each trace and prints the report, which it frees. KVR_ERR_POLICY
 * after that if a policy failed. */
enum kvr_status kvr__replay_and_report(struct cli_report *report,
                                       struct replay_options *options,
                                       const char **paths, size_t n,
                                       replay_items_fn add_items,
                                       struct kvr_error *err) KVR_MUST_CHECK;

typedef enum kvr_status (*replay_fn)(struct replay_options *options,
                                     const char **paths, size_t n,
                                     struct kvr_error *err);

/* A command with replay's options and traces as operands. */
enum kvr_status kvr__replay_command(const struct cli_command *self, int argc,
                                    char **argv, replay_fn fn,
                                    struct kvr_error *err) KVR_MUST_CHECK;

#endif
