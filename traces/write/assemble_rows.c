/* assemble_rows.c -- datasets that come in rows: their tiles go over from the
 * journal as they are.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "assemble.h"

#include "journal.h"
#include "kvr_file.h"
#include "kvr_half.h"
#include "kvr_memory.h"

#include <errno.h>
#include <string.h>

enum {
    HDF5_MAX_LEVEL = 9, /* of the filter's parameter: for readers only */
    PLAIN = 0,          /* buffers of the codec */
    WIDE = 1,
};

/* Rank and shape of a dataset, of its chunks and its largest extent. */
struct layout {
    int rank;
    hsize_t chunk[3], dims[3], most[3];
};

/* A chunk may be larger than the dataset where the capture ended early or is
 * short: HDF5 wants the largest extent to hold one. */
static struct layout layout_of(const struct assembly *a, uint32_t slot,
                               uint32_t n_head)
{
    const hsize_t t = a->shape.n_token;
    const enum row_set set = a->content->heads[slot].set;
    const hsize_t cols = kvr__content_cols(a->content, slot);
    const hsize_t width =
        set == SET_ATTENTION ? t : kvr__content_row_items(a->content, slot, 0);
    struct layout l = {.rank = 3,
                       .chunk = {1, KVR_TILE_ROWS, cols},
                       .dims = {n_head, t, width}};

    if (set == SET_LOGITS) /* has no heads */
        l = (struct layout){
            .rank = 2, .chunk = {KVR_TILE_ROWS, cols}, .dims = {t, width}};
    for (int i = 0; i < l.rank; i++)
        l.most[i] = l.dims[i] > l.chunk[i] ? l.dims[i] : l.chunk[i];
    return l;
}

static hid_t rows_plist(const struct assembly *a, const struct layout *l)
{
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    const int level = a->content->level;
    const unsigned named =
        (unsigned)(level > HDF5_MAX_LEVEL ? HDF5_MAX_LEVEL : level);

    if (plist >= 0 && H5Pset_obj_track_times(plist, 0) >= 0 &&
        H5Pset_chunk(plist, l->rank, l->chunk) >= 0 &&
        (level == 0 ||
         (H5Pset_shuffle(plist) >= 0 && H5Pset_deflate(plist, named) >= 0)))
        return plist;
    if (plist >= 0)
        H5Pclose(plist);
    return -1;
}

static hid_t new_dataset(const struct assembly *a, hid_t group, uint32_t slot,
                         uint32_t n_head)
{
    const struct head_rows *head = &a->content->heads[slot];
    const struct layout l = layout_of(a, slot, n_head);
    const hid_t plist = rows_plist(a, &l);
    const hid_t space = H5Screate_simple(l.rank, l.dims, l.most);
    const hid_t type = head->item == sizeof(uint16_t) ? kvr__h5_f16()
                                                      : H5Tcopy(H5T_IEEE_F32LE);
    hid_t set = -1;

    if (plist >= 0 && space >= 0 && type >= 0)
        set = H5Dcreate2(group, kvr__set_name(head->set), type, space,
                         H5P_DEFAULT, plist, H5P_DEFAULT);
    if (type >= 0)
        H5Tclose(type);
    if (plist >= 0)
        H5Pclose(plist);
    if (space >= 0)
        H5Sclose(space);
    return set;
}

static enum kvr_status put_chunk(struct assembly *a, hid_t set, uint32_t slot,
                                 uint32_t row_tile, uint32_t col,
                                 const void *data, size_t size,
                                 struct kvr_error *err)
{
    const struct head_rows *head = &a->content->heads[slot];
    const hsize_t first = (hsize_t)col * kvr__content_cols(a->content, slot);
    const hsize_t row = (hsize_t)row_tile * KVR_TILE_ROWS;
    const hsize_t with_head[3] = {head->head, row, first};
    const hsize_t without[2] = {row, first};

    if (head->set == SET_ATTENTION && first >= a->shape.n_token)
        return KVR_OK;
    if (H5Dwrite_chunk(set, H5P_DEFAULT, 0,
                       head->set == SET_LOGITS ? without : with_head, size,
                       data) < 0)
        return kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    return kvr__sink_state(&a->sink, err);
}

static enum kvr_status read_tile(struct assembly *a,
                                 const struct stored_tile *tile,
                                 struct kvr_error *err)
{
    if (!kvr_grow((void **)&a->buffer, &a->capacity, tile->size, 1))
        return kvr_no_memory(err, "a tile", tile->size);
    if (!kvr_read_at(a->fd, a->buffer, tile->size, tile->offset))
        return kvr_fail(err, KVR_ERR_IO,
                        "%s: the journal cannot be read at byte %llu: %s",
                        a->path, (unsigned long long)tile->offset,
                        errno != 0 ? strerror(errno) : "it ends before");
    return KVR_OK;
}

