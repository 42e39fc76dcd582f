/* assemble.h -- the parts of assembling a finished file.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef ASSEMBLE_H
#define ASSEMBLE_H

#include "content.h"
#include "h5_sink.h"

struct assembly {
    struct content *content;
    struct kvr_trace_shape shape; /* of the finished file: n_token = T */
    int fd;                       /* the journal's */
    struct h5_sink sink;
    hid_t file;       /* in the sink */
    const char *path; /* of the temporary file */
    char hash[KVR_HASH_TEXT];
    struct codec *codec;
    size_t next_tile; /* in content->tiles */
    uint8_t *buffer;
    size_t capacity;
};

/* Root, /model and /tokens. */
enum kvr_status kvr__assemble_head(struct assembly *a, struct kvr_error *err);
/* /layers with everything in it. */
enum kvr_status kvr__assemble_layers(struct assembly *a, struct kvr_error *err);

#endif
