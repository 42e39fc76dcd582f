/* cpu_attention.c -- attention, causal or over a window, block of rows by
 * block of rows.
 *
 * Logits of a block by one matrix product, softmax row by row, the block
 * handed out, then the product with the values. A decode step takes the
 * query heads of one KV head as the block: they read the same keys.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cpu_private.h"

#include "kvr_blas.h"
#include "kvr_parallel.h"
#include "kvr_softmax.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Rows of one matrix product: `n` rows of query head `head` from row `row`
 * on, or, in a decode step, row 0 of the heads head..head+n-1. */
struct block {
    const struct kvr_attention *call;
    bool across_heads;
    uint32_t head, row, n;
    float *weights; /* [n, max_keys] */
    uint32_t stride;
    float lse[KVR_CPU_BLOCK], mass[KVR_CPU_BLOCK];
};

static uint32_t n_keys(const struct block *b, uint32_t r)
{
    return b->call->first + (b->across_heads ? 0 : b->row + r) + 1;
}

/* First key that row r sees; the first of the block's rows sees it first. */
static uint32_t first_key(const struct block *b, uint32_t r)
{
    const uint32_t keys = n_keys(b, r), span = b->call->span;

    return span > 0 && keys > span ? keys - span : 0;
}

static enum kvr_status soften(struct block *b, const struct kvr_device *device,
                              struct kvr_error *err)
{
    const uint32_t widest = n_keys(b, b->n - 1);

    for (uint32_t r = 0; r < b->n; r++) {
        float *row = b->weights + (size_t)r * b->stride;
        const uint32_t keys = n_keys(b, r), from = first_key(b, r);
        if (b->call->softcap > 0)
            device->kernels->soft_cap(row + from, keys - from,
                                      b->call->softcap);
        b->lse[r] = (float)kvr_softmax(row + from, keys - from, &b->mass[r]);
        if (!isfinite(b->lse[r]))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "layer %" PRIu32 " head %" PRIu32 " step %" PRIu32
                            ": attention is not finite",
                            b->call->layer, b->head + (b->across_heads ? r : 0),
                            keys - 1);
        memset(row, 0, from * sizeof *row);
        memset(row + keys, 0, (widest - keys) * sizeof *row);
    }
    return KVR_OK;
}

static enum kvr_status hand_out(const struct block *b, struct kvr_error *err)
{
    struct kvr_attention_rows rows = {
        .layer = b->call->layer,
        .head = b->head,
        .first = b->call->first + b->row,
        .n = b->n,
        .rows = b->weights,
        .stride = b->stride,
        .lse = b->lse,
        .mass = b->mass,
    };
    enum kvr_status status = KVR_OK;

    if (b->call->report == NULL)
        return KVR_OK;
    if (!b->across_heads)
        return b->call->report(b->call->ud, &rows, err);
    rows.n = 1;
    for (uint32_t r = 0; r < b->n && status == KVR_OK; r++) {
        rows.head = b->head + r;
        rows.rows = b->weights + (size_t)r * b->stride;
        rows.lse = &b->lse[r];
        rows.mass = &b->mass[r];
        status = b->call->report(b->call->ud, &rows, err);
    }
    return status;
}

/* The two products of a block; the steps are from one row to the next. */
struct products {
    const struct block *b;
    uint32_t keys;
    const float *query, *key, *value;
    float *weights, *out;
    size_t query_step, out_step;
};

/* Below this many rows a matrix product spends its time on rearranging the
 * cache, which a product with a vector reads as it lies. */
enum { FEW_ROWS = 8 };

static void multiply_keys(const struct products *p)
{
    const struct kvr_attention *a = p->b->call;

    if (p->b->n >= FEW_ROWS) {
        const struct kvr_product product = {
            .m = p->b->n,
            .n = p->keys,
            .k = a->key_dim,
            .alpha = a->scale,
            .a = p->query,
            .a_step = p->query_step,
            .b = p->key,
            .b_step = a->key_dim,
            .b_turned = true,
            .c = p->weights,
            .c_step = p->b->stride,
        };
        kvr_blas_matrix(&product);
        return;
    }
    for (uint32_t r = 0; r < p->b->n; r++) {
        const struct kvr_vector_product product = {
            .rows = p->keys,
            .cols = a->key_dim,
            .alpha = a->scale,
            .a = p->key,
            .x = p->query + r * p->query_step,
            .y = p->weights + (size_t)r * p->b->stride,
        };
        kvr_blas_vector(&product);
    }
}

