/* h5_source.h -- an HDF5 file driver that only reads, and that tells where a
 * chunk lies: while `noting`, a read of raw data is not made but noted.
 *
 * HDF5 1.10 finds one chunk by its coordinates in logarithmic time, but says
 * where it lies only by a walk over all of them.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_SOURCE_H
#define H5_SOURCE_H

#include "h5.h"

struct h5_source {
    int fd; /* borrowed */
    uint64_t size;
    int error; /* errno of the first failure; 0: none */
    bool noting;
    uint64_t at, n; /* the read noted last */
};

/* Opens the file behind source->fd. Negative: failed, HDF5's stack says
 * why. */
hid_t kvr__source_open(struct h5_source *source, const char *path);

#endif
