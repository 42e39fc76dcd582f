/* reader.h -- an open trace's insides.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef READER_H
#define READER_H

#include "codec.h"
#include "row_set.h"

#include <pthread.h>

/* Where a chunk lies; size 0: never written, all zeros. */
struct chunk_place {
    uint64_t offset;
    uint32_t size;
    uint32_t skipped; /* HDF5's filter mask: bit i skips filter i */
};

/* How a dataset of rows is stored. Contiguous data has one chunk. Logits, of
 * rank 2, count as one head. */
struct stored_set {
    bool present, chunked;
    bool shuffled, deflated;
    bool from_f16; /* stored as f32, but its first rows were taken as f16 */
    uint32_t item; /* bytes of a number */
    uint32_t shuffle_bit, deflate_bit; /* in a chunk's `skipped` */
    uint32_t dims[3];                  /* heads, rows, columns */
    uint32_t chunk[3];                 /* the same, of a chunk */
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

struct mlp_sums {
    uint32_t n_ff; /* 0: absent */
    float *mass;
    uint32_t *active;
};

struct kvr_trace {
    char *path;
    int fd;
    uint64_t size; /* of the file */
    struct shape_box *box;
    struct kvr_trace_facts facts;
    struct stored_set (*sets)[N_ROW_SET]; /* [n_layer + 1] */
    uint32_t *key_layer; /* [n_layer] whose keys it has; n_layer: none */
    struct lazy_array (*arrays)[KVR_N_ARRAY]; /* [n_layer] */
    struct mlp_sums *mlp;                     /* [n_layer] */
    struct kvr_trace_tokens tokens;
    uint64_t text_size;
    pthread_mutex_t lock;
};

/* Vectors of one KV head, widened, from token 0 on. */
struct wide_keys {
    const struct stored_set *set; /* NULL: of nothing */
    uint32_t head, n;             /* n: tokens there */
    uint64_t used;                /* when */
    float *data;
    size_t capacity;
};

/* Heads whose keys a scratch keeps, as far as they fit the bytes; one always
 * does. */
enum { SCRATCH_MOST_KEYS = 32, SCRATCH_KEY_BYTES = 64 << 20 };

struct kvr_trace_scratch {
    const struct kvr_trace *trace;
    struct codec *codec;
    bool holds_blas;
    /* The chunk that lies inflated (not yet unshuffled) in the codec. */
    const struct stored_set *set; /* NULL: none */
    size_t chunk;
    const uint8_t *plain;
    bool plain_shuffled;
    /* for rows that are recomputed: a layer's heads take turns */
    struct wide_keys keys[SCRATCH_MOST_KEYS];
    uint64_t clock;
    float *query, *block; /* of 64 rows */
    size_t cap_query, cap_block;
};

/* A weight is at most 1, or little above through rounding; from 2 on it is
 * none, and far above its sums would overflow. */
#define NO_WEIGHT 2.0F

/* Rows first..first+n-1 as stored (the set's items, little-endian):
 * out[(r * stride + column) * item]; columns beyond a row's own are not
 * touched. */
struct stored_rows {
    const struct stored_set *set;
    uint32_t layer, head, first, n;
    uint8_t *out;
    size_t stride; /* items */
    bool whole;    /* of attention also what lies above the diagonal */
};
enum kvr_status kvr__read_stored(const struct kvr_trace *trace,
                                 const struct stored_rows *want,
                                 struct kvr_trace_scratch *scratch,
                                 struct kvr_error *err);

/* Columns that row `row` of a set has. */
uint32_t kvr__set_columns(const struct kvr_trace *trace,
                          const struct stored_set *set, uint32_t layer,
                          uint32_t row);
/* What a message calls a set, e.g. "layer 3 key". */
enum { SET_TEXT = 48 };
void kvr__set_text(char out[SET_TEXT], const struct kvr_trace *trace,
                   const struct stored_set *set, uint32_t layer);

/* Rows of vectors or logits, widened: out[r * stride + column]. */
enum kvr_status kvr__read_wide(const struct kvr_trace *trace,
                               const struct stored_rows *want, float *out,
                               size_t stride, struct kvr_trace_scratch *scratch,
                               struct kvr_error *err);

/* ---- what a trace says, judged (reader_judge.c) ---- */

/* kvr_trace_open without kvr__judge_arrays: for who lists what is wrong. */
enum kvr_status kvr__trace_open(struct kvr_trace **out, const char *path,
                                struct kvr_error *err);

/* Every number beside the rows. KVR_ERR_INPUT by layer, head and row. */
enum kvr_status kvr__judge_arrays(const struct kvr_trace *trace,
                                  struct kvr_error *err);
/* What a layer says of its rows' sums, [n_head][n_token]; NULL: nothing. */
struct row_claims {
    const float *mass, *sink;
};
enum kvr_status kvr__row_claims(struct row_claims *out,
                                const struct kvr_trace *trace, uint32_t layer,
                                struct kvr_error *err);
/* The sum of a row's stored weights, itself right to `error`: row_mass as
 * storage has rounded it, or where none is stated at most 1, less the sink.
 * KVR_ERR_INPUT without the path. */
enum kvr_status kvr__judge_sum(const struct kvr_trace *trace, uint32_t layer,
                               uint32_t head, uint32_t row,
                               const struct row_claims *claims, double sum,
                               double error, struct kvr_error *err);
/* Stored rows, widened: no weight outside of the layer's mask, and the sums. */
enum kvr_status kvr__judge_rows(const struct kvr_trace *trace,
                                const struct stored_rows *rows,
                                const float *value, size_t stride,
                                struct kvr_error *err);

/* ---- rows from query and key ---- */

/* True where a layer's rows can be computed. */
bool kvr__has_pair(const struct kvr_trace *trace, uint32_t layer);

/* The most memory that a scratch takes to make a layer's rows. */
uint64_t kvr__made_bytes(const struct kvr_trace *trace, uint32_t layer);

/* What a block of rows was made of, for those who judge it. */
struct made_rows {
    double lse[KVR_TILE_ROWS];
    /* bound of a logit's magnitude: scale * |query| * largest |key| */
    double reach[KVR_TILE_ROWS];
};

/* The rows of tile `first / 64`, up to T, from `first` on, a multiple of 64:
 * out[r * stride + key], keys above the row's index up to stride 0. Rounded
 * to multiples of 2^-30, unless `made` is given: then as they are. */
enum kvr_status kvr__make_rows(const struct kvr_trace *trace, uint32_t layer,
                               uint32_t head, uint32_t first, float *out,
                               size_t stride, struct made_rows *made,
                               struct kvr_trace_scratch *scratch,
                               struct kvr_error *err);

#endif
