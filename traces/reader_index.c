/* reader_index.c -- where the bytes of rows lie, found once.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader_h5.h"

#include "kvr_memory.h"

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
    uint64_t least = 0;

    if (y == NULL || y->mask == KVR_MASK_NONE)
        return true;
    if (last_row >= t)
        last_row = t - 1;
    if (y->mask == KVR_MASK_WINDOW && first_row + 1 > y->span)
        least = first_row + 1 - y->span;
    if (y->mask == KVR_MASK_CHUNK)
        least = first_row / y->span * y->span;
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

static enum kvr_status place_chunk(const struct kvr_trace *trace,
                                   struct stored_set *a, const hsize_t at[3],
                                   uint64_t offset, uint64_t size,
                                   unsigned skipped, struct kvr_error *err)
{
    for (int i = 0; i < 3; i++)
        if (at[i] % a->chunk[i] != 0 || at[i] / a->chunk[i] >= a->grid[i])
            return KVR_OK; /* outside of the extent: HDF5 ignores it too */
    if (size == 0 || size > UINT32_MAX || offset > trace->size ||
        size > trace->size - offset)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: a chunk of %llu bytes at %llu is not inside the "
                        "file of %llu bytes",
                        trace->path, (unsigned long long)size,
                        (unsigned long long)offset,
                        (unsigned long long)trace->size);
    const size_t index =
        ((size_t)(at[0] / a->chunk[0]) * a->grid[1] + at[1] / a->chunk[1]) *
            a->grid[2] +
        at[2] / a->chunk[2];
    if (a->places[index].size == 0)
        a->stored_bytes += size;
    a->places[index] = (struct chunk_place){
        .offset = offset, .size = (uint32_t)size, .skipped = skipped};
    return KVR_OK;
}

static enum kvr_status index_chunks(const struct kvr_trace *trace,
                                    struct stored_set *a, hid_t set, int rank,
                                    hsize_t n, struct kvr_error *err)
{
    const hid_t space = H5Dget_space(set);
    enum kvr_status status = KVR_OK;

    for (hsize_t i = 0; status == KVR_OK && i < n; i++) {
        hsize_t at[3] = {0}, size = 0;
        unsigned skipped = 0;
        haddr_t offset = 0;
        if (H5Dget_chunk_info(set, space, i, at + (3 - rank), &skipped, &offset,
                              &size) < 0)
            status = kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, "a chunk");
        else
            status = place_chunk(trace, a, at, offset, size, skipped, err);
    }
    H5Sclose(space);
    return status;
}

/* The grid must be backed by stored chunks before its index is allocated. */
static enum kvr_status make_grid(const struct kvr_trace *trace,
                                 struct stored_set *a, const char *where,
                                 hsize_t n_stored, struct kvr_error *err)
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
                                    struct stored_set *a, hid_t plist,
                                    const char *where, struct kvr_error *err)
{
    const int n = H5Pget_nfilters(plist);

    for (int i = 0; i < n; i++) {
        unsigned flags, values[16], config;
        size_t n_value = 16;
        char name[64] = "";
        const H5Z_filter_t filter =
            H5Pget_filter2(plist, (unsigned)i, &flags, &n_value, values,
                           sizeof name, name, &config);
        if (filter == H5Z_FILTER_SHUFFLE && !a->shuffled && !a->deflated) {
            a->shuffled = true;
            a->shuffle_bit = 1u << i;
        } else if (filter == H5Z_FILTER_DEFLATE && !a->deflated) {
            a->deflated = true;
            a->deflate_bit = 1u << i;
        } else {
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "%s: %s: filter %d (%s) at place %d: rows are "
                            "read only through shuffle and deflate; repack "
                            "with h5repack -f SHUF -f GZIP=4",
                            trace->path, where, (int)filter, name, i);
        }
    }
    return KVR_OK;
}

static enum kvr_status load_chunked(struct kvr_trace *trace,
                                    struct stored_set *a, hid_t set,
                                    hid_t plist, int rank, const char *where,
                                    struct kvr_error *err)
{
    hsize_t chunk[3] = {1, 0, 0}, n_stored = 0;
    const hid_t space = H5Dget_space(set);
    const bool counted =
        H5Pget_chunk(plist, rank, chunk + (3 - rank)) == rank &&
        H5Dget_num_chunks(set, space, &n_stored) >= 0;

