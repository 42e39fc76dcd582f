/* gguf_keys.c -- the metadata keys of the families in GGUF files.
 *
 * Names are those of the format's reference implementation, llama.cpp. A key of
 * the architecture that stands nowhere here, and not with this value among the
 * defaults below, is refused by name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "keys.h"

#include <string.h>

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
        POSITIVE("rope.freq_base", rope.base, false), \
        READ("rope.scaling.type"), READ("rope.scaling.factor"), \
        READ("rope.scale_linear"), \
        INERT("rope.scaling.original_context_length"), \
        INERT("rope.scaling.finetuned")
#define RMS REAL("attention.layer_norm_rms_epsilon", norm_eps, true)
#define LAYER_NORM REAL("attention.layer_norm_epsilon", norm_eps, true)
#define WINDOW COUNT("attention.sliding_window", window, false)

const struct kvr_key kvr__gguf_plain_keys[] = {
    SIZES, HEADS, ROTARY, RMS, END,
};

const struct kvr_key kvr__gguf_phi3_keys[] = {
    SIZES, HEADS, ROTARY, RMS, WINDOW, END,
};

const struct kvr_key kvr__gguf_gemma2_keys[] = {
    SIZES,
    HEADS,
    ROTARY,
    RMS,
    WINDOW,
    POSITIVE("attn_logit_softcapping", softcap, false),
    POSITIVE("final_logit_softcapping", logit_softcap, false),
    END,
};

const struct kvr_key kvr__gguf_gemma3_keys[] = {
    SIZES,
    HEADS,
    ROTARY,
    RMS,
    WINDOW,
    U32("attention.sliding_window_pattern", window_period, false),
    POSITIVE("rope.freq_base_swa", rope_local.base, false),
    REAL("final_logit_softcapping", logit_softcap, false), /* 0: none */
    END,
};

const struct kvr_key kvr__gguf_gpt2_keys[] = {
    SIZES,
    U32("context_length", n_context, true),
    LAYER_NORM,
    /* as many as heads: there are no groups */
    U32("attention.head_count_kv", n_kv_head, false),
    END,
};

const struct kvr_key kvr__gguf_neox_keys[] = {
    SIZES, ROTARY, LAYER_NORM, BOOL("use_parallel_residual", parallel, true),
    END,
};

/* What llama.cpp takes where a key is absent (llama-hparams.h and the readers
 * of its llama-model.cpp): a file that says so says nothing new. 0 is not
 * "off" as such: the attention factor's default is 1, causal's is true. */
static const struct {
    const char *name;
    double value;
} defaults[] = {
    {"attention.causal", 1},
    {"attention.clamp_kqv", 0},
    {"attention.kv_lora_rank", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.q_lora_rank", 0},
    {"attention.scale", 0},
    {"attention.shared_kv_layers", 0},
    {"attention.sliding_window", 0},
    {"decoder_start_token_id", -1},
    {"embedding_scale", 0},
    {"expert_count", 0},
    {"expert_gating_func", 0},
    {"expert_group_count", 0},
    {"expert_group_used_count", 0},
    {"expert_shared_count", 0},
    {"expert_used_count", 0},
    {"expert_weights_norm", 0},
    {"expert_weights_scale", 0},
    {"interleave_moe_layer_step", 0},
    {"leading_dense_block_count", 0},
    {"logit_scale", 0},
    {"nextn_predict_layers", 0},
    {"pooling_type", 0},
    {"residual_scale", 0},
    {"rope.dimension_sections", 0},
    {"rope.scaling.alpha", 0},
    {"rope.scaling.attn_factor", 1},
    {"rope.scaling.yarn_attn_factor", 1},
    {"rope.scaling.yarn_beta_fast", 32},
    {"rope.scaling.yarn_beta_slow", 1},
    {"rope.scaling.yarn_ext_factor", -1},
    {"rope.scaling.yarn_log_multiplier", 0},
    {"swin_norm", 0},
};

bool kvr__gguf_is_default(struct kvr_slice rest,
                          const struct kvr_gguf_value *value)
{
    const size_t n = sizeof defaults / sizeof defaults[0];
    double number;
    size_t i = 0;

    while (i < n && !kvr_slice_is(rest, defaults[i].name))
        i++;
    if (i == n || value->n == 0)
        return false;
    for (uint64_t k = 0; k < value->n; k++)
        if (!kvr__gguf_number(&number, value, k) || number != defaults[i].value)
            return false;
    return true;
}
