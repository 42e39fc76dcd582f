/* h5_sink.h -- an HDF5 file driver that survives a full disk.
 *
 * HDF5 1.10 cannot close a file whose writes fail: it crashes or leaves the
 * file open until exit. This driver tells HDF5 that all is well, remembers the
 * first failure, and the caller asks for it.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_SINK_H
#define H5_SINK_H

#include "h5.h"

struct h5_sink {
    const char *path; /* borrowed */
    int fd;
    hid_t driver;     /* registered while the file is open */
    int error;        /* errno of the first failure; 0: none */
    uint64_t written; /* bytes, up to it */
};

/* Creates the file (kvr_create_temporary), and an HDF5 file in it: the oldest
 * format that HDF5 writes, superblock 0. */
enum kvr_status kvr__sink_create(struct h5_sink *sink, hid_t *file,
                                 const char *path, struct kvr_error *err);
/* The failure so far as a status: path, the system's text, bytes written. */
enum kvr_status kvr__sink_state(const struct h5_sink *sink,
                                struct kvr_error *err);
/* Closes the HDF5 file, syncs and closes the file. */
enum kvr_status kvr__sink_close(struct h5_sink *sink, hid_t file,
                                struct kvr_error *err);

#endif
