/* check_parts.h -- shared by the files that check a trace.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CHECK_PARTS_H
#define CHECK_PARTS_H

#include "reader.h"

/* What was found in one head of a dataset of rows. */
struct finding {
    uint32_t layer, head;
    enum row_set set;
    uint32_t first_bad; /* row; T: none */
    uint32_t n_bad;     /* rows */
    bool unreadable;    /* a tile's rows are missing: no hash */
    uint64_t *hashes;   /* of its tiles */
    struct kvr_error first;
    struct kvr_error broken; /* what the system failed to do, not the trace */
};

struct check {
    const struct kvr_trace *trace;
    struct finding *findings; /* [n] */
    uint32_t n;
    struct kvr_trace_scratch **scratch; /* [workers] */
    uint8_t **rows;                     /* [workers] stored rows */
    float **made;                       /* [workers] recomputed rows */
    float **wide;                       /* [workers] one row */
};

/* First bad row of a head, with its reason; later ones are counted. */
void kvr__note_row(struct finding *f, uint32_t row,
                   const struct kvr_error *why);

/* The rows of a query head, recomputed, against its attention and its lse,
 * those that are there. */
void kvr__check_pair(const struct check *c, struct finding *f, uint32_t worker);

#endif
