/* reader_factored.c -- attention rows made from stored queries and keys.
 *
 * A block of 64 rows is one matrix product over the keys up to the block's
 * diagonal, then soft-cap, mask and softmax row by row. The keys of the head
 * in work stay widened in the scratch: its blocks, and the query heads that
 * share it, follow each other.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader.h"
#include "round.h"

#include "kvr_blas.h"
#include "kvr_memory.h"
#include "kvr_softmax.h"

#include <math.h>
#include <string.h>

bool kvr__has_pair(const struct kvr_trace *trace, uint32_t layer)
{
    return trace->sets[layer][SET_QUERY].present &&
           trace->key_layer[layer] < trace->box->shape.n_layer;
}

/* How many heads' keys a scratch keeps. */
static uint64_t n_kept(uint64_t bytes)
{
    const uint64_t fit = SCRATCH_KEY_BYTES / bytes;

    return fit < 1 ? 1 : fit < SCRATCH_MOST_KEYS ? fit : SCRATCH_MOST_KEYS;
}

uint64_t kvr__made_bytes(const struct kvr_trace *trace, uint32_t layer)
{
    const struct stored_set *keys =
        &trace->sets[trace->key_layer[layer]][SET_KEY];
    const uint64_t of_head =
        (uint64_t)keys->dims[1] * keys->dims[2] * sizeof(float);
    const uint64_t heads = (uint64_t)trace->box->shape.n_layer * keys->dims[0];
    const uint64_t kept = n_kept(of_head);
    const uint64_t block = KVR_TILE_ROWS * sizeof(float) *
                           ((uint64_t)keys->dims[1] + keys->dims[2]);

    /* twice: arrays grow by doubling */
    return 2 * (block + of_head * (heads < kept ? heads : kept));
}

/* The head's own place, or that of the one used longest ago. */
static struct wide_keys *find_keys(struct kvr_trace_scratch *scratch,
                                   const struct stored_set *set, uint32_t head)
{
    const uint64_t bytes =
        (uint64_t)set->dims[1] * set->dims[2] * sizeof(float);
    const uint64_t n = n_kept(bytes);
    struct wide_keys *oldest = &scratch->keys[0];

    for (uint64_t i = 0; i < n; i++) {
        struct wide_keys *k = &scratch->keys[i];
        if (k->set == set && k->head == head) {
            oldest = k;
            break;
        }
        if (k->used < oldest->used)
            oldest = k;
    }
    if (oldest->set != set || oldest->head != head)
        oldest->n = 0;
    oldest->set = set;
    oldest->head = head;
    oldest->used = ++scratch->clock;
    return oldest;
}

/* Keys of tokens 0..n-1 of a KV head, those read that are not there yet. *out
 * is borrowed from the scratch. */
static enum kvr_status load_keys(const float **out,
                                 const struct kvr_trace *trace, uint32_t layer,
                                 uint32_t head, uint32_t n,
                                 struct kvr_trace_scratch *scratch,
                                 struct kvr_error *err)
{
    const struct stored_set *set = &trace->sets[layer][SET_KEY];
    struct wide_keys *k = find_keys(scratch, set, head);
    const size_t dim = set->dims[2];

    if (!kvr_grow((void **)&k->data, &k->capacity, n * dim, sizeof *k->data))
        return kvr_no_memory(err, "keys", n * dim * sizeof *k->data);
    for (uint32_t at = k->n; at < n;) {
        const uint32_t left = KVR_TILE_ROWS - at % KVR_TILE_ROWS;
        const struct stored_rows want = {.set = set,
                                         .layer = layer,
                                         .head = head,
                                         .first = at,
                                         .n = n - at < left ? n - at : left};
        const enum kvr_status status =
            kvr__read_wide(trace, &want, k->data + at * dim, dim, scratch, err);
        if (status != KVR_OK) {
            k->set = NULL;
            return status;
        }
        at += want.n;
        k->n = at;
    }
    *out = k->data;
    return KVR_OK;
}

static enum kvr_status load_query(const struct kvr_trace *trace, uint32_t layer,
                                  uint32_t head, uint32_t first, uint32_t n,
                                  struct kvr_trace_scratch *scratch,
                                  struct kvr_error *err)
{
    const struct stored_set *set = &trace->sets[layer][SET_QUERY];
    const size_t dim = set->dims[2];
    const struct stored_rows want = {
        .set = set, .layer = layer, .head = head, .first = first, .n = n};

