/* families.c -- the table of architectures.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "keys.h"

/* ---- tensors ---- */

/* Llama, Mistral, Qwen2: one matrix each. */
#define PLAIN_ATTENTION \
    [KVR_ATTN_NORM] = {"input_layernorm.weight", "attn_norm.weight"}, \
    [KVR_Q] = {"self_attn.q_proj.weight", "attn_q.weight"}, \
    [KVR_K] = {"self_attn.k_proj.weight", "attn_k.weight"}, \
    [KVR_V] = {"self_attn.v_proj.weight", "attn_v.weight"}, \
    [KVR_O] = {"self_attn.o_proj.weight", "attn_output.weight"}, \
    [KVR_Q_BIAS] = {"self_attn.q_proj.bias", "attn_q.bias", \
                    KVR_WITH_QKV_BIAS}, \
    [KVR_K_BIAS] = {"self_attn.k_proj.bias", "attn_k.bias", \
                    KVR_WITH_QKV_BIAS}, \
    [KVR_V_BIAS] = {"self_attn.v_proj.bias", "attn_v.bias", \
                    KVR_WITH_QKV_BIAS}, \
    [KVR_O_BIAS] = {"self_attn.o_proj.bias", "attn_output.bias", \
                    KVR_WITH_O_BIAS}
#define HEAD_NORMS \
    [KVR_Q_NORM] = {"self_attn.q_norm.weight", "attn_q_norm.weight"}, \
    [KVR_K_NORM] = {"self_attn.k_norm.weight", "attn_k_norm.weight"}
#define GATED_MLP \
    [KVR_GATE] = {"mlp.gate_proj.weight", "ffn_gate.weight"}, \
    [KVR_UP] = {"mlp.up_proj.weight", "ffn_up.weight"}, \
    [KVR_DOWN] = {"mlp.down_proj.weight", "ffn_down.weight"}, \
    [KVR_GATE_BIAS] = {"mlp.gate_proj.bias", "ffn_gate.bias", \
                       KVR_WITH_MLP_BIAS}, \
    [KVR_UP_BIAS] = {"mlp.up_proj.bias", "ffn_up.bias", KVR_WITH_MLP_BIAS}, \
    [KVR_DOWN_BIAS] = {"mlp.down_proj.bias", "ffn_down.bias", \
                       KVR_WITH_MLP_BIAS}
/* Gemma's norms stand before and after both halves of a layer. */
#define GEMMA_NORMS \
    [KVR_ATTN_POST_NORM] = {"post_attention_layernorm.weight", \
                            "post_attention_norm.weight"}, \
    [KVR_FF_NORM] = {"pre_feedforward_layernorm.weight", "ffn_norm.weight"}, \
    [KVR_FF_POST_NORM] = {"post_feedforward_layernorm.weight", \
                          "post_ffw_norm.weight"}

static const struct kvr_slot plain_model[KVR_N_MODEL_SLOT] = {
    [KVR_EMBEDDING] = {"model.embed_tokens.weight", "token_embd.weight"},
    [KVR_OUTPUT_NORM] = {"model.norm.weight", "output_norm.weight"},
    [KVR_OUTPUT] = {"lm_head.weight", "output.weight", KVR_UNTIED},
    [KVR_ROPE_FACTORS] = {NULL, "rope_freqs.weight", KVR_OPTIONAL},
};

static const struct kvr_slot plain_layer[KVR_N_LAYER_SLOT] = {
    PLAIN_ATTENTION,
    [KVR_FF_NORM] = {"post_attention_layernorm.weight", "ffn_norm.weight"},
    GATED_MLP,
};

static const struct kvr_slot qwen3_layer[KVR_N_LAYER_SLOT] = {
    PLAIN_ATTENTION,
    HEAD_NORMS,
    [KVR_FF_NORM] = {"post_attention_layernorm.weight", "ffn_norm.weight"},
    GATED_MLP,
};

static const struct kvr_slot gemma2_layer[KVR_N_LAYER_SLOT] = {
    PLAIN_ATTENTION,
    GEMMA_NORMS,
    GATED_MLP,
};

static const struct kvr_slot gemma3_layer[KVR_N_LAYER_SLOT] = {
    PLAIN_ATTENTION,
    HEAD_NORMS,
    GEMMA_NORMS,
    GATED_MLP,
};

