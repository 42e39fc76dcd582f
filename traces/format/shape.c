/* shape.c -- what a trace is, without its rows.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "shape.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct shape_text_row kvr__shape_texts[N_SHAPE_TEXT] = {
#define SHAPE_TEXT(field, group, name, provenance) \
    {offsetof(struct kvr_trace_shape, field), group, name, provenance},
#include "shape_text.def"
#undef SHAPE_TEXT
};

const char *kvr_array_name(enum kvr_array array)
{
    static const char *const names[KVR_N_ARRAY] = {
        [KVR_LSE] = "lse",
        [KVR_ROW_MASS] = "row_mass",
        [KVR_SINK_MASS] = "sink_mass",
        [KVR_KEY_NORM] = "key_norm",
        [KVR_VALUE_NORM1] = "value_norm1",
        [KVR_VALUE_NORM2] = "value_norm2",
        [KVR_VALUE_OUT_NORM1] = "value_out_norm1",
    };

    return names[array];
}

const char *kvr_vector_name(enum kvr_vector vector)
{
    static const char *const names[KVR_N_VECTOR] = {
        [KVR_QUERY] = "query", [KVR_KEY] = "key", [KVR_VALUE] = "value"};

    return names[vector];
}

static const char *const mask_names[] = {"causal", "window", "chunk", "none"};
static const char *const source_names[] = {"capture", "import", "synthetic"};

const char *kvr__mask_name(enum kvr_mask mask)
{
    return mask_names[mask];
}

const char *kvr__source_name(enum kvr_source source)
{
    return source_names[source];
}

bool kvr__mask_of(enum kvr_mask *mask, const char *name)
{
    for (size_t i = 0; i < sizeof mask_names / sizeof mask_names[0]; i++)
        if (strcmp(mask_names[i], name) == 0) {
            *mask = (enum kvr_mask)i;
            return true;
        }
    return false;
}

bool kvr__source_of(enum kvr_source *source, const char *name)
{
    for (size_t i = 0; i < sizeof source_names / sizeof source_names[0]; i++)
        if (strcmp(source_names[i], name) == 0) {
            *source = (enum kvr_source)i;
            return true;
        }
    return false;
}

const char *kvr__shape_text(const struct kvr_trace_shape *shape, int i)
{
    const char *text;

    memcpy(&text, (const char *)shape + kvr__shape_texts[i].offset,
           sizeof text);
    return text;
}

static void store_text(struct kvr_trace_shape *shape, int i, const char *text)
{
    /* as a number: gcc 12 takes the struct's first member for what is written
     */
    const uintptr_t at = (uintptr_t)shape + kvr__shape_texts[i].offset;

    *(const char **)at = text;
}

void kvr__shape_set_text(struct shape_box *box, int i, char *text)
{
    free((void *)(uintptr_t)kvr__shape_text(&box->shape, i));
    store_text(&box->shape, i, text);
}

struct shape_box *kvr__shape_new(uint32_t n_layer)
{
    struct shape_box *box = kvr_calloc(1, sizeof *box);

    if (box == NULL)
        return NULL;
    box->layers = kvr_calloc(n_layer, sizeof *box->layers);
    if (box->layers == NULL) {
        free(box);
        return NULL;
    }
    box->shape.layers = box->layers;
    box->shape.n_layer = n_layer;
    return box;
}

void kvr__shape_free(struct shape_box *box)
{
    if (box == NULL)
        return;
    for (int i = 0; i < N_SHAPE_TEXT; i++)
        kvr__shape_set_text(box, i, NULL);
    for (uint32_t l = 0; l < box->shape.n_layer; l++)
        free((void *)(uintptr_t)box->layers[l].head_index);
    free(box->layers);
    free(box);
}

