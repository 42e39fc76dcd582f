/* record.c -- rows, vectors, norms and tokens on their way into the trace.
 *
 * A back end that reports later calls from its own threads while the next
 * feed is computed: nothing here depends on the feed that is going on, only on
 * what a call is told. Only rows come several at once.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "capture_private.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where token `first` of a layer's head lies in lse and mass. Chunks of the
 * prompt start at multiples of prompt_chunk, steps have one token: a feed's
 * places follow each other. */
static size_t place(const struct kvr_recorder *r, uint32_t layer, uint32_t head,
                    uint32_t first)
{
    const struct kvr_capture *c = r->capture;

    return ((size_t)c->layer_slot[layer] * c->plan.stored_heads + head) *
               c->prompt_chunk +
           first % c->prompt_chunk;
}

/* From any worker: each head of a layer has its own place. */
static enum kvr_status take_rows(void *ud,
                                 const struct kvr_attention_rows *rows,
                                 struct kvr_error *err)
{
    struct kvr_recorder *r = ud;
    const struct kvr_capture *c = r->capture;

    if (!c->head_wanted[rows->head])
        return KVR_OK;
    const uint32_t head = c->head_slot[rows->head];
    const size_t at = place(r, rows->layer, head, rows->first);
    memcpy(r->lse + at, rows->lse, rows->n * sizeof *r->lse);
    if (c->options.store == KVR_CAPTURE_QK)
        return KVR_OK;
    memcpy(r->mass + at, rows->mass, rows->n * sizeof *r->mass);
    if (rows->halves != NULL)
        return kvr_writer_half_rows(r->writer, c->layer_slot[rows->layer], head,
                                    rows->first, rows->n, rows->halves,
                                    rows->stride, err);
    return kvr_writer_rows(r->writer, c->layer_slot[rows->layer], head,
                           rows->first, rows->n, rows->rows, rows->stride, err);
}

/* The wanted ones of `heads` rows of values; step: query heads per row. */
static enum kvr_status put_array(struct kvr_recorder *r,
                                 const struct kvr_layer_norms *norms,
                                 enum kvr_array array, const float *values,
                                 uint32_t heads, uint32_t step,
                                 struct kvr_error *err)
{
    const struct kvr_capture *c = r->capture;
    uint32_t rows = 0;

    for (uint32_t h = 0; h < heads; h++)
        if (c->head_wanted[h * step])
            memcpy(r->gathered + (size_t)rows++ * c->prompt_chunk,
                   values + h * norms->stride, norms->n * sizeof *values);
    return kvr_writer_array(r->writer, c->layer_slot[norms->layer], array, rows,
                            norms->first, norms->n, r->gathered,
                            c->prompt_chunk, err);
}

static enum kvr_status take_norms(void *ud, const struct kvr_layer_norms *n,
                                  struct kvr_error *err)
{
    struct kvr_recorder *r = ud;
    const struct kvr_capture *c = r->capture;
    const uint32_t heads = c->model.config.n_head;
    const uint32_t groups = c->model.config.n_kv_head;
    const uint32_t slot = c->layer_slot[n->layer];
    const uint32_t step = heads / groups;
    const size_t at = place(r, n->layer, 0, n->first);
    enum kvr_status status;

    status =
        kvr_writer_array(r->writer, slot, KVR_LSE, c->plan.stored_heads,
                         n->first, n->n, r->lse + at, c->prompt_chunk, err);
    /* row_mass is the sum before the weights are rounded for storage. Where
     * only queries and keys are stored, no weight is stored, and there is none.
     */
    if (status == KVR_OK && c->options.store != KVR_CAPTURE_QK)
        status = kvr_writer_array(r->writer, slot, KVR_ROW_MASS,
                                  c->plan.stored_heads, n->first, n->n,
                                  r->mass + at, c->prompt_chunk, err);
    if (status != KVR_OK || c->options.no_norms)
        return status;
    if ((status = put_array(r, n, KVR_KEY_NORM, n->key_norm, groups, step,
                            err)) != KVR_OK ||
        (status = put_array(r, n, KVR_VALUE_NORM1, n->value_norm1, groups, step,
                            err)) != KVR_OK ||
        (status = put_array(r, n, KVR_VALUE_NORM2, n->value_norm2, groups, step,
                            err)) != KVR_OK ||
        n->value_out_norm == NULL)
        return status;
    return put_array(r, n, KVR_VALUE_OUT_NORM1, n->value_out_norm, heads, 1,
                     err);
}

/* The wanted heads of in[n][heads * dim]; step: query heads per head. */
static enum kvr_status put_vectors(struct kvr_recorder *r, uint32_t layer,
                                   uint32_t first, uint32_t n,
                                   enum kvr_vector kind, const float *in,
                                   uint32_t heads, uint32_t dim,
                                   struct kvr_error *err)
{
    const struct kvr_capture *c = r->capture;
    const uint32_t step = c->model.config.n_head / heads;
    float *to = r->vectors;

