/* hf_keys.c -- what config.json may say, family by family.
 *
 * A key that stands nowhere here, and not with this value in hf_defaults.c, may
 * change attention: the loader refuses it by name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "keys.h"

#include <string.h>

/* Sizes under the names that most families use. */
#define SIZES \
    U32("hidden_size", hidden, true), U32("intermediate_size", n_ff, true), \
        U32("num_hidden_layers", n_layer, true), \
        U32("num_attention_heads", n_head, true), \
        U32("vocab_size", n_vocab, true), \
        U32("max_position_embeddings", n_context, false), \
        BOOL("tie_word_embeddings", tied, false)
#define GROUPED \
    OPEN("num_key_value_heads", KVR_KEY_U32, n_kv_head), \
        OPEN("head_dim", KVR_KEY_U32, key_dim)
/* with a default of its own, which null is not */
#define GROUPED_SIZED \
    OPEN("num_key_value_heads", KVR_KEY_U32, n_kv_head), \
        U32("head_dim", key_dim, false)
#define RMS \
    REAL("rms_norm_eps", norm_eps, false), \
        ACTIVATION("hidden_act", activation, false)
/* See hf_rope.c. */
#define ROTARY \
    READ("rope_theta"), READ("rope_scaling"), READ("rope_parameters"), \
        POSITIVE("partial_rotary_factor", rope_part, false)
#define ATTENTION_BIAS \
    BOOL("attention_bias", qkv_bias, false), \
        BOOL("attention_bias", o_bias, false)
#define WINDOW OPEN("sliding_window", KVR_KEY_U32, window), READ("layer_types")
#define QWEN_WINDOW \
    WINDOW, BOOL("use_sliding_window", use_window, false), \
        READ("max_window_layers")

const struct kvr_key kvr__hf_llama_keys[] = {
    SIZES,
    GROUPED,
    RMS,
    ROTARY,
    ATTENTION_BIAS,
    BOOL("mlp_bias", mlp_bias, false),
    READ("layer_types"),
    END,
};

const struct kvr_key kvr__hf_mistral_keys[] = {
    SIZES, GROUPED, RMS, ROTARY, WINDOW, END,
};

const struct kvr_key kvr__hf_qwen2_keys[] = {
    SIZES, GROUPED, RMS, ROTARY, QWEN_WINDOW, END,
};

const struct kvr_key kvr__hf_qwen3_keys[] = {
    SIZES, GROUPED_SIZED, RMS, ROTARY, ATTENTION_BIAS, QWEN_WINDOW, END,
};

const struct kvr_key kvr__hf_phi3_keys[] = {
    SIZES,
    GROUPED,
    RMS,
    ROTARY,
    WINDOW,
    /* of the longrope scaling, which is refused */
    INERT("original_max_position_embeddings"),
    ONLY_FALSE("attention_bias"),
    END,
};

/* hidden_act is older; hidden_activation counts. */
#define GEMMA \
    SIZES, GROUPED_SIZED, ROTARY, WINDOW, ATTENTION_BIAS, \
        REAL("rms_norm_eps", norm_eps, false), \
        OPEN("hidden_activation", KVR_KEY_ACTIVATION, activation), \
        READ("hidden_act"), \
        POSITIVE("query_pre_attn_scalar", query_scalar, false), \
        OPEN("attn_logit_softcapping", KVR_KEY_POSITIVE, softcap), \
        OPEN("final_logit_softcapping", KVR_KEY_POSITIVE, logit_softcap), \
        OPEN("use_bidirectional_attention", KVR_KEY_FALSE, n_layer)

const struct kvr_key kvr__hf_gemma2_keys[] = {
    GEMMA,
    INERT("cache_implementation"),
    END,
};

const struct kvr_key kvr__hf_gemma3_keys[] = {
    GEMMA,
    INERT("cache_implementation"),
    POSITIVE("rope_local_base_freq", rope_local.base, false),
    U32("sliding_window_pattern", window_period, false),
    U32("_sliding_window_pattern", window_period, false),
    END,
};

const struct kvr_key kvr__hf_gpt2_keys[] = {
    U32("n_embd", hidden, true),
    OPEN("n_inner", KVR_KEY_U32, n_ff),
    U32("n_layer", n_layer, true),
    U32("n_head", n_head, true),
    U32("n_positions", n_context, true),
    READ("n_ctx"), /* the older n_positions */
    U32("vocab_size", n_vocab, true),
    REAL("layer_norm_epsilon", norm_eps, false),
    ACTIVATION("activation_function", activation, false),
    BOOL("tie_word_embeddings", tied, false),
    ONLY_TRUE("scale_attn_weights"),
    ONLY_FALSE("scale_attn_by_inverse_layer_idx"),
    ONLY_FALSE("add_cross_attention"),
    /* an order of f16 arithmetic; here all is f32 */
    INERT("reorder_and_upcast_attn"),
    END,
};

const struct kvr_key kvr__hf_opt_keys[] = {
    U32("hidden_size", hidden, true),
    READ("word_embed_proj_dim"),
    U32("ffn_dim", n_ff, true),
    U32("num_hidden_layers", n_layer, true),
    U32("num_attention_heads", n_head, true),
    U32("vocab_size", n_vocab, true),
    U32("max_position_embeddings", n_context, true),
    ACTIVATION("activation_function", activation, false),
    BOOL("enable_bias", qkv_bias, false),
    BOOL("enable_bias", o_bias, false),
    BOOL("enable_bias", mlp_bias, false),
    BOOL("tie_word_embeddings", tied, false),
    ONLY_TRUE("do_layer_norm_before"),
    ONLY_TRUE("layer_norm_elementwise_affine"),
    ONLY_FALSE("_remove_final_layer_norm"),
    END,
};

const struct kvr_key kvr__hf_neox_keys[] = {
    SIZES,
    ROTARY,
    ATTENTION_BIAS,
    ACTIVATION("hidden_act", activation, false),
    REAL("layer_norm_eps", norm_eps, false),
    POSITIVE("rotary_pct", rope_part, false),
    READ("rotary_emb_base"), /* the older rope_theta */
    BOOL("use_parallel_residual", parallel, false),
    END,
};

/* What training, generation, storage and other heads need. */
static const char *const inert[] = {
    "_name_or_path",
    "_num_labels",
    "activation_dropout",
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "decoder_start_token_id",
    "diversity_penalty",
    "dropout",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "init_std",
    "initializer_range",
    "is_decoder",
    "label2id",
    "layerdrop",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_past",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
    "_attn_implementation",
    "_attn_implementation_autoset",
};

bool kvr__hf_key_known(const struct kvr_family *family, const char *name)
{
    for (const struct kvr_key *key = family->hf_keys; key->name != NULL; key++)
        if (strcmp(key->name, name) == 0)
            return true;
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++)
        if (strcmp(inert[i], name) == 0)
            return true;
    return false;
}
