/* decoder_layer.c -- one layer, as its family's tables describe it.
 *
 * A step whose weight the family lacks is left out: norms of heads, norms of
 * what is added, gates, learned positions, rotation.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "decoder_private.h"

enum kvr_status kvr__decoder_normalise(
    struct kvr_decoder *d, struct kvr_tensor *out, const struct kvr_tensor *in,
    const struct kvr_tensor *weight, const struct kvr_tensor *bias,
    uint32_t parts, uint32_t n, struct kvr_error *err)
{
    const struct kvr_norm norm = {
        .kind = d->model->family->norm,
        .weight = weight,
        .bias = bias,
        .eps = (float)d->model->config.norm_eps,
        .parts = parts,
    };

    return d->backend->norm(d->device, out, in, &norm, n, err);
}

/* x += in W^T + bias, with a norm of what is added where there is one. */
static enum kvr_status
add_product(struct kvr_decoder *d, const struct kvr_tensor *in,
            const struct kvr_tensor *weight, const struct kvr_tensor *bias,
            const struct kvr_tensor *norm, uint32_t n, struct kvr_error *err)
{
    const struct kvr_backend *b = d->backend;
    enum kvr_status status;

    if (norm == NULL)
        return b->matmul(d->device, d->x, true, in, 0, weight, bias, n, err);
    if ((status = b->matmul(d->device, d->added, false, in, 0, weight, bias, n,
                            err)) != KVR_OK ||
        (status = kvr__decoder_normalise(d, d->added, d->added, norm, NULL, 1,
                                         n, err)) != KVR_OK)
        return status;
    return b->add(d->device, d->x, d->added, n, err);
}

/* Queries or keys of one layer: product, norm of each head, rotation. */
static enum kvr_status project(struct kvr_decoder *d, struct kvr_tensor *out,
                               const struct kvr_tensor *weight,
                               const struct kvr_tensor *bias,
                               const struct kvr_tensor *norm, uint32_t heads,
                               uint32_t layer, uint32_t n,
                               struct kvr_error *err)
{
    const struct kvr_tensor *angles =
        d->model->layers[layer].local ? d->angles_local : d->angles;
    enum kvr_status status = d->backend->matmul(
        d->device, out, false, d->normed, 0, weight, bias, n, err);

    if (status == KVR_OK && norm != NULL)
        status = kvr__decoder_normalise(d, out, out, norm, NULL, heads, n, err);
    if (status != KVR_OK || d->model->inv_freq == NULL)
        return status;
    return d->backend->rope(d->device, out, angles, heads,
                            d->model->config.rope_dim, n, err);
}

static struct kvr_attention attention_of(struct kvr_decoder *d, uint32_t layer,
                                         uint32_t n,
                                         const struct kvr_observer *o)
{
    const struct kvr_config *c = &d->model->config;
    const bool chosen = o != NULL && (o->layers == NULL || o->layers[layer]);

    return (struct kvr_attention){
        .out = d->mixed,
        .query = d->query,
        .keys = d->keys[layer],
        .values = d->values[layer],
        .layer = layer,
        .n_head = c->n_head,
        .n_kv_head = c->n_kv_head,
        .key_dim = c->key_dim,
        .value_dim = c->value_dim,
        .first = d->position,
        .n = n,
        .scale = (float)c->attention_scale,
        .softcap = (float)c->softcap,
        .span = d->model->layers[layer].span,
        .report = chosen ? o->rows : NULL,
        .ud = chosen ? o->ud : NULL,
        .lse_only = chosen && o->lse_only,
    };
}

static enum kvr_status attend(struct kvr_decoder *d, uint32_t layer,
                              struct kvr_tensor *const *w, uint32_t n,
                              const struct kvr_observer *o,
                              struct kvr_error *err)
{
    const struct kvr_backend *b = d->backend;
    const struct kvr_config *c = &d->model->config;
    const struct kvr_attention call = attention_of(d, layer, n, o);
    enum kvr_status status;

