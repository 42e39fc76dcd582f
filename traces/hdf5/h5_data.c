/* h5_data.c -- boxes of datasets, chunk by chunk.
 *
 * Data in one piece are read as chunks too: of whole rows of the last axes, of
 * about a megabyte.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_data.h"

#include "h5_filters.h"
#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_BYTES = 64 << 20, PIECE_BYTES = 1 << 20, MAX_SLOTS = 1 << 16 };

struct slot {
    uint64_t cell; /* + 1; 0: nothing is kept */
    uint8_t *data;
};

struct h5_reader {
    const struct h5_index *file;
    const struct h5_set *set;
    char *where;
    struct codec *codec;
    uint64_t chunk[INDEX_MAX_RANK], grid[INDEX_MAX_RANK];
    uint64_t bytes; /* of a whole chunk */
    struct slot *slots;
    size_t n_slot;
};

/* The last axes as a whole, as far as they make a megabyte. */
static void cut_piece(struct h5_reader *r)
{
    const struct h5_set *set = r->set;
    uint64_t bytes = set->type.size;

    for (int i = set->rank; i-- > 0;) {
        const uint64_t most = PIECE_BYTES / bytes > 0 ? PIECE_BYTES / bytes : 1;
        r->chunk[i] = set->dims[i] < most ? set->dims[i] : most;
        if (r->chunk[i] == 0)
            r->chunk[i] = 1;
        /* less than the whole axis: the axes before it are cut into ones */
        bytes = r->chunk[i] == set->dims[i] ? bytes * r->chunk[i] : PIECE_BYTES;
        r->grid[i] =
            set->dims[i] == 0 ? 0 : (set->dims[i] - 1) / r->chunk[i] + 1;
    }
}

static enum kvr_status make_slots(struct h5_reader *r, struct kvr_error *err)
{
    uint64_t cells = 1;

    r->bytes = r->set->type.size;
    for (int i = 0; i < r->set->rank; i++) {
        r->bytes *= r->chunk[i]; /* below 4 GiB: checked, or made so */
        if (!kvr_mul_u64(&cells, cells, r->grid[i]))
            cells = UINT64_MAX;
    }
    uint64_t n = KEPT_BYTES / r->bytes;
    n = n < cells ? n : cells;
    r->n_slot = n < 1 ? 1 : n > MAX_SLOTS ? MAX_SLOTS : (size_t)n;
    r->slots = kvr_calloc(r->n_slot, sizeof *r->slots);
    return r->slots != NULL
               ? KVR_OK
               : kvr_no_memory(err, "chunks", r->n_slot * sizeof *r->slots);
}

enum kvr_status kvr__h5_reader_new(struct h5_reader **out,
                                   const struct h5_index *file,
                                   const struct h5_set *set, const char *where,
                                   struct kvr_error *err)
{
    struct h5_reader *r = kvr_calloc(1, sizeof *r);

    *out = NULL;
    if (r == NULL)
        return kvr_no_memory(err, "a dataset", sizeof *r);
    r->file = file;
    r->set = set;
    r->where = kvr_strdup(where);
    memcpy(r->chunk, set->chunk, sizeof r->chunk);
    memcpy(r->grid, set->grid, sizeof r->grid);
    if (set->layout != LAYOUT_CHUNKED)
        cut_piece(r);
    enum kvr_status status = r->where != NULL
                                 ? kvr__codec_new(&r->codec, 0, err)
                                 : kvr_no_memory(err, "a name", strlen(where));
    if (status == KVR_OK)
        status = make_slots(r, err);
    if (status != KVR_OK) {
        kvr__h5_reader_free(r);
        return status;
    }
    *out = r;
    return KVR_OK;
}

void kvr__h5_reader_free(struct h5_reader *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; r->slots != NULL && i < r->n_slot; i++)
        free(r->slots[i].data);
    free(r->slots);
    kvr__codec_free(r->codec);
    free(r->where);
    free(r);
}

/* ---- one chunk ---- */

