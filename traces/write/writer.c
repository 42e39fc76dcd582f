/* writer.c -- rows, arrays and tokens on their way to the journal.
 *
 * Rows: writer_rows.c. A full tile is packed when its next row comes (prompt
 * blocks, in the caller's thread) or at the commit (decoding, in parallel).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "writer.h"

#include "assemble.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "kvr_parallel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LEVEL = 1, MAX_LEVEL = 1, CODEC_BYTES = 512 << 10 };

enum kvr_status kvr__writer_take(struct codec **out, struct kvr_writer *w,
                                 struct kvr_error *err)
{
    struct codec *codec = NULL;

    pthread_mutex_lock(&w->lock);
    if (w->n_idle > 0)
        codec = w->idle[--w->n_idle];
    pthread_mutex_unlock(&w->lock);
    if (codec == NULL)
        return kvr__codec_new(out, w->content->level, err);
    *out = codec;
    return KVR_OK;
}

void kvr__writer_put(struct kvr_writer *w, struct codec *codec)
{
    pthread_mutex_lock(&w->lock);
    const bool room = kvr_grow((void **)&w->idle, &w->cap_idle, w->n_idle + 1,
                               sizeof(struct codec *));
    if (room)
        w->idle[w->n_idle++] = codec;
    pthread_mutex_unlock(&w->lock);
    if (!room)
        kvr__codec_free(codec);
}

enum kvr_status kvr__writer_failed(struct kvr_writer *w, enum kvr_status status,
                                   const struct kvr_error *err)
{
    pthread_mutex_lock(&w->lock);
    if (status != KVR_OK && w->failure.status == KVR_OK) {
        if (err != NULL)
            w->failure = *err;
        w->failure.status = status;
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

enum kvr_status kvr__writer_state(struct kvr_writer *w, struct kvr_error *err)
{
    pthread_mutex_lock(&w->lock);
    const enum kvr_status status = w->failure.status;
    if (status != KVR_OK && err != NULL)
        *err = w->failure;
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void free_writer(struct kvr_writer *w)
{
    if (w == NULL)
        return;
    for (uint32_t s = 0; w->mass != NULL && s < w->content->n_slot; s++)
        free(w->mass[s].value);
    for (size_t i = 0; i < w->n_idle; i++)
        kvr__codec_free(w->idle[i]);
    pthread_mutex_destroy(&w->lock);
    free(w->idle);
    free(w->mass);
    free(w->mass_given);
    free(w->array_written);
    free(w->path);
    kvr__content_free(w->content);
    free(w);
}

static enum kvr_status write_header(struct kvr_writer *w, struct kvr_error *err)
{
    struct bytes packed = {0};
    const struct journal_record record = {.type = JOURNAL_HEADER,
                                          .a = JOURNAL_MAJOR,
                                          .b = JOURNAL_MINOR,
                                          .c = (uint32_t)w->content->level};

    kvr__shape_pack(&packed, &w->content->box->shape, true);
    if (packed.failed) {
        free(packed.data);
        return kvr_no_memory(err, "the journal's header", packed.n);
    }
    struct journal_record sized = record;
    sized.size = packed.n;
    const enum kvr_status status =
        kvr__journal_append(w->journal, &sized, packed.data, NULL, err);
    free(packed.data);
    return status;
}

/* The last tile of every head stays open until it is committed; each thread
 * packs one: as it is, shuffled, packed, and the compressor. */
static enum kvr_status check_memory(const char *path,
                                    const struct kvr_trace_shape *shape,
                                    const struct kvr_writer_options *options,
                                    struct kvr_error *err)
{
    const uint64_t item = kvr__dtype_size(shape->dtype);
    const uint64_t row = (uint64_t)shape->n_token * item;
    uint64_t heads = 0;
    char what[300];

    for (uint32_t l = 0; l < shape->n_layer; l++)
        heads += shape->layers[l].n_head;
    snprintf(what, sizeof what, "%s: %" PRIu64 " heads of %u tokens", path,
             heads, shape->n_token);
    const uint64_t workers =
        kvr_parallel_workers((uint32_t)heads, options->threads);
    return kvr_check_memory(err, what,
                            (heads + 5 * workers) * KVR_TILE_ROWS * row +
                                workers * CODEC_BYTES,
                            options->memory);
}

static enum kvr_status new_writer(struct kvr_writer **out, const char *path,
                                  const struct kvr_trace_shape *shape,
                                  const struct kvr_writer_options *options,
                                  struct kvr_error *err)
{
    struct shape_box *box = NULL;
    struct kvr_writer *w = kvr_calloc(1, sizeof *w);
    const int level = options->deflate < 0 ? DEFAULT_LEVEL : options->deflate;

