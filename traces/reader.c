/* reader.c -- opening a trace, and its rows.
 *
 * A chunk is read with pread and inflated once; rows come out of the planes
 * of its shuffled bytes, only the keys at or below the diagonal.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader.h"

#include "journal.h"
#include "kvr_half.h"
#include "kvr_memory.h"
#include "reader_h5.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum kvr_status load(struct kvr_trace *trace, hid_t file,
                            struct kvr_error *err)
{
    enum kvr_status status = kvr__load_shape(trace, file, err);

    if (status != KVR_OK)
        return status;
    const uint32_t n_layer = trace->box->shape.n_layer;
    trace->attention = kvr_calloc(n_layer, sizeof *trace->attention);
    trace->arrays = kvr_calloc(n_layer, sizeof *trace->arrays);
    if (trace->attention == NULL || trace->arrays == NULL)
        return kvr_no_memory(err, "layers", n_layer * sizeof *trace->arrays);
    for (uint32_t l = 0; status == KVR_OK && l < n_layer; l++) {
        const hid_t group = kvr__open_layer(trace, file, l, err);
        if (group < 0)
            return KVR_ERR_INPUT;
        status = kvr__load_attention(trace, group, l, err);
        if (status == KVR_OK)
            status = kvr__load_arrays(trace, group, l, err);
        H5Gclose(group);
    }
    if (status == KVR_OK)
        status = kvr__load_tokens(trace, file, err);
    trace->facts.has_attention = true;
    for (uint32_t l = 0; l < n_layer; l++)
        if (!trace->attention[l].present)
            trace->facts.has_attention = false;
    return status;
}

static enum kvr_status open_bytes(struct kvr_trace *trace,
                                  struct kvr_error *err)
{
    struct stat st;

    trace->fd = open(trace->path, O_RDONLY | O_CLOEXEC);
    if (trace->fd < 0 || fstat(trace->fd, &st) != 0)
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be opened: %s",
                        trace->path, strerror(errno));
    trace->size = (uint64_t)st.st_size;
    return KVR_OK;
}

/* Addresses from HDF5 count from the end of a user block. */
static enum kvr_status refuse_user_block(const struct kvr_trace *trace,
                                         hid_t file, struct kvr_error *err)
{
    const hid_t plist = H5Fget_create_plist(file);
    hsize_t block = 0;

    if (plist < 0 || H5Pget_userblock(plist, &block) < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, "no file header");
    H5Pclose(plist);
    if (block != 0)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: begins with a user block of %llu bytes; remove "
                        "it with h5repack",
                        trace->path, (unsigned long long)block);
    return KVR_OK;
}

enum kvr_status kvr_trace_open(struct kvr_trace **out, const char *path,
                               struct kvr_error *err)
{
    struct kvr_trace *trace = kvr_calloc(1, sizeof *trace);
    hid_t file = -1;

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
    if (status == KVR_OK)
        status = refuse_user_block(trace, file, err);
    if (status == KVR_OK)
        status = open_bytes(trace, err);
    if (status == KVR_OK)
        status = load(trace, file, err);
    if (file >= 0)
        H5Fclose(file);
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
    for (uint32_t l = 0; l < n; l++) {
        if (trace->attention != NULL)
            free(trace->attention[l].places);
        for (int a = 0; trace->arrays != NULL && a < KVR_N_ARRAY; a++)
            free(trace->arrays[l][a].data);
    }
    free(trace->attention);
    free(trace->arrays);
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

enum kvr_status kvr_trace_scratch_new(struct kvr_trace_scratch **out,
                                      const struct kvr_trace *trace,
                                      struct kvr_error *err)
{
    struct kvr_trace_scratch *scratch = kvr_calloc(1, sizeof *scratch);

    if (scratch == NULL)
        return kvr_no_memory(err, "scratch", sizeof *scratch);
    scratch->trace = trace;
    const enum kvr_status status = kvr__codec_new(&scratch->codec, 0, err);
    if (status != KVR_OK) {
        free(scratch);
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
    free(scratch);
}

enum { IN_FILE, INFLATED, STORED_ROWS }; /* buffers of the scratch's codec */

static enum kvr_status read_place(const uint8_t **data,
                                  const struct kvr_trace *trace, int slot,
                                  uint64_t offset, size_t size,
                                  struct kvr_trace_scratch *scratch,
                                  struct kvr_error *err)
{
    uint8_t *buffer = kvr__codec_buffer(scratch->codec, slot, size);

