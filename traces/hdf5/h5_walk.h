/* h5_walk.h -- the walk over an HDF5 file, in a child.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_WALK_H
#define H5_WALK_H

#include "bytes.h"
#include "h5_child.h"
#include "h5_source.h"

/* Objects by their addresses, each once. */
struct h5_seen {
    haddr_t *address; /* in the order of their numbers */
    size_t n, capacity;
    uint32_t *slot; /* number + 1; 0: free */
    size_t n_slot;  /* a power of 2 */
};

struct h5_walk {
    const struct child *child;
    struct h5_source source;
    hid_t file;
    struct bytes out; /* not yet sent */
    struct h5_seen seen;
    uint64_t variable_bytes; /* of a string of variable length, as stored */
    uint64_t links_left, cells_left;
};

/* To be run by kvr__child_run: ud is the file's path, NUL-terminated. */
void kvr__h5_walk(const struct child *child, void *ud);

/* ---- for the parts of the walk ---- */

void kvr__walk_text(struct h5_walk *w, const char *text);
void kvr__walk_bytes(struct h5_walk *w, const void *data, size_t n);
/* Sends what has gathered, if it is much or `now`. */
void kvr__walk_send(struct h5_walk *w, bool now);
/* `what`, with HDF5's reason. */
void kvr__walk_problem(struct h5_walk *w, uint32_t tag, const char *what);

void kvr__walk_type(struct h5_walk *w, hid_t type);
/* Whether items of the type are read. */
bool kvr__walk_reads(hid_t type);
void kvr__walk_attrs(struct h5_walk *w, hid_t object);
void kvr__walk_set(struct h5_walk *w, hid_t set);

#endif