    if (!kvr_grow((void **)&scratch->query, &scratch->cap_query,
                  KVR_TILE_ROWS * dim, sizeof *scratch->query))
        return kvr_no_memory(err, "queries", KVR_TILE_ROWS * dim * 4);
    return kvr__read_wide(trace, &want, scratch->query, dim, scratch, err);
}

static double norm_of(const float *x, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void cap(float *logit, uint32_t n, float most)
{
    for (uint32_t i = 0; i < n; i++)
        logit[i] = most * tanhf(logit[i] / most);
}

/* The logits of one row become its weights; keys lo..n-1 are its own. */
static enum kvr_status finish_row(const struct kvr_trace *trace, uint32_t layer,
                                  uint32_t head, uint32_t row, float *out,
                                  size_t stride, bool round, double *lse,
                                  struct kvr_error *err)
{
    const struct kvr_layer_shape *y = &trace->box->layers[layer];
    const uint32_t lo = kvr__row_first_key(y, row);
    const uint32_t n = kvr__row_keys(y, row, trace->box->shape.n_token);
    const float *sink = NULL;
    uint32_t rows;

    enum kvr_status status =
        kvr_trace_array(&sink, &rows, trace, layer, KVR_SINK_MASS, err);
    if (status != KVR_OK)
        return status;
    if (y->softcap > 0)
        cap(out + lo, n - lo, (float)y->softcap);
    *lse = kvr_softmax(out + lo, n - lo, NULL);
    if (!isfinite(*lse))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u head %u row %u: query and key give no "
                        "finite logits",
                        trace->path, y->layer, kvr_head_number(y, head), row);
    if (sink != NULL) {
        const size_t at = (size_t)head * trace->box->shape.n_token + row;
        for (uint32_t i = lo; i < n; i++)
            out[i] *= 1.0f - sink[at];
    }
    if (round) /* now, while the row is in the cache */
        kvr__round_f32(out + lo, n - lo);
    memset(out, 0, lo * sizeof *out);
    memset(out + n, 0, (stride - n) * sizeof *out);
    return KVR_OK;
}

static void measure(const struct kvr_layer_shape *y, const float *query,
                    const float *key, uint32_t rows, uint32_t n_key,
                    struct made_rows *made)
{
    double most = 0;

    for (uint32_t i = 0; i < n_key; i++)
        most = fmax(most, norm_of(key + (size_t)i * y->key_dim, y->key_dim));
    for (uint32_t r = 0; r < rows; r++)
        made->reach[r] = y->scale * most *
                         norm_of(query + (size_t)r * y->key_dim, y->key_dim);
}

enum kvr_status kvr__make_rows(const struct kvr_trace *trace, uint32_t layer,
                               uint32_t head, uint32_t first, float *out,
                               size_t stride, struct made_rows *made,
                               struct kvr_trace_scratch *scratch,
                               struct kvr_error *err)
{
    const struct kvr_layer_shape *y = &trace->box->layers[layer];
    const uint32_t t = trace->box->shape.n_token;
    const uint32_t n = t - first < KVR_TILE_ROWS ? t - first : KVR_TILE_ROWS;
    const uint32_t end = kvr__row_keys(y, first + n - 1, t);
    const uint32_t lo = kvr__row_first_key(y, first);
    const uint32_t from = trace->key_layer[layer];
    const float *key = NULL;
    double lse = 0;

    enum kvr_status status =
        load_keys(&key, trace, from, head / (y->n_head / y->n_kv_head), end,
                  scratch, err);
    if (status == KVR_OK)
        status = load_query(trace, layer, head, first, n, scratch, err);
    if (status != KVR_OK)
        return status;
    const struct kvr_product product = {
        .m = n,
        .n = end - lo,
        .k = y->key_dim,
        .alpha = (float)y->scale,
        .a = scratch->query,
        .a_step = y->key_dim,
        .b = key + (size_t)lo * y->key_dim,
        .b_step = y->key_dim,
        .b_turned = true,
        .c = out + lo,
        .c_step = stride,
    };
    kvr_blas_matrix(&product);
    if (made != NULL)
        measure(y, scratch->query, key, n, end, made);
    for (uint32_t r = 0; status == KVR_OK && r < n; r++) {
        status = finish_row(trace, layer, head, first + r, out + r * stride,
                            stride, made == NULL, &lse, err);
        if (made != NULL)
            made->lse[r] = lse;
    }
    return status;
}