    if (buffer == NULL)
        return kvr_no_memory(err, "a chunk", size);
    if (!kvr__pread_all(trace->fd, buffer, size, offset))
        return kvr_fail(err, KVR_ERR_IO,
                        "%s: %zu bytes at %llu cannot be read: %s", trace->path,
                        size, (unsigned long long)offset,
                        errno != 0 ? strerror(errno) : "the file ends before");
    *data = buffer;
    return KVR_OK;
}

/* Brings a chunk into the scratch, still shuffled. */
static enum kvr_status load_chunk(const struct kvr_trace *trace, uint32_t layer,
                                  size_t chunk,
                                  struct kvr_trace_scratch *scratch,
                                  struct kvr_error *err)
{
    const struct attention *a = &trace->attention[layer];
    const struct chunk_place *place = &a->places[chunk];
    const size_t n = (size_t)a->chunk[0] * a->chunk[1] * a->chunk[2] *
                     kvr__dtype_size(trace->box->shape.dtype);
    const bool deflated = a->deflated && (place->skipped & a->deflate_bit) == 0;
    const uint8_t *packed = NULL;

    if (scratch->valid && scratch->layer == layer && scratch->chunk == chunk)
        return KVR_OK;
    scratch->valid = false;
    const enum kvr_status status = read_place(
        &packed, trace, IN_FILE, place->offset, place->size, scratch, err);
    if (status != KVR_OK)
        return status;
    uint8_t *plain = kvr__codec_buffer(scratch->codec, INFLATED, n);
    if (plain == NULL)
        return kvr_no_memory(err, "a chunk", n);
    bool ok = deflated || place->size == n;
    if (deflated)
        ok = kvr__codec_inflate(scratch->codec, plain, n, packed, place->size);
    else if (ok)
        memcpy(plain, packed, n);
    if (!ok)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: the chunk of %u bytes at %llu is "
                        "damaged: it does not give %zu bytes",
                        trace->path, trace->box->layers[layer].layer,
                        place->size, (unsigned long long)place->offset, n);
    scratch->plain = plain;
    scratch->plain_shuffled =
        a->shuffled && (place->skipped & a->shuffle_bit) == 0;
    scratch->layer = layer;
    scratch->chunk = chunk;
    scratch->valid = true;
    return KVR_OK;
}

static enum kvr_status read_contiguous(const struct kvr_trace *trace,
                                       const struct stored_rows *want,
                                       struct kvr_error *err)
{
    const uint32_t t = trace->box->shape.n_token;
    const uint64_t item = kvr__dtype_size(trace->box->shape.dtype);
    const uint32_t keys =
        kvr__row_keys(&trace->box->layers[want->layer], want->first, t);
    const uint64_t offset = trace->attention[want->layer].places[0].offset +
                            ((uint64_t)want->head * t + want->first) * t * item;

    if (kvr__pread_all(trace->fd, want->out, keys * item, offset))
        return KVR_OK;
    return kvr_fail(
        err, KVR_ERR_IO, "%s: layer %u head %u row %u cannot be read: %s",
        trace->path, trace->box->layers[want->layer].layer, want->head,
        want->first, errno != 0 ? strerror(errno) : "the file ends before");
}

/* Keys first_key.. of the rows in one chunk, as far as they are used. */
static void take_rows(const struct kvr_trace *trace,
                      const struct stored_rows *want, uint32_t first_key,
                      const struct kvr_trace_scratch *scratch)
{
    const struct attention *a = &trace->attention[want->layer];
    const struct kvr_layer_shape *y = &trace->box->layers[want->layer];
    const size_t item = kvr__dtype_size(trace->box->shape.dtype);
    const size_t n_item = (size_t)a->chunk[0] * a->chunk[1] * a->chunk[2];

    for (uint32_t r = 0; r < want->n; r++) {
        const uint32_t row = want->first + r;
        const uint32_t keys = kvr__row_keys(y, row, trace->box->shape.n_token);
        uint8_t *to = want->out + (r * want->stride + first_key) * item;
        if (keys <= first_key)
            continue;
        const uint32_t count =
            keys - first_key < a->chunk[2] ? keys - first_key : a->chunk[2];
        const size_t from = ((size_t)(want->head % a->chunk[0]) * a->chunk[1] +
                             row % a->chunk[1]) *
                            a->chunk[2];
        if (scratch == NULL)
            memset(to, 0, count * item);
        else if (scratch->plain_shuffled)
            kvr__unshuffle_part(to, scratch->plain, n_item, from, count, item);
        else
            memcpy(to, scratch->plain + from * item, count * item);
    }
}

/* Rows of one row of chunks, chunk by chunk. */
static enum kvr_status read_line(const struct kvr_trace *trace,
                                 const struct stored_rows *want,
                                 struct kvr_trace_scratch *scratch,
                                 struct kvr_error *err)
{
    const struct attention *a = &trace->attention[want->layer];
    const size_t line = ((size_t)(want->head / a->chunk[0]) * a->grid[1] +
                         want->first / a->chunk[1]) *
                        a->grid[2];
    const uint32_t most =
        kvr__row_keys(&trace->box->layers[want->layer],
                      want->first + want->n - 1, trace->box->shape.n_token);