static void multiply_values(const struct products *p)
{
    const struct kvr_attention *a = p->b->call;

    if (p->b->n >= FEW_ROWS) {
        const struct kvr_product product = {
            .m = p->b->n,
            .n = a->value_dim,
            .k = p->keys,
            .alpha = 1,
            .a = p->weights,
            .a_step = p->b->stride,
            .b = p->value,
            .b_step = a->value_dim,
            .c = p->out,
            .c_step = p->out_step,
        };
        kvr_blas_matrix(&product);
        return;
    }
    for (uint32_t r = 0; r < p->b->n; r++) {
        const struct kvr_vector_product product = {
            .rows = p->keys,
            .cols = a->value_dim,
            .alpha = 1,
            .a = p->value,
            .x = p->weights + (size_t)r * p->b->stride,
            .y = p->out + r * p->out_step,
            .turned = true,
        };
        kvr_blas_vector(&product);
    }
}

static enum kvr_status do_block(struct block *b,
                                const struct kvr_device *device,
                                struct kvr_error *err)
{
    const struct kvr_attention *a = b->call;
    /* the keys that some row of the block sees */
    const uint32_t from = first_key(b, 0), keys = n_keys(b, b->n - 1) - from;
    const size_t cache_row = (size_t)(b->head / (a->n_head / a->n_kv_head)) *
                                 device->options.max_keys +
                             from;
    const struct products p = {
        .b = b,
        .keys = keys,
        .query =
            a->query->f32 + ((size_t)b->row * a->n_head + b->head) * a->key_dim,
        .query_step =
            b->across_heads ? a->key_dim : (size_t)a->n_head * a->key_dim,
        .key = a->keys->f32 + cache_row * a->key_dim,
        .value = a->values->f32 + cache_row * a->value_dim,
        .weights = b->weights + from,
        .out =
            a->out->f32 + ((size_t)b->row * a->n_head + b->head) * a->value_dim,
        .out_step =
            b->across_heads ? a->value_dim : (size_t)a->n_head * a->value_dim,
    };

    multiply_keys(&p);
    enum kvr_status status = soften(b, device, err);
    if (status == KVR_OK)
        status = hand_out(b, err);
    if (status == KVR_OK)
        multiply_values(&p);
    return status;
}

struct attention_job {
    struct kvr_device *device;
    const struct kvr_attention *call;
};

static struct block new_block(const struct attention_job *job, uint32_t worker)
{
    return (struct block){
        .call = job->call,
        .weights = job->device->scratch[worker],
        .stride = job->device->options.max_keys,
    };
}

/* All rows of one query head, in order. */
static enum kvr_status one_head(uint32_t item, uint32_t worker, void *ud,
                                struct kvr_error *err)
{
    const struct attention_job *job = ud;
    struct block b = new_block(job, worker);
    enum kvr_status status = KVR_OK;

    b.head = item;
    for (; b.row < job->call->n && status == KVR_OK; b.row += b.n) {
        const uint32_t left = job->call->n - b.row;
        /* blocks end where tiles do, whatever the first row is */
        const uint32_t to_tile =
            KVR_CPU_BLOCK - (job->call->first + b.row) % KVR_CPU_BLOCK;
        b.n = left < to_tile ? left : to_tile;
        status = do_block(&b, job->device, err);
    }
    return status;
}

/* The one row of the query heads of one KV head. */
static enum kvr_status one_group(uint32_t item, uint32_t worker, void *ud,
                                 struct kvr_error *err)
{
    const struct attention_job *job = ud;
    const uint32_t group = job->call->n_head / job->call->n_kv_head;
    struct block b = new_block(job, worker);
    enum kvr_status status = KVR_OK;

    b.across_heads = true;
    for (uint32_t h = 0; h < group && status == KVR_OK; h += b.n) {
        b.head = item * group + h;
        b.n = group - h < KVR_CPU_BLOCK ? group - h : KVR_CPU_BLOCK;
        status = do_block(&b, job->device, err);
    }
    return status;
}

enum kvr_status kvr__cpu_attention(struct kvr_device *device,
                                   const struct kvr_attention *call,
                                   struct kvr_error *err)
{
    struct attention_job job = {.device = device, .call = call};
    const uint64_t work = (uint64_t)call->n * (call->first + call->n) *
                          call->n_head * (call->key_dim + call->value_dim);
    const uint32_t threads = kvr__cpu_threads(device, work);

    if (call->n == 1)
        return kvr_parallel_for(call->n_kv_head, threads, one_group, &job, err);
    return kvr_parallel_for(call->n_head, threads, one_head, &job, err);
}
