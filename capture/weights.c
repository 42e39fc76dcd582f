/* weights.c -- a model's tensors on a device.
 *
 * The decoder knows one layout: a matrix for each product, rows of outputs,
 * query and key rows such that rotation pairs (j, j + rope_dim / 2), norms
 * that multiply by their weight. Files differ: fused matrices, [in, out]
 * order, neighbouring pairs, weights less one. What does not lie right is
 * copied once, here; the products are the same, and stored queries and keys
 * have one layout whatever the file.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "model_private.h"

#include "kvr_memory.h"
#include "quant.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How a slot's rows (of a vector: its values) lie in the file. */
struct weight_layout {
    uint64_t n;     /* rows of the slot */
    uint64_t first; /* in the file: of the slot's part */
    uint32_t dim;   /* of a head; 0: no heads */
    uint32_t pairs; /* neighbouring pairs in each head, from its start on */
    uint32_t parts, part; /* interleaved head by head; parts 1: not */
    bool turned;          /* rows are columns in the file */
    bool plus_one;        /* 1 + w is meant */
};

static struct weight_layout layout_of(const struct kvr_model *model,
                                      const struct kvr_slot *slot,
                                      const struct kvr_slot_shape *shape)
{
    const struct kvr_config *c = &model->config;
    const bool hf = model->format == KVR_FORMAT_HF;
    const enum kvr_dim own =
        shape->rows == KVR_DIM_ONE ? shape->cols : shape->rows;
    struct weight_layout l = {.n = kvr__dim_size(c, own), .parts = 1};

    l.turned = kvr_model_turned(model, shape);
    if (shape->heads != KVR_DIM_ONE && !hf && model->family->gguf_paired) {
        l.dim = c->key_dim;
        l.pairs = c->rope_dim / 2;
    }
    if (slot->cut == KVR_CUT_UP)
        l.first = kvr__dim_size(c, KVR_DIM_FF);
    if (slot->cut == KVR_CUT_K || slot->cut == KVR_CUT_V)
        l.first = kvr__dim_size(c, KVR_DIM_QUERY);
    if (slot->cut == KVR_CUT_V)
        l.first += kvr__dim_size(c, KVR_DIM_KEY);
    if (slot->cut >= KVR_CUT_Q && slot->cut <= KVR_CUT_V && hf &&
        model->family->hf_per_head) {
        l.first = 0;
        l.dim = c->key_dim;
        l.parts = 3;
        l.part = (uint32_t)slot->cut - KVR_CUT_Q;
    }
    return l;
}

/* Where row i of the slot lies in the file. */
static uint64_t row_in_file(const struct weight_layout *l, uint64_t i)
{
    if (l->dim == 0)
        return l->first + i;
    const uint64_t head = i / l->dim;
    uint64_t j = i % l->dim;
    if (j < l->pairs)
        j = 2 * j;
    else if (j < 2ull * l->pairs)
        j = 2 * (j - l->pairs) + 1;
    return l->first + (head * l->parts + l->part) * l->dim + j;
}

static bool is_norm(int slot)
{
    switch (slot) {
    case KVR_ATTN_NORM:
    case KVR_Q_NORM:
    case KVR_K_NORM:
    case KVR_ATTN_POST_NORM:
    case KVR_FF_NORM:
    case KVR_FF_POST_NORM:
        return true;
    default:
        return false;
    }
}

/* Bytes of the copy that a slot needs; 0: none. */
static uint64_t copy_size(const struct kvr_stored *tensor,
                          const struct kvr_slot_shape *shape,
                          const struct weight_layout *l)
{
    const struct kvr_quant_row *type = kvr__quant_find(tensor->type);
    const uint64_t cols = shape->rows == KVR_DIM_ONE ? 1
                          : l->turned                ? tensor->rows
                                                     : tensor->cols;

    if (l->plus_one)
        return l->n * sizeof(float);
    if (l->dim == 0 && !l->turned)
        return 0;
    return l->n * cols / type->block * type->bytes;
}

/* Row by row, or, where rows are columns, value by value. */
static void gather(uint8_t *out, const struct kvr_stored *tensor,
                   const struct kvr_slot_shape *shape,
                   const struct weight_layout *l)
{
    const struct kvr_quant_row *type = kvr__quant_find(tensor->type);
    const size_t item = type->bytes; /* of one value, where block is 1 */

    if (l->turned) {
        for (uint64_t i = 0; i < l->n; i++) {
            const uint64_t from = row_in_file(l, i);
            for (uint64_t k = 0; k < tensor->rows; k++, out += item)
                memcpy(out, tensor->data + (k * tensor->cols + from) * item,
                       item);
        }
        return;
    }
    const size_t row = shape->rows == KVR_DIM_ONE
                           ? item
                           : tensor->cols / type->block * type->bytes;
    for (uint64_t i = 0; i < l->n; i++, out += row)
        memcpy(out, tensor->data + row_in_file(l, i) * row, row);
}

struct weight_place {
    struct kvr_weights *weights;
    const struct kvr_model *model;
    const struct kvr_backend *backend;
    struct kvr_device *device;
};

