/* kvr_import.h -- traces from attention dumps: .npy and HDF5.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_IMPORT_H
#define KVR_IMPORT_H

#include "kvr_error.h"
#include "kvr_trace.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Zero-initialise; batch_item and dtype start at -1. */
struct kvr_import_options {
    const char *dataset; /* path in an HDF5 file, may hold a %d or %0Nd for
                            the layer and one for the step; NULL: the only
                            one that fits */
    const char *axes;    /* letters b, l, h, q, k; NULL: from the shape */
    int64_t batch_item;  /* one of axis b; -1: b has one item */
    uint32_t pad;        /* left padding: rows and keys to leave out */
    uint32_t prompt_len; /* real tokens, after the padding; 0: as the file
                            says */
    uint32_t n_kv_head;  /* 0: as the file says, else n_head */
    int dtype;           /* enum kvr_dtype; -1: the source's (f64: f32) */
    bool not_causal;     /* weight on later keys is right; replay refuses it */
    bool sink;           /* 1 - row sum went to a sink outside of the tokens */
    bool renormalise;    /* each row is divided by its sum; not with `sink` */
    const char *layers;  /* "0,4-7", numbers of layers; NULL: all */
    const char *heads;   /* the same of query heads, whole groups */
    uint32_t window;     /* of every layer; 0: none */
    /* Windows by layer of the model, 0: none; NULL: as `window` says. */
    const uint32_t *spans;
    uint32_t n_span;
    uint64_t memory; /* most bytes to take; 0: no limit */
    bool force;      /* overwrite `to` */
    const char *writer, *created, *options; /* provenance; NULL: none */
};

/* Every row is checked before it is written: finite, not negative, causal,
 * nothing on padding, sum 1 within what the source's type and the row's length
 * explain; or, where all weights of a row are float16 or bfloat16 numbers,
 * what these explain. A layer with a window has no weight outside of it; one
 * that looks like a window and is not stated as one is warned of. Nothing is
 * renormalised unasked, and the trace says in `compute` that it was, or that
 * rows were so rounded. KVR_ERR_INPUT names layer, head, row and key of the
 * first violation and guesses the cause; KVR_ERR_USAGE: an option is needed
 * (axes, batch item, prompt length), or names a layer or head that is not
 * there. On failure nothing is left under `to`. */
enum kvr_status kvr_import(const char *from, const char *to,
                           const struct kvr_import_options *options,
                           struct kvr_error *err) KVR_MUST_CHECK;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
