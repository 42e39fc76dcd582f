/* reader.c -- opening a trace, and its rows: stored ones widened and judged,
 * others made from query and key.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader.h"
#include "round.h"

#include "kvr_file.h"
#include "kvr_blas.h"
#include "kvr_half.h"
#include "kvr_memory.h"
#include "reader_h5.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whose keys each layer has, and what can be read. */
static void settle(struct kvr_trace *trace)
{
    const struct kvr_trace_shape *shape = &trace->box->shape;
    struct kvr_trace_facts *facts = &trace->facts;

    facts->has_attention = facts->has_rows = true;
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        const struct kvr_layer_shape *y = &shape->layers[l];
        uint32_t from = shape->n_layer;
        if (trace->sets[l][SET_KEY].present)
            from = l;
        for (uint32_t k = 0;
             from == shape->n_layer && y->kv_source >= 0 && k < shape->n_layer;
             k++)
            if (shape->layers[k].layer == (uint32_t)y->kv_source &&
                shape->layers[k].key_dim == y->key_dim &&
                shape->layers[k].n_kv_head == y->n_kv_head &&
                trace->sets[k][SET_KEY].present)
                from = k;
        trace->key_layer[l] = from;
        if (trace->sets[l][SET_ATTENTION].present)
            continue;
        facts->has_attention = false;
        if (kvr__has_pair(trace, l))
            facts->recomputed = true;
        else
            facts->has_rows = false;
    }
}

static enum kvr_status load_layer(struct kvr_trace *trace,
                                  const struct h5_index *file, uint32_t layer,
                                  struct kvr_error *err)
{
    const struct h5_object *group;

    enum kvr_status status = kvr__find_layer(&group, trace, file, layer, err);
    for (int set = SET_ATTENTION; status == KVR_OK && set <= SET_VALUE; set++)
        status =
            kvr__load_rows(trace, file, group, layer, (enum row_set)set, err);
    if (status == KVR_OK)
        status = kvr__load_arrays(trace, file, group, layer, err);
    if (status == KVR_OK)
        status = kvr__load_mlp(trace, file, group, layer, err);
    return status;
}

static enum kvr_status load(struct kvr_trace *trace,
                            const struct h5_index *file, struct kvr_error *err)
{
    enum kvr_status status = kvr__load_shape(trace, file, err);

    if (status != KVR_OK)
        return status;
    const uint32_t n_layer = trace->box->shape.n_layer;
    trace->sets = kvr_calloc(n_layer + 1, sizeof *trace->sets);
    trace->arrays = kvr_calloc(n_layer, sizeof *trace->arrays);
    trace->mlp = kvr_calloc(n_layer, sizeof *trace->mlp);
    trace->key_layer = kvr_calloc(n_layer, sizeof *trace->key_layer);
    if (trace->sets == NULL || trace->arrays == NULL || trace->mlp == NULL ||
        trace->key_layer == NULL)
        return kvr_no_memory(err, "layers", n_layer * sizeof *trace->arrays);
    for (uint32_t l = 0; status == KVR_OK && l < n_layer; l++)
        status = load_layer(trace, file, l, err);
    if (status == KVR_OK)
        status = kvr__load_tokens(trace, file, err);
    settle(trace);
    return status;
}

enum kvr_status kvr__trace_open(struct kvr_trace **out, const char *path,
                                struct kvr_error *err)
{
    struct kvr_trace *trace = kvr_calloc(1, sizeof *trace);
    struct h5_index *file = NULL;

    if (trace == NULL)
        return kvr_no_memory(err, "a trace", sizeof *trace);
    pthread_mutex_init(&trace->lock, NULL);
    trace->fd = -1;
    trace->facts.complete = true;
    trace->path = kvr_strdup(path);
    enum kvr_status status = KVR_OK;
    if (trace->path == NULL)
        status = kvr_no_memory(err, "a path", strlen(path));
    if (status == KVR_OK)
        status = kvr__h5_open(&file, path, err);
    if (status == KVR_OK) {
        trace->fd = file->fd;
        trace->size = file->size;
        status = load(trace, file, err);
        file->fd = -1; /* it is the trace's from here on */
    }
    kvr__h5_close(file);
    if (status != KVR_OK) {
        kvr_trace_close(trace);
        return status;
    }
    *out = trace;
    return KVR_OK;
}

