/* assemble_layers.c -- /layers: attributes, datasets of rows, arrays.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "assemble.h"

#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

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

static bool put_mlp(const struct assembly *a, hid_t group, uint32_t layer)
{
    const struct mlp_data *m = &a->content->mlp[layer];
    const hsize_t n[1] = {m->n_ff};
    float *mass;

    if (m->n_ff == 0)
        return true;
    mass = kvr_calloc(m->n_ff, sizeof *mass);
    if (mass == NULL)
        return false;
    for (uint32_t i = 0; i < m->n_ff; i++)
        mass[i] = (float)m->mass[i];
    const bool ok = kvr__h5_put_data(group, "mlp_mass", H5T_IEEE_F32LE,
                                     H5T_NATIVE_FLOAT, 1, n, mass) &&
                    kvr__h5_put_data(group, "mlp_active", H5T_STD_U32LE,
                                     H5T_NATIVE_UINT32, 1, n, m->active);
    free(mass);
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
    for (int set = SET_ATTENTION; ok && status == KVR_OK && set <= SET_VALUE;
         set++)
        status = kvr__assemble_rows(a, group, layer, (enum row_set)set, err);
    for (int i = 0; ok && status == KVR_OK && i < KVR_N_ARRAY; i++)
        ok = put_array(a, group, layer, (enum kvr_array)i);
    if (ok && status == KVR_OK)
        ok = put_mlp(a, group, layer);
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
