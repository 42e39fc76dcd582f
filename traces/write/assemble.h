/* assemble.h -- the parts of assembling a finished file.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef ASSEMBLE_H
#define ASSEMBLE_H

#include "content.h"
#include "h5_sink.h"

/* Writes the finished file from the committed steps; `fd` is the journal's.
 * The file is read back before it gets its name: opened, its steps and hash
 * compared, and with `whole` every row checked. path is replaced in one
 * rename, or, without force, made where nothing is. */
enum kvr_status kvr__assemble(struct content *content, int fd, const char *path,
                              bool force, bool whole, struct kvr_error *err);

/* ---- its parts ---- */

struct assembly {
    struct content *content;
    struct kvr_trace_shape shape; /* of the finished file: n_token = T */
    int fd;                       /* the journal's */
    struct h5_sink sink;
    hid_t file;       /* in the sink */
    const char *path; /* of the temporary file */
    char hash[KVR_HASH_TEXT];
    struct codec *codec;
    size_t *first_tile; /* [n_slot + 1] in content->tiles */
    uint8_t *buffer;
    size_t capacity;
};

/* A tile's bytes as they go into the file, borrowed until the next call. One
 * from before its dataset became f32 is widened. */
enum kvr_status kvr__assemble_tile(struct assembly *a,
                                   const struct stored_tile *tile,
                                   const uint8_t **data, size_t *size,
                                   struct kvr_error *err);
/* Its hash in the finished file. */
enum kvr_status kvr__assemble_tile_hash(struct assembly *a,
                                        const struct stored_tile *tile,
                                        uint64_t *hash, struct kvr_error *err);
/* One dataset of a layer with its rows; nothing where it is not stored. */
enum kvr_status kvr__assemble_rows(struct assembly *a, hid_t group,
                                   uint32_t layer, enum row_set set,
                                   struct kvr_error *err);

/* Root, /model and /tokens. */
enum kvr_status kvr__assemble_head(struct assembly *a, struct kvr_error *err);
/* /layers with everything in it. */
enum kvr_status kvr__assemble_layers(struct assembly *a, struct kvr_error *err);
/* /tokens/logits. */
enum kvr_status kvr__assemble_logits(struct assembly *a, struct kvr_error *err);

#endif
