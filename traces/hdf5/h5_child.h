/* h5_child.h -- work on bytes that are not to be trusted, in a process of its
 * own: what happens to it is an error message.
 *
 * The child is a fork without exec: the caller's threads are not in it, and a
 * lock that one of them holds stays held there. It needs malloc (which glibc
 * makes safe) and libhdf5: no other thread may be inside of libhdf5 meanwhile.
 * It dies with the thread that waits for it, closes all files but its own two,
 * prints nothing and runs no exit handlers; the caller's handler of SIGCHLD may
 * be called, and may even reap it.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_CHILD_H
#define H5_CHILD_H

#include "bytes.h"
#include "kvr_error.h"

enum { CHILD_NO_MEMORY = 3 }; /* its exit code */
enum { CHILD_DOING = 100 };   /* bytes of what it is at */

struct child {
    int out;     /* a pipe to the parent */
    int keep;    /* the file that was to stay open */
    char *doing; /* shared with the parent */
};

/* Runs in the child: writes to child->out and returns. */
typedef void (*kvr__child_fn)(const struct child *child, void *ud);

/* All that fn wrote, at most `most` bytes. KVR_ERR_INPUT, naming `path` and
 * what the child was at, where it crashed, was not done within 0.6 s of
 * processor time after its last kvr__child_step, or did not write for a
 * minute. KVR_ERR_MEMORY where it exits with CHILD_NO_MEMORY. */
enum kvr_status kvr__child_run(struct bytes *said, const char *path,
                               uint64_t most, kvr__child_fn fn, int keep,
                               void *ud, struct kvr_error *err);

/* For the child, before each call that should be over soon. `what` and `name`
 * say what it is at, e.g. "attribute " and its name. */
void kvr__child_step(const struct child *child, const char *what,
                     const char *name);

#endif
