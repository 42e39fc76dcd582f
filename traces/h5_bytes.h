/* h5_bytes.h -- object headers of a file, read past HDF5.
 *
 * HDF5 1.10 trusts much of what a header says. What it trusts is looked up in
 * the file's bytes first; where those are of a newer kind, which has checksums,
 * nothing is.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_BYTES_H
#define H5_BYTES_H

#include "bytes.h"
#include "h5.h"

/* OTHER_KIND: the header is not of version 1. */
enum answer { UNKNOWN, SAFE, UNSAFE, OTHER_KIND };

struct file_bytes {
    int fd;
    uint64_t size;
};

/* malloc'ed bytes of the file; NULL: not there, or over 64 MiB. */
uint8_t *kvr__h5_load(const struct file_bytes *file, uint64_t at, uint64_t n);
uint32_t kvr__take_u16(struct cursor *in);

typedef enum answer (*kvr__message_fn)(const struct file_bytes *file,
                                       uint32_t type, struct cursor message,
                                       void *ud);

/* The file of an object; false: not one of its own bytes. */
bool kvr__h5_bytes_of(struct file_bytes *file, hid_t object);
/* `fn` for each message of the header at `at`, or of an object's, until its
 * answer is not UNKNOWN. */
enum answer kvr__h5_each_message_at(const struct file_bytes *file, uint64_t at,
                                    kvr__message_fn fn, void *ud);
enum answer kvr__h5_each_message(hid_t object, kvr__message_fn fn, void *ud);

#endif