static enum kvr_status pread_or_say(const struct h5_reader *r, uint8_t *to,
                                    size_t n, uint64_t offset,
                                    struct kvr_error *err)
{
    if (kvr_read_at(r->file->fd, to, n, offset))
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_IO,
                    "%s: %s: %zu bytes at %llu cannot be read: %s",
                    r->file->path, r->where, n, (unsigned long long)offset,
                    errno != 0 ? strerror(errno) : "the file ends before");
}

/* n items of what was never written. */
static void fill(uint8_t *to, const struct h5_reader *r, uint64_t n)
{
    const uint32_t size = r->set->type.size;

    if (r->set->fill == NULL) {
        memset(to, 0, n * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        memcpy(to + i * size, r->set->fill, size);
}

static bool juts_out(const struct h5_reader *r, uint64_t cell)
{
    for (int i = r->set->rank; i-- > 0;) {
        const uint64_t at = cell % r->grid[i] * r->chunk[i];
        if (r->set->dims[i] - at < r->chunk[i])
            return true;
        cell /= r->grid[i];
    }
    return false;
}

static const struct h5_place *place_of(const struct h5_reader *r, uint64_t cell)
{
    const struct h5_place *places = r->file->places + r->set->first_place;
    uint64_t low = 0, high = r->set->n_place;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (places[middle].cell < cell)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->set->n_place && places[low].cell == cell ? &places[low]
                                                             : NULL;
}

static enum kvr_status read_chunk(struct h5_reader *r, uint8_t *to,
                                  uint64_t cell, const struct h5_place *place,
                                  struct kvr_error *err)
{
    uint8_t *stored = kvr__codec_buffer(r->codec, FILTER_STORED, place->size);
    if (stored == NULL)
        return kvr_no_memory(err, r->where, place->size);
    const enum kvr_status status =
        pread_or_say(r, stored, place->size, place->offset, err);
    if (status != KVR_OK)
        return status;
    const uint64_t skipped = r->set->edges_are_plain && juts_out(r, cell)
                                 ? UINT64_MAX
                                 : place->skipped;
    const enum kvr_status undone = kvr__h5_unfilter(
        to, r->bytes, r->set, skipped, stored, place->size, r->codec);
    if (undone == KVR_ERR_MEMORY)
        return kvr_no_memory(err, r->where, r->bytes);
    if (undone == KVR_OK)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: %s: a chunk is not the %llu bytes that it should be",
                    r->file->path, r->where, (unsigned long long)r->bytes);
}

/* A part of data in one piece: the cells before it are whole, but for the last
 * one of the axis that is cut. */
static enum kvr_status read_piece(struct h5_reader *r, uint8_t *to,
                                  uint64_t cell, struct kvr_error *err)
{
    const struct h5_set *set = r->set;
    uint64_t items = 1, first = 0, stride = 1;

    for (int i = set->rank; i-- > 0;) {
        const uint64_t at = cell % r->grid[i] * r->chunk[i];
        const uint64_t left = set->dims[i] - at;
        items *= left < r->chunk[i] ? left : r->chunk[i];
        first += at * stride;
        stride *= set->dims[i];
        cell /= r->grid[i];
    }
    const uint64_t n = items * set->type.size, at = first * set->type.size;
    if (set->layout == LAYOUT_COMPACT) {
        memcpy(to, set->compact + at, n);
        return KVR_OK;
    }
    return pread_or_say(r, to, n, set->offset + at, err);
}

/* *out NULL: it was never written. */
static enum kvr_status get_chunk(const uint8_t **out, struct h5_reader *r,
                                 uint64_t cell, struct kvr_error *err)
{
    struct slot *slot = &r->slots[cell % r->n_slot];
    const bool chunked = r->set->layout == LAYOUT_CHUNKED;

    *out = slot->data;
    if (slot->cell == cell + 1)
        return KVR_OK;
    const struct h5_place *place = chunked ? place_of(r, cell) : NULL;
    *out = NULL;
    if (chunked ? place == NULL
                : r->set->layout == LAYOUT_CONTIGUOUS &&
                      r->set->offset == UINT64_MAX)
        return KVR_OK;
    slot->cell = 0;
    if (slot->data == NULL)
        slot->data = malloc(r->bytes);
    if (slot->data == NULL)
        return kvr_no_memory(err, r->where, r->bytes);
    const enum kvr_status status =
        chunked ? read_chunk(r, slot->data, cell, place, err)
                : read_piece(r, slot->data, cell, err);
    if (status == KVR_OK)
        slot->cell = cell + 1;
    *out = slot->data;
    return status;
}

/* ---- boxes ---- */

/* The part of a box that a chunk holds, in places of the extent. */
struct chunk_overlap {
    uint64_t first[INDEX_MAX_RANK], n[INDEX_MAX_RANK];
};

static void copy_overlap(const struct h5_reader *r,
                         const struct chunk_overlap *part,
                         const uint64_t *chunk_at, const uint8_t *data,
                         const uint64_t *from, const uint64_t *count,
                         uint8_t *out)
{
    const int rank = r->set->rank;
    const uint32_t size = r->set->type.size;
    uint64_t at[INDEX_MAX_RANK] = {0};

    for (;;) {
        uint64_t in_chunk = 0, in_box = 0;
        for (int i = 0; i < rank; i++) {
            const uint64_t place = part->first[i] + at[i];
            in_chunk = in_chunk * r->chunk[i] + place - chunk_at[i];
            in_box = in_box * count[i] + place - from[i];
        }
        const uint64_t run = rank > 0 ? part->n[rank - 1] : 1;
        if (data == NULL)
            fill(out + in_box * size, r, run);
        else
            memcpy(out + in_box * size, data + in_chunk * size, run * size);
        int i = rank - 2;
        while (i >= 0 && ++at[i] == part->n[i])
            at[i--] = 0;
        if (i < 0)
            return;
    }
}

/* The chunk at `cell` (of each axis), as far as the box reaches into it. */
static enum kvr_status take_chunk(struct h5_reader *r, const uint64_t *cell,
                                  const uint64_t *from, const uint64_t *count,
                                  uint8_t *out, struct kvr_error *err)
{
    uint64_t chunk_at[INDEX_MAX_RANK] = {0}, number = 0;
    const uint8_t *data = NULL;
    struct chunk_overlap part;

    for (int i = 0; i < r->set->rank; i++) {
        chunk_at[i] = cell[i] * r->chunk[i];
        number = number * r->grid[i] + cell[i];
        const uint64_t end = chunk_at[i] + r->chunk[i];
        const uint64_t box_end = from[i] + count[i];
        part.first[i] = from[i] > chunk_at[i] ? from[i] : chunk_at[i];
        part.n[i] = (box_end < end ? box_end : end) - part.first[i];
    }
    const enum kvr_status status = get_chunk(&data, r, number, err);
    if (status == KVR_OK)
        copy_overlap(r, &part, chunk_at, data, from, count, out);
    return status;
}

enum kvr_status kvr__h5_read_box(struct h5_reader *r, const uint64_t *from,
                                 const uint64_t *count, uint8_t *out,
                                 struct kvr_error *err)
{
    const int rank = r->set->rank;
    uint64_t cell[INDEX_MAX_RANK] = {0}, last[INDEX_MAX_RANK] = {0};

    for (int i = 0; i < rank; i++) {
        if (count[i] == 0)
            return KVR_OK;
        cell[i] = from[i] / r->chunk[i];
        last[i] = (from[i] + count[i] - 1) / r->chunk[i];
    }
    for (;;) {
        const enum kvr_status status =
            take_chunk(r, cell, from, count, out, err);
        if (status != KVR_OK)
            return status;
        int i = rank - 1;
        while (i >= 0 && cell[i] == last[i]) {
            cell[i] = from[i] / r->chunk[i];
            i--;
        }
        if (i < 0)
            return KVR_OK;
        cell[i]++;
    }
}
