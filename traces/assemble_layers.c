/* assemble_layers.c -- /layers: tiles go over from the journal as they are.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "assemble.h"

#include "journal.h"
#include "kvr_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HDF5_MAX_LEVEL = 9 }; /* of the filter's parameter: for readers only */

static bool put_layer_attrs(hid_t group, const struct kvr_layer_shape *y)
{
    return kvr__h5_put_u32(group, "layer", &y->layer, 1) &&
           kvr__h5_put_u32(group, "n_head", &y->n_head, 1) &&
           kvr__h5_put_u32(group, "n_kv_head", &y->n_kv_head, 1) &&
           kvr__h5_put_u32(group, "key_dim", &y->key_dim, 1) &&
           kvr__h5_put_u32(group, "value_dim", &y->value_dim, 1) &&
           kvr__h5_put_text(group, "mask", kvr__mask_name(y->mask)) &&
           kvr__h5_put_u32(group, "span", &y->span, 1) &&
           kvr__h5_put_real(group, "scale", y->scale) &&
           kvr__h5_put_real(group, "softcap", y->softcap) &&
           kvr__h5_put_i32(group, "kv_source", y->kv_source);
}

static hid_t attention_plist(const struct assembly *a, const hsize_t chunk[3])
{
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    const int level = a->content->level;
    const unsigned named =
        (unsigned)(level > HDF5_MAX_LEVEL ? HDF5_MAX_LEVEL : level);

    if (plist >= 0 && H5Pset_obj_track_times(plist, 0) >= 0 &&
        H5Pset_chunk(plist, 3, chunk) >= 0 &&
        (level == 0 ||
         (H5Pset_shuffle(plist) >= 0 && H5Pset_deflate(plist, named) >= 0)))
        return plist;
    if (plist >= 0)
        H5Pclose(plist);
    return -1;
}

/* A chunk may be larger than the dataset where the capture ended early or is
 * short: HDF5 wants the largest extent to hold one. */
static hid_t new_attention(const struct assembly *a, hid_t group,
                           uint32_t n_head)
{
    const uint32_t cols = kvr__tile_cols(a->content->box->shape.n_token);
    const hsize_t t = a->shape.n_token;
    const hsize_t chunk[3] = {1, KVR_TILE_ROWS, cols};
    const hsize_t dims[3] = {n_head, t, t};
    const hsize_t most[3] = {n_head, t > chunk[1] ? t : chunk[1],
                             t > chunk[2] ? t : chunk[2]};
    const hid_t plist = attention_plist(a, chunk);
    const hid_t space = H5Screate_simple(3, dims, most);
    const hid_t type =
        a->shape.dtype == KVR_F16 ? kvr__h5_f16() : H5Tcopy(H5T_IEEE_F32LE);
    hid_t set = -1;

    if (plist >= 0 && space >= 0 && type >= 0)
        set = H5Dcreate2(group, "attention", type, space, H5P_DEFAULT, plist,
                         H5P_DEFAULT);
    if (type >= 0)
        H5Tclose(type);
    if (plist >= 0)
        H5Pclose(plist);
    if (space >= 0)
        H5Sclose(space);
    return set;
}

static enum kvr_status put_chunk(struct assembly *a, hid_t set, uint32_t head,
                                 uint32_t row_tile, uint32_t col,
                                 const void *data, size_t size,
                                 struct kvr_error *err)
{
    const hsize_t cols = kvr__tile_cols(a->content->box->shape.n_token);
    const hsize_t offset[3] = {head, (hsize_t)row_tile * KVR_TILE_ROWS,
                               col * cols};

    if (offset[2] >= a->shape.n_token)
        return KVR_OK;
    if (H5Dwrite_chunk(set, H5P_DEFAULT, 0, offset, size, data) < 0)
        return kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    return kvr__sink_state(&a->sink, err);
}

static enum kvr_status read_tile(struct assembly *a,
                                 const struct stored_tile *tile,
                                 struct kvr_error *err)
{
    if (!kvr_grow((void **)&a->buffer, &a->capacity, tile->size, 1))
        return kvr_no_memory(err, "a tile", tile->size);
    if (!kvr__pread_all(a->fd, a->buffer, tile->size, tile->offset))
        return kvr_fail(err, KVR_ERR_IO,
                        "%s: the journal cannot be read at byte %llu: %s",
                        a->path, (unsigned long long)tile->offset,
                        errno != 0 ? strerror(errno) : "it ends before");
    return KVR_OK;
}