    H5Sclose(space);
    if (!counted)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, where);
    a->chunked = true;
    for (int i = 0; i < 3; i++) {
        if (chunk[i] == 0 || chunk[i] > UINT32_MAX)
            return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: chunks of %llu",
                            trace->path, where, (unsigned long long)chunk[i]);
        a->chunk[i] = (uint32_t)chunk[i];
    }
    enum kvr_status status = read_filters(trace, a, plist, where, err);
    if (status == KVR_OK)
        status = make_grid(trace, a, where, n_stored, err);
    if (status == KVR_OK)
        status = index_chunks(trace, a, set, rank, n_stored, err);
    return status;
}

static enum kvr_status load_contiguous(struct kvr_trace *trace,
                                       struct stored_set *a, hid_t set,
                                       const char *where, struct kvr_error *err)
{
    const haddr_t offset = H5Dget_offset(set);
    const uint64_t stored = H5Dget_storage_size(set);
    uint64_t declared = a->item;

    for (int i = 0; i < 3; i++)
        if (!kvr_mul_u64(&declared, declared, a->dims[i]))
            declared = UINT64_MAX;
    if (offset == HADDR_UNDEF || stored != declared || offset > trace->size ||
        declared > trace->size - offset)
        return kvr_fail(
            err, KVR_ERR_INPUT, "%s: %s: declares %llu bytes and stores %llu",
            trace->path, where, (unsigned long long)declared,
            (unsigned long long)(offset != HADDR_UNDEF ? stored : 0));
    a->places = kvr_calloc(1, sizeof *a->places);
    if (a->places == NULL)
        return kvr_no_memory(err, "a chunk index", sizeof *a->places);
    a->places[0].offset = offset;
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
                                hid_t set, int rank, uint32_t layer,
                                const char *where, struct kvr_error *err)
{
    hsize_t dims[8] = {0};
    int found;
    bool fits = kvr__h5_extent(&found, dims, set) && found == rank;

    for (int i = 0; fits && i < rank; i++)
        fits = dims[i] == a->dims[3 - rank + i];
    if (!fits)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: expected shape [%u, %u, %u], found rank %d "
                        "[%llu, %llu, %llu]",
                        trace->path, where, a->dims[0], a->dims[1], a->dims[2],
                        found, (unsigned long long)dims[0],
                        (unsigned long long)dims[1],
                        (unsigned long long)dims[2]);
    if (kvr__check_attributes(trace, set, where, err) != KVR_OK)
        return KVR_ERR_INPUT;
    a->from_f16 = kvr__h5_has_attr(set, "f16_rows");
    const hid_t plist = H5Dget_create_plist(set);
    if (plist < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, where);
    const H5D_layout_t layout = H5Pget_layout(plist);
    enum kvr_status status;
    if (layout == H5D_CHUNKED)
        status = load_chunked(trace, a, set, plist, rank, where, err);
    else if (layout == H5D_CONTIGUOUS)
        status = load_contiguous(trace, a, set, where, err);
    else
        status = kvr_fail(err, KVR_ERR_UNSUPPORTED,
                          "%s: %s: compact layout; repack it with h5repack "
                          "-l CONTI",
                          trace->path, where);
    H5Pclose(plist);
    if (status == KVR_OK && a->chunked)
        status = check_needed(trace, a, layer, err);
    return status;
}

enum kvr_status kvr__load_rows(struct kvr_trace *trace, hid_t group,
                               uint32_t layer, enum row_set set,
                               struct kvr_error *err)
{
    struct stored_set *a = &trace->sets[layer][set];
    const struct kvr_trace_shape *shape = &trace->box->shape;
    char parent[32] = "/tokens", where[64];
    hid_t data = -1;

    if (kvr__set_heads(shape, layer, set) == 0)
        return KVR_OK;
    if (set != SET_LOGITS)
        snprintf(parent, sizeof parent, "/layers/%02u",
                 shape->layers[layer].layer);
    enum kvr_status status = kvr__open_dataset(&data, trace->path, group,
                                               kvr__set_name(set), parent, err);
    if (status != KVR_OK || data < 0)
        return status;
    snprintf(where, sizeof where, "%s/%s", parent, kvr__set_name(set));
    expect(a->dims, trace, layer, set);
    a->item = set == SET_ATTENTION ? (uint32_t)kvr__dtype_size(shape->dtype)
              : set == SET_LOGITS
                  ? (uint32_t)sizeof(float)
                  : (uint32_t)kvr__dtype_size(
                        shape->layers[layer].vector_dtype[set - SET_QUERY]);
    status =
        load_set(trace, a, data, set == SET_LOGITS ? 2 : 3, layer, where, err);
    H5Dclose(data);
    a->present = status == KVR_OK;
    trace->facts.stored_bytes += a->stored_bytes;
    return status;
}
