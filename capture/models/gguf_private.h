/* gguf_private.h -- one file of a GGUF model, shared by the gguf*.c files.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef GGUF_PRIVATE_H
#define GGUF_PRIVATE_H

#include "gguf.h"
#include "mapped.h"

struct kvr_gguf_part {
    char *path;
    struct kvr_mapped mapped;
    const uint8_t *bytes; /* of the mapped file */
    uint64_t size, data_at, alignment;
    struct kvr_gguf_value *values; /* sorted by key */
    size_t n_values;
    struct kvr_gguf_tensor *tensors; /* as in the file */
    uint64_t *offsets;               /* of each, from data_at */
    size_t n_tensors;
};

struct kvr_gguf_extent {
    struct kvr_gguf_tensor *tensor;
    uint64_t offset;
};

struct kvr_gguf {
    struct kvr_gguf_part *parts;
    size_t n_parts;
    struct kvr_gguf_tensor *tensors; /* of all parts, sorted by name */
    size_t n_tensors;
};

/* Maps and checks one file; part is zeroed before, closed by the caller in
 * any case. */
enum kvr_status kvr__gguf_part_open(struct kvr_gguf_part *part,
                                    const char *path,
                                    struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__gguf_part_parse(struct kvr_gguf_part *part,
                                     struct kvr_error *err) KVR_MUST_CHECK;
void kvr__gguf_part_close(struct kvr_gguf_part *part);
const struct kvr_gguf_value *
kvr__gguf_part_find(const struct kvr_gguf_part *part, const char *key);

#endif
