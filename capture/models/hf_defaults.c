/* hf_defaults.c -- values of config.json that change nothing.
 *
 * Keys that the families here do not have, each with the value that
 * transformers takes where the key is absent (PreTrainedConfig and the
 * configuration classes), or with which the step that it is about does nothing.
 * "false", 0, null and "" are values like others: for some switches, such as
 * is_causal, they are the unusual ones.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "hf_defaults.h"

#include "kvr_memory.h"

#include <string.h>

static const struct {
    const char *name, *value; /* JSON */
} defaults[] = {
    {"_remove_final_layer_norm", "false"},
    {"add_cross_attention", "false"},
    {"alibi", "false"},
    {"attention_bias", "false"},
    {"attention_chunk_size", "null"},
    {"attention_multiplier", "null"},
    {"attn_logit_softcapping", "null"},
    {"bad_words_ids", "null"},
    {"begin_suppress_tokens", "null"},
    {"clip_qkv", "null"},
    {"cross_attention_hidden_size", "null"},
    {"do_layer_norm_before", "true"},
    {"do_sample", "false"},
    {"embedding_multiplier", "1"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"exponential_decay_length_penalty", "null"},
    {"final_logit_softcapping", "null"},
    {"forced_bos_token_id", "null"},
    {"forced_eos_token_id", "null"},
    {"full_attn_mod", "1"},
    {"interpolate_factor", "1"},
    {"is_causal", "true"},
    {"is_encoder_decoder", "false"},
    {"is_llama_config", "true"},
    {"layer_norm_elementwise_affine", "true"},
    {"layer_types", "null"},
    {"lm_head_bias", "false"},
    {"logit_scale", "null"},
    {"logits_scaling", "1"},
    {"mlp_bias", "false"},
    {"no_rope_layers", "null"},
    {"num_kv_shared_layers", "0"},
    {"output_attentions", "false"},
    {"output_hidden_states", "false"},
    {"output_scores", "false"},
    {"partial_rotary_factor", "1"},
    {"pruned_heads", "{}"},
    {"qk_layernorm", "false"},
    {"quantization_config", "null"},
    {"remove_invalid_values", "false"},
    {"residual_multiplier", "1"},
    {"rope_interleaved", "false"},
    {"rope_parameters", "null"},
    {"rope_scaling", "null"},
    {"rotary_pct", "1"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"scale_attn_weights", "true"},
    {"sliding_window", "null"},
    {"suppress_tokens", "null"},
    {"tf_legacy_loss", "false"},
    {"tie_encoder_decoder", "false"},
    {"use_bfloat16", "false"},
    {"use_bidirectional_attention", "false"},
    {"use_mrope", "false"},
    {"use_qk_norm", "false"},
    {"use_qkv_bias", "false"},
    {"use_sliding_window", "false"},
};

/* 1 and 1.0 are one number. */
static bool equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) != 0;
}

enum kvr_status kvr__hf_is_default(bool *out, const char *name,
                                   const json_t *value, struct kvr_error *err)
{
    const size_t n = sizeof defaults / sizeof defaults[0];
    size_t i = 0;
    json_error_t why;

    *out = false;
    while (i < n && strcmp(defaults[i].name, name) != 0)
        i++;
    if (i == n)
        return KVR_OK;
    json_t *usual = json_loads(defaults[i].value, JSON_DECODE_ANY, &why);
    if (usual == NULL)
        return kvr_no_memory(err, name, 0);
    *out = equal(usual, value);
    json_decref(usual);
    return KVR_OK;
}
