/* reader_stored.c -- rows as they are stored, of attention, vectors, logits.
 *
 * A chunk is read with pread and inflated once; rows come out of the planes
 * of its shuffled bytes, of attention only the keys at or below the diagonal.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader.h"

#include "kvr_file.h"
#include "kvr_half.h"
#include "kvr_memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IN_FILE, INFLATED, STORED_ROWS }; /* buffers of the scratch's codec */

uint32_t kvr__set_columns(const struct kvr_trace *trace,
                          const struct stored_set *set, uint32_t layer,
                          uint32_t row)
{
    return set == &trace->sets[layer][SET_ATTENTION]
               ? kvr__row_keys(&trace->box->layers[layer], row, set->dims[1])
               : set->dims[2];
}

void kvr__set_text(char out[SET_TEXT], const struct kvr_trace *trace,
                   const struct stored_set *set, uint32_t layer)
{
    const int which = (int)(set - trace->sets[layer]);

    if (layer == trace->box->shape.n_layer)
        snprintf(out, SET_TEXT, "/tokens/logits");
    else if (which == SET_ATTENTION)
        snprintf(out, SET_TEXT, "layer %u", trace->box->layers[layer].layer);
    else
        snprintf(out, SET_TEXT, "layer %u %s", trace->box->layers[layer].layer,
                 kvr__set_name((enum row_set)which));
}

static enum kvr_status read_place(const uint8_t **data,
                                  const struct kvr_trace *trace, int slot,
                                  uint64_t offset, size_t size,
                                  struct kvr_trace_scratch *scratch,
                                  struct kvr_error *err)
{
    uint8_t *buffer = kvr__codec_buffer(scratch->codec, slot, size);

    if (buffer == NULL)
        return kvr_no_memory(err, "a chunk", size);
    if (!kvr_read_at(trace->fd, buffer, size, offset))
        return kvr_fail(err, KVR_ERR_IO,
                        "%s: %zu bytes at %llu cannot be read: %s", trace->path,
                        size, (unsigned long long)offset,
                        errno != 0 ? strerror(errno) : "the file ends before");
    *data = buffer;
    return KVR_OK;
}

/* Brings a chunk into the scratch, still shuffled. */
static enum kvr_status load_chunk(const struct kvr_trace *trace,
                                  const struct stored_rows *want, size_t chunk,
                                  struct kvr_trace_scratch *scratch,
                                  struct kvr_error *err)
{
    const struct stored_set *a = want->set;
    const struct chunk_place *place = &a->places[chunk];
    const size_t n = (size_t)a->chunk[0] * a->chunk[1] * a->chunk[2] * a->item;
    char text[SET_TEXT];
    const bool deflated = a->deflated && (place->skipped & a->deflate_bit) == 0;
    const uint8_t *packed = NULL;

    if (scratch->set == a && scratch->chunk == chunk)
        return KVR_OK;
    scratch->set = NULL;
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
    if (!ok) {
        kvr__set_text(text, trace, a, want->layer);
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: the chunk of %u bytes at %llu is damaged: it "
                        "does not give %zu bytes",
                        trace->path, text, place->size,
                        (unsigned long long)place->offset, n);
    }
    scratch->plain = plain;
    scratch->plain_shuffled =
        a->shuffled && (place->skipped & a->shuffle_bit) == 0;
    scratch->chunk = chunk;
    scratch->set = a;
    return KVR_OK;
}

static uint32_t columns(const struct kvr_trace *trace,
                        const struct stored_rows *want, uint32_t row)
{
    return want->whole ? want->set->dims[2]
                       : kvr__set_columns(trace, want->set, want->layer, row);
}

static enum kvr_status read_contiguous(const struct kvr_trace *trace,
                                       const struct stored_rows *want,
                                       struct kvr_error *err)
{
    const struct stored_set *a = want->set;
    const uint32_t n = columns(trace, want, want->first);
    const uint64_t row = (uint64_t)want->head * a->dims[1] + want->first;
    const uint64_t offset = a->places[0].offset + row * a->dims[2] * a->item;
    char text[SET_TEXT];

    if (kvr_read_at(trace->fd, want->out, (size_t)n * a->item, offset))
        return KVR_OK;
    const int code = errno;
    kvr__set_text(text, trace, a, want->layer);
    return kvr_fail(err, KVR_ERR_IO, "%s: %s head %u row %u cannot be read: %s",
                    trace->path, text, want->head, want->first,
                    code != 0 ? strerror(code) : "the file ends before");
}