/* Closed tiles of one head, then its open one. */
static enum kvr_status put_head(struct assembly *a, hid_t set, uint32_t slot,
                                uint32_t head, struct kvr_error *err)
{
    struct content *c = a->content;
    const struct head_rows *rows = &c->heads[slot];
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK && a->next_tile < c->n_tile &&
           c->tiles[a->next_tile].slot == slot) {
        const struct stored_tile *tile = &c->tiles[a->next_tile++];
        status = read_tile(a, tile, err);
        if (status == KVR_OK)
            status = put_chunk(a, set, head, tile->row_tile, tile->col,
                               a->buffer, tile->size, err);
    }
    if (status != KVR_OK || rows->n_tiled >= a->shape.n_token)
        return status;
    const uint32_t row_tile = rows->n_tiled / KVR_TILE_ROWS;
    const uint32_t n_col = kvr__content_n_col(c, slot, row_tile);
    for (uint32_t col = 0; status == KVR_OK && col < n_col; col++) {
        const uint8_t *packed;
        size_t size;
        status = kvr__content_pack(c, slot, col, a->shape.n_token, a->codec,
                                   &packed, &size, err);
        if (status == KVR_OK)
            status = put_chunk(a, set, head, row_tile, col, packed, size, err);
    }
    return status;
}

static enum kvr_status put_attention(struct assembly *a, hid_t group,
                                     uint32_t layer, struct kvr_error *err)
{
    const struct kvr_layer_shape *y = &a->shape.layers[layer];
    const hid_t set = new_attention(a, group, y->n_head);

    if (set < 0)
        return kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    enum kvr_status status = KVR_OK;
    for (uint32_t h = 0; status == KVR_OK && h < y->n_head; h++)
        status = put_head(a, set, a->content->first_slot[layer] + h, h, err);
    if (H5Dclose(set) < 0 && status == KVR_OK)
        status = kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    return status;
}

/* [rows][T] out of [rows][capacity]. */
static bool put_array(const struct assembly *a, hid_t group, uint32_t layer,
                      enum kvr_array array)
{
    const struct array_data *from = &a->content->arrays[layer][array];
    const uint32_t t = a->shape.n_token;
    const hsize_t dims[2] = {from->rows, t};
    float *data = from->rows != 0
                      ? kvr_calloc((size_t)from->rows * t, sizeof *data)
                      : NULL;

    if (data == NULL)
        return from->rows == 0;
    for (uint32_t r = 0; r < from->rows; r++)
        memcpy(data + (size_t)r * t, from->data + (size_t)r * from->capacity,
               t * sizeof *data);
    const bool ok =
        kvr__h5_put_data(group, kvr_array_name(array), H5T_IEEE_F32LE,
                         H5T_NATIVE_FLOAT, 2, dims, data);
    free(data);
    return ok;
}

static enum kvr_status put_layer(struct assembly *a, hid_t layers,
                                 uint32_t layer, struct kvr_error *err)
{
    const struct kvr_layer_shape *y = &a->shape.layers[layer];
    const hsize_t n[1] = {y->n_head};
    char name[16];

    snprintf(name, sizeof name, "%02u", y->layer);
    const hid_t group = kvr__h5_new_group(layers, name);
    if (group < 0)
        return kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    bool ok = put_layer_attrs(group, y) &&
              kvr__h5_put_data(group, "head_index", H5T_STD_I32LE,
                               H5T_NATIVE_UINT32, 1, n, y->head_index);
    enum kvr_status status = KVR_OK;
    if (ok)
        status = put_attention(a, group, layer, err);
    for (int i = 0; ok && status == KVR_OK && i < KVR_N_ARRAY; i++)
        ok = put_array(a, group, layer, (enum kvr_array)i);
    ok = H5Gclose(group) >= 0 && ok;
    if (status == KVR_OK && !ok)
        status = kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    return status;
}

enum kvr_status kvr__assemble_layers(struct assembly *a, struct kvr_error *err)
{
    const hid_t layers = kvr__h5_new_group(a->file, "layers");
    enum kvr_status status = KVR_OK;

    if (layers < 0)
        return kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    for (uint32_t l = 0; status == KVR_OK && l < a->shape.n_layer; l++)
        status = put_layer(a, layers, l, err);
    if (H5Gclose(layers) < 0 && status == KVR_OK)
        status = kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
    return status;
}
