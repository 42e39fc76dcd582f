/* hf_defaults.h -- values of config.json that change nothing.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef HF_DEFAULTS_H
#define HF_DEFAULTS_H

#include "kvr_error.h"

#include <jansson.h>
#include <stdbool.h>

/* Is that what the reference implementation takes where the key is absent?
 * KVR_ERR_MEMORY only. */
enum kvr_status kvr__hf_is_default(bool *out, const char *name,
                                   const json_t *value,
                                   struct kvr_error *err) KVR_MUST_CHECK;

#endif
