/* family.h -- what sets one architecture apart from another, as data.
 *
 * A family is a row: the names and shapes of its tensors, the metadata keys
 * it knows, and how its rotary pairs lie in the file. The loader and the
 * decoder read these tables; a new architecture is a new row.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FAMILY_H
#define FAMILY_H

#include "kvr_error.h"
#include "view.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a model file states, or what follows from it. */
struct kvr_config {
    uint32_t n_layer, n_head, n_kv_head;
    uint32_t hidden, n_ff, n_vocab;
    uint32_t key_dim, value_dim, rope_dim; /* per head */
    uint32_t n_context;                    /* trained length; 0: not stated */
    double rope_base, rope_linear;         /* angle = position / linear * f */
    double norm_eps;
};

/* A dimension of a tensor, by meaning. */
enum kvr_dim {
    KVR_DIM_ONE,
    KVR_DIM_HIDDEN,
    KVR_DIM_QUERY, /* n_head * key_dim */
    KVR_DIM_KEY,   /* n_kv_head * key_dim */
    KVR_DIM_VALUE, /* n_kv_head * value_dim */
    KVR_DIM_HEADS, /* n_head * value_dim */
    KVR_DIM_FF,
    KVR_DIM_VOCAB,
    KVR_DIM_ROPE, /* rope_dim / 2 */
};

/* Tensors of a model and of each layer: indices of weight arrays. */
enum kvr_model_slot {
    KVR_EMBEDDING,
    KVR_OUTPUT_NORM,
    KVR_OUTPUT, /* absent: tied to the embedding */
    KVR_ROPE_FACTORS,
    KVR_N_MODEL_SLOT,
};
enum kvr_layer_slot {
    KVR_ATTN_NORM,
    KVR_Q,
    KVR_K,
    KVR_V,
    KVR_O,
    KVR_Q_BIAS,
    KVR_K_BIAS,
    KVR_V_BIAS,
    KVR_O_BIAS,
    KVR_FF_NORM,
    KVR_GATE,
    KVR_UP,
    KVR_DOWN,
    KVR_GATE_BIAS,
    KVR_UP_BIAS,
    KVR_DOWN_BIAS,
    KVR_N_LAYER_SLOT,
};

/* How the rows of a stored query or key matrix are put in order for the
 * decoder, which rotates pairs (j, j + rope_dim / 2). */
enum kvr_row_order {
    KVR_ROWS_AS_STORED,
    KVR_ROWS_PAIRED_Q, /* pairs (2j, 2j + 1) of each query head */
    KVR_ROWS_PAIRED_K, /* of each KV head */
};

struct kvr_slot {
    const char *name; /* layers: what follows "blk.N."; NULL: not there */
    enum kvr_dim rows, cols;
    bool optional;
    enum kvr_row_order order;
};

enum kvr_key_kind {
    KVR_KEY_U32,   /* into the config at offset */
    KVR_KEY_REAL,  /* likewise */
    KVR_KEY_READ,  /* read elsewhere in the loader */
    KVR_KEY_INERT, /* changes nothing that is computed here */
};

struct kvr_key {
    const char *name; /* what follows "ARCHITECTURE." */
    enum kvr_key_kind kind;
    size_t offset;
    bool required;
};

struct kvr_family {
    const char *gguf;                   /* general.architecture */
    const struct kvr_slot *model_slots; /* [KVR_N_MODEL_SLOT] */
    const struct kvr_slot *layer_slots; /* [KVR_N_LAYER_SLOT] */
    const struct kvr_key *keys;         /* name NULL ends */
};

/* NULL: not supported. */
const struct kvr_family *kvr_family_find(struct kvr_view gguf_name);

/* "llama ..." of all. */
void kvr_family_list(char *out, size_t size);

uint64_t kvr_dim_size(const struct kvr_config *config, enum kvr_dim dim);

/* How the size of a dimension comes about, for messages:
 * "attention.head_count 4 x attention.key_length 16". */
void kvr_dim_text(char *out, size_t size, const struct kvr_config *config,
                  enum kvr_dim dim);

#endif
