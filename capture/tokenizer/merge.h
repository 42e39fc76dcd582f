/* merge.h -- byte-pair merging of a word, in n log n steps.
 *
 * A word is a list of symbols. Again and again the best neighbouring pair is
 * joined (the leftmost of equals) until no pair merges. What is best is asked
 * of a function, so that the same code serves merges with ranks and pieces
 * with scores.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MERGE_H
#define MERGE_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_symbol {
    size_t at, size;       /* bytes of the word */
    int32_t id;            /* -1: the vocabulary lacks it */
    size_t previous, next; /* indices; SIZE_MAX: none */
};

/* Whether left and right (neighbours) merge; *id of the result and *cost:
 * lower goes first. */
typedef bool (*kvr_merge_fn)(void *ud, const struct kvr_symbol *left,
                             const struct kvr_symbol *right, int32_t *id,
                             double *cost);

/* Scratch that grows and is used again; zero-initialise it. */
struct kvr_merger {
    struct kvr_symbol *symbols; /* [n]: set at, size, id before */
    size_t n, capacity;
    struct kvr_candidate *heap;
    size_t n_heap, heap_capacity;
};

/* Appends a symbol to the word. */
enum kvr_status kvr__merger_add(struct kvr_merger *merger, size_t at,
                                size_t size, int32_t id,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* Merges the word; afterwards the symbols from index 0 on, by `next`, are the
 * result. The caller resets n to 0 for the next word. */
enum kvr_status kvr__merger_run(struct kvr_merger *merger, kvr_merge_fn fn,
                                void *ud, struct kvr_error *err) KVR_MUST_CHECK;

void kvr__merger_fini(struct kvr_merger *merger);

#endif
