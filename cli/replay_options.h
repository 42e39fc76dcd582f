/* replay_options.h -- the options that replay and gap share.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef REPLAY_OPTIONS_H
#define REPLAY_OPTIONS_H

#include "cli.h"
#include "kvr_sim.h"

struct replay_options {
    struct cli_common common;
    struct kvr_option_list policy, budget, plugin;
    const char *access, *protect_first, *protect_last, *when, *score_rows;
    int observe, group, ties, budget_of, budget_is, prefill, loss, hit_scope;
    bool observe_given, group_given, bounds;
    uint32_t prompt_len, seeds, top;
    const char *evictions, *steps;
};

extern const struct kvr_option kvr__replay_option_rows[];

/* Everything a run over one trace needs, made from the options. */
struct replay_setup {
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs;
    size_t n_spec;
    struct kvr_budget *budgets;
    size_t n_budget;
    struct kvr_trace *trace;
    struct kvr_rows *rows;
    struct kvr_sim_options sim;
    bool *layers, *heads;
};

/* Defaults, where they are not zero. */
void kvr__replay_options_init(struct replay_options *options);

/* Opens the trace and resolves policies, budgets and settings for it. Free
 * with replay_setup_close also after a failure. */
enum kvr_status kvr__replay_setup_open(struct replay_setup *setup,
                                       const struct replay_options *options,
                                       const char *path,
                                       struct kvr_error *err) KVR_MUST_CHECK;
void kvr__replay_setup_close(struct replay_setup *setup);

#endif
