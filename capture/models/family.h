/* family.h -- what sets one architecture apart from another, as data.
 *
 * A family is a row: the names of its tensors, the keys of its metadata, its
 * defaults, and how its files lie. The loader and the decoder read these
 * tables (families.c); a new architecture is a new row. Where a family lacks
 * a tensor (a norm of queries, a gate, a table of positions) the decoder
 * leaves that step out.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FAMILY_H
#define FAMILY_H

#include "backend.h"
#include "kvr_error.h"
#include "slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a model comes from: other names, keys and layouts. */
enum kvr_format { KVR_FORMAT_GGUF, KVR_FORMAT_HF };

/* Rotary angles: position * f / linear, f = base^(-2j / rope_dim); with
 * factor above 0 slow frequencies are divided by it as in Llama 3. */
struct kvr_rope {
    double base, linear;
    double factor, low, high, original; /* original: trained length */
};

/* What a model file states, or what follows from it. */
struct kvr_config {
    uint32_t n_layer, n_head, n_kv_head;
    uint32_t hidden, n_ff, n_vocab;
    uint32_t key_dim, value_dim, rope_dim; /* per head */
    uint32_t n_context;                    /* trained length; 0: not stated */
    uint32_t position_offset; /* row of position 0 in a table of positions */
    uint32_t window;        /* keys that a row of a window layer sees; 0: no */
    uint32_t window_period; /* every so many layers one sees all; 0: none */
    uint32_t window_from;   /* first layer with a window */
    bool use_window;
    struct kvr_rope rope,
        rope_local;   /* local: of window layers; base 0: none */
    double rope_part; /* of a head's dimensions */
    double norm_eps;
    double query_scalar;    /* logits are divided by its root; 0: key_dim */
    double attention_scale; /* that factor */
    double softcap, logit_softcap; /* 0: none */
    double embedding_scale;
    enum kvr_activation activation;
    bool parallel; /* attention and MLP both read the layer's input */
    bool qkv_bias, o_bias, mlp_bias;
    bool tied; /* the output matrix is the embedding */
};

/* A dimension of a tensor, by meaning. */
enum kvr_dim {
    KVR_DIM_ONE,
    KVR_DIM_HIDDEN,
    KVR_DIM_QUERY,    /* n_head * key_dim */
    KVR_DIM_KEY,      /* n_kv_head * key_dim */
    KVR_DIM_VALUE,    /* n_kv_head * value_dim */
    KVR_DIM_HEADS,    /* n_head * value_dim */
    KVR_DIM_KEY_HEAD, /* key_dim */
    KVR_DIM_FF,
    KVR_DIM_VOCAB,
    KVR_DIM_CONTEXT, /* n_context + position_offset */
    KVR_DIM_ROPE,    /* rope_dim / 2 */
};

/* Tensors of a model and of each layer: indices of weight arrays. */
enum kvr_model_slot {
    KVR_EMBEDDING,
    KVR_POSITIONS,
    KVR_OUTPUT_NORM,
    KVR_OUTPUT_NORM_BIAS,
    KVR_OUTPUT, /* absent: tied to the embedding */
    KVR_ROPE_FACTORS,
    KVR_N_MODEL_SLOT,
};
enum kvr_layer_slot {
    KVR_ATTN_NORM,
    KVR_ATTN_NORM_BIAS,
    KVR_Q,
    KVR_K,
    KVR_V,
    KVR_O,
    KVR_Q_BIAS,
    KVR_K_BIAS,
    KVR_V_BIAS,
    KVR_O_BIAS,
    KVR_Q_NORM, /* of each head, before rotation */
    KVR_K_NORM,
    KVR_ATTN_POST_NORM, /* of what attention adds to the residual */
    KVR_FF_NORM,
    KVR_FF_NORM_BIAS,
    KVR_GATE, /* absent: no gate */
    KVR_UP,
    KVR_DOWN,
    KVR_GATE_BIAS,
    KVR_UP_BIAS,
    KVR_DOWN_BIAS,
    KVR_FF_POST_NORM,
    KVR_N_LAYER_SLOT,
};

/* When a tensor is there. GGUF files do not say whether there are biases:
 * those that the family does not always have may be absent there. */
