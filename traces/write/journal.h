/* journal.h -- the records of OUT.kvt.h5.part (JOURNAL.md).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef JOURNAL_H
#define JOURNAL_H

#include "content.h"

#include <pthread.h>

#define JOURNAL_SUFFIX ".part"
#define ASSEMBLY_SUFFIX ".tmp" /* behind it: the file before its renaming */

enum {
    JOURNAL_MAGIC = 0x4a52564b, /* "KVRJ" */
    JOURNAL_MAJOR = 1,
    JOURNAL_MINOR = 3,
    JOURNAL_RECORD = 64,    /* bytes before a payload */
    JOURNAL_SET_SHIFT = 16, /* of the dataset, above a tile's head */
};

/* How the rows of a step are kept: `extra` of their record. */
enum { ROWS_DEFLATED, ROWS_PLAIN };

/* Meaning of a, b, c, d and of the payload: JOURNAL.md. */
enum journal_type {
    JOURNAL_HEADER = 1,
    JOURNAL_TILE,
    JOURNAL_ROWS,
    JOURNAL_ARRAY,
    JOURNAL_TOKENS,
    JOURNAL_COMMIT,
    JOURNAL_WIDEN,
    JOURNAL_MLP,
};

struct journal_record {
    uint32_t magic, type;
    uint64_t sequence;
    uint32_t a, b, c, d;
    uint64_t size;         /* of the payload */
    uint64_t payload_hash; /* XXH3-64 */
    uint64_t extra;        /* by type, else 0 */
    uint64_t hash;         /* XXH3-64 of the 56 bytes before */
};

/* A journal being written. */
struct journal {
    char *path;
    int fd;
    uint64_t end, sequence;
    pthread_mutex_t lock;
};

/* Creates OUT.part and locks it. KVR_ERR_EXISTS: another capture has it, or
 * an unfinished one left it and `force` is false. */
enum kvr_status kvr__journal_create(struct journal **out, const char *target,
                                    bool force, struct kvr_error *err);
/* Closes; `remove` takes the file away too. */
void kvr__journal_close(struct journal *journal, bool remove);

/* Fills magic, sequence and hashes, appends. *offset: of the payload; may be
 * NULL. Thread-safe. */
enum kvr_status kvr__journal_append(struct journal *journal,
                                    const struct journal_record *record,
                                    const void *payload, uint64_t *offset,
                                    struct kvr_error *err);
enum kvr_status kvr__journal_sync(struct journal *journal,
                                  struct kvr_error *err);

#endif