static const struct kvr_slot phi3_layer[KVR_N_LAYER_SLOT] = {
    [KVR_ATTN_NORM] = {"input_layernorm.weight", "attn_norm.weight"},
    [KVR_Q] = {"self_attn.qkv_proj.weight", "attn_qkv.weight", KVR_ALWAYS,
               KVR_CUT_Q},
    [KVR_K] = {"self_attn.qkv_proj.weight", "attn_qkv.weight", KVR_ALWAYS,
               KVR_CUT_K},
    [KVR_V] = {"self_attn.qkv_proj.weight", "attn_qkv.weight", KVR_ALWAYS,
               KVR_CUT_V},
    [KVR_O] = {"self_attn.o_proj.weight", "attn_output.weight"},
    [KVR_FF_NORM] = {"post_attention_layernorm.weight", "ffn_norm.weight"},
    [KVR_GATE] = {"mlp.gate_up_proj.weight", "ffn_up.weight", KVR_ALWAYS,
                  KVR_CUT_GATE},
    [KVR_UP] = {"mlp.gate_up_proj.weight", "ffn_up.weight", KVR_ALWAYS,
                KVR_CUT_UP},
    [KVR_DOWN] = {"mlp.down_proj.weight", "ffn_down.weight"},
};

static const struct kvr_slot gpt2_model[KVR_N_MODEL_SLOT] = {
    [KVR_EMBEDDING] = {"transformer.wte.weight", "token_embd.weight"},
    [KVR_POSITIONS] = {"transformer.wpe.weight", "position_embd.weight"},
    [KVR_OUTPUT_NORM] = {"transformer.ln_f.weight", "output_norm.weight"},
    [KVR_OUTPUT_NORM_BIAS] = {"transformer.ln_f.bias", "output_norm.bias"},
    [KVR_OUTPUT] = {"lm_head.weight", "output.weight", KVR_UNTIED},
};

static const struct kvr_slot gpt2_layer[KVR_N_LAYER_SLOT] = {
    [KVR_ATTN_NORM] = {"ln_1.weight", "attn_norm.weight"},
    [KVR_ATTN_NORM_BIAS] = {"ln_1.bias", "attn_norm.bias"},
    [KVR_Q] = {"attn.c_attn.weight", "attn_qkv.weight", KVR_ALWAYS, KVR_CUT_Q},
    [KVR_K] = {"attn.c_attn.weight", "attn_qkv.weight", KVR_ALWAYS, KVR_CUT_K},
    [KVR_V] = {"attn.c_attn.weight", "attn_qkv.weight", KVR_ALWAYS, KVR_CUT_V},
    [KVR_O] = {"attn.c_proj.weight", "attn_output.weight"},
    [KVR_Q_BIAS] = {"attn.c_attn.bias", "attn_qkv.bias", KVR_ALWAYS, KVR_CUT_Q},
    [KVR_K_BIAS] = {"attn.c_attn.bias", "attn_qkv.bias", KVR_ALWAYS, KVR_CUT_K},
    [KVR_V_BIAS] = {"attn.c_attn.bias", "attn_qkv.bias", KVR_ALWAYS, KVR_CUT_V},
    [KVR_O_BIAS] = {"attn.c_proj.bias", "attn_output.bias"},
    [KVR_FF_NORM] = {"ln_2.weight", "ffn_norm.weight"},
    [KVR_FF_NORM_BIAS] = {"ln_2.bias", "ffn_norm.bias"},
    [KVR_UP] = {"mlp.c_fc.weight", "ffn_up.weight"},
    [KVR_UP_BIAS] = {"mlp.c_fc.bias", "ffn_up.bias"},
    [KVR_DOWN] = {"mlp.c_proj.weight", "ffn_down.weight"},
    [KVR_DOWN_BIAS] = {"mlp.c_proj.bias", "ffn_down.bias"},
};

static const struct kvr_slot opt_model[KVR_N_MODEL_SLOT] = {
    [KVR_EMBEDDING] = {"model.decoder.embed_tokens.weight", NULL},
    [KVR_POSITIONS] = {"model.decoder.embed_positions.weight", NULL},
    [KVR_OUTPUT_NORM] = {"model.decoder.final_layer_norm.weight", NULL},
    [KVR_OUTPUT_NORM_BIAS] = {"model.decoder.final_layer_norm.bias", NULL},
    [KVR_OUTPUT] = {"lm_head.weight", NULL, KVR_UNTIED},
};

