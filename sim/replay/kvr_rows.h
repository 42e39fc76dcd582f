/* kvr_rows.h -- where the replay takes its rows from.
 *
 * A row source is a shape and a function that fills rows of one query head; a
 * trace is one (kvr_rows_open), matrices in memory are another (tests).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_ROWS_H
#define KVR_ROWS_H

#include "kvr_error.h"
#include "kvr_policy.h"
#include "kvr_trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct kvr_rows {
    uint32_t n_layer, n_token, prompt_len;
    const struct kvr_layer_shape *layers; /* [n_layer] */
    /* Weights are multiples of it: 2^-24 for f16, 2^-30 for f32 and for rows
     * made from queries and keys. 0:
     * unknown (double build only); sums are then rounded like any other. */
    double unit;
    uint64_t bytes;   /* that reading takes, all workers together */
    uint32_t workers; /* that may read at once; 0: any number */
    /* Rows first..first+n-1 of query head `head` of stored layer `layer`:
     * out[r * stride + key]; keys above the row's index up to stride are 0;
     * stride is at least first + n.
     * Called from several threads, each with its own worker index. */
    enum kvr_status (*read)(void *ud, uint32_t layer, uint32_t head,
                            uint32_t first, uint32_t n, kvr_real *out,
                            size_t stride, uint32_t worker,
                            struct kvr_error *err);
    /* sink_mass of a head, [n_token], or NULL; kind = KVR_SINK_MASS; and
     * other arrays of the trace. *rows as kvr_trace_array. NULL function: the
     * source has none. */
    enum kvr_status (*array)(void *ud, uint32_t layer, enum kvr_array kind,
                             const float **out, uint32_t *rows,
                             struct kvr_error *err);
    void *ud;
};

/* Rows of an open trace for `workers` threads; the trace stays the caller's
 * and must outlive it. Refuses (KVR_ERR_UNSUPPORTED) traces that were not
 * recorded with the full cache and bidirectional ones, and (KVR_ERR_NOTHING)
 * those without decode rows. prompt_len 0: the trace's. */
enum kvr_status kvr_rows_open(struct kvr_rows **out,
                              const struct kvr_trace *trace,
                              uint32_t prompt_len, uint32_t workers,
                              struct kvr_error *err) KVR_MUST_CHECK;
void kvr_rows_close(struct kvr_rows *rows);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
