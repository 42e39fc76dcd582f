/* family.c -- looking families up, and the sizes that all share.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "family.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MATRIX(rows, cols) \
    { \
        rows, cols, KVR_DIM_ONE \
    }
#define VECTOR(cols) \
    { \
        KVR_DIM_ONE, cols, KVR_DIM_ONE \
    }

const struct kvr_slot_shape kvr__model_shapes[KVR_N_MODEL_SLOT] = {
    [KVR_EMBEDDING] = MATRIX(KVR_DIM_VOCAB, KVR_DIM_HIDDEN),
    [KVR_POSITIONS] = MATRIX(KVR_DIM_CONTEXT, KVR_DIM_HIDDEN),
    [KVR_OUTPUT_NORM] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_OUTPUT_NORM_BIAS] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_OUTPUT] = MATRIX(KVR_DIM_VOCAB, KVR_DIM_HIDDEN),
    [KVR_ROPE_FACTORS] = VECTOR(KVR_DIM_ROPE),
};

const struct kvr_slot_shape kvr__layer_shapes[KVR_N_LAYER_SLOT] = {
    [KVR_ATTN_NORM] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_ATTN_NORM_BIAS] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_Q] = {KVR_DIM_QUERY, KVR_DIM_HIDDEN, KVR_DIM_QUERY},
    [KVR_K] = {KVR_DIM_KEY, KVR_DIM_HIDDEN, KVR_DIM_KEY},
    [KVR_V] = MATRIX(KVR_DIM_VALUE, KVR_DIM_HIDDEN),
    [KVR_O] = MATRIX(KVR_DIM_HIDDEN, KVR_DIM_HEADS),
    [KVR_Q_BIAS] = {KVR_DIM_ONE, KVR_DIM_QUERY, KVR_DIM_QUERY},
    [KVR_K_BIAS] = {KVR_DIM_ONE, KVR_DIM_KEY, KVR_DIM_KEY},
    [KVR_V_BIAS] = VECTOR(KVR_DIM_VALUE),
    [KVR_O_BIAS] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_Q_NORM] = VECTOR(KVR_DIM_KEY_HEAD),
    [KVR_K_NORM] = VECTOR(KVR_DIM_KEY_HEAD),
    [KVR_ATTN_POST_NORM] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_FF_NORM] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_FF_NORM_BIAS] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_GATE] = MATRIX(KVR_DIM_FF, KVR_DIM_HIDDEN),
    [KVR_UP] = MATRIX(KVR_DIM_FF, KVR_DIM_HIDDEN),
    [KVR_DOWN] = MATRIX(KVR_DIM_HIDDEN, KVR_DIM_FF),
    [KVR_GATE_BIAS] = VECTOR(KVR_DIM_FF),
    [KVR_UP_BIAS] = VECTOR(KVR_DIM_FF),
    [KVR_DOWN_BIAS] = VECTOR(KVR_DIM_HIDDEN),
    [KVR_FF_POST_NORM] = VECTOR(KVR_DIM_HIDDEN),
};

static const char *name_in(const struct kvr_family *family,
                           enum kvr_format format)
{
    return format == KVR_FORMAT_GGUF ? family->gguf : family->hf;
}

const struct kvr_family *kvr__family_find(enum kvr_format format,
                                          struct kvr_slice name)
{
    for (size_t i = 0; i < kvr__n_families; i++) {
        const char *own = name_in(&kvr__families[i], format);
        if (own != NULL && kvr_slice_is(name, own))
            return &kvr__families[i];
    }
    return NULL;
}

void kvr__family_list(char *out, size_t size, enum kvr_format format)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < kvr__n_families; i++) {
        const char *name = name_in(&kvr__families[i], format);
        if (name != NULL && used + 32 < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s",
                                     used > 0 ? " " : "", name);
    }
}

const char *kvr__family_name(const struct kvr_family *family)
{
    return family->hf != NULL ? family->hf : family->gguf;
}

uint64_t kvr__dim_size(const struct kvr_config *config, enum kvr_dim dim)
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
    case KVR_DIM_KEY_HEAD:
        return config->key_dim;
    case KVR_DIM_FF:
        return config->n_ff;
    case KVR_DIM_VOCAB:
        return config->n_vocab;
    case KVR_DIM_CONTEXT:
        return (uint64_t)config->n_context + config->position_offset;
    case KVR_DIM_ROPE:
        return config->rope_dim / 2;
    }
    return 0;
}

/* The two numbers whose product a dimension is; the second may be absent. */
struct factors {
    const char *left[2], *right[2]; /* names by format */
    uint32_t a, b;
};

#define HEADS \
    { \
        "attention.head_count", "num_attention_heads" \
    }
#define KV_HEADS \
    { \
        "attention.head_count_kv", "num_key_value_heads" \
    }
#define KEY_SIZE \
    { \
        "attention.key_length", "head_dim" \
    }
#define VALUE_SIZE \
    { \
        "attention.value_length", "head_dim" \
    }

static struct factors factors_of(const struct kvr_config *c, enum kvr_dim dim)
{
    switch (dim) {
    case KVR_DIM_QUERY:
        return (struct factors){HEADS, KEY_SIZE, c->n_head, c->key_dim};
    case KVR_DIM_KEY:
        return (struct factors){KV_HEADS, KEY_SIZE, c->n_kv_head, c->key_dim};
    case KVR_DIM_VALUE:
        return (struct factors){KV_HEADS, VALUE_SIZE, c->n_kv_head,
                                c->value_dim};
    case KVR_DIM_HEADS:
        return (struct factors){HEADS, VALUE_SIZE, c->n_head, c->value_dim};
    case KVR_DIM_KEY_HEAD:
        return (struct factors){KEY_SIZE, {0}, c->key_dim, 0};
    case KVR_DIM_HIDDEN:
        return (struct factors){
            {"embedding_length", "hidden_size"}, {0}, c->hidden, 0};
    case KVR_DIM_FF:
        return (struct factors){
            {"feed_forward_length", "intermediate_size"}, {0}, c->n_ff, 0};
    case KVR_DIM_VOCAB:
        return (struct factors){
            {"vocab_size", "vocab_size"}, {0}, c->n_vocab, 0};
    case KVR_DIM_CONTEXT:
        return (struct factors){{"context_length", "max_position_embeddings"},
                                {0},
                                c->n_context + c->position_offset,
                                0};
    case KVR_DIM_ROPE:
        return (struct factors){
            {"half of rope.dimension_count", "half of the rotary dimensions"},
            {0},
            c->rope_dim,
            0};
    case KVR_DIM_ONE:
        break;
    }
    return (struct factors){0};
}

void kvr__dim_text(char *out, size_t size, const struct kvr_config *config,
                   enum kvr_dim dim, enum kvr_format format)
{
    const struct factors f = factors_of(config, dim);

    if (f.right[format] != NULL)
        snprintf(out, size, "%s %" PRIu32 " x %s %" PRIu32, f.left[format], f.a,
                 f.right[format], f.b);
    else if (f.left[format] != NULL)
        snprintf(out, size, "%s %" PRIu32, f.left[format], f.a);
    else
        snprintf(out, size, "1");
}
