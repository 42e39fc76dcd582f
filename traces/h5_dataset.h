/* h5_dataset.h -- opening datasets that hold their own bytes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_DATASET_H
#define H5_DATASET_H

#include "h5.h"
#include "kvr_memory.h"

/* A dataset behind a hard link that stores its own bytes in this file with
 * filters that are known. *out negative: absent. `where` is the group's
 * name, for messages. */
enum kvr_status kvr__open_dataset(hid_t *out, const char *path, hid_t group,
                                  const char *name, const char *where,
                                  struct kvr_error *err);
/* Refuses a dataset whose declared size is over `limit` or cannot come out of
 * the bytes stored: before anything of that size is allocated. */
enum kvr_status kvr__h5_check_size(hid_t set, const char *path,
                                   const char *where, uint64_t limit,
                                   struct kvr_error *err);
/* The same, and its chunks (h5_chunks.h), which reads them all: to be asked
 * once, before it is read. */
enum kvr_status kvr__h5_check_stored(hid_t set, const char *path,
                                     const char *where, uint64_t limit,
                                     struct kvr_error *err);
/* Rank and extents of a dataset; false: not simple, or more than 8. */
bool kvr__h5_extent(int *rank, hsize_t dims[8], hid_t dataset);
/* Whether a number fills its bytes (true for what is no number). HDF5's
 * conversions trust the offset and precision that a file states, and read past
 * a value whose type claims more bits than it has: ask before each read. */
bool kvr__h5_plain_number(hid_t type);

/* 2, 4 or 8 for an IEEE float type of either byte order; 0: another type. */
unsigned kvr__h5_float_size(hid_t type);

#endif
