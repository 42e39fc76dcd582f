/* hf_keys.c -- what config.json may say, family by family.
 *
 * A key that stands nowhere here and is not switched off may change attention:
 * the loader refuses it by name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "keys.h"

#include <string.h>

#define AT(field) offsetof(struct kvr_config, field)
#define END \
    { \
        NULL, KVR_KEY_INERT, 0, false \
    }

/* Sizes under the names that most families use. */
#define SIZES \
    {"hidden_size", KVR_KEY_U32, AT(hidden), true}, \
        {"intermediate_size", KVR_KEY_U32, AT(n_ff), true}, \
        {"num_hidden_layers", KVR_KEY_U32, AT(n_layer), true}, \
        {"num_attention_heads", KVR_KEY_U32, AT(n_head), true}, \
        {"vocab_size", KVR_KEY_U32, AT(n_vocab), true}, \
        {"max_position_embeddings", KVR_KEY_U32, AT(n_context), false}, \
    { \
        "tie_word_embeddings", KVR_KEY_BOOL, AT(tied), false \
    }
#define GROUPED \
    {"num_key_value_heads", KVR_KEY_U32, AT(n_kv_head), false}, \
    { \
        "head_dim", KVR_KEY_U32, AT(key_dim), false \
    }
#define RMS \
    {"rms_norm_eps", KVR_KEY_REAL, AT(norm_eps), false}, \
    { \
        "hidden_act", KVR_KEY_ACTIVATION, AT(activation), false \
    }
/* See hf_rope.c. */
#define ROTARY \
    {"rope_theta", KVR_KEY_READ, 0, false}, \
        {"rope_scaling", KVR_KEY_READ, 0, false}, \
        {"rope_parameters", KVR_KEY_READ, 0, false}, \
    { \
        "partial_rotary_factor", KVR_KEY_REAL, AT(rope_part), false \
    }
#define ATTENTION_BIAS \
    {"attention_bias", KVR_KEY_BOOL, AT(qkv_bias), false}, \
    { \
        "attention_bias", KVR_KEY_BOOL, AT(o_bias), false \
    }
#define WINDOW \
    {"sliding_window", KVR_KEY_U32, AT(window), false}, \
    { \
        "layer_types", KVR_KEY_READ, 0, false \
    }
#define QWEN_WINDOW \
    WINDOW, {"use_sliding_window", KVR_KEY_BOOL, AT(use_window), false}, \
    { \
        "max_window_layers", KVR_KEY_READ, 0, false \
    }

const struct kvr_key kvr_hf_llama_keys[] = {
    SIZES,
    GROUPED,
    RMS,
    ROTARY,
    ATTENTION_BIAS,
    {"mlp_bias", KVR_KEY_BOOL, AT(mlp_bias), false},
    {"layer_types", KVR_KEY_READ, 0, false},
    END,
};

const struct kvr_key kvr_hf_mistral_keys[] = {
    SIZES, GROUPED, RMS, ROTARY, WINDOW, END,
};

const struct kvr_key kvr_hf_qwen2_keys[] = {
    SIZES, GROUPED, RMS, ROTARY, QWEN_WINDOW, END,
};

const struct kvr_key kvr_hf_qwen3_keys[] = {
    SIZES, GROUPED, RMS, ROTARY, ATTENTION_BIAS, QWEN_WINDOW, END,
};

const struct kvr_key kvr_hf_phi3_keys[] = {
    SIZES,
    GROUPED,
    RMS,
    ROTARY,
    WINDOW,
    /* of the longrope scaling, which is refused */
    {"original_max_position_embeddings", KVR_KEY_INERT, 0, false},
    {"attention_bias", KVR_KEY_FALSE, 0, false},
    END,
};

#define GEMMA \
    SIZES, GROUPED, ROTARY, WINDOW, ATTENTION_BIAS, \
        {"rms_norm_eps", KVR_KEY_REAL, AT(norm_eps), false}, \
        {"hidden_activation", KVR_KEY_ACTIVATION, AT(activation), false}, \
        {"hidden_act", KVR_KEY_INERT, 0, \
         false}, /* hidden_activation counts */ \
        {"query_pre_attn_scalar", KVR_KEY_REAL, AT(query_scalar), false}, \
        {"attn_logit_softcapping", KVR_KEY_REAL, AT(softcap), false}, \
        {"final_logit_softcapping", KVR_KEY_REAL, AT(logit_softcap), false}, \
    { \
        "use_bidirectional_attention", KVR_KEY_FALSE, 0, false \
    }