static bool copy_layer(struct kvr_layer_shape *to,
                       const struct kvr_layer_shape *from)
{
    uint32_t *index = kvr_calloc(from->n_head, sizeof *index);

    *to = *from;
    to->head_index = index;
    if (index == NULL)
        return false;
    for (uint32_t h = 0; h < from->n_head; h++)
        index[h] = from->head_index != NULL ? from->head_index[h] : h;
    return true;
}

enum kvr_status kvr__shape_copy(struct shape_box **out,
                                const struct kvr_trace_shape *shape,
                                struct kvr_error *err)
{
    struct shape_box *box = kvr__shape_new(shape->n_layer);
    bool ok = box != NULL;

    if (ok) {
        box->shape = *shape;
        box->shape.layers = box->layers;
        for (int i = 0; i < N_SHAPE_TEXT; i++)
            store_text(&box->shape, i, NULL);
    }
    for (int i = 0; ok && i < N_SHAPE_TEXT; i++) {
        const char *text = kvr__shape_text(shape, i);
        if (text == NULL)
            continue;
        char *copy = kvr_strdup(text);
        kvr__shape_set_text(box, i, copy);
        ok = copy != NULL;
    }
    for (uint32_t l = 0; ok && l < shape->n_layer; l++)
        ok = copy_layer(&box->layers[l], &shape->layers[l]);
    if (!ok) {
        kvr__shape_free(box);
        return kvr_no_memory(err, "a trace's description", sizeof *box);
    }
    *out = box;
    return KVR_OK;
}

static enum kvr_status check_layer(const struct kvr_trace_shape *shape,
                                   uint32_t l, const char *path,
                                   struct kvr_error *err)
{
    const struct kvr_layer_shape *y = &shape->layers[l];

    if (y->n_head == 0 || y->n_head > shape->n_head || y->n_kv_head == 0 ||
        y->n_kv_head > y->n_head || y->n_head % y->n_kv_head != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: %u heads over %u kv heads: expected "
                        "whole groups, at most %u heads",
                        path, y->layer, y->n_head, y->n_kv_head, shape->n_head);
    if (y->n_head == shape->n_head && y->n_kv_head != shape->n_kv_head)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u has %u kv heads, the model %u", path,
                        y->layer, y->n_kv_head, shape->n_kv_head);
    const bool spans = y->mask == KVR_MASK_WINDOW || y->mask == KVR_MASK_CHUNK;
    if ((unsigned)y->mask > KVR_MASK_NONE || spans != (y->span > 0))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: mask %d with span %u", path, y->layer,
                        (int)y->mask, y->span);
    if (y->layer > SHAPE_MAX_LAYER_NUMBER)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: a layer's number is at most %d", path,
                        y->layer, SHAPE_MAX_LAYER_NUMBER);
    if (l > 0 && shape->layers[l - 1].layer >= y->layer)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: layer %u comes after layer %u",
                        path, y->layer, shape->layers[l - 1].layer);
    for (uint32_t h = 0; y->head_index != NULL && h < y->n_head; h++)
        if (y->head_index[h] >= shape->n_head ||
            (h > 0 && y->head_index[h] <= y->head_index[h - 1]))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: layer %u: head_index[%u] is %u", path,
                            y->layer, h, y->head_index[h]);
    if (!isfinite(y->scale) || !isfinite(y->softcap) || y->softcap < 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: scale %g, softcap "
                        "%g: expected finite numbers, the softcap not below 0",
                        path, y->layer, y->scale, y->softcap);
    return KVR_OK;
}

/* True where the layer, or the one whose cache it reads, stores keys. */
static bool has_keys(const struct kvr_trace_shape *shape,
                     const struct kvr_layer_shape *y)
{
    if (y->stores & KVR_STORES_KEY)
        return true;
    for (uint32_t l = 0; y->kv_source >= 0 && l < shape->n_layer; l++)
        if (shape->layers[l].layer == (uint32_t)y->kv_source)
            return (shape->layers[l].stores & KVR_STORES_KEY) != 0 &&
                   shape->layers[l].key_dim == y->key_dim &&
                   shape->layers[l].n_kv_head == y->n_kv_head;
    return false;
}