enum kvr_status kvr_trace_open(struct kvr_trace **out, const char *path,
                               struct kvr_error *err)
{
    struct kvr_trace *trace = NULL;
    enum kvr_status status = kvr__trace_open(&trace, path, err);

    if (status == KVR_OK)
        status = kvr__judge_arrays(trace, err);
    if (status != KVR_OK) {
        kvr_trace_close(trace);
        return status;
    }
    *out = trace;
    return KVR_OK;
}

void kvr_trace_close(struct kvr_trace *trace)
{
    if (trace == NULL)
        return;
    const uint32_t n = trace->box != NULL ? trace->box->shape.n_layer : 0;
    for (uint32_t l = 0; trace->sets != NULL && l <= n; l++)
        for (int s = 0; s < N_ROW_SET; s++)
            free(trace->sets[l][s].places);
    for (uint32_t l = 0; l < n; l++) {
        for (int a = 0; trace->arrays != NULL && a < KVR_N_ARRAY; a++)
            free(trace->arrays[l][a].data);
        if (trace->mlp != NULL) {
            free(trace->mlp[l].mass);
            free(trace->mlp[l].active);
        }
    }
    free(trace->sets);
    free(trace->arrays);
    free(trace->mlp);
    free(trace->key_layer);
    free((void *)(uintptr_t)trace->tokens.id);
    free((void *)(uintptr_t)trace->tokens.text);
    free((void *)(uintptr_t)trace->tokens.text_offset);
    free((void *)(uintptr_t)trace->tokens.logprob);
    free((void *)(uintptr_t)trace->tokens.class_of);
    free((void *)(uintptr_t)trace->tokens.position);
    kvr__shape_free(trace->box);
    if (trace->fd >= 0)
        close(trace->fd);
    pthread_mutex_destroy(&trace->lock);
    free(trace->path);
    free(trace);
}

const struct kvr_trace_shape *kvr_trace_shape(const struct kvr_trace *trace)
{
    return &trace->box->shape;
}

const struct kvr_trace_facts *kvr_trace_facts(const struct kvr_trace *trace)
{
    return &trace->facts;
}

const char *kvr_trace_path(const struct kvr_trace *trace)
{
    return trace->path;
}

const struct kvr_trace_tokens *kvr_trace_tokens(const struct kvr_trace *trace)
{
    return &trace->tokens;
}

/* Is there a layer whose rows can be computed? */
static bool makes_rows(const struct kvr_trace *trace)
{
    for (uint32_t l = 0; l < trace->box->shape.n_layer; l++)
        if (kvr__has_pair(trace, l))
            return true;
    return false;
}

uint64_t kvr_trace_scratch_bytes(const struct kvr_trace *trace)
{
    uint64_t chunk = 0, made = 0;

    for (uint32_t l = 0; l < trace->box->shape.n_layer; l++) {
        for (int i = 0; i < N_ROW_SET; i++) {
            const struct stored_set *set = &trace->sets[l][i];
            const uint64_t here = (uint64_t)set->chunk[0] * set->chunk[1] *
                                  set->chunk[2] * set->item;
            chunk = set->present && here > chunk ? here : chunk;
        }
        if (kvr__has_pair(trace, l)) {
            const uint64_t here = kvr__made_bytes(trace, l);
            made = here > made ? here : made;
        }
    }
    return sizeof(struct kvr_trace_scratch) + CODEC_N_BUFFER * chunk + made +
           (made > 0 ? kvr_blas_bytes(1) : 0);
}

enum kvr_status kvr_trace_scratch_new(struct kvr_trace_scratch **out,
                                      const struct kvr_trace *trace,
                                      struct kvr_error *err)
{
    struct kvr_trace_scratch *scratch = kvr_calloc(1, sizeof *scratch);

