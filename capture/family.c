/* family.c -- the table of architectures.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "family.h"

#include <inttypes.h>
#include <stdio.h>

#define AT(field) offsetof(struct kvr_config, field)

static const struct kvr_key llama_keys[] = {
    {"block_count", KVR_KEY_U32, AT(n_layer), true},
    {"embedding_length", KVR_KEY_U32, AT(hidden), true},
    {"feed_forward_length", KVR_KEY_U32, AT(n_ff), true},
    {"attention.head_count", KVR_KEY_U32, AT(n_head), true},
    {"attention.head_count_kv", KVR_KEY_U32, AT(n_kv_head), false},
    {"attention.key_length", KVR_KEY_U32, AT(key_dim), false},
    {"attention.value_length", KVR_KEY_U32, AT(value_dim), false},
    {"rope.dimension_count", KVR_KEY_U32, AT(rope_dim), false},
    {"vocab_size", KVR_KEY_U32, AT(n_vocab), false},
    {"context_length", KVR_KEY_U32, AT(n_context), false},
    {"rope.freq_base", KVR_KEY_REAL, AT(rope_base), false},
    {"attention.layer_norm_rms_epsilon", KVR_KEY_REAL, AT(norm_eps), true},
    {"rope.scaling.type", KVR_KEY_READ, 0, false},
    {"rope.scaling.factor", KVR_KEY_READ, 0, false},
    {"rope.scale_linear", KVR_KEY_READ, 0, false},
    {"rope.scaling.original_context_length", KVR_KEY_INERT, 0, false},
    {"rope.scaling.finetuned", KVR_KEY_INERT, 0, false},
    {"tensor_data_layout", KVR_KEY_INERT, 0, false},
    {NULL, KVR_KEY_INERT, 0, false},
};

static const struct kvr_slot llama_model[KVR_N_MODEL_SLOT] = {
    [KVR_EMBEDDING] = {"token_embd.weight", KVR_DIM_VOCAB, KVR_DIM_HIDDEN,
                       false, KVR_ROWS_AS_STORED},
    [KVR_OUTPUT_NORM] = {"output_norm.weight", KVR_DIM_ONE, KVR_DIM_HIDDEN,
                         false, KVR_ROWS_AS_STORED},
    [KVR_OUTPUT] = {"output.weight", KVR_DIM_VOCAB, KVR_DIM_HIDDEN, true,
                    KVR_ROWS_AS_STORED},
    [KVR_ROPE_FACTORS] = {"rope_freqs.weight", KVR_DIM_ONE, KVR_DIM_ROPE, true,
                          KVR_ROWS_AS_STORED},
};

static const struct kvr_slot llama_layer[KVR_N_LAYER_SLOT] = {
    [KVR_ATTN_NORM] = {"attn_norm.weight", KVR_DIM_ONE, KVR_DIM_HIDDEN, false,
                       KVR_ROWS_AS_STORED},
    [KVR_Q] = {"attn_q.weight", KVR_DIM_QUERY, KVR_DIM_HIDDEN, false,
               KVR_ROWS_PAIRED_Q},
    [KVR_K] = {"attn_k.weight", KVR_DIM_KEY, KVR_DIM_HIDDEN, false,
               KVR_ROWS_PAIRED_K},
    [KVR_V] = {"attn_v.weight", KVR_DIM_VALUE, KVR_DIM_HIDDEN, false,
               KVR_ROWS_AS_STORED},
    [KVR_O] = {"attn_output.weight", KVR_DIM_HIDDEN, KVR_DIM_HEADS, false,
               KVR_ROWS_AS_STORED},
    [KVR_Q_BIAS] = {"attn_q.bias", KVR_DIM_ONE, KVR_DIM_QUERY, true,
                    KVR_ROWS_PAIRED_Q},
    [KVR_K_BIAS] = {"attn_k.bias", KVR_DIM_ONE, KVR_DIM_KEY, true,
                    KVR_ROWS_PAIRED_K},
    [KVR_V_BIAS] = {"attn_v.bias", KVR_DIM_ONE, KVR_DIM_VALUE, true,
                    KVR_ROWS_AS_STORED},
    [KVR_O_BIAS] = {"attn_output.bias", KVR_DIM_ONE, KVR_DIM_HIDDEN, true,
                    KVR_ROWS_AS_STORED},
    [KVR_FF_NORM] = {"ffn_norm.weight", KVR_DIM_ONE, KVR_DIM_HIDDEN, false,
                     KVR_ROWS_AS_STORED},
    [KVR_GATE] = {"ffn_gate.weight", KVR_DIM_FF, KVR_DIM_HIDDEN, false,
                  KVR_ROWS_AS_STORED},
    [KVR_UP] = {"ffn_up.weight", KVR_DIM_FF, KVR_DIM_HIDDEN, false,
                KVR_ROWS_AS_STORED},
    [KVR_DOWN] = {"ffn_down.weight", KVR_DIM_HIDDEN, KVR_DIM_FF, false,
                  KVR_ROWS_AS_STORED},
    [KVR_GATE_BIAS] = {"ffn_gate.bias", KVR_DIM_ONE, KVR_DIM_FF, true,
                       KVR_ROWS_AS_STORED},
    [KVR_UP_BIAS] = {"ffn_up.bias", KVR_DIM_ONE, KVR_DIM_FF, true,
                     KVR_ROWS_AS_STORED},
    [KVR_DOWN_BIAS] = {"ffn_down.bias", KVR_DIM_ONE, KVR_DIM_HIDDEN, true,
                       KVR_ROWS_AS_STORED},
};

static const struct kvr_family families[] = {
    {.gguf = "llama",
     .model_slots = llama_model,
     .layer_slots = llama_layer,
     .keys = llama_keys},
};

const struct kvr_family *kvr_family_find(struct kvr_view gguf_name)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (kvr_view_is(gguf_name, families[i].gguf))
            return &families[i];
    return NULL;
}

void kvr_family_list(char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (used + 32 < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s",
                                     used > 0 ? " " : "", families[i].gguf);
}

uint64_t kvr_dim_size(const struct kvr_config *config, enum kvr_dim dim)
{
    switch (dim) {
    case KVR_DIM_ONE:
        return 1;
    case KVR_DIM_HIDDEN:
        return config->hidden;
    case KVR_DIM_QUERY:
        return (uint64_t)config->n_head * config->key_dim;
    case KVR_DIM_KEY:
        return (uint64_t)config->n_kv_head * config->key_dim;
    case KVR_DIM_VALUE:
        return (uint64_t)config->n_kv_head * config->value_dim;
    case KVR_DIM_HEADS:
        return (uint64_t)config->n_head * config->value_dim;
    case KVR_DIM_FF:
        return config->n_ff;
    case KVR_DIM_VOCAB:
        return config->n_vocab;
    case KVR_DIM_ROPE:
        return config->rope_dim / 2;
    }
    return 0;
}

void kvr_dim_text(char *out, size_t size, const struct kvr_config *config,
                  enum kvr_dim dim)
{
    const char *left = NULL, *right = NULL;
    uint32_t a = 0, b = 0;

    switch (dim) {
    case KVR_DIM_QUERY:
        left = "attention.head_count", a = config->n_head;
        right = "attention.key_length", b = config->key_dim;
        break;
    case KVR_DIM_KEY:
        left = "attention.head_count_kv", a = config->n_kv_head;
        right = "attention.key_length", b = config->key_dim;
        break;
    case KVR_DIM_VALUE:
        left = "attention.head_count_kv", a = config->n_kv_head;
        right = "attention.value_length", b = config->value_dim;
        break;
    case KVR_DIM_HEADS:
        left = "attention.head_count", a = config->n_head;
        right = "attention.value_length", b = config->value_dim;
        break;
    case KVR_DIM_HIDDEN:
        left = "embedding_length", a = config->hidden;
        break;
    case KVR_DIM_FF:
        left = "feed_forward_length", a = config->n_ff;
        break;
    case KVR_DIM_VOCAB:
        left = "vocab_size", a = config->n_vocab;
        break;
    case KVR_DIM_ROPE:
        left = "half of rope.dimension_count", a = config->rope_dim;
        break;
    case KVR_DIM_ONE:
        break;
    }
    if (right != NULL)
        snprintf(out, size, "%s %" PRIu32 " x %s %" PRIu32, left, a, right, b);
    else if (left != NULL)
        snprintf(out, size, "%s %" PRIu32, left, a);
    else
        snprintf(out, size, "1");
}
