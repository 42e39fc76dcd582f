/* weights.c -- a model's tensors on a device.
 *
 * GGUF files of some families store query and key rows so that rotary pairs
 * are neighbours; the decoder rotates (j, j + rope_dim / 2). Their rows are
 * put in that order once, here: the products are the same, and stored queries
 * and keys have one layout whatever the file.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "model.h"

#include "kvr_memory.h"
#include "quant.h"

#include <stdlib.h>
#include <string.h>

/* Items (rows of a matrix, values of a bias) of `size` bytes, head by head:
 * 2j goes to j, 2j + 1 to j + rope_dim / 2; the rest of a head stays. */
static void unpair(uint8_t *out, const uint8_t *in, size_t size,
                   uint32_t n_head, uint32_t dim, uint32_t rope_dim)
{
    for (uint32_t h = 0; h < n_head; h++)
        for (uint32_t j = 0; j < dim; j++) {
            const uint32_t to =
                j >= rope_dim ? j : j / 2 + (j % 2) * (rope_dim / 2);
            memcpy(out + ((size_t)h * dim + to) * size,
                   in + ((size_t)h * dim + j) * size, size);
        }
}

static enum kvr_status reorder(const uint8_t **out, struct kvr_weights *weights,
                               const struct kvr_model *model,
                               const struct kvr_gguf_tensor *tensor,
                               enum kvr_row_order order, struct kvr_error *err)
{
    const struct kvr_config *c = &model->config;
    const uint32_t n_head =
        order == KVR_ROWS_PAIRED_Q ? c->n_head : c->n_kv_head;
    uint8_t *copy = kvr_aligned_calloc((size_t)tensor->size, 1);

    if (copy == NULL)
        return kvr_no_memory(err, "query or key weights", (size_t)tensor->size);
    weights->copies[weights->n_copies++] = copy;
    unpair(copy, tensor->data,
           (size_t)(tensor->size / ((uint64_t)n_head * c->key_dim)), n_head,
           c->key_dim, c->rope_dim);
    *out = copy;
    return KVR_OK;
}

static enum kvr_status
upload(struct kvr_tensor **out, struct kvr_weights *weights,
       const struct kvr_model *model, const struct kvr_gguf_tensor *tensor,
       enum kvr_row_order order, const struct kvr_backend *backend,
       struct kvr_device *device, struct kvr_error *err)
{
    struct kvr_weight weight = {
        .type = tensor->type,
        .rows = tensor->rows,
        .cols = tensor->dims[0],
        .data = tensor->data,
    };
    enum kvr_status status = KVR_OK;

    if (order != KVR_ROWS_AS_STORED)
        status = reorder(&weight.data, weights, model, tensor, order, err);
    if (status != KVR_OK)
        return status;
    return backend->weight(out, device, &weight, err);
}

enum kvr_status kvr_weights_init(struct kvr_weights *weights,
                                 const struct kvr_model *model,
                                 const struct kvr_backend *backend,
                                 struct kvr_device *device,
                                 struct kvr_error *err)
{
    const size_t n = (size_t)model->config.n_layer * KVR_N_LAYER_SLOT;
    enum kvr_status status = KVR_OK;

    *weights = (struct kvr_weights){0};
    weights->layers = kvr_calloc(n, sizeof(struct kvr_tensor *));
    weights->copies = kvr_calloc(n, sizeof *weights->copies);
    if (weights->layers == NULL || weights->copies == NULL)
        return kvr_no_memory(err, "layers", n * sizeof *weights->copies);
    for (int s = 0; s < KVR_N_MODEL_SLOT && status == KVR_OK; s++)
        if (model->model_file[s] != NULL && s != KVR_ROPE_FACTORS)
            status =
                upload(&weights->model[s], weights, model, model->model_file[s],
                       KVR_ROWS_AS_STORED, backend, device, err);
    for (size_t i = 0; i < n && status == KVR_OK; i++)
        if (model->layer_file[i] != NULL)
            status = upload(
                &weights->layers[i], weights, model, model->layer_file[i],
                model->family->layer_slots[i % KVR_N_LAYER_SLOT].order, backend,
                device, err);
    if (weights->model[KVR_OUTPUT] == NULL)
        weights->model[KVR_OUTPUT] = weights->model[KVR_EMBEDDING];
    return status;
}

void kvr_weights_fini(struct kvr_weights *weights)
{
    for (size_t i = 0; i < weights->n_copies; i++)
        free(weights->copies[i]);
    free(weights->copies);
    free(weights->layers);
    *weights = (struct kvr_weights){0};
}