    if (scratch == NULL)
        return kvr_no_memory(err, "scratch", sizeof *scratch);
    scratch->trace = trace;
    enum kvr_status status = kvr__codec_new(&scratch->codec, 0, err);
    if (status == KVR_OK && makes_rows(trace)) {
        status = kvr_blas_hold(1, err);
        scratch->holds_blas = status == KVR_OK;
    }
    if (status != KVR_OK) {
        kvr_trace_scratch_free(scratch);
        return status;
    }
    *out = scratch;
    return KVR_OK;
}

void kvr_trace_scratch_free(struct kvr_trace_scratch *scratch)
{
    if (scratch == NULL)
        return;
    kvr__codec_free(scratch->codec);
    if (scratch->holds_blas)
        kvr_blas_release(1);
    for (int i = 0; i < SCRATCH_MOST_KEYS; i++)
        free(scratch->keys[i].data);
    free(scratch->query);
    free(scratch->block);
    free(scratch);
}

struct kvr_trace_mlp kvr_trace_mlp(const struct kvr_trace *trace,
                                   uint32_t layer)
{
    if (layer >= trace->box->shape.n_layer)
        return (struct kvr_trace_mlp){0};
    return (struct kvr_trace_mlp){.n_ff = trace->mlp[layer].n_ff,
                                  .mass = trace->mlp[layer].mass,
                                  .active = trace->mlp[layer].active};
}

enum { ROWS_BUFFER = 2 }; /* of the scratch's codec */

/* Negative, NaN, or NO_WEIGHT and above: from the bits; -0 is a plain 0. */
static bool bad_f16(const uint16_t *half, uint32_t n)
{
    unsigned bad = 0;

    for (uint32_t i = 0; i < n; i++)
        bad |= half[i] >= 0x4000 && half[i] != 0x8000;
    return bad != 0;
}

static bool bad_f32(const float *value, uint32_t n)
{
    unsigned bad = 0;

    for (uint32_t i = 0; i < n; i++)
        bad |= !(value[i] >= 0 && value[i] < NO_WEIGHT);
    return bad != 0;
}

static enum kvr_status refuse_row(const struct kvr_trace *trace, uint32_t layer,
                                  uint32_t head, uint32_t row,
                                  const float *value, uint32_t n,
                                  struct kvr_error *err)
{
    uint32_t key = 0;

    while (key + 1 < n && value[key] >= 0 && value[key] < NO_WEIGHT)
        key++;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: layer %u head %u row %u key %u: weight %g: expected "
                    "a number from 0 to 1",
                    trace->path, trace->box->layers[layer].layer,
                    kvr_head_number(&trace->box->layers[layer], head), row, key,
                    (double)value[key]);
}

/* Widens one stored row into out; n keys, zeros behind them. */
static enum kvr_status widen_row(const struct kvr_trace *trace,
                                 const struct stored_rows *from, uint32_t row,
                                 const void *stored, float *out, size_t stride,
                                 struct kvr_error *err)
{
    const uint32_t n = kvr__row_keys(&trace->box->layers[from->layer], row,
                                     trace->box->shape.n_token);
    bool bad;

    if (trace->box->shape.dtype == KVR_F16) {
        const uint16_t *half = stored;
        kvr_f16_to_f32_n(out, half, n);
        bad = bad_f16(half, n);
    } else {
        bad = bad_f32(out, n);
        if (!bad)
            kvr__round_f32(out, n);
    }
    if (bad)
        return refuse_row(trace, from->layer, from->head, row, out, n, err);
    memset(out + n, 0, (stride - n) * sizeof *out);
    return KVR_OK;
}

/* At most KVR_TILE_ROWS rows: f16 passes through the scratch, f32 goes
 * straight to `out`. */
static enum kvr_status read_block(const struct kvr_trace *trace,
                                  struct stored_rows want, float *out,
                                  size_t stride,
                                  struct kvr_trace_scratch *scratch,
                                  struct kvr_error *err)
{
    const size_t t =
        kvr__row_keys(&trace->box->layers[want.layer], want.first + want.n - 1,
                      trace->box->shape.n_token);
    const bool half = trace->box->shape.dtype == KVR_F16;

