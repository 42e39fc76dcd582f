/* reader_index.c -- where the bytes of rows lie, found once.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader_h5.h"

#include "kvr_memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_CHUNK_BYTES = 64 << 20 };

/* True where a row of chunk row i uses a key of chunk column j. y NULL: rows
 * use all columns. */
static bool chunk_needed(const struct kvr_layer_shape *y,
                         const struct stored_set *a, uint32_t t, uint32_t i,
                         uint32_t j)
{
    const uint64_t first_row = (uint64_t)i * a->chunk[1];
    const uint64_t first_key = (uint64_t)j * a->chunk[2];
    uint64_t last_row = first_row + a->chunk[1] - 1;

    if (y == NULL || y->mask == KVR_MASK_NONE)
        return true;
    if (last_row >= t)
        last_row = t - 1;
    const uint64_t least = kvr__row_first_key(y, (uint32_t)first_row);
    return first_key <= last_row && first_key + a->chunk[2] > least;
}

static enum kvr_status check_needed(const struct kvr_trace *trace,
                                    const struct stored_set *a, uint32_t layer,
                                    struct kvr_error *err)
{
    const struct kvr_layer_shape *y = a == &trace->sets[layer][SET_ATTENTION]
                                          ? &trace->box->layers[layer]
                                          : NULL;
    const uint32_t t = trace->box->shape.n_token;
    char text[SET_TEXT];
    size_t next = 0;

    for (uint32_t h = 0; h < a->grid[0]; h++)
        for (uint32_t i = 0; i < a->grid[1]; i++)
            for (uint32_t j = 0; j < a->grid[2]; j++, next++)
                if (a->places[next].size == 0 && chunk_needed(y, a, t, i, j)) {
                    kvr__set_text(text, trace, a, layer);
                    return kvr_fail(
                        err, KVR_ERR_INPUT,
                        "%s: %s head %u: declares %u rows, but the chunk of "
                        "rows %llu.. and keys %llu.. is not stored (%llu "
                        "bytes are)",
                        trace->path, text, h * a->chunk[0], t,
                        (unsigned long long)i * a->chunk[1],
                        (unsigned long long)j * a->chunk[2],
                        (unsigned long long)a->stored_bytes);
                }
    return KVR_OK;
}

/* A chunk at its cell. Where chunks that jut out pass no filter, all of theirs
 * count as skipped. */
static enum kvr_status place_chunk(const struct kvr_trace *trace,
                                   struct stored_set *a,
                                   const struct h5_set *set,
                                   const struct h5_place *place,
                                   struct kvr_error *err)
{
    uint64_t cell = place->cell;
    bool juts_out = false;

    if (place->size == 0 || place->size > UINT32_MAX ||
        place->offset > trace->size ||
        place->size > trace->size - place->offset)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: a chunk of %llu bytes at %llu is not inside the "
                        "file of %llu bytes",
                        trace->path, (unsigned long long)place->size,
                        (unsigned long long)place->offset,
                        (unsigned long long)trace->size);
    for (int i = 3; i-- > 0;) {
        const uint64_t at = cell % a->grid[i] * a->chunk[i];
        juts_out = juts_out || a->dims[i] - at < a->chunk[i];
        cell /= a->grid[i];
    }
    a->stored_bytes += place->size;
    a->places[place->cell] = (struct chunk_place){
        .offset = place->offset,
        .size = (uint32_t)place->size,
        .skipped = set->edges_are_plain && juts_out ? UINT32_MAX
                                                    : (uint32_t)place->skipped};
    return KVR_OK;
}

