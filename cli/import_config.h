/* import_config.h -- what a model's config.json says of an attention dump.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef IMPORT_CONFIG_H
#define IMPORT_CONFIG_H

#include "kvr_error.h"

#include <stdint.h>

struct import_config {
    uint32_t n_layer;
    uint32_t *spans;    /* [n_layer] keys that a row sees; 0: all */
    uint32_t n_kv_head; /* 0: it does not say */
};

/* Reads a Hugging Face config.json, or its text_config: sliding_window,
 * use_sliding_window, layer_types, sliding_window_pattern, max_window_layers.
 * Refuses what it does not know to be full or sliding attention. */
enum kvr_status kvr__cli_import_config(struct import_config *out,
                                       const char *path,
                                       struct kvr_error *err) KVR_MUST_CHECK;
void kvr__cli_import_config_free(struct import_config *config);

#endif
