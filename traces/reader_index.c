/* reader_index.c -- where the attention's bytes lie, found once.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader_h5.h"

#include "kvr_memory.h"

#include <stdlib.h>

enum { MAX_CHUNK_BYTES = 64 << 20 };

/* True where a row of chunk row i uses a key of chunk column j. */
static bool chunk_needed(const struct kvr_layer_shape *y,
                         const struct attention *a, uint32_t t, uint32_t i,
                         uint32_t j)
{
    const uint64_t first_row = (uint64_t)i * a->chunk[1];
    const uint64_t first_key = (uint64_t)j * a->chunk[2];
    uint64_t last_row = first_row + a->chunk[1] - 1;
    uint64_t least = 0;

    if (y->mask == KVR_MASK_NONE)
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
                                    uint32_t layer, struct kvr_error *err)
{
    const struct attention *a = &trace->attention[layer];
    const struct kvr_layer_shape *y = &trace->box->layers[layer];
    const uint32_t t = trace->box->shape.n_token;
    size_t next = 0;

    for (uint32_t h = 0; h < a->grid[0]; h++)
        for (uint32_t i = 0; i < a->grid[1]; i++)
            for (uint32_t j = 0; j < a->grid[2]; j++, next++)
                if (a->places[next].size == 0 && chunk_needed(y, a, t, i, j))
                    return kvr_fail(
                        err, KVR_ERR_INPUT,
                        "%s: layer %u head %u: declares %u rows, but the "
                        "chunk of rows %llu.. and keys %llu.. is not stored "
                        "(%llu bytes are)",
                        trace->path, y->layer, h * a->chunk[0], t,
                        (unsigned long long)i * a->chunk[1],
                        (unsigned long long)j * a->chunk[2],
                        (unsigned long long)a->stored_bytes);
    return KVR_OK;
}

static enum kvr_status place_chunk(const struct kvr_trace *trace,
                                   struct attention *a, const hsize_t at[3],
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
                                    struct attention *a, hid_t set, hsize_t n,
                                    struct kvr_error *err)
{
    const hid_t space = H5Dget_space(set);
    enum kvr_status status = KVR_OK;

    for (hsize_t i = 0; status == KVR_OK && i < n; i++) {
        hsize_t at[3] = {0}, size = 0;
        unsigned skipped = 0;
        haddr_t offset = 0;
        if (H5Dget_chunk_info(set, space, i, at, &skipped, &offset, &size) < 0)
            status = kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, "a chunk");
        else
            status = place_chunk(trace, a, at, offset, size, skipped, err);
    }
    H5Sclose(space);
    return status;
}

/* The grid must be backed by stored chunks before its index is allocated. */
static enum kvr_status make_grid(const struct kvr_trace *trace,
                                 struct attention *a, const hsize_t dims[3],
                                 const char *where, hsize_t n_stored,
                                 struct kvr_error *err)
{
    const size_t item = kvr__dtype_size(trace->box->shape.dtype);
    uint64_t cells = 1, bytes = item;

    for (int i = 0; i < 3; i++) {
        if (a->chunk[i] == 0 || !kvr_mul_u64(&bytes, bytes, a->chunk[i]))
            return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: chunks of %u",
                            trace->path, where, a->chunk[i]);
        a->grid[i] = (uint32_t)((dims[i] + a->chunk[i] - 1) / a->chunk[i]);
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
                                    struct attention *a, hid_t plist,
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
                                    struct attention *a, hid_t set, hid_t plist,
                                    const hsize_t dims[3], const char *where,
                                    struct kvr_error *err)
{
    hsize_t chunk[3] = {0}, n_stored = 0;
    const hid_t space = H5Dget_space(set);
    const bool counted = H5Pget_chunk(plist, 3, chunk) == 3 &&
                         H5Dget_num_chunks(set, space, &n_stored) >= 0;

    H5Sclose(space);
    if (!counted)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, where);
    a->chunked = true;
    for (int i = 0; i < 3; i++)
        a->chunk[i] = chunk[i] <= UINT32_MAX ? (uint32_t)chunk[i] : 0;
    enum kvr_status status = read_filters(trace, a, plist, where, err);
    if (status == KVR_OK)
        status = make_grid(trace, a, dims, where, n_stored, err);
    if (status == KVR_OK)
        status = index_chunks(trace, a, set, n_stored, err);
    return status;
}

static enum kvr_status load_contiguous(struct kvr_trace *trace,
                                       struct attention *a, hid_t set,
                                       const hsize_t dims[3], const char *where,
                                       struct kvr_error *err)
{
    const haddr_t offset = H5Dget_offset(set);
    const uint64_t stored = H5Dget_storage_size(set);
    uint64_t declared = kvr__dtype_size(trace->box->shape.dtype);

    for (int i = 0; i < 3; i++)
        if (!kvr_mul_u64(&declared, declared, dims[i]))
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

static enum kvr_status load_set(struct kvr_trace *trace, hid_t set,
                                uint32_t layer, const char *where,
                                struct kvr_error *err)
{
    struct attention *a = &trace->attention[layer];
    const struct kvr_layer_shape *y = &trace->box->layers[layer];
    const uint32_t t = trace->box->shape.n_token;
    hsize_t dims[8];
    int rank;

    if (!kvr__h5_extent(&rank, dims, set) || rank != 3 ||
        dims[0] != y->n_head || dims[1] != t || dims[2] != t)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: expected shape [%u, %u, %u], found rank %d "
                        "[%llu, %llu, %llu]",
                        trace->path, where, y->n_head, t, t, rank,
                        (unsigned long long)dims[0],
                        (unsigned long long)dims[1],
                        (unsigned long long)dims[2]);
    const hid_t plist = H5Dget_create_plist(set);
    if (plist < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, where);
    const H5D_layout_t layout = H5Pget_layout(plist);
    enum kvr_status status;
    if (layout == H5D_CHUNKED)
        status = load_chunked(trace, a, set, plist, dims, where, err);
    else if (layout == H5D_CONTIGUOUS)
        status = load_contiguous(trace, a, set, dims, where, err);
    else
        status = kvr_fail(err, KVR_ERR_UNSUPPORTED,
                          "%s: %s: compact layout; repack it with h5repack "
                          "-l CONTI",
                          trace->path, where);
    H5Pclose(plist);
    if (status == KVR_OK && a->chunked)
        status = check_needed(trace, layer, err);
    return status;
}

enum kvr_status kvr__load_attention(struct kvr_trace *trace, hid_t group,
                                    uint32_t layer, struct kvr_error *err)
{
    char where[48];
    hid_t set = -1;

    snprintf(where, sizeof where, "/layers/%02u",
             trace->box->layers[layer].layer);
    enum kvr_status status =
        kvr__open_dataset(&set, trace->path, group, "attention", where, err);
    if (status != KVR_OK || set < 0)
        return status;
    snprintf(where, sizeof where, "/layers/%02u/attention",
             trace->box->layers[layer].layer);
    status = load_set(trace, set, layer, where, err);
    H5Dclose(set);
    trace->attention[layer].present = status == KVR_OK;
    trace->facts.stored_bytes += trace->attention[layer].stored_bytes;
    return status;
}
