/* decoder_show.c -- what an observer sees of a feed: at once, or later where
 * the back end reports later.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "decoder_private.h"

#include <math.h>

/* Rows that the back end still computes belong to the observer of the feed that
 * asked for them. They are waited for before another observer is set. */
enum kvr_status kvr__decoder_show_to(struct kvr_decoder *d,
                                     const struct kvr_observer *o,
                                     struct kvr_error *err)
{
    if (o == d->observer)
        return KVR_OK;
    const enum kvr_status status = kvr__decoder_drain(d, err);
    d->observer = o; /* nobody reads it now */
    return status;
}

/* Hands `what` to the back end, or reads it and calls at once. */
static enum kvr_status show(struct kvr_decoder *d, struct kvr_send *what,
                            struct kvr_error *err)
{
    const float *values[KVR_SEND_MAX] = {0};

    what->ud = d;
    what->first = d->position;
    if (d->backend->send != NULL)
        return d->backend->send(d->device, what, err);
    for (int i = 0; i < KVR_SEND_MAX; i++) {
        if (what->tensors[i] == NULL)
            continue;
        const enum kvr_status status = d->backend->read(
            d->device, d->shown[i], what->tensors[i], 0, what->n, err);
        if (status != KVR_OK)
            return status;
        values[i] = d->shown[i];
    }
    return what->sent(d, what->layer, what->first, what->n, values, err);
}

static enum kvr_status hidden_shown(void *ud, uint32_t layer, uint32_t first,
                                    uint32_t n, const float *const *values,
                                    struct kvr_error *err)
{
    const struct kvr_observer *o = ((struct kvr_decoder *)ud)->observer;

    return o->hidden(o->ud, layer, first, n, values[0], err);
}

enum kvr_status kvr__decoder_show_hidden(struct kvr_decoder *d, uint32_t index,
                                         const struct kvr_tensor *x, uint32_t n,
                                         const struct kvr_observer *o,
                                         struct kvr_error *err)
{
    struct kvr_send what = {
        .tensors = {x}, .layer = index, .n = n, .sent = hidden_shown};

    if (o == NULL || o->hidden == NULL)
        return KVR_OK;
    return show(d, &what, err);
}

static enum kvr_status mlp_shown(void *ud, uint32_t layer, uint32_t first,
                                 uint32_t n, const float *const *values,
                                 struct kvr_error *err)
{
    const struct kvr_observer *o = ((struct kvr_decoder *)ud)->observer;

    return o->mlp(o->ud, layer, first, n, values[0], err);
}

enum kvr_status kvr__decoder_show_mlp(struct kvr_decoder *d, uint32_t layer,
                                      uint32_t n, const struct kvr_observer *o,
                                      struct kvr_error *err)
{
    struct kvr_send what = {
        .tensors = {d->gate}, .layer = layer, .n = n, .sent = mlp_shown};

    if (o == NULL || o->mlp == NULL)
        return KVR_OK;
    return show(d, &what, err);
}

/* L1 and L2 norms of each KV head's vectors: out[head * stride + token]. */
static void norms_of(float *norm1, float *norm2, const float *in,
                     uint32_t heads, uint32_t dim, uint32_t n, size_t stride)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < heads; h++) {
            const float *v = in + ((size_t)i * heads + h) * dim;
            double one = 0, two = 0;
            for (uint32_t k = 0; k < dim; k++) {
                one += fabs((double)v[k]);
                two += (double)v[k] * (double)v[k];
            }
            if (norm1 != NULL)
                norm1[h * stride + i] = (float)one;
            norm2[h * stride + i] = (float)sqrt(two);
        }
}

static enum kvr_status show_norms(struct kvr_decoder *d, uint32_t layer,
                                  uint32_t first, uint32_t n,
                                  const float *const *values,
                                  struct kvr_error *err)
{
    const struct kvr_config *c = &d->model->config;
    const size_t cells = (size_t)c->n_kv_head * n;
    float *key2 = d->norms, *value1 = key2 + cells, *value2 = value1 + cells;

    norms_of(NULL, key2, values[KVR_SHOWN_KEY], c->n_kv_head, c->key_dim, n, n);
    norms_of(value1, value2, values[KVR_SHOWN_VALUE], c->n_kv_head,
             c->value_dim, n, n);
    const struct kvr_layer_norms norms = {
        .layer = layer,
        .first = first,
        .n = n,
        .stride = n,
        .key_norm = key2,
        .value_norm1 = value1,
        .value_norm2 = value2,
        .value_out_norm = values[KVR_SHOWN_OUT],
    };
    return d->observer->norms(d->observer->ud, &norms, err);
}

static enum kvr_status layer_shown(void *ud, uint32_t layer, uint32_t first,
                                   uint32_t n, const float *const *values,
                                   struct kvr_error *err)
{
    struct kvr_decoder *d = ud;
    const struct kvr_observer *o = d->observer;
    enum kvr_status status = KVR_OK;

    if (o->norms != NULL)
        status = show_norms(d, layer, first, n, values, err);
    if (status == KVR_OK && o->values != NULL)
        status =
            o->values(o->ud, layer, first, n, values[KVR_SHOWN_VALUE], err);
    if (status == KVR_OK && o->query_key != NULL)
        status = o->query_key(o->ud, layer, first, n, values[KVR_SHOWN_QUERY],
                              values[KVR_SHOWN_KEY], err);
    return status;
}

enum kvr_status kvr__decoder_show_layer(struct kvr_decoder *d, uint32_t layer,
                                        uint32_t n,
                                        const struct kvr_observer *o,
                                        struct kvr_error *err)
{
    const struct kvr_backend *b = d->backend;
    const struct kvr_config *c = &d->model->config;
    struct kvr_send what = {.layer = layer, .n = n, .sent = layer_shown};
    enum kvr_status status = KVR_OK;

    if (o == NULL || (o->layers != NULL && !o->layers[layer]) ||
        (o->norms == NULL && o->values == NULL && o->query_key == NULL))
        return KVR_OK;
    if (o->norms != NULL || o->query_key != NULL)
        what.tensors[KVR_SHOWN_KEY] = d->key;
    if (o->norms != NULL || o->values != NULL)
        what.tensors[KVR_SHOWN_VALUE] = d->value;
    if (o->query_key != NULL)
        what.tensors[KVR_SHOWN_QUERY] = d->query;
    if (o->norms != NULL && !o->no_value_out && b->value_out != NULL) {
        what.tensors[KVR_SHOWN_OUT] = d->outs;
        status = b->value_out(
            d->device, d->outs, d->value,
            d->weights.layers[(size_t)layer * KVR_N_LAYER_SLOT + KVR_O],
            c->n_head, c->n_kv_head, n, err);
    }
    return status != KVR_OK ? status : show(d, &what, err);
}

enum kvr_status kvr__decoder_defer(struct kvr_decoder *d, kvr_deferred_fn fn,
                                   void *ud, uint32_t first, uint32_t n,
                                   struct kvr_error *err)
{
    if (d->backend->defer == NULL)
        return fn(ud, first, n, err);
    return d->backend->defer(d->device, fn, ud, first, n, err);
}

enum kvr_status kvr__decoder_drain(struct kvr_decoder *d, struct kvr_error *err)
{
    if (d->backend->drain == NULL)
        return KVR_OK;
    return d->backend->drain(d->device, err);
}
