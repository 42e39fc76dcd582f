/* reader.h -- an open trace's insides.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef READER_H
#define READER_H

#include "codec.h"
#include "shape.h"

#include <pthread.h>

/* Where a chunk lies; size 0: never written, all zeros. */
struct chunk_place {
    uint64_t offset;
    uint32_t size;
    uint32_t skipped; /* HDF5's filter mask: bit i skips filter i */
};

/* How one layer's attention is stored. Contiguous data has one chunk. */
struct attention {
    bool present, chunked;
    bool shuffled, deflated;
    uint32_t shuffle_bit, deflate_bit; /* in a chunk's `skipped` */
    uint32_t chunk[3];                 /* heads, rows, columns */
    uint32_t grid[3];                  /* chunks along each */
    struct chunk_place *places;        /* [grid[0] * grid[1] * grid[2]] */
    uint64_t stored_bytes;
};

/* A float array of a layer: loaded at open, or where a plain contiguous one
 * lies, to be read at first use. */
struct lazy_array {
    float *data; /* [rows][T]; guarded by the trace's lock */
    uint32_t rows;
    uint64_t offset; /* in the file; 0: data is loaded */
};

struct kvr_trace {
    char *path;
    int fd;
    uint64_t size; /* of the file */
    struct shape_box *box;
    struct kvr_trace_facts facts;
    struct attention *attention;              /* [n_layer] */
    struct lazy_array (*arrays)[KVR_N_ARRAY]; /* [n_layer] */
    struct kvr_trace_tokens tokens;
    uint64_t text_size;
    pthread_mutex_t lock;
};

struct kvr_trace_scratch {
    const struct kvr_trace *trace;
    struct codec *codec;
    /* The chunk that lies inflated (not yet unshuffled) in the codec. */
    bool valid;
    uint32_t layer;
    size_t chunk;
    const uint8_t *plain;
    bool plain_shuffled;
};

/* Rows first..first+n-1 as stored (the trace's dtype, little-endian):
 * out[(r * stride + key) * item]; keys beyond a row's own are not touched. */
struct stored_rows {
    uint32_t layer, head, first, n;
    uint8_t *out;
    size_t stride; /* items */
};
enum kvr_status kvr__read_stored(const struct kvr_trace *trace,
                                 const struct stored_rows *want,
                                 struct kvr_trace_scratch *scratch,
                                 struct kvr_error *err);

#endif
