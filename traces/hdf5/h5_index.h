/* h5_index.h -- what an HDF5 file holds, as plain data.
 *
 * libhdf5 1.10 crashes on, loops in or reads past its buffers for damaged
 * files. It reads a file only in a child process (h5_child.h), once: h5_walk.c
 * tells over a pipe what is there, h5_index.c takes that apart, and from then
 * on nothing but these structs and pread is used. Offsets count from the
 * beginning of the file, a user block included.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_INDEX_H
#define H5_INDEX_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INDEX_MAX_RANK = 8, INDEX_MAX_FILTERS = 8 };

enum h5_object_kind { OBJECT_GROUP, OBJECT_SET, OBJECT_OTHER };
enum h5_link_kind { LINK_HARD, LINK_FOREIGN }; /* soft, external, .. */

/* OTHER: anything that is not read, numbers that do not fill their bytes and
 * floats that are not IEEE's included. */
enum h5_type_kind {
    TYPE_OTHER,
    TYPE_INTEGER,       /* of 1, 2, 4, 8 bytes */
    TYPE_FLOAT,         /* of 2, 4, 8 bytes */
    TYPE_FIXED_TEXT,    /* padded with 0 */
    TYPE_PADDED_TEXT,   /* with spaces */
    TYPE_VARIABLE_TEXT, /* a value has its length before it */
};

struct h5_type {
    enum h5_type_kind kind;
    uint32_t size; /* bytes of an item */
    bool big_endian, is_signed;
};

struct h5_attr {
    const char *name;
    struct h5_type type;
    uint64_t n;           /* values */
    const uint8_t *value; /* as stored, a text with a 0 behind it; NULL: of a
                             kind that is not read */
    uint32_t n_byte;
};

enum h5_layout {
    LAYOUT_COMPACT,
    LAYOUT_CONTIGUOUS,
    LAYOUT_CHUNKED,
    LAYOUT_VIRTUAL
};

/* HDF5's numbers: deflate 1, shuffle 2, fletcher32 3. */
enum { FILTER_DEFLATE = 1, FILTER_SHUFFLE = 2, FILTER_FLETCHER32 = 3 };

struct h5_filter {
    uint32_t id;
    uint32_t parameter; /* its first */
    const char *name;
};

/* A chunk that is stored; cells are counted in the order of the grid's axes,
 * the last one quickest. */
struct h5_place {
    uint64_t cell;
    uint64_t offset, size; /* in the file */
    uint64_t skipped;      /* bit i: filter i was not applied */
};

struct h5_set {
    struct h5_type type;
    int rank; /* -1: no simple array of at most INDEX_MAX_RANK axes */
    uint64_t dims[INDEX_MAX_RANK];
    enum h5_layout layout;
    const char *external; /* the file that holds its bytes; NULL: this one */
    uint64_t offset;      /* LAYOUT_CONTIGUOUS; UINT64_MAX: nothing stored */
    uint64_t stored;      /* bytes, of all chunks */
    const uint8_t *compact;
    uint32_t n_compact;
    const uint8_t *fill; /* type.size bytes; NULL: 0 */
    int n_filter;
    struct h5_filter filter[INDEX_MAX_FILTERS];
    uint64_t chunk[INDEX_MAX_RANK], grid[INDEX_MAX_RANK];
    bool edges_are_plain;          /* chunks that jut out pass no filter */
    uint64_t first_place, n_place; /* in the index's places, by cell */
};

struct h5_link {
    const char *name;
    enum h5_link_kind kind;
    uint32_t object; /* LINK_HARD */
};

struct h5_object {
    enum h5_object_kind kind;
    const char *problem;       /* why it cannot be read; NULL */
    const char *attr_problem;  /* why its attributes cannot */
    size_t first_link, n_link; /* by name */
    size_t first_attr, n_attr;
    struct h5_set *set; /* OBJECT_SET */
};

struct h5_index {
    char *path;
    int fd;
    uint64_t size;             /* of the file */
    struct h5_object *objects; /* [0] is the root */
    struct h5_link *links;
    struct h5_attr *attrs;
    struct h5_place *places;
    size_t n_object, n_link, n_attr, n_place;
    uint8_t *said; /* what the child said: names and values lie in it */
    size_t n_said;
};

/* A file's index, or the reason why there is none: no regular file, no HDF5,
 * truncated (N of M bytes), a writer's flag (with the repair), damaged. */
enum kvr_status kvr__h5_open(struct h5_index **out, const char *path,
                             struct kvr_error *err);
void kvr__h5_close(struct h5_index *file);

const struct h5_object *kvr__h5_root(const struct h5_index *file);

/* A member by its name, or names with '/' between them. *out NULL: absent.
 * A soft or external link, and an object or a group on the way that cannot be
 * read, is an error. `where` is the group's name, for messages. */
enum kvr_status kvr__h5_member(const struct h5_object **out,
                               const struct h5_index *file,
                               const struct h5_object *group, const char *name,
                               const char *where, struct kvr_error *err);

/* ---- attributes ----
 *
 * To be asked first: an error where those of an object cannot be read. */
enum kvr_status kvr__h5_check_attrs(const struct h5_index *file,
                                    const struct h5_object *object,
                                    const char *where, struct kvr_error *err);
bool kvr__h5_has_attr(const struct h5_index *file,
                      const struct h5_object *object, const char *name);
/* False: absent, not a number of that kind, or not one value. */
bool kvr__h5_get_int(int64_t *value, const struct h5_index *file,
                     const struct h5_object *object, const char *name);
bool kvr__h5_get_real(double *value, const struct h5_index *file,
                      const struct h5_object *object, const char *name);
/* Two integers, as format_version has. */
bool kvr__h5_get_pair(int64_t value[2], const struct h5_index *file,
                      const struct h5_object *object, const char *name);
/* Fixed or variable length, "" included, what it is padded with cut off;
 * borrowed from the index. False: absent, or not one string. */
bool kvr__h5_get_text(const char **text, const struct h5_index *file,
                      const struct h5_object *object, const char *name);

/* One integer as stored, sign or not; beyond INT64_MAX that. */
int64_t kvr__h5_integer(const uint8_t *at, const struct h5_type *type);
/* n floats or integers, as doubles. */
void kvr__h5_widen(double *out, const uint8_t *in, size_t n,
                   const struct h5_type *type);

#endif
