/* gguf_keys.c -- the metadata keys of the families in GGUF files.
 *
 * Names are those of the format's reference implementation. A key of the
 * architecture that stands nowhere here and is not 0 is refused by name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "keys.h"

#define SIZES \
    U32("block_count", n_layer, true), U32("embedding_length", hidden, true), \
        U32("feed_forward_length", n_ff, true), \
        U32("attention.head_count", n_head, true), \
        U32("vocab_size", n_vocab, false), INERT("tensor_data_layout")
#define HEADS \
    U32("attention.head_count_kv", n_kv_head, false), \
        U32("attention.key_length", key_dim, false), \
        U32("attention.value_length", value_dim, false)
#define ROTARY \
    U32("context_length", n_context, false), \
        U32("rope.dimension_count", rope_dim, false), \
        REAL("rope.freq_base", rope.base, false), READ("rope.scaling.type"), \
        READ("rope.scaling.factor"), READ("rope.scale_linear"), \
        INERT("rope.scaling.original_context_length"), \
        INERT("rope.scaling.finetuned")
#define RMS REAL("attention.layer_norm_rms_epsilon", norm_eps, true)
#define LAYER_NORM REAL("attention.layer_norm_epsilon", norm_eps, true)
#define WINDOW COUNT("attention.sliding_window", window, false)

const struct kvr_key kvr_gguf_plain_keys[] = {
    SIZES, HEADS, ROTARY, RMS, END,
};

const struct kvr_key kvr_gguf_phi3_keys[] = {
    SIZES, HEADS, ROTARY, RMS, WINDOW, END,
};

const struct kvr_key kvr_gguf_gemma2_keys[] = {
    SIZES,
    HEADS,
    ROTARY,
    RMS,
    WINDOW,
    REAL("attn_logit_softcapping", softcap, false),
    REAL("final_logit_softcapping", logit_softcap, false),
    END,
};

const struct kvr_key kvr_gguf_gemma3_keys[] = {
    SIZES,
    HEADS,
    ROTARY,
    RMS,
    WINDOW,
    U32("attention.sliding_window_pattern", window_period, false),
    REAL("rope.freq_base_swa", rope_local.base, false),
    REAL("final_logit_softcapping", logit_softcap, false),
    END,
};

const struct kvr_key kvr_gguf_gpt2_keys[] = {
    SIZES,
    U32("context_length", n_context, true),
    LAYER_NORM,
    /* as many as heads: there are no groups */
    U32("attention.head_count_kv", n_kv_head, false),
    END,
};

const struct kvr_key kvr_gguf_neox_keys[] = {
    SIZES, ROTARY, LAYER_NORM, BOOL("use_parallel_residual", parallel, true),
    END,
};
