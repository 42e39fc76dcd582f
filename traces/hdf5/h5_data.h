/* h5_data.h -- reading datasets: by pread, out of their filters, each chunk
 * compared with its place.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_DATA_H
#define H5_DATA_H

#include "codec.h"
#include "h5_index.h"

/* A dataset that stores its own bytes in this file with filters that are
 * known. *out NULL: absent. `where` is the group's name, for messages. */
enum kvr_status kvr__h5_find_set(const struct h5_object **out,
                                 const struct h5_index *file,
                                 const struct h5_object *group,
                                 const char *name, const char *where,
                                 struct kvr_error *err);

/* Refuses a dataset of items that are not read, one whose declared size is
 * over `limit` or cannot come out of the bytes stored, and one whose pieces
 * cannot be whole: before anything of that size is allocated. */
enum kvr_status kvr__h5_check_stored(const struct h5_index *file,
                                     const struct h5_set *set,
                                     const char *where, uint64_t limit,
                                     struct kvr_error *err);

/* Boxes of one dataset, by one thread. Chunks that were read last are kept,
 * 64 MiB of them or one. */
struct h5_reader;

/* For a dataset that kvr__h5_check_stored lets pass. `file` and the set are
 * borrowed, `where` is copied. */
enum kvr_status kvr__h5_reader_new(struct h5_reader **out,
                                   const struct h5_index *file,
                                   const struct h5_set *set, const char *where,
                                   struct kvr_error *err);
void kvr__h5_reader_free(struct h5_reader *reader);

/* Items from[i] .. from[i] + count[i] - 1 of each axis, as they are stored and
 * in the order of the axes; inside the extent. What no chunk holds is the fill
 * value. */
enum kvr_status kvr__h5_read_box(struct h5_reader *reader, const uint64_t *from,
                                 const uint64_t *count, uint8_t *out,
                                 struct kvr_error *err);

enum h5_as { AS_F32, AS_I32, AS_U32, AS_U8 };
size_t kvr__h5_as_size(enum h5_as as);

/* A whole dataset, its items as floats or integers; malloc'ed. An integer that
 * the type does not hold is refused. */
enum kvr_status kvr__h5_load(void **out, enum h5_as as,
                             const struct h5_index *file,
                             const struct h5_set *set, const char *where,
                             uint64_t limit, struct kvr_error *err);

#endif