static const struct kvr_slot opt_layer[KVR_N_LAYER_SLOT] = {
    [KVR_ATTN_NORM] = {"self_attn_layer_norm.weight", NULL},
    [KVR_ATTN_NORM_BIAS] = {"self_attn_layer_norm.bias", NULL},
    [KVR_Q] = {"self_attn.q_proj.weight", NULL},
    [KVR_K] = {"self_attn.k_proj.weight", NULL},
    [KVR_V] = {"self_attn.v_proj.weight", NULL},
    [KVR_O] = {"self_attn.out_proj.weight", NULL},
    [KVR_Q_BIAS] = {"self_attn.q_proj.bias", NULL, KVR_WITH_QKV_BIAS},
    [KVR_K_BIAS] = {"self_attn.k_proj.bias", NULL, KVR_WITH_QKV_BIAS},
    [KVR_V_BIAS] = {"self_attn.v_proj.bias", NULL, KVR_WITH_QKV_BIAS},
    [KVR_O_BIAS] = {"self_attn.out_proj.bias", NULL, KVR_WITH_O_BIAS},
    [KVR_FF_NORM] = {"final_layer_norm.weight", NULL},
    [KVR_FF_NORM_BIAS] = {"final_layer_norm.bias", NULL},
    [KVR_UP] = {"fc1.weight", NULL},
    [KVR_UP_BIAS] = {"fc1.bias", NULL, KVR_WITH_MLP_BIAS},
    [KVR_DOWN] = {"fc2.weight", NULL},
    [KVR_DOWN_BIAS] = {"fc2.bias", NULL, KVR_WITH_MLP_BIAS},
};

static const struct kvr_slot neox_model[KVR_N_MODEL_SLOT] = {
    [KVR_EMBEDDING] = {"gpt_neox.embed_in.weight", "token_embd.weight"},
    [KVR_OUTPUT_NORM] = {"gpt_neox.final_layer_norm.weight",
                         "output_norm.weight"},
    [KVR_OUTPUT_NORM_BIAS] = {"gpt_neox.final_layer_norm.bias",
                              "output_norm.bias"},
    [KVR_OUTPUT] = {"embed_out.weight", "output.weight", KVR_UNTIED},
};

#define NEOX_QKV "attention.query_key_value.weight", "attn_qkv.weight"
#define NEOX_QKV_BIAS \
    "attention.query_key_value.bias", "attn_qkv.bias", KVR_WITH_QKV_BIAS

static const struct kvr_slot neox_layer[KVR_N_LAYER_SLOT] = {
    [KVR_ATTN_NORM] = {"input_layernorm.weight", "attn_norm.weight"},
    [KVR_ATTN_NORM_BIAS] = {"input_layernorm.bias", "attn_norm.bias"},
    [KVR_Q] = {NEOX_QKV, KVR_ALWAYS, KVR_CUT_Q},
    [KVR_K] = {NEOX_QKV, KVR_ALWAYS, KVR_CUT_K},
    [KVR_V] = {NEOX_QKV, KVR_ALWAYS, KVR_CUT_V},
    [KVR_O] = {"attention.dense.weight", "attn_output.weight"},
    [KVR_Q_BIAS] = {NEOX_QKV_BIAS, KVR_CUT_Q},
    [KVR_K_BIAS] = {NEOX_QKV_BIAS, KVR_CUT_K},
    [KVR_V_BIAS] = {NEOX_QKV_BIAS, KVR_CUT_V},
    [KVR_O_BIAS] = {"attention.dense.bias", "attn_output.bias",
                    KVR_WITH_O_BIAS},
    [KVR_FF_NORM] = {"post_attention_layernorm.weight", "ffn_norm.weight"},
    [KVR_FF_NORM_BIAS] = {"post_attention_layernorm.bias", "ffn_norm.bias"},
    [KVR_UP] = {"mlp.dense_h_to_4h.weight", "ffn_up.weight"},
    [KVR_UP_BIAS] = {"mlp.dense_h_to_4h.bias", "ffn_up.bias"},
    [KVR_DOWN] = {"mlp.dense_4h_to_h.weight", "ffn_down.weight"},
    [KVR_DOWN_BIAS] = {"mlp.dense_4h_to_h.bias", "ffn_down.bias"},
};

/* ---- the families ---- */

#define ROPE(theta) \
    { \
        .base = (theta), .linear = 1 \
    }
#define PLAIN_NAMES \
    .hf_base = "model.", .hf_layers = "model.layers.", \
    .model_slots = plain_model