/* The grid must be backed by stored chunks before its index is allocated. */
static enum kvr_status make_grid(const struct kvr_trace *trace,
                                 struct stored_set *a, const char *where,
                                 uint64_t n_stored, struct kvr_error *err)
{
    uint64_t cells = 1, bytes = a->item;

    for (int i = 0; i < 3; i++) {
        if (!kvr_mul_u64(&bytes, bytes, a->chunk[i]))
            return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: chunks of %u",
                            trace->path, where, a->chunk[i]);
        a->grid[i] =
            (uint32_t)(((uint64_t)a->dims[i] + a->chunk[i] - 1) / a->chunk[i]);
        cells *= a->grid[i]; /* below 2^14 * 2^24 * 2^24 */
    }
    if (bytes > MAX_CHUNK_BYTES)
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "%s: %s: chunks of %llu bytes, at most %d are read",
                        trace->path, where, (unsigned long long)bytes,
                        MAX_CHUNK_BYTES);
    if (n_stored < (uint64_t)a->grid[0] * a->grid[1] ||
        cells > trace->size + (1 << 20))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: declares %llu chunks of %llu bytes and "
                        "stores %llu",
                        trace->path, where, (unsigned long long)cells,
                        (unsigned long long)bytes,
                        (unsigned long long)n_stored);
    a->places = kvr_calloc(cells, sizeof *a->places);
    if (a->places == NULL)
        return kvr_no_memory(err, "a chunk index", cells * sizeof *a->places);
    return KVR_OK;
}

static enum kvr_status read_filters(const struct kvr_trace *trace,
                                    struct stored_set *a,
                                    const struct h5_set *set, const char *where,
                                    struct kvr_error *err)
{
    for (int i = 0; i < set->n_filter; i++) {
        const struct h5_filter *filter = &set->filter[i];
        if (filter->id == FILTER_SHUFFLE && !a->shuffled && !a->deflated) {
            a->shuffled = true;
            a->shuffle_bit = 1u << i;
        } else if (filter->id == FILTER_DEFLATE && !a->deflated) {
            a->deflated = true;
            a->deflate_bit = 1u << i;
        } else {
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "%s: %s: filter %u (%s) at place %d: rows are "
                            "read only through shuffle and deflate; repack "
                            "with h5repack -f SHUF -f GZIP=4",
                            trace->path, where, filter->id, filter->name, i);
        }
    }
    return KVR_OK;
}

static enum kvr_status load_chunked(struct kvr_trace *trace,
                                    struct stored_set *a,
                                    const struct h5_index *file,
                                    const struct h5_set *set, const char *where,
                                    struct kvr_error *err)
{
    const struct h5_place *places = file->places + set->first_place;

    a->chunked = true;
    a->chunk[0] = 1;
    for (int i = 0; i < set->rank; i++) {
        if (set->chunk[i] == 0 || set->chunk[i] > UINT32_MAX)
            return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: chunks of %llu",
                            trace->path, where,
                            (unsigned long long)set->chunk[i]);
        a->chunk[3 - set->rank + i] = (uint32_t)set->chunk[i];
    }
    enum kvr_status status = read_filters(trace, a, set, where, err);
    if (status == KVR_OK)
        status = make_grid(trace, a, where, set->n_place, err);
    const uint64_t cells =
        status == KVR_OK ? (uint64_t)a->grid[0] * a->grid[1] * a->grid[2] : 0;
    for (uint64_t i = 0; status == KVR_OK && i < set->n_place; i++)
        status = places[i].cell < cells
                     ? place_chunk(trace, a, set, &places[i], err)
                     : kvr_fail(err, KVR_ERR_INPUT,
                                "%s: %s: a chunk outside of its grid",
                                trace->path, where);
    return status;
}

static enum kvr_status load_contiguous(struct kvr_trace *trace,
                                       struct stored_set *a,
                                       const struct h5_set *set,
                                       const char *where, struct kvr_error *err)
{
    uint64_t declared = a->item;

    for (int i = 0; i < 3; i++)
        if (!kvr_mul_u64(&declared, declared, a->dims[i]))
            declared = UINT64_MAX;
    if (set->offset == UINT64_MAX || set->stored != declared ||
        set->offset > trace->size || declared > trace->size - set->offset)
        return kvr_fail(
            err, KVR_ERR_INPUT, "%s: %s: declares %llu bytes and stores %llu",
            trace->path, where, (unsigned long long)declared,
            (unsigned long long)(set->offset != UINT64_MAX ? set->stored : 0));
    a->places = kvr_calloc(1, sizeof *a->places);
    if (a->places == NULL)
        return kvr_no_memory(err, "a chunk index", sizeof *a->places);
    a->places[0].offset = set->offset;
    a->stored_bytes = declared;
    return KVR_OK;
}

