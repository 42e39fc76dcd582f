/* h5.h -- small calls around HDF5: errors as messages, attributes of any
 * integer width and string kind. All HDF5 use goes through here, from one
 * thread at a time.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_H
#define H5_H

#include "kvr_error.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Switches HDF5's printing off. Call before anything else; may repeat. */
void kvr__h5_quiet(void);

/* KVR_ERR_IO or, for what was read, KVR_ERR_INPUT: "path: what: reason", the
 * reason from HDF5's own stack (the system's text where it has one). */
enum kvr_status kvr__h5_fail(struct kvr_error *err, enum kvr_status status,
                             const char *path, const char *what);

/* ---- a file's first bytes ---- */

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

/* Opens for reading, with the reason where it cannot be: no HDF5 file,
 * truncated (N of M bytes), a writer's flag (with the repair). */
enum kvr_status kvr__h5_open(hid_t *out, const char *path,
                             struct kvr_error *err);

/* ---- reading attributes; missing is not a failure: *found false ---- */

bool kvr__h5_has_attr(hid_t object, const char *name);
/* False: not a number of that kind, or not one value. */
bool kvr__h5_get_int(int64_t *value, hid_t object, const char *name);
bool kvr__h5_get_real(double *value, hid_t object, const char *name);
/* Two integers, as format_version has. */
bool kvr__h5_get_pair(int64_t value[2], hid_t object, const char *name);
/* Fixed or variable length; malloc'ed. False: no string. */
bool kvr__h5_get_text(char **text, hid_t object, const char *name);

/* ---- writing ---- */

bool kvr__h5_put_u32(hid_t object, const char *name, const uint32_t *value,
                     unsigned n);
bool kvr__h5_put_i32(hid_t object, const char *name, int32_t value);
bool kvr__h5_put_real(hid_t object, const char *name, double value);
bool kvr__h5_put_text(hid_t object, const char *name, const char *text);
/* A contiguous dataset; file_type little-endian. */
bool kvr__h5_put_data(hid_t group, const char *name, hid_t file_type,
                      hid_t memory_type, int rank, const hsize_t *dims,
                      const void *data);
/* Little-endian binary16; HDF5 1.10 has no name for it. Close it. */
hid_t kvr__h5_f16(void);

/* A group without times. Negative: failed. */
hid_t kvr__h5_new_group(hid_t parent, const char *name);

/* A member that is a hard link to an object of its own file: soft and
 * external links are not followed. 1 there, 0 absent, -1 another kind. */
int kvr__h5_has_member(hid_t group, const char *name);

#endif