    want.out = (uint8_t *)out;
    want.stride = stride;
    if (half) {
        want.stride = t;
        want.out = kvr__codec_buffer(scratch->codec, ROWS_BUFFER,
                                     want.n * t * sizeof(uint16_t));
        if (want.out == NULL)
            return kvr_no_memory(err, "rows", want.n * t * 2);
    }
    enum kvr_status status = kvr__read_stored(trace, &want, scratch, err);
    for (uint32_t r = 0; status == KVR_OK && r < want.n; r++)
        status = widen_row(trace, &want, want.first + r,
                           want.out + r * want.stride * (half ? 2 : 4),
                           out + r * stride, stride, err);
    if (status == KVR_OK)
        status = kvr__judge_rows(trace, &want, out, stride, err);
    return status;
}

/* The same of rows that are not stored. The block is always the whole tile, so
 * that its bits do not depend on what was asked for. */
static enum kvr_status make_block(const struct kvr_trace *trace,
                                  struct stored_rows want, float *out,
                                  size_t stride,
                                  struct kvr_trace_scratch *scratch,
                                  struct kvr_error *err)
{
    const uint32_t t = trace->box->shape.n_token;
    const uint32_t skipped = want.first % KVR_TILE_ROWS;
    const uint32_t first = want.first - skipped;
    const bool whole =
        want.n == (t - first < KVR_TILE_ROWS ? t - first : KVR_TILE_ROWS);
    const size_t line = whole ? stride : t;
    const size_t keys = stride < t ? stride : t;
    float *to = out;

    if (!whole) {
        if (!kvr_grow((void **)&scratch->block, &scratch->cap_block,
                      (size_t)KVR_TILE_ROWS * t, sizeof *to))
            return kvr_no_memory(err, "rows", (size_t)KVR_TILE_ROWS * t * 4);
        to = scratch->block;
    }
    const enum kvr_status status = kvr__make_rows(
        trace, want.layer, want.head, first, to, line, NULL, scratch, err);
    for (uint32_t r = 0; status == KVR_OK && !whole && r < want.n; r++) {
        float *row = out + r * stride;
        memcpy(row, to + (skipped + r) * line, keys * sizeof *row);
        memset(row + keys, 0, (stride - keys) * sizeof *row);
    }
    return status;
}

enum kvr_status kvr_trace_read_rows(const struct kvr_trace *trace,
                                    uint32_t layer, uint32_t head,
                                    uint32_t first, uint32_t n, float *out,
                                    size_t stride,
                                    struct kvr_trace_scratch *scratch,
                                    struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &trace->box->shape;
    enum kvr_status status = KVR_OK;

    if (layer >= shape->n_layer || head >= shape->layers[layer].n_head ||
        first > shape->n_token || n > shape->n_token - first ||
        (n > 0 && stride < kvr__row_keys(&shape->layers[layer], first + n - 1,
                                         shape->n_token)))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u head %u rows %u+%u (stride %zu): "
                        "the trace has %u layers and %u rows",
                        trace->path, layer, head, first, n, stride,
                        shape->n_layer, shape->n_token);
    const bool stored = trace->sets[layer][SET_ATTENTION].present;
    if (!stored && !kvr__has_pair(trace, layer))
        return kvr_fail(err, KVR_ERR_INPUT, "%s: layer %u has no attention",
                        trace->path, shape->layers[layer].layer);
    for (uint32_t done = 0; status == KVR_OK && done < n;) {
        const uint32_t at = first + done;
        const uint32_t left = KVR_TILE_ROWS - at % KVR_TILE_ROWS;
        const struct stored_rows want = {
            .set = &trace->sets[layer][SET_ATTENTION],
            .layer = layer,
            .head = head,
            .first = at,
            .n = n - done < left ? n - done : left};
        status = (stored ? read_block : make_block)(
            trace, want, out + done * stride, stride, scratch, err);
        done += want.n;
    }
    return status;
}
