/* shape.h -- owned copies of a shape, its limits and its packed form.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SHAPE_H
#define SHAPE_H

#include "bytes.h"
#include "kvr_trace.h"

#define KVR_FORMAT_NAME "kvreplay-trace"

enum {
    KVR_FORMAT_MAJOR = 1,
    KVR_FORMAT_MINOR = 0,
    SHAPE_MAX_LAYERS = 4096,
    SHAPE_MAX_LAYER_NUMBER = 65535, /* in the model */
    SHAPE_MAX_HEADS = 16384,
    SHAPE_MAX_TOKENS = 1 << 24,
    SHAPE_MAX_DIM = 1 << 16,
    SHAPE_MAX_FF = 1 << 24,
    SHAPE_MAX_TEXT = 60000, /* an attribute holds at most 64 KiB */
    CHUNK_COLS = 4096,      /* widest tile */
};

enum shape_text {
#define SHAPE_TEXT(field, group, name, provenance) SHAPE_TEXT_##field,
#include "shape_text.def"
#undef SHAPE_TEXT
    N_SHAPE_TEXT,
};

struct shape_text_row {
    size_t offset; /* of the const char * in struct kvr_trace_shape */
    const char *group, *name;
    bool provenance;
};
extern const struct shape_text_row kvr__shape_texts[N_SHAPE_TEXT];

/* The arrays and strings that `shape` points to are owned. */
struct shape_box {
    struct kvr_trace_shape shape;
    struct kvr_layer_shape *layers; /* shape.layers, writable */
};

const char *kvr__shape_text(const struct kvr_trace_shape *shape, int i);

/* A box with n_layer empty layers to be filled; NULL: no memory. */
struct shape_box *kvr__shape_new(uint32_t n_layer);
void kvr__shape_free(struct shape_box *box);
enum kvr_status kvr__shape_copy(struct shape_box **out,
                                const struct kvr_trace_shape *shape,
                                struct kvr_error *err);
/* malloc'ed text becomes owned by the box; frees what was there. */
void kvr__shape_set_text(struct shape_box *box, int i, char *text);

/* Everything that can be judged without the rows. `path` is for messages. */
enum kvr_status kvr__shape_check(const struct kvr_trace_shape *shape,
                                 const char *path, struct kvr_error *err);

/* A writer's defaults filled in: what no layer names is attention, and dtype is
 * f32 where no layer stores that. */
void kvr__shape_settle(struct shape_box *box);

/* The packed form of the journal's header (JOURNAL.md) and, without
 * provenance, of the content hash (FORMAT.md). */
void kvr__shape_pack(struct bytes *out, const struct kvr_trace_shape *shape,
                     bool provenance);
enum kvr_status kvr__shape_unpack(struct shape_box **out, struct cursor *in,
                                  const char *path, struct kvr_error *err);

/* ---- geometry ---- */

size_t kvr__dtype_size(enum kvr_dtype dtype);
/* Columns of a tile of a trace that may grow to t_max tokens. */
uint32_t kvr__tile_cols(uint32_t t_max);
/* Keys of row t: t + 1, or all of `n_token` where there is no mask. */
uint32_t kvr__row_keys(const struct kvr_layer_shape *layer, uint32_t row,
                       uint32_t n_token);
/* The first key that the layer's mask shows to a row. */
uint32_t kvr__row_first_key(const struct kvr_layer_shape *layer, uint32_t row);
const char *kvr__mask_name(enum kvr_mask mask);
const char *kvr__source_name(enum kvr_source source);
bool kvr__mask_of(enum kvr_mask *mask, const char *name);
bool kvr__source_of(enum kvr_source *source, const char *name);

/* Rows that an array has in a layer must be one of n_head, n_kv_head. */
bool kvr__array_rows_fit(const struct kvr_layer_shape *layer,
                         enum kvr_array array, uint32_t rows);

/* path + suffix, malloc'ed; NULL: no memory. */
char *kvr__path_with(const char *path, const char *suffix);

#endif
