/* kvr_head.h -- the attention of one query head, as the analyses read it.
 *
 * Rows t = 0..T-1; row t has weights of the keys that its mask lets it see,
 * from kvr_head_from(head, t) to t. A trace gives heads (kvr_heads_run), a
 * matrix in memory is another source.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_HEAD_H
#define KVR_HEAD_H

#include "kvr_error.h"
#include "kvr_trace.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct kvr_head {
    uint32_t layer, index;        /* numbers in the model */
    uint32_t n_token, prompt_len; /* T, P <= T */
    enum kvr_mask mask;           /* not KVR_MASK_NONE */
    uint32_t span;                /* of a window or chunk mask */
    /* Rows first..first+n-1 as kvr_trace_read_rows gives them. */
    enum kvr_status (*read)(void *ud, uint32_t first, uint32_t n, float *out,
                            size_t stride, struct kvr_error *err);
    void *ud;
};

/* First key that row `row` sees. */
uint32_t kvr_head_from(const struct kvr_head *head, uint32_t row);

/* Is given row after row, from 0 (or `first` below) to T-1: weight[0..row]. */
typedef void (*kvr_head_row_fn)(uint32_t row, const float *weight, void *ud);

/* Calls fn for the rows first..T-1 in order; reads a tile at a time. */
enum kvr_status kvr_head_rows(const struct kvr_head *head, uint32_t first,
                              kvr_head_row_fn fn, void *ud,
                              struct kvr_error *err) KVR_MUST_CHECK;

/* Accumulated attention: sum[key] over the rows first..T-1, in doubles, in
 * row order; seen[key]: how many of these rows could see the key. [T] each;
 * seen may be NULL. Rows are taken as stored, never divided by their sum. */
enum kvr_status kvr_head_sums(double *sum, uint32_t *seen,
                              const struct kvr_head *head, uint32_t first,
                              struct kvr_error *err) KVR_MUST_CHECK;

/* The same if every row spread a mass of 1 evenly over what it sees: the null
 * with which concentration has to be compared, as old tokens see more rows.
 * Causal: the harmonic sum of 1/(t+1) over t >= key. */
void kvr_head_uniform_sums(double *sum, const struct kvr_head *head);

/* ---- all heads of a trace ---- */

/* A stored head of a trace: indices, not numbers. */
struct kvr_head_item {
    uint32_t layer, head;
};

/* Analyses one head; item is its index in the list. Writes only what belongs
 * to that item. */
typedef enum kvr_status (*kvr_head_fn)(uint32_t item,
                                       const struct kvr_head *head, void *ud,
                                       struct kvr_error *err);

/* Calls fn for each item of the list on `threads` threads (0: processors).
 * KVR_ERR_UNSUPPORTED: a bidirectional layer. prompt_len 0: the trace's. */
enum kvr_status kvr_heads_run(const struct kvr_trace *trace,
                              const struct kvr_head_item *items, uint32_t n,
                              uint32_t prompt_len, uint32_t threads,
                              kvr_head_fn fn, void *ud,
                              struct kvr_error *err) KVR_MUST_CHECK;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
