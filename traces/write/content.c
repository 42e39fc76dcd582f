/* content.c -- open tiles, tile places, arrays and tokens in memory.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "content.h"

#include "kvr_half.h"
#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

static void free_layer(struct content *c, uint32_t layer)
{
    for (int a = 0; c->arrays != NULL && a < KVR_N_ARRAY; a++)
        free(c->arrays[layer][a].data);
    if (c->mlp == NULL)
        return;
    free(c->mlp[layer].mass);
    free(c->mlp[layer].open_mass);
    free(c->mlp[layer].active);
    free(c->mlp[layer].open_active);
}

void kvr__content_free(struct content *c)
{
    if (c == NULL)
        return;
    for (uint32_t s = 0; c->heads != NULL && s < c->n_slot; s++)
        free(c->heads[s].open);
    for (uint32_t l = 0; l < c->box->shape.n_layer; l++)
        free_layer(c, l);
    for (int s = 0; s < N_ROW_SET; s++)
        free(c->first_slot[s]);
    free(c->heads);
    free(c->tiles);
    free(c->arrays);
    free(c->mlp);
    free(c->tokens.id);
    free(c->tokens.logprob);
    free(c->tokens.class_of);
    free(c->tokens.text_end);
    free(c->tokens.text.data);
    kvr__shape_free(c->box);
    free(c);
}

static uint32_t set_item(const struct kvr_trace_shape *shape, uint32_t layer,
                         enum row_set set)
{
    if (set == SET_LOGITS)
        return sizeof(float);
    return (uint32_t)kvr__dtype_size(
        set == SET_ATTENTION
            ? shape->dtype
            : shape->layers[layer].vector_dtype[set - SET_QUERY]);
}

static bool number_slots(struct content *c)
{
    const struct kvr_trace_shape *shape = &c->box->shape;
    uint32_t n = 0;

    for (int s = 0; s < N_ROW_SET; s++) {
        c->first_slot[s] = kvr_calloc(shape->n_layer + 2, sizeof(uint32_t));
        if (c->first_slot[s] == NULL)
            return false;
        for (uint32_t l = 0; l <= shape->n_layer; l++) {
            c->first_slot[s][l] = n;
            n += kvr__set_heads(shape, l, (enum row_set)s);
        }
        c->first_slot[s][shape->n_layer + 1] = n;
    }
    c->heads = kvr_calloc(n, sizeof *c->heads);
    if (c->heads == NULL)
        return false;
    c->n_slot = n;
    for (int s = 0; s < N_ROW_SET; s++)
        for (uint32_t l = 0; l <= shape->n_layer; l++)
            for (uint32_t i = c->first_slot[s][l]; i < c->first_slot[s][l + 1];
                 i++)
                c->heads[i] = (struct head_rows){
                    .layer = l,
                    .head = i - c->first_slot[s][l],
                    .set = (enum row_set)s,
                    .item = set_item(shape, l, (enum row_set)s)};
    return true;
}

enum kvr_status kvr__content_new(struct content **out, struct shape_box *box,
                                 int level, struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &box->shape;
    struct content *c = kvr_calloc(1, sizeof *c);

    if (c == NULL) {
        kvr__shape_free(box);
        return kvr_no_memory(err, "a trace", sizeof *c);
    }
    c->box = box;
    c->level = level;
    kvr__shape_settle(box);
    c->arrays = kvr_calloc(shape->n_layer, sizeof *c->arrays);
    c->mlp = kvr_calloc(shape->n_layer, sizeof *c->mlp);
    if (c->arrays == NULL || c->mlp == NULL || !number_slots(c)) {
        kvr__content_free(c);
        return kvr_no_memory(err, "a trace's heads", 0);
    }
    *out = c;
    return KVR_OK;
}

uint32_t kvr__content_row_items(const struct content *c, uint32_t slot,
                                uint32_t row)
{
    const struct kvr_trace_shape *shape = &c->box->shape;
    const struct head_rows *head = &c->heads[slot];

    switch (head->set) {
    case SET_ATTENTION:
        return kvr__row_keys(&shape->layers[head->layer], row, shape->n_token);
    case SET_QUERY:
    case SET_KEY:
        return shape->layers[head->layer].key_dim;
    case SET_VALUE:
        return shape->layers[head->layer].value_dim;
    default:
        return shape->n_vocab;
    }
}

uint32_t kvr__content_cols(const struct content *c, uint32_t slot)
{
    switch (c->heads[slot].set) {
    case SET_ATTENTION:
        return kvr__tile_cols(c->box->shape.n_token);
    case SET_LOGITS:
        return kvr__tile_cols(c->box->shape.n_vocab);
    default:
        return kvr__content_row_items(c, slot, 0);
    }
}

size_t kvr__content_row_size(const struct content *c, uint32_t slot,
                             uint32_t row)
{
    return (size_t)kvr__content_row_items(c, slot, row) * c->heads[slot].item;
}

uint8_t *kvr__content_row(struct content *c, uint32_t slot, uint32_t row)
{
    struct head_rows *head = &c->heads[slot];
    const uint32_t t_max = c->box->shape.n_token;

    if (head->open == NULL) {
        const uint32_t last = t_max - head->n_tiled <= KVR_TILE_ROWS
                                  ? t_max - 1
                                  : head->n_tiled + KVR_TILE_ROWS - 1;
        const uint32_t width = kvr__content_row_items(c, slot, last);
        head->open = kvr_calloc((size_t)KVR_TILE_ROWS * width, head->item);
        head->width = width;
    }
    if (head->open == NULL)
        return NULL;
    return head->open +
           (size_t)(row - head->n_tiled) * head->width * head->item;
}

bool kvr__content_widen(struct content *c, uint32_t layer, enum row_set set,
                        uint32_t row)
{
    const uint32_t end = c->first_slot[set][layer + 1];

    for (uint32_t s = c->first_slot[set][layer]; s < end; s++) {
        struct head_rows *head = &c->heads[s];
        const size_t n = (size_t)KVR_TILE_ROWS * head->width;
        if (head->open != NULL) {
            float *wide = kvr_calloc(n, sizeof *wide);
            if (wide == NULL)
                return false;
            kvr_f16_to_f32_n(wide, (const uint16_t *)(void *)head->open, n);
            free(head->open);
            head->open = (uint8_t *)wide;
        }
        head->item = sizeof(float);
        head->widened = true;
        head->f16_rows = row;
    }
    return true;
}

uint32_t kvr__content_rows_item(const struct content *c)
{
    for (uint32_t s = 0; s < c->n_slot; s++)
        if (c->heads[s].item != sizeof(float))
            return sizeof(uint16_t);
    return sizeof(float);
}

enum kvr_status kvr__content_mlp(struct content *c, uint32_t layer,
                                 uint32_t n_ff, struct kvr_error *err)
{
    struct mlp_data *m = &c->mlp[layer];

    if (n_ff == 0 || n_ff > SHAPE_MAX_FF || (m->n_ff != 0 && m->n_ff != n_ff))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "layer %u: an MLP of %u neurons: expected %u",
                        c->box->shape.layers[layer].layer, n_ff, m->n_ff);
    if (m->n_ff != 0)
        return KVR_OK;
    m->mass = kvr_calloc(n_ff, sizeof *m->mass);
    m->open_mass = kvr_calloc(n_ff, sizeof *m->open_mass);
    m->active = kvr_calloc(n_ff, sizeof *m->active);
    m->open_active = kvr_calloc(n_ff, sizeof *m->open_active);
    if (m->mass == NULL || m->open_mass == NULL || m->active == NULL ||
        m->open_active == NULL)
        return kvr_no_memory(err, "an MLP's sums", n_ff * 24u);
    m->n_ff = n_ff;
    return KVR_OK;
}

enum kvr_status kvr__content_add_tile(struct content *c,
                                      const struct stored_tile *tile,
                                      struct kvr_error *err)
{
    if (!kvr_grow((void **)&c->tiles, &c->cap_tile, c->n_tile + 1,
                  sizeof *c->tiles))
        return kvr_no_memory(err, "the places of tiles",
                             (c->n_tile + 1) * sizeof *c->tiles);
    c->tiles[c->n_tile++] = *tile;
    return KVR_OK;
}

void kvr__content_close_tile(struct content *c, uint32_t slot)
{
    struct head_rows *head = &c->heads[slot];

    free(head->open);
    head->open = NULL;
    head->n_tiled += KVR_TILE_ROWS;
    if (head->n_row < head->n_tiled)
        head->n_row = head->n_tiled;
    head->next_col = 0;
}

uint32_t kvr__content_n_col(const struct content *c, uint32_t slot,
                            uint32_t row_tile)
{
    const uint32_t t_max = c->box->shape.n_token;
    const uint32_t end = row_tile * KVR_TILE_ROWS + KVR_TILE_ROWS;
    const uint32_t last = (end < t_max ? end : t_max) - 1;

    return (kvr__content_row_items(c, slot, last) - 1) /
               kvr__content_cols(c, slot) +
           1;
}

enum kvr_status kvr__content_pack(const struct content *c, uint32_t slot,
                                  uint32_t col, uint32_t n_row,
                                  struct codec *codec, const uint8_t **packed,
                                  size_t *n_packed, struct kvr_error *err)
{
    const struct head_rows *head = &c->heads[slot];
    const size_t item = head->item;
    const uint32_t cols = kvr__content_cols(c, slot);
    const size_t n = (size_t)KVR_TILE_ROWS * cols;
    uint8_t *plain = kvr__codec_buffer(codec, 0, n * item);

    if (plain == NULL)
        return kvr_no_memory(err, "a tile", n * item);
    memset(plain, 0, n * item);
    for (uint32_t r = 0; r < n_row - head->n_tiled; r++) {
        const uint32_t keys =
            kvr__content_row_items(c, slot, head->n_tiled + r);
        const uint32_t first = col * cols;
        if (keys <= first)
            continue;
        const uint32_t count = keys - first < cols ? keys - first : cols;
        memcpy(plain + (size_t)r * cols * item,
               head->open + ((size_t)r * head->width + first) * item,
               count * item);
    }
    return kvr__codec_pack(codec, packed, n_packed, plain, n, item, err);
}

uint64_t kvr__content_tile_hash(const struct content *c, uint32_t slot,
                                uint32_t n_row)
{
    const struct head_rows *head = &c->heads[slot];
    const size_t item = head->item;
    uint64_t rows[KVR_TILE_ROWS];
    const uint32_t n = n_row - head->n_tiled;

    for (uint32_t r = 0; r < n; r++)
        rows[r] = kvr_hash64(head->open + (size_t)r * head->width * item,
                             kvr__content_row_size(c, slot, head->n_tiled + r));
    return kvr_hash64(rows, n * sizeof rows[0]);
}

enum kvr_status kvr__content_array(struct content *c, uint32_t layer,
                                   enum kvr_array array, uint32_t rows,
                                   uint32_t first, uint32_t n,
                                   struct kvr_error *err)
{
    struct array_data *a = &c->arrays[layer][array];
    const struct kvr_layer_shape *y = &c->box->shape.layers[layer];
    const uint32_t t_max = c->box->shape.n_token;

    if (!kvr__array_rows_fit(y, array, rows) ||
        (a->rows != 0 && rows != a->rows))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "layer %u: %s with %u rows: expected %u", y->layer,
                        kvr_array_name(array), rows,
                        a->rows != 0 ? a->rows : y->n_head);
    if (first != a->n_token || n > t_max - first)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "layer %u: %s of tokens %u..: expected %u.. and at "
                        "most %u tokens",
                        y->layer, kvr_array_name(array), first, a->n_token,
                        t_max);
    if (first + n > a->capacity) {
        uint32_t wanted = a->capacity != 0 ? a->capacity : 256;
        while (wanted < first + n)
            wanted = wanted > t_max / 2 ? t_max : 2 * wanted;
        float *grown = kvr_calloc((size_t)rows * wanted, sizeof *grown);
        if (grown == NULL)
            return kvr_no_memory(err, kvr_array_name(array),
                                 (size_t)rows * wanted * sizeof *grown);
        for (uint32_t r = 0; a->data != NULL && r < rows; r++)
            memcpy(grown + (size_t)r * wanted,
                   a->data + (size_t)r * a->capacity,
                   a->n_token * sizeof *grown);
        free(a->data);
        a->data = grown;
        a->capacity = wanted;
    }
    a->rows = rows;
    a->n_token = first + n;
    return KVR_OK;
}

static bool token_room(struct token_data *t)
{
    const size_t need = (size_t)t->n + 1;

    return kvr_grow((void **)&t->id, &t->cap_id, need, sizeof *t->id) &&
           kvr_grow((void **)&t->logprob, &t->cap_logprob, need,
                    sizeof *t->logprob) &&
           kvr_grow((void **)&t->class_of, &t->cap_class, need, 1) &&
           kvr_grow((void **)&t->text_end, &t->cap_end, need,
                    sizeof *t->text_end);
}

enum kvr_status kvr__content_token(struct content *c, int32_t id,
                                   const uint8_t *text, size_t text_size,
                                   float logprob, uint8_t class_of,
                                   struct kvr_error *err)
{
    struct token_data *t = &c->tokens;

    if (t->n >= c->box->shape.n_token)
        return kvr_fail(err, KVR_ERR_INPUT, "token %u: at most %u tokens", t->n,
                        c->box->shape.n_token);
    if (text != NULL && text_size > UINT32_MAX - t->text.n)
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "token %u: the text grows over 4 GiB", t->n);
    if (!token_room(t))
        return kvr_no_memory(err, "tokens", 16 * (size_t)t->n);
    if (text != NULL) {
        kvr__put(&t->text, text, text_size);
        t->has_text = true;
    }
    if (t->text.failed)
        return kvr_no_memory(err, "the tokens' text", text_size);
    t->id[t->n] = id;
    t->logprob[t->n] = logprob;
    t->class_of[t->n] = class_of;
    t->text_end[t->n] = (uint32_t)t->text.n;
    t->n++;
    return KVR_OK;
}

static int compare_tiles(const void *a, const void *b)
{
    const struct stored_tile *x = a, *y = b;

    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    if (x->row_tile != y->row_tile)
        return x->row_tile < y->row_tile ? -1 : 1;
    return x->col < y->col ? -1 : x->col > y->col;
}

void kvr__content_sort(struct content *c)
{
    if (c->n_tile > 1)
        qsort(c->tiles, c->n_tile, sizeof *c->tiles, compare_tiles);
}
