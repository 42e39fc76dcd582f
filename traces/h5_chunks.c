/* h5_chunks.c -- chunks that come out of their filters whole.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_chunks.h"

#include "codec.h"
#include "h5_dataset.h"

#include <string.h>

enum { MAX_FILTERS = 32, MAX_CELLS = 1 << 24, CHECKSUM = 4 };
enum { STORED, INFLATED }; /* buffers of the codec */

/* A chunked dataset, while its chunks are looked at. */
struct chunks {
    hid_t set;
    int rank, n_filter;
    H5Z_filter_t filter[MAX_FILTERS];
    hsize_t dims[8], chunk[8];
    uint64_t bytes; /* of a whole chunk */
    uint64_t file_size;
    bool edges_are_plain; /* partial chunks pass no filter */
    struct codec *codec;
};

bool kvr__h5_filter_is_known(H5Z_filter_t filter)
{
    return filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_DEFLATE ||
           filter == H5Z_FILTER_FLETCHER32;
}

static bool take_plist(struct chunks *c, hid_t plist)
{
    unsigned options = 0;

    c->n_filter = H5Pget_nfilters(plist);
    if (c->n_filter < 0 || c->n_filter > MAX_FILTERS ||
        H5Pget_chunk(plist, c->rank, c->chunk) != c->rank ||
        H5Pget_chunk_opts(plist, &options) < 0)
        return false;
    c->edges_are_plain = (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
    for (int i = 0; i < c->n_filter; i++) {
        size_t none = 0;
        unsigned flags = 0;
        c->filter[i] = H5Pget_filter2(plist, (unsigned)i, &flags, &none, NULL,
                                      0, NULL, NULL);
        if (!kvr__h5_filter_is_known(c->filter[i]))
            return false;
    }
    for (int i = 0; i < c->rank; i++)
        if (c->chunk[i] == 0 || !kvr_mul_u64(&c->bytes, c->bytes, c->chunk[i]))
            return false;
    return c->bytes <= UINT32_MAX;
}

static bool is_partial(const struct chunks *c, const hsize_t at[8])
{
    for (int i = 0; i < c->rank; i++)
        if (c->dims[i] - at[i] < c->chunk[i])
            return true;
    return false;
}

/* Bytes that filter i works on: the chunk, and a checksum of each fletcher32
 * before it. */
static uint64_t bytes_before(const struct chunks *c, int i, uint32_t skipped)
{
    uint64_t bytes = c->bytes;

    for (int k = 0; k < i; k++)
        if ((skipped >> k & 1) == 0 && c->filter[k] == H5Z_FILTER_FLETCHER32)
            bytes += CHECKSUM;
    return bytes;
}

/* Whether `size` stored bytes give a whole chunk, from the last filter to the
 * first. A chunk deflated twice is refused. */
static bool comes_out_whole(const struct chunks *c, const uint8_t *stored,
                            uint64_t size, uint32_t skipped)
{
    bool inflated = false;

    for (int i = c->n_filter; i-- > 0;) {
        if ((skipped >> i & 1) != 0 || c->filter[i] == H5Z_FILTER_SHUFFLE)
            continue;
        if (c->filter[i] == H5Z_FILTER_FLETCHER32) {
            if (size < CHECKSUM)
                return false;
            size -= CHECKSUM;
            continue;
        }
        const uint64_t bytes = bytes_before(c, i, skipped);
        uint8_t *plain = kvr__codec_buffer(c->codec, INFLATED, bytes);
        if (inflated || plain == NULL ||
            !kvr__codec_inflate(c->codec, plain, bytes, stored, size))
            return false;
        inflated = true;
        size = bytes;
    }
    return size == c->bytes;
}

/* A filtered chunk, found as H5Dread finds it: in a damaged index the list of
 * records and the search for one need not agree. One that is not stored reads
 * as the fill value. */
static bool chunk_fits(const struct chunks *c, const hsize_t at[8])
{
    uint32_t skipped = 0;
    hsize_t size = 0;

    if (H5Dget_chunk_storage_size(c->set, at, &size) < 0)
        return false;
    if (size == 0)
        return true;
    if (size > c->file_size)
        return false;
    uint8_t *stored = kvr__codec_buffer(c->codec, STORED, size);
    if (stored == NULL ||
        H5Dread_chunk(c->set, H5P_DEFAULT, at, &skipped, stored) < 0)
        return false;
    if (c->edges_are_plain && is_partial(c, at))
        skipped = UINT32_MAX;
    return comes_out_whole(c, stored, size, skipped);
}

/* Without filters every record must state a whole chunk. */
static bool records_fit(const struct chunks *c)
{
    const hid_t space = H5Dget_space(c->set);
    hsize_t n = 0;
    bool fit = space >= 0 && H5Dget_num_chunks(c->set, space, &n) >= 0;

    for (hsize_t i = 0; fit && i < n; i++) {
        hsize_t at[8] = {0}, size = 0;
        unsigned skipped = 0;
        haddr_t where = HADDR_UNDEF;
        fit = H5Dget_chunk_info(c->set, space, i, at, &skipped, &where,
                                &size) >= 0 &&
              size == c->bytes;
    }
    if (space >= 0)
        H5Sclose(space);
    return fit;
}

/* The chunk after the one at `at`; false: that was the last. */
static bool next_chunk(const struct chunks *c, hsize_t at[8])
{
    for (int i = c->rank; i-- > 0;) {
        if (c->dims[i] - at[i] > c->chunk[i]) {
            at[i] += c->chunk[i];
            return true;
        }
        at[i] = 0;
    }
    return false;
}

static bool all_fit(struct chunks *c)
{
    uint64_t cells = 1;
    hsize_t at[8] = {0};

    for (int i = 0; i < c->rank; i++) {
        if (c->dims[i] == 0)
            return true;
        if (!kvr_mul_u64(&cells, cells, (c->dims[i] - 1) / c->chunk[i] + 1) ||
            cells > MAX_CELLS)
            return false;
    }
    if (c->n_filter == 0)
        return records_fit(c);
    do {
        if (!chunk_fits(c, at))
            return false;
    } while (next_chunk(c, at));
    return true;
}

enum kvr_status kvr__h5_check_chunks(hid_t set, const char *path,
                                     const char *where, struct kvr_error *err)
{
    struct chunks c = {.set = set};
    const hid_t plist = H5Dget_create_plist(set);
    const hid_t type = H5Dget_type(set), file = H5Iget_file_id(set);
    hsize_t file_size = 0;
    enum kvr_status status = KVR_OK;

    if (plist >= 0 && H5Pget_layout(plist) == H5D_CHUNKED) {
        status = kvr__codec_new(&c.codec, 0, err);
        c.bytes = type >= 0 ? H5Tget_size(type) : 0;
        const bool known = file >= 0 &&
                           H5Fget_filesize(file, &file_size) >= 0 &&
                           kvr__h5_extent(&c.rank, c.dims, set) && c.rank > 0 &&
                           take_plist(&c, plist);
        c.file_size = file_size;
        if (status == KVR_OK && (!known || !all_fit(&c)))
            status = kvr_fail(err, KVR_ERR_INPUT,
                              "%s: %s: a chunk is not the %llu bytes that it "
                              "should be",
                              path, where, (unsigned long long)c.bytes);
    }
    kvr__codec_free(c.codec);
    if (plist >= 0)
        H5Pclose(plist);
    if (type >= 0)
        H5Tclose(type);
    if (file >= 0)
        H5Fclose(file);
    return status;
}
