/* h5_open.h -- a file's first bytes, and its index out of a child's words.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_OPEN_H
#define H5_OPEN_H

#include "h5_index.h"

struct h5_super {
    bool is_hdf5;
    bool open_for_writing; /* the writer's flag (superblock 2 and 3) */
    uint32_t version;
    uint64_t stored_end; /* end of the file as its writer left it; 0: ? */
    uint64_t size;       /* of the file */
};

/* Reads the superblock by hand: HDF5's own message for a file that it will
 * not open does not say why. False: cannot be read. */
bool kvr__h5_super(struct h5_super *out, int fd);

/* Fills the index from file->said (h5_stream.h). */
enum kvr_status kvr__h5_take(struct h5_index *file, struct kvr_error *err);

/* Opens a file for reading: a regular one, or KVR_ERR_INPUT. */
enum kvr_status kvr__open_regular(int *fd, uint64_t *size, const char *path,
                                  struct kvr_error *err);

#endif