    for (uint32_t col = 0; col < a->grid[2]; col++) {
        const uint64_t first_key = (uint64_t)col * a->chunk[2];
        if (first_key >= most)
            break;
        if (a->places[line + col].size == 0) {
            take_rows(trace, want, (uint32_t)first_key, NULL);
            continue;
        }
        const enum kvr_status status =
            load_chunk(trace, want->layer, line + col, scratch, err);
        if (status != KVR_OK)
            return status;
        take_rows(trace, want, (uint32_t)first_key, scratch);
    }
    return KVR_OK;
}

enum kvr_status kvr__read_stored(const struct kvr_trace *trace,
                                 const struct stored_rows *want,
                                 struct kvr_trace_scratch *scratch,
                                 struct kvr_error *err)
{
    const struct attention *a = &trace->attention[want->layer];
    const size_t item = kvr__dtype_size(trace->box->shape.dtype);
    enum kvr_status status = KVR_OK;

    for (uint32_t done = 0; status == KVR_OK && done < want->n;) {
        struct stored_rows part = *want;
        part.first = want->first + done;
        part.out = want->out + done * want->stride * item;
        part.n = 1;
        if (a->chunked) {
            const uint32_t left = a->chunk[1] - part.first % a->chunk[1];
            part.n = want->n - done < left ? want->n - done : left;
            status = read_line(trace, &part, scratch, err);
        } else {
            status = read_contiguous(trace, &part, err);
        }
        done += part.n;
    }
    return status;
}

/* Negative, infinite or NaN: from the bits; -0 is a plain 0. */
static bool bad_f16(const uint16_t *half, uint32_t n)
{
    unsigned bad = 0;

    for (uint32_t i = 0; i < n; i++)
        bad |= half[i] >= 0x7c00 && half[i] != 0x8000;
    return bad != 0;
}

static bool bad_f32(const float *value, uint32_t n)
{
    unsigned bad = 0;

    for (uint32_t i = 0; i < n; i++)
        bad |= !(value[i] >= 0 && value[i] <= 3e38f);
    return bad != 0;
}

/* To multiples of 2^-30, so that sums in doubles are exact. Adding and taking
 * away 2^23 rounds to even; from 2^23 on a float is whole already. */
static void round_f32(float *value, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float scaled = value[i] * 0x1p30f;
        const float whole = (scaled + 0x1p23f) - 0x1p23f;
        value[i] = (scaled < 0x1p23f ? whole : scaled) * 0x1p-30f;
    }
}

static enum kvr_status refuse_row(const struct kvr_trace *trace, uint32_t layer,
                                  uint32_t head, uint32_t row,
                                  const float *value, uint32_t n,
                                  struct kvr_error *err)
{
    uint32_t key = 0;

    while (key + 1 < n && value[key] >= 0 && value[key] <= 3e38f)
        key++;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: layer %u head %u row %u key %u: weight %g: expected "
                    "a finite number >= 0",
                    trace->path, trace->box->layers[layer].layer, head, row,
                    key, (double)value[key]);
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
            round_f32(out, n);
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
    const size_t t = trace->box->shape.n_token;
    const bool half = trace->box->shape.dtype == KVR_F16;

    want.out = (uint8_t *)out;
    want.stride = stride;
    if (half) {
        want.stride = t;
        want.out = kvr__codec_buffer(scratch->codec, STORED_ROWS,
                                     want.n * t * sizeof(uint16_t));
        if (want.out == NULL)
            return kvr_no_memory(err, "rows", want.n * t * 2);
    }
    enum kvr_status status = kvr__read_stored(trace, &want, scratch, err);
    for (uint32_t r = 0; status == KVR_OK && r < want.n; r++)
        status = widen_row(trace, &want, want.first + r,
                           want.out + r * want.stride * (half ? 2 : 4),
                           out + r * stride, stride, err);
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
        stride < shape->n_token)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u head %u rows %u+%u (stride %zu): "
                        "the trace has %u layers and %u rows",
                        trace->path, layer, head, first, n, stride,
                        shape->n_layer, shape->n_token);
    if (!trace->attention[layer].present)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: layer %u has no attention",
                        trace->path, shape->layers[layer].layer);
    for (uint32_t done = 0; status == KVR_OK && done < n;) {
        const uint32_t at = first + done;
        const uint32_t left = KVR_TILE_ROWS - at % KVR_TILE_ROWS;
        const struct stored_rows want = {.layer = layer,
                                         .head = head,
                                         .first = at,
                                         .n =
                                             n - done < left ? n - done : left};
        status =
            read_block(trace, want, out + done * stride, stride, scratch, err);
        done += want.n;
    }
    return status;
}