    if (n == 0)
        return KVR_OK;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < heads; h++) {
            if (!c->head_wanted[h * step])
                continue;
            memcpy(to, in + ((size_t)i * heads + h) * dim, dim * sizeof *to);
            to += dim;
        }
    return kvr_writer_vectors(r->writer, c->layer_slot[layer], kind, first, n,
                              r->vectors, (size_t)(to - r->vectors) / n, err);
}

static enum kvr_status take_pair(void *ud, uint32_t layer, uint32_t first,
                                 uint32_t n, const float *query,
                                 const float *key, struct kvr_error *err)
{
    struct kvr_recorder *r = ud;
    const struct kvr_config *m = &r->capture->model.config;

    const enum kvr_status status = put_vectors(
        r, layer, first, n, KVR_QUERY, query, m->n_head, m->key_dim, err);
    if (status != KVR_OK)
        return status;
    return put_vectors(r, layer, first, n, KVR_KEY, key, m->n_kv_head,
                       m->key_dim, err);
}

static enum kvr_status take_values(void *ud, uint32_t layer, uint32_t first,
                                   uint32_t n, const float *value,
                                   struct kvr_error *err)
{
    struct kvr_recorder *r = ud;
    const struct kvr_config *m = &r->capture->model.config;

    return put_vectors(r, layer, first, n, KVR_VALUE, value, m->n_kv_head,
                       m->value_dim, err);
}

static enum kvr_status take_mlp(void *ud, uint32_t layer, uint32_t first,
                                uint32_t n, const float *activation,
                                struct kvr_error *err)
{
    struct kvr_recorder *r = ud;
    const struct kvr_capture *c = r->capture;

    if (!c->layer_wanted[layer])
        return KVR_OK;
    return kvr_writer_mlp(r->writer, c->layer_slot[layer], c->model.config.n_ff,
                          first, n, activation, err);
}

enum kvr_status kvr__recorder_logits(struct kvr_recorder *r, uint32_t index,
                                     const float *logits, struct kvr_error *err)
{
    return kvr_writer_logits(r->writer, index, 1, logits, err);
}

enum kvr_status kvr__recorder_init(struct kvr_recorder *r,
                                   struct kvr_capture *c, struct kvr_error *err)
{
    const struct kvr_writer_options options = {
        .force = c->options.force,
        .sync = c->options.sync,
        .deflate = -1,
        .threads = c->options.threads,
    };
    const size_t cells = (size_t)c->plan.stored_heads * c->prompt_chunk;
    const struct kvr_config *m = &c->model.config;
    const size_t dim = m->key_dim > m->value_dim ? m->key_dim : m->value_dim;
    const bool pair = c->options.store != KVR_CAPTURE_ATTENTION;
    const uint32_t with = c->options.with;
    const size_t places = cells * c->plan.stored_layers;

    *r = (struct kvr_recorder){
        .capture = c,
        .lse = kvr_calloc(places, sizeof(float)),
        .mass = kvr_calloc(places, sizeof(float)),
        .gathered = kvr_calloc(cells, sizeof(float)),
        .vectors = kvr_calloc(cells, dim * sizeof(float)),
        .log_prob = kvr_calloc(c->plan.n_token_max, sizeof(float)),
        .observer = {.ud = r,
                     .lse_only = c->options.store == KVR_CAPTURE_QK,
                     .no_value_out = c->options.no_norms,
                     .layers = c->layer_wanted,
                     .rows = take_rows,
                     .norms = take_norms,
                     .query_key = pair ? take_pair : NULL,
                     .values = with & KVR_CAPTURE_VALUES ? take_values : NULL,
                     .mlp = with & KVR_CAPTURE_MLP ? take_mlp : NULL},
    };
    if (r->lse == NULL || r->mass == NULL || r->gathered == NULL ||
        r->vectors == NULL || r->log_prob == NULL)
        return kvr_no_memory(err, "rows", places * sizeof(float));
    for (uint32_t i = 0; i < c->plan.n_token_max; i++)
        r->log_prob[i] = NAN;
    return kvr_writer_open(&r->writer, c->options.output, &c->shape, &options,
                           err);
}

enum kvr_status kvr__recorder_commit(void *ud, uint32_t first, uint32_t n,
                                     struct kvr_error *err)
{
    struct kvr_recorder *r = ud;
    enum kvr_status status = KVR_OK;

    for (uint32_t i = first; i < first + n && status == KVR_OK; i++) {
        const struct kvr_capture_token token = kvr_capture_token(r->capture, i);
        status =
            kvr_writer_token(r->writer, token.id, token.text, token.text_size,
                             r->log_prob[i], token.class_of, err);
    }
    if (status != KVR_OK)
        return status;
    return kvr_writer_commit(r->writer, first + n, err);
}

enum kvr_status kvr__recorder_finish(struct kvr_recorder *r,
                                     struct kvr_error *err)
{
    struct kvr_writer *writer = r->writer;

    r->writer = NULL;
    return kvr_writer_finish(writer, err);
}

void kvr__recorder_fini(struct kvr_recorder *r)
{
    if (r->writer != NULL)
        kvr_writer_abandon(r->writer);
    free(r->lse);
    free(r->mass);
    free(r->gathered);
    free(r->vectors);
    free(r->log_prob);
}
