/* heads.h -- what the statistics commands share: traces one after another,
 * and the heads that are asked for.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef HEADS_H
#define HEADS_H

#include "cli.h"
#include "kvr_head.h"

/* One trace, with the stored heads that --layers and --heads name (numbers in
 * the model), in order of layer and head. */
struct cli_heads {
    const struct kvr_trace *trace;
    uint32_t trace_index;
    struct kvr_head_item *items;
    uint32_t n;
};

typedef enum kvr_status (*cli_heads_fn)(const struct cli_heads *heads, void *ud,
                                        struct kvr_error *err);

/* Opens each path in turn, calls fn, and enters the traces into the report
 * (`trace` if there is one, else `traces`). Numbers that a trace lacks are
 * passed over; KVR_ERR_INPUT where none of those asked for is left.
 * KVR_ERR_LIMIT: over --memory. */
enum kvr_status kvr__cli_each_trace(struct cli_report *report,
                                    const struct cli_common *common,
                                    const char *const *paths, size_t n,
                                    cli_heads_fn fn, void *ud,
                                    struct kvr_error *err) KVR_MUST_CHECK;

/* Numbers in the model of an item's layer and head. */
uint32_t kvr__cli_layer_number(const struct cli_heads *heads, uint32_t item);
uint32_t kvr__cli_head_number(const struct cli_heads *heads, uint32_t item);

/* object[key] = value, or null with the reason where it is not finite. */
void kvr__cli_set_real(json_t *object, const char *key, double value,
                       const char *reason);

#endif