/* What the dataset must be: heads, rows, columns. */
static void expect(uint32_t dims[3], const struct kvr_trace *trace,
                   uint32_t layer, enum row_set set)
{
    const struct kvr_trace_shape *shape = &trace->box->shape;

    dims[0] = kvr__set_heads(shape, layer, set);
    dims[1] = shape->n_token;
    dims[2] = set == SET_ATTENTION ? shape->n_token
              : set == SET_LOGITS  ? shape->n_vocab
              : set == SET_VALUE   ? shape->layers[layer].value_dim
                                   : shape->layers[layer].key_dim;
}

static enum kvr_status load_set(struct kvr_trace *trace, struct stored_set *a,
                                const struct h5_index *file,
                                const struct h5_object *object, int rank,
                                uint32_t layer, const char *where,
                                struct kvr_error *err)
{
    const struct h5_set *set = object->set;
    bool fits = set->rank == rank;

    for (int i = 0; fits && i < rank; i++)
        fits = set->dims[i] == a->dims[3 - rank + i];
    if (!fits)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: expected shape [%u, %u, %u], found rank %d "
                        "[%llu, %llu, %llu]",
                        trace->path, where, a->dims[0], a->dims[1], a->dims[2],
                        set->rank, (unsigned long long)set->dims[0],
                        (unsigned long long)set->dims[1],
                        (unsigned long long)set->dims[2]);
    enum kvr_status status = kvr__h5_check_attrs(file, object, where, err);
    if (status != KVR_OK)
        return status;
    a->from_f16 = kvr__h5_has_attr(file, object, "f16_rows");
    if (set->layout == LAYOUT_CHUNKED)
        status = load_chunked(trace, a, file, set, where, err);
    else if (set->layout == LAYOUT_CONTIGUOUS)
        status = load_contiguous(trace, a, set, where, err);
    else
        status = kvr_fail(err, KVR_ERR_UNSUPPORTED,
                          "%s: %s: compact layout; repack it with h5repack "
                          "-l CONTI",
                          trace->path, where);
    if (status == KVR_OK && a->chunked)
        status = check_needed(trace, a, layer, err);
    return status;
}

enum kvr_status kvr__load_rows(struct kvr_trace *trace,
                               const struct h5_index *file,
                               const struct h5_object *group, uint32_t layer,
                               enum row_set set, struct kvr_error *err)
{
    struct stored_set *a = &trace->sets[layer][set];
    const struct kvr_trace_shape *shape = &trace->box->shape;
    char parent[32] = "/tokens", where[64];
    const struct h5_object *data;

    if (kvr__set_heads(shape, layer, set) == 0)
        return KVR_OK;
    if (set != SET_LOGITS)
        snprintf(parent, sizeof parent, "/layers/%02u",
                 shape->layers[layer].layer);
    enum kvr_status status =
        kvr__h5_find_set(&data, file, group, kvr__set_name(set), parent, err);
    if (status != KVR_OK || data == NULL)
        return status;
    snprintf(where, sizeof where, "%s/%s", parent, kvr__set_name(set));
    expect(a->dims, trace, layer, set);
    a->item = set == SET_ATTENTION ? (uint32_t)kvr__dtype_size(shape->dtype)
              : set == SET_LOGITS
                  ? (uint32_t)sizeof(float)
                  : (uint32_t)kvr__dtype_size(
                        shape->layers[layer].vector_dtype[set - SET_QUERY]);
    status = load_set(trace, a, file, data, set == SET_LOGITS ? 2 : 3, layer,
                      where, err);
    a->present = status == KVR_OK;
    trace->facts.stored_bytes += a->stored_bytes;
    return status;
}