    if (w == NULL)
        return kvr_no_memory(err, "a writer", sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    w->options = *options;
    w->path = kvr_strdup(path);
    enum kvr_status status = kvr__shape_copy(&box, shape, err);
    if (status == KVR_OK)
        status = kvr__content_new(&w->content, box, level, err);
    if (status == KVR_OK) {
        w->mass = kvr_calloc(w->content->n_slot, sizeof *w->mass);
        w->mass_given = kvr_calloc(shape->n_layer, sizeof *w->mass_given);
        w->array_written = kvr_calloc(shape->n_layer, sizeof *w->array_written);
        if (w->mass == NULL || w->mass_given == NULL ||
            w->array_written == NULL || w->path == NULL)
            status = kvr_no_memory(err, "a writer", sizeof *w);
    }
    if (status != KVR_OK) {
        free_writer(w);
        return status;
    }
    *out = w;
    return KVR_OK;
}

enum kvr_status kvr_writer_open(struct kvr_writer **out, const char *path,
                                const struct kvr_trace_shape *shape,
                                const struct kvr_writer_options *given,
                                struct kvr_error *err)
{
    const struct kvr_writer_options none = {.deflate = -1};
    const struct kvr_writer_options *options = given != NULL ? given : &none;
    struct kvr_writer *w = NULL;

    enum kvr_status status = kvr__shape_check(shape, path, err);
    if (status == KVR_OK && options->deflate > MAX_LEVEL)
        status = kvr_fail(err, KVR_ERR_USAGE,
                          "%s: deflate level %d: expected 0 to %d", path,
                          options->deflate, MAX_LEVEL);
    if (status == KVR_OK)
        status = check_memory(path, shape, options, err);
    if (status == KVR_OK && kvr_is_special(path))
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: is no regular file; a trace is written beside "
                          "its name and renamed into place",
                          path);
    if (status == KVR_OK && !options->force && kvr_file_exists(path))
        status = kvr_fail(err, KVR_ERR_EXISTS,
                          "%s: exists; --force overwrites it", path);
    if (status == KVR_OK)
        status = new_writer(&w, path, shape, options, err);
    if (status != KVR_OK)
        return status;
    status = kvr__journal_create(&w->journal, path, options->force, err);
    if (status == KVR_OK)
        status = write_header(w, err);
    if (status != KVR_OK) {
        kvr__journal_close(w->journal, true);
        free_writer(w);
        return status;
    }
    *out = w;
    return KVR_OK;
}

enum kvr_status kvr__writer_close_tile(struct kvr_writer *w, uint32_t slot,
                                       struct kvr_error *err)
{
    struct content *c = w->content;
    struct head_rows *head = &c->heads[slot];
    const uint32_t end = head->n_tiled + KVR_TILE_ROWS;
    const uint32_t row_tile = head->n_tiled / KVR_TILE_ROWS;
    const uint64_t hash = kvr__content_tile_hash(c, slot, end);
    const uint32_t n_col = kvr__content_n_col(c, slot, row_tile);
    struct codec *codec = NULL;

    enum kvr_status status = kvr__writer_take(&codec, w, err);
    for (uint32_t col = 0; status == KVR_OK && col < n_col; col++) {
        const uint8_t *packed;
        size_t size;
        uint64_t offset = 0;
        status =
            kvr__content_pack(c, slot, col, end, codec, &packed, &size, err);
        if (status != KVR_OK)
            break;
        const struct journal_record record = {
            .type = JOURNAL_TILE,
            .a = head->layer,
            .b = head->head | (uint32_t)head->set << JOURNAL_SET_SHIFT,
            .c = row_tile,
            .d = col,
            .size = size,
            .extra = hash};
        status = kvr__journal_append(w->journal, &record, packed, &offset, err);
        if (status != KVR_OK)
            break;
        const struct stored_tile tile = {.slot = slot,
                                         .row_tile = row_tile,
                                         .col = col,
                                         .item = head->item,
                                         .size = (uint32_t)size,
                                         .offset = offset,
                                         .hash = hash};
        pthread_mutex_lock(&w->lock);
        status = kvr__content_add_tile(c, &tile, err);
        pthread_mutex_unlock(&w->lock);
    }
    if (codec != NULL)
        kvr__writer_put(w, codec);
    if (status == KVR_OK)
        kvr__content_close_tile(c, slot);
    return status;
}

enum kvr_status kvr_writer_array(struct kvr_writer *w, uint32_t layer,
                                 enum kvr_array array, uint32_t rows,
                                 uint32_t first, uint32_t n, const float *in,
                                 size_t stride, struct kvr_error *err)
{
    struct content *c = w->content;

    enum kvr_status status = kvr__writer_state(w, err);
    if (status != KVR_OK)
        return status;
    if (layer >= c->box->shape.n_layer || (unsigned)array >= KVR_N_ARRAY)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u, array %d: there is none", w->path,
                        layer, (int)array);
    status = kvr__content_array(c, layer, array, rows, first, n, err);
    if (status != KVR_OK)
        return kvr_error_prefix(err, "%s", w->path), status;
    struct array_data *a = &c->arrays[layer][array];
    for (uint32_t r = 0; r < rows; r++)
        memcpy(a->data + (size_t)r * a->capacity + first, in + r * stride,
               n * sizeof *in);
    if (array == KVR_ROW_MASS)
        w->mass_given[layer] = true;
    return KVR_OK;
}

