/* replay_json.h -- results of a replay as JSON items and CSV rows.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef REPLAY_JSON_H
#define REPLAY_JSON_H

#include "cli.h"
#include "kvr_sim.h"
#include "replay_options.h"

/* One policy at one budget as an item (scope "model") with `heads` inside. */
json_t *kvr__replay_item(const struct kvr_sim *sim, size_t index);

/* The same flat, one object a scope: model, global-layers, layer, kv_head. */
void kvr__replay_csv_rows(json_t *rows, const struct kvr_sim *sim, size_t index,
                          json_t *item);

/* miss_mass.interval of the item of result `index`, and `versus`: its paired
 * difference from the online rule of least loss at the same budget. */
void kvr__replay_set_intervals(json_t *item, const struct kvr_sim *sim,
                               size_t index);

/* Settings that every item of the run shares. */
json_t *kvr__replay_settings(const struct replay_options *options,
                             const struct kvr_sim *sim);

extern const struct cli_column kvr__replay_columns[];

/* --evictions and --steps. */
enum kvr_status
kvr__replay_write_evictions(const struct replay_options *options,
                            const struct kvr_sim *sim, struct kvr_error *err);
enum kvr_status kvr__replay_write_steps(const struct replay_options *options,
                                        const struct kvr_sim *sim,
                                        struct kvr_error *err);

#endif