/* Keys first_key.. of the rows in one chunk, as far as they are used. */
static void take_rows(const struct kvr_trace *trace,
                      const struct stored_rows *want, uint32_t first_key,
                      const struct kvr_trace_scratch *scratch)
{
    const struct stored_set *a = want->set;
    const size_t item = a->item;
    const size_t n_item = (size_t)a->chunk[0] * a->chunk[1] * a->chunk[2];

    for (uint32_t r = 0; r < want->n; r++) {
        const uint32_t row = want->first + r;
        const uint32_t keys = columns(trace, want, row);
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
    const struct stored_set *a = want->set;
    const size_t line = ((size_t)(want->head / a->chunk[0]) * a->grid[1] +
                         want->first / a->chunk[1]) *
                        a->grid[2];
    const uint32_t most = columns(trace, want, want->first + want->n - 1);

    for (uint32_t col = 0; col < a->grid[2]; col++) {
        const uint64_t first_key = (uint64_t)col * a->chunk[2];
        if (first_key >= most)
            break;
        if (a->places[line + col].size == 0) {
            take_rows(trace, want, (uint32_t)first_key, NULL);
            continue;
        }
        const enum kvr_status status =
            load_chunk(trace, want, line + col, scratch, err);
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
    const struct stored_set *a = want->set;
    const size_t item = a->item;
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

static bool all_finite(const float *value, uint32_t n)
{
    unsigned bad = 0;

    for (uint32_t i = 0; i < n; i++)
        bad |= !(fabsf(value[i]) <= 3e38f);
    return bad == 0;
}

enum kvr_status kvr__read_wide(const struct kvr_trace *trace,
                               const struct stored_rows *given, float *out,
                               size_t stride, struct kvr_trace_scratch *scratch,
                               struct kvr_error *err)
{
    const uint32_t width = given->set->dims[2];
    struct stored_rows want = *given;
    char text[SET_TEXT];

    want.out = (uint8_t *)out;
    want.stride = stride;
    if (want.set->item == sizeof(uint16_t)) {
        const size_t bytes = (size_t)want.n * width * sizeof(uint16_t);
        want.stride = width;
        want.out = kvr__codec_buffer(scratch->codec, STORED_ROWS, bytes);
        if (want.out == NULL)
            return kvr_no_memory(err, "vectors", bytes);
    }
    const enum kvr_status status = kvr__read_stored(trace, &want, scratch, err);
    for (uint32_t r = 0; status == KVR_OK && r < want.n; r++) {
        float *row = out + r * stride;
        if (want.set->item == sizeof(uint16_t))
            kvr_f16_to_f32_n(
                row, (const uint16_t *)(void *)want.out + (size_t)r * width,
                width);
        if (all_finite(row, width))
            continue;
        kvr__set_text(text, trace, want.set, want.layer);
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s head %u row %u is not finite", trace->path,
                        text, want.head, want.first + r);
    }
    return status;
}

static enum kvr_status read_set(const struct kvr_trace *trace,
                                struct stored_rows want, float *out,
                                struct kvr_trace_scratch *scratch,
                                struct kvr_error *err)
{
    const struct stored_set *set = want.set;

    if (!set->present || want.head >= set->dims[0] ||
        want.first > set->dims[1] || want.n > set->dims[1] - want.first)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u head %u tokens %u+%u: not stored",
                        trace->path, want.layer, want.head, want.first, want.n);
    return kvr__read_wide(trace, &want, out, set->dims[2], scratch, err);
}

enum kvr_status kvr_trace_read_vectors(const struct kvr_trace *trace,
                                       uint32_t layer, enum kvr_vector vector,
                                       uint32_t head, uint32_t first,
                                       uint32_t n, float *out,
                                       struct kvr_trace_scratch *scratch,
                                       struct kvr_error *err)
{
    if (layer >= trace->box->shape.n_layer || (unsigned)vector >= KVR_N_VECTOR)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u, vector %d: there is none",
                        trace->path, layer, (int)vector);
    const struct stored_rows want = {
        .set = &trace->sets[layer][SET_QUERY + (int)vector],
        .layer = layer,
        .head = head,
        .first = first,
        .n = n};
    return read_set(trace, want, out, scratch, err);
}

enum kvr_status kvr_trace_read_logits(const struct kvr_trace *trace,
                                      uint32_t first, uint32_t n, float *out,
                                      struct kvr_trace_scratch *scratch,
                                      struct kvr_error *err)
{
    const uint32_t layer = trace->box->shape.n_layer;
    const struct stored_rows want = {.set = &trace->sets[layer][SET_LOGITS],
                                     .layer = layer,
                                     .first = first,
                                     .n = n};

    return read_set(trace, want, out, scratch, err);
}