const struct kvr_family kvr__families[] = {
    {.hf = "llama",
     .gguf = "llama",
     PLAIN_NAMES,
     .layer_slots = plain_layer,
     .hf_keys = kvr__hf_llama_keys,
     .gguf_keys = kvr__gguf_plain_keys,
     .defaults = {.rope = ROPE(10000), .norm_eps = 1e-6},
     .gguf_paired = true},
    {.hf = "mistral",
     PLAIN_NAMES,
     .layer_slots = plain_layer,
     .hf_keys = kvr__hf_mistral_keys,
     .defaults = {.rope = ROPE(10000),
                  .norm_eps = 1e-6,
                  .window = 4096,
                  .use_window = true}},
    {.hf = "qwen2",
     .gguf = "qwen2",
     .gguf_keys = kvr__gguf_plain_keys,
     PLAIN_NAMES,
     .layer_slots = plain_layer,
     .hf_keys = kvr__hf_qwen2_keys,
     .defaults = {.rope = ROPE(10000),
                  .norm_eps = 1e-6,
                  .window = 4096,
                  .window_from = 28,
                  .qkv_bias = true}},
    {.hf = "qwen3",
     .gguf = "qwen3",
     .gguf_keys = kvr__gguf_plain_keys,
     PLAIN_NAMES,
     .layer_slots = qwen3_layer,
     .hf_keys = kvr__hf_qwen3_keys,
     .defaults = {.rope = ROPE(10000),
                  .norm_eps = 1e-6,
                  .key_dim = 128,
                  .window = 4096,
                  .window_from = 28}},
    {.hf = "phi3",
     .gguf = "phi3",
     .gguf_keys = kvr__gguf_phi3_keys,
     PLAIN_NAMES,
     .layer_slots = phi3_layer,
     .hf_keys = kvr__hf_phi3_keys,
     .defaults = {.rope = ROPE(10000), .norm_eps = 1e-5, .use_window = true}},
    {.hf = "gemma2",
     .gguf = "gemma2",
     .gguf_keys = kvr__gguf_gemma2_keys,
     .gguf_wide_layers = 46,
     PLAIN_NAMES,
     .layer_slots = gemma2_layer,
     .hf_keys = kvr__hf_gemma2_keys,
     .defaults = {.rope = ROPE(10000),
                  .norm_eps = 1e-6,
                  .key_dim = 256,
                  .query_scalar = 256,
                  .softcap = 50,
                  .logit_softcap = 30,
                  .window = 4096,
                  .window_period = 2,
                  .use_window = true,
                  .activation = KVR_GELU_TANH,
                  .tied = true},
     .scale_embedding = true,
     .hf_plus_one = true},
    {.hf = "gemma3_text",
     .gguf = "gemma3",
     .gguf_keys = kvr__gguf_gemma3_keys,
     .gguf_wide_layers = 62,
     PLAIN_NAMES,
     .layer_slots = gemma3_layer,
     .hf_keys = kvr__hf_gemma3_keys,
     .defaults = {.rope = ROPE(1000000),
                  .rope_local = ROPE(10000),
                  .norm_eps = 1e-6,
                  .key_dim = 256,
                  .query_scalar = 256,
                  .window = 4096,
                  .window_period = 6,
                  .use_window = true,
                  .activation = KVR_GELU_TANH,
                  .tied = true},
     .scale_embedding = true,
     .hf_plus_one = true},
    {.hf = "gpt2",
     .gguf = "gpt2",
     .gguf_keys = kvr__gguf_gpt2_keys,
     .hf_base = "transformer.",
     .hf_layers = "transformer.h.",
     .model_slots = gpt2_model,
     .layer_slots = gpt2_layer,
     .hf_keys = kvr__hf_gpt2_keys,
     .defaults = {.norm_eps = 1e-5, .activation = KVR_GELU_TANH, .tied = true},
     .norm = KVR_LAYER_NORM,
     .hf_in_out = true},
    {.hf = "opt",
     .hf_base = "model.",
     .hf_layers = "model.decoder.layers.",
     .model_slots = opt_model,
     .layer_slots = opt_layer,
     .hf_keys = kvr__hf_opt_keys,
     .defaults = {.norm_eps = 1e-5,
                  .activation = KVR_RELU,
                  .position_offset = 2,
                  .qkv_bias = true,
                  .o_bias = true,
                  .mlp_bias = true,
                  .tied = true},
     .norm = KVR_LAYER_NORM},
    {.hf = "gpt_neox",
     .gguf = "gptneox",
     .gguf_keys = kvr__gguf_neox_keys,
     .hf_base = "gpt_neox.",
     .hf_layers = "gpt_neox.layers.",
     .model_slots = neox_model,
     .layer_slots = neox_layer,
     .hf_keys = kvr__hf_neox_keys,
     .defaults = {.rope = ROPE(10000),
                  .rope_part = 0.25,
                  .norm_eps = 1e-5,
                  .activation = KVR_GELU,
                  .parallel = true,
                  .qkv_bias = true,
                  .o_bias = true},
     .norm = KVR_LAYER_NORM,
     .hf_per_head = true},
};

const size_t kvr__n_families = sizeof kvr__families / sizeof kvr__families[0];
