/* decoder_private.h -- shared by the files of the decoder.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef DECODER_PRIVATE_H
#define DECODER_PRIVATE_H

#include "decoder.h"

struct kvr_decoder {
    const struct kvr_model *model;
    const struct kvr_backend *backend;
    struct kvr_device *device;
    struct kvr_weights weights;
    struct kvr_decoder_options options;
    uint32_t position, last_rows;
    /* activations, one token per row */
    struct kvr_tensor *x, *normed, *query, *key, *value, *mixed, *gate, *up;
    struct kvr_tensor *added; /* what a half layer adds, before its norm */
    struct kvr_tensor *angles, *angles_local, *logits;
    struct kvr_tensor *outs;            /* [max_rows, n_head]: see value_out */
    struct kvr_tensor **keys, **values; /* caches, [n_layer] */
    /* on the host */
    float *host;                /* the widest activation of one feed */
    float *shown[KVR_SEND_MAX]; /* what is read at once; [0] is host */
    float *norms;               /* [3 G * max_rows] */
    int32_t *places;            /* [max_rows]: rows of learned positions */
    const struct kvr_observer *observer; /* of the last feed */
};

/* Places of a layer's tensors in what is sent. */
enum { KVR_SHOWN_KEY, KVR_SHOWN_VALUE, KVR_SHOWN_OUT, KVR_SHOWN_QUERY };

/* decoder_layer.c: the embedding of n tokens at d->position into d->x, one
 * layer over them, and a norm of `parts` parts of each row. */
enum kvr_status kvr__decoder_embed(struct kvr_decoder *d, const int32_t *ids,
                                   uint32_t n,
                                   struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__decoder_layer(struct kvr_decoder *d, uint32_t layer,
                                   uint32_t n, const struct kvr_observer *o,
                                   struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__decoder_normalise(
    struct kvr_decoder *d, struct kvr_tensor *out, const struct kvr_tensor *in,
    const struct kvr_tensor *weight, const struct kvr_tensor *bias,
    uint32_t parts, uint32_t n, struct kvr_error *err) KVR_MUST_CHECK;

/* decoder_show.c: what the observer asked to see. show_to comes first in a
 * feed. */
enum kvr_status kvr__decoder_show_to(struct kvr_decoder *d,
                                     const struct kvr_observer *o,
                                     struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__decoder_show_mlp(struct kvr_decoder *d, uint32_t layer,
                                      uint32_t n, const struct kvr_observer *o,
                                      struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__decoder_show_hidden(struct kvr_decoder *d, uint32_t index,
                                         const struct kvr_tensor *x, uint32_t n,
                                         const struct kvr_observer *o,
                                         struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__decoder_show_layer(struct kvr_decoder *d, uint32_t layer,
                                        uint32_t n,
                                        const struct kvr_observer *o,
                                        struct kvr_error *err) KVR_MUST_CHECK;

#endif