enum kvr_status kvr_writer_token(struct kvr_writer *w, int32_t id,
                                 const uint8_t *text, size_t text_size,
                                 float logprob, enum kvr_token_class class_of,
                                 struct kvr_error *err)
{
    enum kvr_status status = kvr__writer_state(w, err);

    if (status != KVR_OK)
        return status;
    status = kvr__content_token(w->content, id, text, text_size, logprob,
                                (uint8_t)class_of, err);
    if (status != KVR_OK)
        return kvr_error_prefix(err, "%s", w->path), status;
    return KVR_OK;
}

void kvr_writer_set_prompt_len(struct kvr_writer *w, uint32_t prompt_len)
{
    w->content->box->shape.prompt_len = prompt_len;
}

enum kvr_status kvr_writer_finish(struct kvr_writer *w, struct kvr_error *err)
{
    enum kvr_status status = kvr__writer_state(w, err);

    if (status == KVR_OK)
        status = kvr__assemble(w->content, w->journal->fd, w->path,
                               w->options.force, false, err);
    if (status != KVR_OK) {
        kvr_writer_abandon(w);
        return status;
    }
    kvr__journal_close(w->journal, true);
    free_writer(w);
    return KVR_OK;
}

void kvr_writer_abandon(struct kvr_writer *w)
{
    if (w == NULL)
        return;
    kvr__journal_close(w->journal, w->content->n_step == 0);
    free_writer(w);
}

/* Vectors of a layer, bytes for all tokens. */
static uint64_t vector_bytes(const struct kvr_trace_shape *shape,
                             const struct kvr_layer_shape *y)
{
    uint64_t bytes = 0;

    for (int i = 0; i < KVR_N_VECTOR; i++) {
        const uint64_t heads = i == KVR_QUERY ? y->n_head : y->n_kv_head;
        if (y->stores & (uint32_t)KVR_STORES_QUERY << i)
            bytes += heads * (i == KVR_VALUE ? y->value_dim : y->key_dim) *
                     kvr__dtype_size(y->vector_dtype[i]) * shape->n_token;
    }
    return bytes;
}

/* Heads with attention, and bytes of queries, keys and values in `vectors`. */
static uint64_t attention_heads(const struct kvr_trace_shape *shape,
                                uint64_t *vectors)
{
    uint64_t heads = 0;

    for (uint32_t l = 0; l < shape->n_layer; l++) {
        const struct kvr_layer_shape *y = &shape->layers[l];
        if (y->stores == 0 || (y->stores & KVR_STORES_ATTENTION) != 0)
            heads += y->n_head;
        *vectors += vector_bytes(shape, y);
    }
    return heads;
}

uint64_t kvr_trace_step_bytes(const struct kvr_trace_shape *shape,
                              uint32_t first)
{
    const uint64_t t = shape->n_token;
    uint64_t vectors = 0;
    const uint64_t heads = attention_heads(shape, &vectors);

    if (first >= t)
        return 0;
    const uint64_t steps = t - first, weights = steps * (first + 1 + t) / 2;
    return heads * weights * kvr__dtype_size(shape->dtype) +
           vectors / t * steps + steps * shape->n_vocab * sizeof(float);
}

void kvr_trace_estimate(uint64_t *raw, uint64_t *expected,
                        const struct kvr_trace_shape *shape)
{
    const uint64_t t = shape->n_token;
    uint64_t heads = 0, vectors = 0;
    const uint64_t rows = attention_heads(shape, &vectors);

    for (uint32_t l = 0; l < shape->n_layer; l++)
        heads += shape->layers[l].n_head;
    const uint64_t square = rows * t * t * kvr__dtype_size(shape->dtype);
    const uint64_t logits = t * shape->n_vocab * sizeof(float);
    *raw = square + vectors + logits;
    /* Measured on real heads: 2.8 for f16, 3.8 with 7 bits, 1.2 for f32
     * (reference/performance.md), 1.16 for vectors; then the arrays and
     * tokens. */
    const double ratio = shape->dtype == KVR_F32 ? 2.4
                         : shape->round_bits > 0 && shape->round_bits <= 7
                             ? 3.7
                             : 2.7;
    *expected = (uint64_t)((double)square / ratio + (double)vectors / 1.1 +
                           (double)logits / 1.1) +
                heads * t * 16 + t * 32 + 65536;
}
