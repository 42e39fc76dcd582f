/* writer_vectors.c -- vectors, logits and the MLP's sums on their way to the
 * journal.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "writer.h"

#include "kvr_half.h"
#include "kvr_memory.h"
#include "kvr_parallel.h"

#include <math.h>
#include <string.h>

/* Largest magnitude that goes into f16. Queries and keys are limited to where
 * f16's step is 1/8: beyond, the logits would be off by more than the rows can
 * bear. A value only has to be finite. */
static float f16_limit(enum row_set set)
{
    return set == SET_VALUE ? 65504.0f : 256.0f;
}

struct vectors_job {
    struct kvr_writer *writer;
    uint32_t slot, first, n, dim;
    const float *in;
    size_t stride;
};

/* The n rows of one head: rounded into its open tile, full tiles closed. */
static enum kvr_status store_head(uint32_t item, uint32_t worker, void *ud,
                                  struct kvr_error *err)
{
    const struct vectors_job *job = ud;
    struct content *c = job->writer->content;
    const uint32_t slot = job->slot + item;
    struct head_rows *head = &c->heads[slot];

    (void)worker;
    for (uint32_t r = 0; r < job->n; r++) {
        const float *in = job->in + r * job->stride + (size_t)item * job->dim;
        if (head->n_row - head->n_tiled == KVR_TILE_ROWS) {
            const enum kvr_status status =
                kvr__writer_close_tile(job->writer, slot, err);
            if (status != KVR_OK)
                return status;
        }
        uint8_t *to = kvr__content_row(c, slot, job->first + r);
        if (to == NULL)
            return kvr_no_memory(err, "an open tile",
                                 (size_t)job->dim * KVR_TILE_ROWS);
        if (head->item == sizeof(float))
            memcpy(to, in, job->dim * sizeof(float));
        else
            kvr_f32_to_f16_n((uint16_t *)(void *)to, in, job->dim);
        head->n_row++;
    }
    return KVR_OK;
}

/* *largest magnitude; a number that is not finite is refused. */
static enum kvr_status measure(float *largest, const struct vectors_job *job,
                               uint32_t width, struct kvr_error *err)
{
    const struct head_rows *head = &job->writer->content->heads[job->slot];

    *largest = 0;
    for (uint32_t r = 0; r < job->n; r++) {
        const float *row = job->in + r * job->stride;
        unsigned bad = 0;
        for (uint32_t i = 0; i < width; i++) {
            const float x = fabsf(row[i]);
            bad |= !(x <= 3e38f);
            *largest = x > *largest ? x : *largest;
        }
        if (bad != 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: stored layer %u: %s of token %u is not finite",
                            job->writer->path, head->layer,
                            kvr__set_name(head->set), job->first + r);
    }
    return KVR_OK;
}

static enum kvr_status widen(struct kvr_writer *w, uint32_t layer,
                             enum row_set set, uint32_t row,
                             struct kvr_error *err)
{
    const struct journal_record record = {
        .type = JOURNAL_WIDEN, .a = layer, .b = set, .c = row};

    if (!kvr__content_widen(w->content, layer, set, row))
        return kvr_no_memory(err, "an open tile", 0);
    return kvr__journal_append(w->journal, &record, NULL, NULL, err);
}

static enum kvr_status give_rows(struct kvr_writer *w, uint32_t layer,
                                 enum row_set set, uint32_t first, uint32_t n,
                                 const float *in, size_t stride,
                                 struct kvr_error *err)
{
    struct content *c = w->content;
    const uint32_t heads = kvr__set_heads(&c->box->shape, layer, set);
    float largest;

    enum kvr_status status = kvr__writer_state(w, err);
    if (status != KVR_OK)
        return status;
    if (heads == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u has no dataset '%s'", w->path,
                        layer, kvr__set_name(set));
    const uint32_t slot = c->first_slot[set][layer];
    const uint32_t next = c->heads[slot].n_row;
    if (first != next || n > c->box->shape.n_token - first)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u: %s of tokens %u..: expected "
                        "%u.. and at most %u tokens",
                        w->path, layer, kvr__set_name(set), first, next,
                        c->box->shape.n_token);
    struct vectors_job job = {.writer = w,
                              .slot = slot,
                              .first = first,
                              .n = n,
                              .dim = kvr__content_row_items(c, slot, first),
                              .in = in,
                              .stride = stride};
    status = measure(&largest, &job, heads * job.dim, err);
    if (status != KVR_OK)
        return status;
    if (c->heads[slot].item != sizeof(float) && largest > f16_limit(set))
        status = widen(w, layer, set, first, err);
    if (status == KVR_OK) /* a step's rows are too few to share out */
        status = kvr_parallel_for(heads, n > 1 ? w->options.threads : 1,
                                  store_head, &job, err);
    return kvr__writer_failed(w, status, err);
}

enum kvr_status kvr_writer_vectors(struct kvr_writer *w, uint32_t layer,
                                   enum kvr_vector vector, uint32_t first,
                                   uint32_t n, const float *in, size_t stride,
                                   struct kvr_error *err)
{
    if (layer >= w->content->box->shape.n_layer ||
        (unsigned)vector >= KVR_N_VECTOR)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u, vector %d: there is none",
                        w->path, layer, (int)vector);
    return give_rows(w, layer, (enum row_set)(SET_QUERY + (int)vector), first,
                     n, in, stride, err);
}

enum kvr_status kvr_writer_logits(struct kvr_writer *w, uint32_t first,
                                  uint32_t n, const float *in,
                                  struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &w->content->box->shape;

    return give_rows(w, shape->n_layer, SET_LOGITS, first, n, in,
                     shape->n_vocab, err);
}

enum kvr_status kvr_writer_mlp(struct kvr_writer *w, uint32_t layer,
                               uint32_t n_ff, uint32_t first, uint32_t n,
                               const float *in, struct kvr_error *err)
{
    struct content *c = w->content;

    enum kvr_status status = kvr__writer_state(w, err);
    if (status != KVR_OK)
        return status;
    if (layer >= c->box->shape.n_layer)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u: there is none", w->path, layer);
    status = kvr__content_mlp(c, layer, n_ff, err);
    if (status != KVR_OK)
        return kvr_error_prefix(err, "%s", w->path), status;
    struct mlp_data *m = &c->mlp[layer];
    if (first != m->n_token || n > c->box->shape.n_token - first)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u: the MLP of tokens %u..: expected "
                        "%u.. and at most %u tokens",
                        w->path, layer, first, m->n_token,
                        c->box->shape.n_token);
    for (uint32_t r = 0; r < n; r++) {
        const float *row = in + (size_t)r * n_ff;
        for (uint32_t i = 0; i < n_ff; i++) {
            m->open_mass[i] += fabs((double)row[i]);
            m->open_active[i] += row[i] != 0;
        }
    }
    m->n_token += n;
    return KVR_OK;
}