/* The tile's numbers as f32, in the codec's buffer. */
static enum kvr_status widen_tile(struct assembly *a,
                                  const struct stored_tile *tile, float **out,
                                  size_t *n, struct kvr_error *err)
{
    *n = (size_t)KVR_TILE_ROWS * kvr__content_cols(a->content, tile->slot);
    uint8_t *plain = kvr__codec_buffer(a->codec, PLAIN, *n * sizeof(uint16_t));
    *out =
        (float *)(void *)kvr__codec_buffer(a->codec, WIDE, *n * sizeof(float));
    const enum kvr_status status = read_tile(a, tile, err);

    if (status != KVR_OK)
        return status;
    if (plain == NULL || *out == NULL)
        return kvr_no_memory(err, "a tile", *n * sizeof(float));
    if (!kvr__codec_unpack(a->codec, plain, *n, sizeof(uint16_t), a->buffer,
                           tile->size, a->content->level > 0))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the tile at byte %llu of the journal is damaged",
                        a->path, (unsigned long long)tile->offset);
    kvr_f16_to_f32_n(*out, (const uint16_t *)(void *)plain, *n);
    return KVR_OK;
}

enum kvr_status kvr__assemble_tile(struct assembly *a,
                                   const struct stored_tile *tile,
                                   const uint8_t **data, size_t *size,
                                   struct kvr_error *err)
{
    enum kvr_status status;
    float *wide;
    size_t n;

    if (tile->item != a->content->heads[tile->slot].item) {
        status = widen_tile(a, tile, &wide, &n, err);
        if (status == KVR_OK)
            status = kvr__codec_pack(a->codec, data, size, wide, n,
                                     sizeof *wide, err);
        return status;
    }
    status = read_tile(a, tile, err);
    *data = a->buffer;
    *size = tile->size;
    return status;
}

enum kvr_status kvr__assemble_tile_hash(struct assembly *a,
                                        const struct stored_tile *tile,
                                        uint64_t *hash, struct kvr_error *err)
{
    const size_t cols = kvr__content_cols(a->content, tile->slot);
    uint64_t rows[KVR_TILE_ROWS];
    float *wide;
    size_t n;

    *hash = tile->hash;
    if (tile->item == a->content->heads[tile->slot].item)
        return KVR_OK;
    const enum kvr_status status = widen_tile(a, tile, &wide, &n, err);
    if (status != KVR_OK)
        return status;
    for (size_t r = 0; r < KVR_TILE_ROWS; r++)
        rows[r] = kvr_hash64(wide + r * cols, cols * sizeof *wide);
    *hash = kvr_hash64(rows, sizeof rows);
    return KVR_OK;
}

/* Closed tiles of one head, then its open one. */
static enum kvr_status put_head(struct assembly *a, hid_t set, uint32_t slot,
                                struct kvr_error *err)
{
    struct content *c = a->content;
    const struct head_rows *rows = &c->heads[slot];
    enum kvr_status status = KVR_OK;
    const uint8_t *data;
    size_t size;

    for (size_t i = a->first_tile[slot];
         status == KVR_OK && i < a->first_tile[slot + 1]; i++) {
        const struct stored_tile *tile = &c->tiles[i];
        status = kvr__assemble_tile(a, tile, &data, &size, err);
        if (status == KVR_OK)
            status = put_chunk(a, set, slot, tile->row_tile, tile->col, data,
                               size, err);
    }
    if (status != KVR_OK || rows->n_tiled >= a->shape.n_token)
        return status;
    const uint32_t row_tile = rows->n_tiled / KVR_TILE_ROWS;
    const uint32_t n_col = kvr__content_n_col(c, slot, row_tile);
    for (uint32_t col = 0; status == KVR_OK && col < n_col; col++) {
        status = kvr__content_pack(c, slot, col, a->shape.n_token, a->codec,
                                   &data, &size, err);
        if (status == KVR_OK)
            status = put_chunk(a, set, slot, row_tile, col, data, size, err);
    }
    return status;
}

enum kvr_status kvr__assemble_rows(struct assembly *a, hid_t group,
                                   uint32_t layer, enum row_set set,
                                   struct kvr_error *err)
{
    const uint32_t first = a->content->first_slot[set][layer];
    const uint32_t end = a->content->first_slot[set][layer + 1];
    enum kvr_status status = KVR_OK;

    if (first == end)
        return KVR_OK;
    const struct head_rows *head = &a->content->heads[first];
    const hid_t data = new_dataset(a, group, first, end - first);
    if (data < 0 || (head->widened &&
                     !kvr__h5_put_u32(data, "f16_rows", &head->f16_rows, 1)))
        status = kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    for (uint32_t slot = first; status == KVR_OK && slot < end; slot++)
        status = put_head(a, data, slot, err);
    if (data >= 0 && H5Dclose(data) < 0 && status == KVR_OK)
        status = kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    return status;
}

enum kvr_status kvr__assemble_logits(struct assembly *a, struct kvr_error *err)
{
    hid_t group;

    if (a->shape.n_vocab == 0)
        return KVR_OK;
    group = a->content->tokens.n == 0
                ? kvr__h5_new_group(a->file, "tokens")
                : H5Gopen2(a->file, "tokens", H5P_DEFAULT);
    if (group < 0)
        return kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    enum kvr_status status =
        kvr__assemble_rows(a, group, a->shape.n_layer, SET_LOGITS, err);
    if (H5Gclose(group) < 0 && status == KVR_OK)
        status = kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    return status;
}
