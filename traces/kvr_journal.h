/* kvr_journal.h -- unfinished traces, and whether a trace can be trusted.
 *
 * A journal (OUT.kvt.h5.part, JOURNAL.md) is what a capture leaves when it is
 * stopped. Its closed steps are those below its last commit whose records,
 * and all before them, have the right checksums.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_JOURNAL_H
#define KVR_JOURNAL_H

#include "kvr_error.h"
#include "kvr_trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct kvr_journal;

struct kvr_journal_facts {
    uint32_t n_step;       /* closed steps */
    uint64_t size;         /* bytes of the file */
    uint64_t closed_bytes; /* up to and with the last commit that counts */
    uint64_t stored_bytes; /* of closed tiles */
    bool running;          /* its writer holds the lock now */
    bool damaged;          /* a record that is there whole is wrong; else the
                              rest is only the step that was open */
    char problem[256];     /* where reading ended and why; "" at the end */
};

/* True where the file begins like a journal; false also where it cannot be
 * read. */
bool kvr_journal_is(const char *path);

/* Reads the whole journal and checks every record. KVR_ERR_INPUT: no journal;
 * KVR_ERR_UNSUPPORTED: another major version. A damaged or empty one opens:
 * the facts say what is left. */
enum kvr_status kvr_journal_open(struct kvr_journal **out, const char *path,
                                 struct kvr_error *err) KVR_MUST_CHECK;
void kvr_journal_close(struct kvr_journal *journal);

/* Borrowed until close. n_token of the shape is T_max. */
const struct kvr_trace_shape *
kvr_journal_shape(const struct kvr_journal *journal);
const struct kvr_journal_facts *
kvr_journal_facts(const struct kvr_journal *journal);

/* A journal becomes a finished trace of its closed steps, equal to those of
 * an uninterrupted run; the journal is removed after that unless it is
 * damaged. An HDF5 file whose writer's flag is set (a trace or not) is copied
 * and the flag cleared in the copy. KVR_ERR_NOTHING: no closed step, or a file
 * that needs no repair. KVR_ERR_EXISTS: `to` is there and force is false, or
 * the journal's capture is still running. */
enum kvr_status kvr_trace_repair(const char *from, const char *to, bool force,
                                 struct kvr_error *err) KVR_MUST_CHECK;

/* What kvr_trace_check found; free with kvr_trace_report_free. */
struct kvr_trace_report {
    bool ok;              /* complete and without a problem */
    bool complete;        /* false: a journal */
    uint32_t closed_rows; /* leading steps that are right in every head */
    size_t n_problem, capacity;
    char **problems; /* one line each */
};

/* Reads every row of a trace, or every record of a journal, and compares:
 * weights finite and not negative, inside the mask, sums with row_mass, the
 * content hash. threads 0: all processors; memory: most bytes to take, 0: no
 * limit. Fails (and fills no report) only where nothing can be read: not a
 * trace, truncated, another version; or (KVR_ERR_LIMIT) over the limit. */
enum kvr_status kvr_trace_check(struct kvr_trace_report *report,
                                const char *path, uint32_t threads,
                                uint64_t memory,
                                struct kvr_error *err) KVR_MUST_CHECK;
void kvr_trace_report_free(struct kvr_trace_report *report);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
