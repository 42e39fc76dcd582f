/* safetensors.h -- reading safetensors files, one or a sharded set.
 *
 * Files are mapped and checked as a whole when they are opened: the header's
 * length and JSON, every tensor's shape, type and extent, that no two tensors
 * share bytes and that no byte belongs to none. After that nothing handed out
 * points outside a file. Read-only; may be used from many threads.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include "kvr_error.h"

#include <stddef.h>
#include <stdint.h>

enum { KVR_ST_MAX_DIMS = 8, KVR_ST_NO_TYPE = UINT16_MAX };

struct kvr_st_tensor {
    const char *name, *dtype; /* dtype as the file calls it */
    uint32_t type;            /* enum kvr_quant; KVR_ST_NO_TYPE: not read */
    uint32_t n_dims;          /* 0: a scalar */
    uint64_t dims[KVR_ST_MAX_DIMS]; /* the slowest first */
    const uint8_t *data;
    uint64_t size; /* bytes */
    const char *path;
};

struct kvr_safetensors;

/* One file. KVR_ERR_INPUT: damaged or incomplete; the message names the file,
 * the tensor and the numbers. */
enum kvr_status kvr__safetensors_open(struct kvr_safetensors **out,
                                      const char *path,
                                      struct kvr_error *err) KVR_MUST_CHECK;
/* The files that `folder`/model.safetensors.index.json names: these and no
 * others, and never outside the folder. Missing ones are named; so are both
 * numbers where they are not what the index states. */
enum kvr_status
kvr__safetensors_open_index(struct kvr_safetensors **out, const char *folder,
                            struct kvr_error *err) KVR_MUST_CHECK;
/* `folder`/model.safetensors, or the files of its index. Both: they may be two
 * models, and KVR_ERR_INPUT names them. */
enum kvr_status
kvr__safetensors_open_folder(struct kvr_safetensors **out, const char *folder,
                             struct kvr_error *err) KVR_MUST_CHECK;
void kvr__safetensors_close(struct kvr_safetensors *st);

/* In the order of their names; borrowed until close. */
size_t kvr__safetensors_n_tensors(const struct kvr_safetensors *st);
const struct kvr_st_tensor *
kvr__safetensors_tensor(const struct kvr_safetensors *st, size_t index);

#endif