/* `stores` 0 is a writer's default, or a reader's layer without rows. */
static enum kvr_status check_stores(const struct kvr_trace_shape *shape,
                                    uint32_t l, const char *path,
                                    struct kvr_error *err)
{
    const struct kvr_layer_shape *y = &shape->layers[l];
    const uint32_t pair = KVR_STORES_QUERY | KVR_STORES_KEY;

    if (y->stores == 0 || y->stores == KVR_STORES_ATTENTION)
        return KVR_OK;
    if (y->stores >= 2 * KVR_STORES_VALUE ||
        ((y->stores & KVR_STORES_ATTENTION) == 0 &&
         (!(y->stores & KVR_STORES_QUERY) || !has_keys(shape, y))))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: expected attention, or query and key",
                        path, y->layer);
    if (((y->stores & pair) != 0 &&
         (y->key_dim == 0 || y->key_dim > SHAPE_MAX_DIM || !(y->scale > 0))) ||
        ((y->stores & KVR_STORES_VALUE) != 0 &&
         (y->value_dim == 0 || y->value_dim > SHAPE_MAX_DIM)))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: vectors with key_dim %u, value_dim %u, "
                        "scale %g: expected dimensions of 1 to %d and a scale "
                        "above 0",
                        path, y->layer, y->key_dim, y->value_dim, y->scale,
                        SHAPE_MAX_DIM);
    return KVR_OK;
}

static enum kvr_status check_texts(const struct kvr_trace_shape *shape,
                                   const char *path, struct kvr_error *err)
{
    for (int i = 0; i < N_SHAPE_TEXT; i++) {
        const char *text = kvr__shape_text(shape, i);
        if (text != NULL && strlen(text) > SHAPE_MAX_TEXT)
            return kvr_fail(err, KVR_ERR_LIMIT,
                            "%s: attribute '%s' has %zu bytes, at most %d "
                            "are stored",
                            path, kvr__shape_texts[i].name, strlen(text),
                            SHAPE_MAX_TEXT);
    }
    return KVR_OK;
}

enum kvr_status kvr__shape_check(const struct kvr_trace_shape *shape,
                                 const char *path, struct kvr_error *err)
{
    if (shape->n_layer == 0 || shape->n_layer > SHAPE_MAX_LAYERS ||
        shape->n_head == 0 || shape->n_head > SHAPE_MAX_HEADS ||
        shape->n_token == 0 || shape->n_token > SHAPE_MAX_TOKENS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %u layers, %u heads, %u tokens: expected 1 to "
                        "%d, %d and %d",
                        path, shape->n_layer, shape->n_head, shape->n_token,
                        SHAPE_MAX_LAYERS, SHAPE_MAX_HEADS, SHAPE_MAX_TOKENS);
    if (shape->n_kv_head == 0 || shape->n_head % shape->n_kv_head != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %u heads over %u kv heads: expected whole groups",
                        path, shape->n_head, shape->n_kv_head);
    if (shape->prompt_len > shape->n_token)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: prompt length %u of %u tokens",
                        path, shape->prompt_len, shape->n_token);
    if (shape->round_bits > 10 ||
        (shape->round_bits > 0 && shape->dtype != KVR_F16))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: round_bits %u: expected 1 to 10, with f16", path,
                        shape->round_bits);
    if ((unsigned)shape->dtype > KVR_F32 ||
        (unsigned)shape->source > KVR_SOURCE_SYNTHETIC)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: dtype %d, source %d", path,
                        (int)shape->dtype, (int)shape->source);
    if (shape->n_vocab > SHAPE_MAX_TOKENS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: logits of %u tokens: expected at most %d", path,
                        shape->n_vocab, SHAPE_MAX_TOKENS);
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        enum kvr_status status = check_layer(shape, l, path, err);
        if (status == KVR_OK)
            status = check_stores(shape, l, path, err);
        if (status != KVR_OK)
            return status;
    }
    return check_texts(shape, path, err);
}