    if ((status = kvr__decoder_normalise(d, d->normed, d->x, w[KVR_ATTN_NORM],
                                         w[KVR_ATTN_NORM_BIAS], 1, n, err)) !=
            KVR_OK ||
        (status = project(d, d->query, w[KVR_Q], w[KVR_Q_BIAS], w[KVR_Q_NORM],
                          c->n_head, layer, n, err)) != KVR_OK ||
        (status = project(d, d->key, w[KVR_K], w[KVR_K_BIAS], w[KVR_K_NORM],
                          c->n_kv_head, layer, n, err)) != KVR_OK ||
        (status = b->matmul(d->device, d->value, false, d->normed, 0, w[KVR_V],
                            w[KVR_V_BIAS], n, err)) != KVR_OK ||
        (status = b->store(d->device, d->keys[layer], d->key, c->n_kv_head,
                           d->position, n, err)) != KVR_OK ||
        (status = b->store(d->device, d->values[layer], d->value, c->n_kv_head,
                           d->position, n, err)) != KVR_OK ||
        (status = b->attention(d->device, &call, err)) != KVR_OK)
        return status;
    return kvr__decoder_show_layer(d, layer, n, o, err);
}

/* Reads d->normed, leaves the input of the down projection in d->gate. */
static enum kvr_status expand(struct kvr_decoder *d, uint32_t layer,
                              struct kvr_tensor *const *w, uint32_t n,
                              const struct kvr_observer *o,
                              struct kvr_error *err)
{
    const struct kvr_backend *b = d->backend;
    const bool gated = w[KVR_GATE] != NULL;
    const int first = gated ? KVR_GATE : KVR_UP;
    const int bias = gated ? KVR_GATE_BIAS : KVR_UP_BIAS;
    enum kvr_status status = b->matmul(d->device, d->gate, false, d->normed, 0,
                                       w[first], w[bias], n, err);

    if (status == KVR_OK && gated)
        status = b->matmul(d->device, d->up, false, d->normed, 0, w[KVR_UP],
                           w[KVR_UP_BIAS], n, err);
    if (status == KVR_OK)
        status = b->activate(d->device, d->gate, gated ? d->up : NULL,
                             d->model->config.activation, n, err);
    return status != KVR_OK ? status
                            : kvr__decoder_show_mlp(d, layer, n, o, err);
}

/* One layer. In a parallel one both halves read the layer's input. */
enum kvr_status kvr__decoder_layer(struct kvr_decoder *d, uint32_t layer,
                                   uint32_t n, const struct kvr_observer *o,
                                   struct kvr_error *err)
{
    const bool parallel = d->model->config.parallel;
    struct kvr_tensor *const *w =
        d->weights.layers + (size_t)layer * KVR_N_LAYER_SLOT;
    enum kvr_status status = attend(d, layer, w, n, o, err);

    if (status == KVR_OK && parallel)
        status = kvr__decoder_normalise(d, d->normed, d->x, w[KVR_FF_NORM],
                                        w[KVR_FF_NORM_BIAS], 1, n, err);
    if (status == KVR_OK)
        status = add_product(d, d->mixed, w[KVR_O], w[KVR_O_BIAS],
                             w[KVR_ATTN_POST_NORM], n, err);
    if (status == KVR_OK && !parallel)
        status = kvr__decoder_normalise(d, d->normed, d->x, w[KVR_FF_NORM],
                                        w[KVR_FF_NORM_BIAS], 1, n, err);
    if (status == KVR_OK)
        status = expand(d, layer, w, n, o, err);
    if (status == KVR_OK)
        status = add_product(d, d->gate, w[KVR_DOWN], w[KVR_DOWN_BIAS],
                             w[KVR_FF_POST_NORM], n, err);
    if (status != KVR_OK)
        return status;
    return kvr__decoder_show_hidden(d, layer + 1, d->x, n, o, err);
}

/* Token and, where they are learned, position. */
enum kvr_status kvr__decoder_embed(struct kvr_decoder *d, const int32_t *ids,
                                   uint32_t n, struct kvr_error *err)
{
    const struct kvr_config *c = &d->model->config;
    const struct kvr_backend *b = d->backend;
    const struct kvr_tensor *positions = d->weights.model[KVR_POSITIONS];
    enum kvr_status status =
        b->embed(d->device, d->x, d->weights.model[KVR_EMBEDDING],
                 (float)c->embedding_scale, ids, n, err);

    if (status != KVR_OK || positions == NULL)
        return status;
    for (uint32_t i = 0; i < n; i++)
        d->places[i] = (int32_t)(d->position + i + c->position_offset);
    status = b->embed(d->device, d->added, positions, 1, d->places, n, err);
    if (status != KVR_OK)
        return status;
    return b->add(d->device, d->x, d->added, n, err);
}