static enum kvr_status
copy_rows(struct kvr_weight *weight, const struct weight_place *p,
          const struct kvr_stored *tensor, const struct kvr_slot_shape *shape,
          const struct weight_layout *l, uint64_t size, struct kvr_error *err)
{
    uint8_t *copy = kvr_aligned_calloc((size_t)size, 1);

    if (copy == NULL)
        return kvr_no_memory(err, "weights in another order", (size_t)size);
    p->weights->copies[p->weights->n_copies++] = copy;
    if (l->plus_one) {
        float *values = (float *)(void *)copy;
        kvr__quant_find(tensor->type)->expand(values, tensor->data, l->n);
        for (uint64_t i = 0; i < l->n; i++)
            values[i] += 1.0f;
        weight->type = KVR_QUANT_F32;
        weight->block = 1;
        weight->block_bytes = sizeof(float);
    } else {
        gather(copy, tensor, shape, l);
    }
    weight->data = copy;
    return KVR_OK;
}

static enum kvr_status
upload(struct kvr_tensor **out, const struct weight_place *p,
       const struct kvr_stored *tensor, const struct kvr_slot *slot,
       const struct kvr_slot_shape *shape, bool norm, struct kvr_error *err)
{
    const struct kvr_quant_row *type = kvr__quant_find(tensor->type);
    const bool vector = shape->rows == KVR_DIM_ONE;
    struct weight_layout l = layout_of(p->model, slot, shape);
    char shown[KVR_SLICE_TEXT];

    l.plus_one = norm && p->model->format == KVR_FORMAT_HF &&
                 p->model->family->hf_plus_one;
    const uint64_t size = copy_size(tensor, shape, &l);
    struct kvr_weight weight = {
        .type = tensor->type,
        .block = type->block,
        .block_bytes = type->bytes,
        .rows = vector ? 1 : l.n,
        .cols = vector     ? l.n
                : l.turned ? tensor->rows
                           : tensor->cols,
        .data = tensor->data,
    };
    if (type->block != 1 && (l.turned || (vector && (size > 0 || l.first > 0))))
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: tensor '%s' is cut inside blocks of type %s",
                        p->model->path, kvr_slice_show(shown, tensor->name),
                        type->name);
    if (size > 0) {
        const enum kvr_status status =
            copy_rows(&weight, p, tensor, shape, &l, size, err);
        if (status != KVR_OK)
            return status;
    } else {
        weight.data +=
            l.first * (vector ? 1 : tensor->cols) / type->block * type->bytes;
    }
    return p->backend->weight(out, p->device, &weight, err);
}

enum kvr_status kvr__weights_init(struct kvr_weights *weights,
                                  const struct kvr_model *model,
                                  const struct kvr_backend *backend,
                                  struct kvr_device *device,
                                  struct kvr_error *err)
{
    const size_t n = (size_t)model->config.n_layer * KVR_N_LAYER_SLOT;
    const struct weight_place p = {weights, model, backend, device};
    const struct kvr_family *f = model->family;
    enum kvr_status status = KVR_OK;

    *weights = (struct kvr_weights){0};
    weights->layers = kvr_calloc(n, sizeof(struct kvr_tensor *));
    weights->copies = kvr_calloc(n + KVR_N_MODEL_SLOT, sizeof *weights->copies);
    if (weights->layers == NULL || weights->copies == NULL)
        return kvr_no_memory(err, "layers", n * sizeof *weights->copies);
    for (int s = 0; s < KVR_N_MODEL_SLOT && status == KVR_OK; s++)
        if (model->model_file[s] != NULL && s != KVR_ROPE_FACTORS)
            status = upload(&weights->model[s], &p, model->model_file[s],
                            &f->model_slots[s], &kvr__model_shapes[s],
                            s == KVR_OUTPUT_NORM, err);
    for (size_t i = 0; i < n && status == KVR_OK; i++) {
        const int s = (int)(i % KVR_N_LAYER_SLOT);
        if (model->layer_file[i] != NULL)
            status = upload(&weights->layers[i], &p, model->layer_file[i],
                            &f->layer_slots[s], &kvr__layer_shapes[s],
                            is_norm(s), err);
    }
    if (weights->model[KVR_OUTPUT] == NULL)
        weights->model[KVR_OUTPUT] = weights->model[KVR_EMBEDDING];
    return status;
}

uint64_t kvr__weights_bytes(const struct kvr_model *model)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < model->config.n_layer * (uint32_t)KVR_N_LAYER_SLOT;
         i++) {
        const uint32_t s = i % KVR_N_LAYER_SLOT;
        const struct kvr_slot_shape *shape = &kvr__layer_shapes[s];
        if (model->layer_file[i] == NULL)
            continue;
        const struct weight_layout l =
            layout_of(model, &model->family->layer_slots[s], shape);
        bytes += copy_size(model->layer_file[i], shape, &l);
    }
    return bytes;
}

void kvr__weights_fini(struct kvr_weights *weights)
{
    for (size_t i = 0; i < weights->n_copies; i++)
        free(weights->copies[i]);
    free(weights->copies);
    free(weights->layers);
    *weights = (struct kvr_weights){0};
}
