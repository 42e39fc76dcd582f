/* safetensors_private.h -- one file of a set.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SAFETENSORS_PRIVATE_H
#define SAFETENSORS_PRIVATE_H

#include "mapped.h"
#include "safetensors.h"

#include <jansson.h>

struct kvr_st_file {
    char *path;
    struct kvr_mapped mapped;
    json_t *header; /* owns the names */
    struct kvr_st_tensor *tensors;
    size_t n_tensors;
};

/* file is zeroed before and closed by the caller in any case. */
enum kvr_status kvr__st_file_open(struct kvr_st_file *file, const char *path,
                                  struct kvr_error *err) KVR_MUST_CHECK;
void kvr__st_file_close(struct kvr_st_file *file);

#endif