const struct kvr_key kvr_hf_gemma2_keys[] = {
    GEMMA,
    {"cache_implementation", KVR_KEY_INERT, 0, false},
    END,
};

const struct kvr_key kvr_hf_gemma3_keys[] = {
    GEMMA,
    {"cache_implementation", KVR_KEY_INERT, 0, false},
    {"rope_local_base_freq", KVR_KEY_REAL, AT(rope_local.base), false},
    {"sliding_window_pattern", KVR_KEY_U32, AT(window_period), false},
    {"_sliding_window_pattern", KVR_KEY_U32, AT(window_period), false},
    END,
};

const struct kvr_key kvr_hf_gpt2_keys[] = {
    {"n_embd", KVR_KEY_U32, AT(hidden), true},
    {"n_inner", KVR_KEY_U32, AT(n_ff), false},
    {"n_layer", KVR_KEY_U32, AT(n_layer), true},
    {"n_head", KVR_KEY_U32, AT(n_head), true},
    {"n_positions", KVR_KEY_U32, AT(n_context), true},
    {"n_ctx", KVR_KEY_INERT, 0, false}, /* the older n_positions */
    {"vocab_size", KVR_KEY_U32, AT(n_vocab), true},
    {"layer_norm_epsilon", KVR_KEY_REAL, AT(norm_eps), false},
    {"activation_function", KVR_KEY_ACTIVATION, AT(activation), false},
    {"tie_word_embeddings", KVR_KEY_BOOL, AT(tied), false},
    {"scale_attn_weights", KVR_KEY_TRUE, 0, false},
    {"scale_attn_by_inverse_layer_idx", KVR_KEY_FALSE, 0, false},
    {"add_cross_attention", KVR_KEY_FALSE, 0, false},
    /* an order of f16 arithmetic; here all is f32 */
    {"reorder_and_upcast_attn", KVR_KEY_INERT, 0, false},
    END,
};

const struct kvr_key kvr_hf_opt_keys[] = {
    {"hidden_size", KVR_KEY_U32, AT(hidden), true},
    {"word_embed_proj_dim", KVR_KEY_READ, 0, false},
    {"ffn_dim", KVR_KEY_U32, AT(n_ff), true},
    {"num_hidden_layers", KVR_KEY_U32, AT(n_layer), true},
    {"num_attention_heads", KVR_KEY_U32, AT(n_head), true},
    {"vocab_size", KVR_KEY_U32, AT(n_vocab), true},
    {"max_position_embeddings", KVR_KEY_U32, AT(n_context), true},
    {"activation_function", KVR_KEY_ACTIVATION, AT(activation), false},
    {"enable_bias", KVR_KEY_BOOL, AT(qkv_bias), false},
    {"enable_bias", KVR_KEY_BOOL, AT(o_bias), false},
    {"enable_bias", KVR_KEY_BOOL, AT(mlp_bias), false},
    {"tie_word_embeddings", KVR_KEY_BOOL, AT(tied), false},
    {"do_layer_norm_before", KVR_KEY_TRUE, 0, false},
    {"layer_norm_elementwise_affine", KVR_KEY_TRUE, 0, false},
    {"_remove_final_layer_norm", KVR_KEY_FALSE, 0, false},
    END,
};

const struct kvr_key kvr_hf_neox_keys[] = {
    SIZES,
    ROTARY,
    ATTENTION_BIAS,
    {"hidden_act", KVR_KEY_ACTIVATION, AT(activation), false},
    {"layer_norm_eps", KVR_KEY_REAL, AT(norm_eps), false},
    {"rotary_pct", KVR_KEY_REAL, AT(rope_part), false},
    {"rotary_emb_base", KVR_KEY_READ, 0, false}, /* the older rope_theta */
    {"use_parallel_residual", KVR_KEY_BOOL, AT(parallel), false},
    END,
};

/* What training, generation, storage and other heads need. */
static const char *const inert[] = {
    "_name_or_path",
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
    "label2id",
    "layerdrop",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
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
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
    "_attn_implementation",
    "_attn_implementation_autoset",
};

bool kvr_hf_key_known(const struct kvr_family *family, const char *name)
{
    for (const struct kvr_key *key = family->hf_keys; key->name != NULL; key++)
        if (strcmp(key->name, name) == 0)
            return true;
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++)
        if (strcmp(inert[i], name) == 0)
            return true;
    return false;
}
