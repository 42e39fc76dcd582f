/* hf_rope.h -- what config.json says about rotary positions.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef HF_ROPE_H
#define HF_ROPE_H

#include "model.h"

#include <jansson.h>

/* Into config->rope, rope_local and rope_part. Scalings that are not applied
 * are refused by name. */
enum kvr_status kvr__hf_read_rope(struct kvr_model *model, const json_t *root,
                                  struct kvr_error *err) KVR_MUST_CHECK;

#endif