static void pack_layer(struct bytes *out, const struct kvr_layer_shape *y)
{
    kvr__put_u32(out, y->layer);
    kvr__put_u32(out, y->n_head);
    kvr__put_u32(out, y->n_kv_head);
    kvr__put_u32(out, y->key_dim);
    kvr__put_u32(out, y->value_dim);
    kvr__put_u32(out, (uint32_t)y->mask);
    kvr__put_u32(out, y->span);
    kvr__put_u32(out, (uint32_t)y->kv_source);
    kvr__put_real(out, y->scale);
    kvr__put_real(out, y->softcap);
    kvr__put(out, y->head_index, y->n_head * sizeof *y->head_index);
}

void kvr__shape_pack(struct bytes *out, const struct kvr_trace_shape *shape,
                     bool provenance)
{
    kvr__put_u32(out, shape->n_layer);
    kvr__put_u32(out, shape->n_head);
    kvr__put_u32(out, shape->n_kv_head);
    kvr__put_u32(out, shape->n_token);
    kvr__put_u32(out, shape->prompt_len);
    kvr__put_u32(out, (uint32_t)shape->dtype);
    kvr__put_u32(out, (uint32_t)shape->source);
    kvr__put_u32(out, shape->round_bits);
    for (int i = 0; i < N_SHAPE_TEXT; i++)
        if (provenance || !kvr__shape_texts[i].provenance)
            kvr__put_text(out, kvr__shape_text(shape, i));
    for (uint32_t l = 0; l < shape->n_layer; l++)
        pack_layer(out, &shape->layers[l]);
    if (!provenance)
        return;
    kvr__put_u32(out, shape->n_vocab);
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        kvr__put_u32(out, shape->layers[l].stores);
        for (int i = 0; i < KVR_N_VECTOR; i++)
            kvr__put_u32(out, (uint32_t)shape->layers[l].vector_dtype[i]);
    }
}

/* What the journals of minor version 1 add. */
static void unpack_stores(struct shape_box *box, struct cursor *in)
{
    if (in->left == 0)
        return;
    box->shape.n_vocab = kvr__take_u32(in);
    for (uint32_t l = 0; l < box->shape.n_layer; l++) {
        box->layers[l].stores = kvr__take_u32(in);
        for (int i = 0; i < KVR_N_VECTOR; i++)
            box->layers[l].vector_dtype[i] =
                kvr__take_u32(in) == KVR_F16 ? KVR_F16 : KVR_F32;
    }
}

void kvr__shape_settle(struct shape_box *box)
{
    bool attention = false;

    for (uint32_t l = 0; l < box->shape.n_layer; l++) {
        if (box->layers[l].stores == 0)
            box->layers[l].stores = KVR_STORES_ATTENTION;
        if (box->layers[l].stores & KVR_STORES_ATTENTION)
            attention = true;
    }
    if (!attention) {
        box->shape.dtype = KVR_F32;
        box->shape.round_bits = 0;
    }
}

static bool unpack_layer(struct kvr_layer_shape *y, struct cursor *in)
{
    y->layer = kvr__take_u32(in);
    y->n_head = kvr__take_u32(in);
    y->n_kv_head = kvr__take_u32(in);
    y->key_dim = kvr__take_u32(in);
    y->value_dim = kvr__take_u32(in);
    y->mask = (enum kvr_mask)kvr__take_u32(in);
    y->span = kvr__take_u32(in);
    y->kv_source = (int32_t)kvr__take_u32(in);
    y->scale = kvr__take_real(in);
    y->softcap = kvr__take_real(in);
    if (y->n_head > SHAPE_MAX_HEADS) {
        in->bad = true;
        return true;
    }
    const size_t size = y->n_head * sizeof *y->head_index;
    const uint8_t *from = kvr__take(in, size);
    uint32_t *index = from != NULL ? kvr_calloc(1, size) : NULL;
    if (index != NULL)
        memcpy(index, from, size);
    y->head_index = index;
    return index != NULL || from == NULL;
}

