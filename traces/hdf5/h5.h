/* h5.h -- small calls around HDF5: errors as messages, and writing. libhdf5
 * reads only in a child process (h5_index.h); it is called from one thread at
 * a time.
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

/* The first reason on HDF5's stack, "" where there is none, and the stack
 * cleared. The system's number, with its text, where it has one; else 0. */
enum { H5_REASON_TEXT = 256 };
int kvr__h5_reason(char text[H5_REASON_TEXT]);

/* KVR_ERR_IO or, for what was read, KVR_ERR_INPUT: "path: what: reason", the
 * reason from HDF5's own stack (the system's text where it has one). */
enum kvr_status kvr__h5_fail(struct kvr_error *err, enum kvr_status status,
                             const char *path, const char *what);

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

#endif