enum kvr_presence {
    KVR_ALWAYS,
    KVR_OPTIONAL,
    KVR_UNTIED, /* unless the config says tied */
    KVR_WITH_QKV_BIAS,
    KVR_WITH_O_BIAS,
    KVR_WITH_MLP_BIAS,
};

/* Which part of a fused tensor: query, key, value rows, or gate, up rows. */
enum kvr_cut {
    KVR_WHOLE,
    KVR_CUT_Q,
    KVR_CUT_K,
    KVR_CUT_V,
    KVR_CUT_GATE,
    KVR_CUT_UP,
};

/* What a slot's tensor is called. NULL: that format does not have it. Of
 * layers: what follows the layer's number. */
struct kvr_slot {
    const char *hf, *gguf;
    enum kvr_presence when;
    enum kvr_cut cut;
};

/* A slot's size, and the heads by which its rows go: the same for all. */
struct kvr_slot_shape {
    enum kvr_dim rows, cols;
    enum kvr_dim heads; /* KVR_DIM_QUERY, KVR_DIM_KEY; KVR_DIM_ONE: no heads */
};

enum kvr_key_kind {
    KVR_KEY_U32,        /* into the config at offset */
    KVR_KEY_COUNT,      /* likewise; 0: none */
    KVR_KEY_REAL,       /* likewise; 0 or more */
    KVR_KEY_POSITIVE,   /* likewise; above 0, which would be no number here */
    KVR_KEY_BOOL,       /* likewise */
    KVR_KEY_ACTIVATION, /* likewise, by name */
    KVR_KEY_TRUE,       /* nothing else is supported */
    KVR_KEY_FALSE,
    KVR_KEY_READ,  /* read elsewhere in the loader */
    KVR_KEY_INERT, /* changes nothing that is computed here */
};

struct kvr_key {
    const char *name; /* GGUF: what follows "ARCHITECTURE." */
    enum kvr_key_kind kind;
    size_t offset;
    bool required;
    bool nullable; /* null says: none, or as follows from the others */
};

struct kvr_family {
    const char *hf;   /* model_type of config.json; NULL: not read from it */
    const char *gguf; /* general.architecture; NULL: likewise */
    /* Where a tensor's name begins with base it may lack it; layers: what
     * comes before a layer's number. */
    const char *hf_base, *hf_layers;
    const struct kvr_slot *model_slots;        /* [KVR_N_MODEL_SLOT] */
    const struct kvr_slot *layer_slots;        /* [KVR_N_LAYER_SLOT] */
    const struct kvr_key *hf_keys, *gguf_keys; /* name NULL ends */
    struct kvr_config defaults; /* of what the metadata need not state */
    enum kvr_norm_kind norm;
    bool scale_embedding; /* by the root of hidden */
    bool hf_plus_one;     /* norm weights are stored as w of 1 + w */
    bool hf_in_out;       /* matrices are stored [in, out] */
    bool hf_per_head;     /* fused rows: q, k, v of head 0, then of head 1 */
    uint32_t gguf_wide_layers; /* the model of so many layers divides logits
                                * by the root of hidden / n_head */
    bool gguf_paired;          /* rotary pairs are rows 2j, 2j + 1 of a head */
};

extern const struct kvr_family kvr__families[];
extern const size_t kvr__n_families;

/* By the name in that format. NULL: not supported. */
const struct kvr_family *kvr__family_find(enum kvr_format format,
                                          struct kvr_slice name);
/* "llama ..." of all in that format. */
void kvr__family_list(char *out, size_t size, enum kvr_format format);
/* The name in the traces: of HF, where there is one. */
const char *kvr__family_name(const struct kvr_family *family);

extern const struct kvr_slot_shape kvr__model_shapes[KVR_N_MODEL_SLOT];
extern const struct kvr_slot_shape kvr__layer_shapes[KVR_N_LAYER_SLOT];

uint64_t kvr__dim_size(const struct kvr_config *config, enum kvr_dim dim);

/* How the size of a dimension comes about, in the words of the format's
 * metadata: "attention.head_count 4 x attention.key_length 16". */
void kvr__dim_text(char *out, size_t size, const struct kvr_config *config,
                   enum kvr_dim dim, enum kvr_format format);

#endif