static bool unpack_box(struct shape_box *box, struct cursor *in)
{
    struct kvr_trace_shape *s = &box->shape;

    s->n_head = kvr__take_u32(in);
    s->n_kv_head = kvr__take_u32(in);
    s->n_token = kvr__take_u32(in);
    s->prompt_len = kvr__take_u32(in);
    s->dtype = (enum kvr_dtype)kvr__take_u32(in);
    s->source = (enum kvr_source)kvr__take_u32(in);
    s->round_bits = kvr__take_u32(in);
    for (int i = 0; i < N_SHAPE_TEXT; i++) {
        char *text;
        if (!kvr__take_text(in, &text))
            return false;
        kvr__shape_set_text(box, i, text);
    }
    for (uint32_t l = 0; l < s->n_layer && !in->bad; l++)
        if (!unpack_layer(&box->layers[l], in))
            return false;
    unpack_stores(box, in);
    return true;
}

enum kvr_status kvr__shape_unpack(struct shape_box **out, struct cursor *in,
                                  const char *path, struct kvr_error *err)
{
    const uint32_t n_layer = kvr__take_u32(in);

    if (in->bad || n_layer == 0 || n_layer > SHAPE_MAX_LAYERS)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %u layers: expected 1 to %d",
                        path, n_layer, SHAPE_MAX_LAYERS);
    struct shape_box *box = kvr__shape_new(n_layer);
    enum kvr_status status = KVR_OK;
    if (box == NULL || !unpack_box(box, in))
        status = kvr_no_memory(err, "a trace's description", in->left);
    else if (in->bad)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: the header's description is too short", path);
    else
        status = kvr__shape_check(&box->shape, path, err);
    if (status != KVR_OK) {
        kvr__shape_free(box);
        return status;
    }
    *out = box;
    return KVR_OK;
}

size_t kvr__dtype_size(enum kvr_dtype dtype)
{
    return dtype == KVR_F16 ? 2 : 4;
}

uint32_t kvr__tile_cols(uint32_t t_max)
{
    return t_max < CHUNK_COLS ? t_max : CHUNK_COLS;
}

uint32_t kvr__row_keys(const struct kvr_layer_shape *layer, uint32_t row,
                       uint32_t n_token)
{
    return layer->mask == KVR_MASK_NONE ? n_token : row + 1;
}

uint32_t kvr_mask_first_key(enum kvr_mask mask, uint32_t span, uint32_t row)
{
    if (span == 0)
        return 0;
    if (mask == KVR_MASK_WINDOW)
        return row + 1 > span ? row + 1 - span : 0;
    return mask == KVR_MASK_CHUNK ? row / span * span : 0;
}

uint32_t kvr__row_first_key(const struct kvr_layer_shape *layer, uint32_t row)
{
    return kvr_mask_first_key(layer->mask, layer->span, row);
}

uint32_t kvr_head_number(const struct kvr_layer_shape *layer, uint32_t head)
{
    return layer->head_index != NULL ? layer->head_index[head] : head;
}

bool kvr__array_rows_fit(const struct kvr_layer_shape *layer,
                         enum kvr_array array, uint32_t rows)
{
    return rows == layer->n_head ||
           (array >= KVR_KEY_NORM && rows == layer->n_kv_head);
}

char *kvr__path_with(const char *path, const char *suffix)
{
    const size_t room = strlen(path) + strlen(suffix) + 1;
    char *out = malloc(room);

    if (out != NULL)
        snprintf(out, room, "%s%s", path, suffix);
    return out;
}
