/* mapped.h -- a file's bytes, read-only in memory.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MAPPED_H
#define MAPPED_H

#include "kvr_error.h"

#include <stdint.h>

struct kvr_mapped {
    const uint8_t *bytes;
    uint64_t size;
};

/* KVR_ERR_IO: cannot be opened or mapped; KVR_ERR_INPUT: no regular file, or
 * empty. */
enum kvr_status kvr__mapped_open(struct kvr_mapped *out, const char *path,
                                 struct kvr_error *err) KVR_MUST_CHECK;
/* A zeroed struct is fine. */
void kvr__mapped_close(struct kvr_mapped *mapped);

#endif
