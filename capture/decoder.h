/* decoder.h -- a decoder-only transformer over a back end.
 *
 * Feeds tokens in chunks of up to max_rows, keeps their keys and values, and
 * shows what happens inside to an observer. The rows of a token do not depend
 * on how the text was cut into chunks, but for rounding.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef DECODER_H
#define DECODER_H

#include "backend.h"
#include "model.h"

#include <stdbool.h>
#include <stdint.h>

/* Per-token figures of one layer for tokens first..first+n-1. Arrays are
 * row-major [rows][stride], `n` used; G KV heads, H query heads. */
struct kvr_layer_norms {
    uint32_t layer, first, n;
    size_t stride;
    const float *key_norm;       /* [G]: L2 of the key after RoPE */
    const float *value_norm1;    /* [G]: L1 of the value */
    const float *value_norm2;    /* [G]: L2 */
    const float *value_out_norm; /* [H]: L1 of W_O's slice times the value;
                                  * NULL: not wanted, or the back end lacks it
                                  */
};

/* What a caller wants to see; every hook is optional. All but rows are called
 * one at a time, layer by layer; a back end that reports later (backend.h)
 * calls from threads of its own, until kvr__decoder_drain. A hook's failure
 * ends that feed or the next one. Pointers end with the call. */
struct kvr_observer {
    void *ud;
    bool lse_only;      /* of rows only lse is used */
    bool no_value_out;  /* of norms all but value_out_norm */
    const bool *layers; /* [n_layer]: rows and norms only of these; NULL all */
    kvr_rows_fn rows;   /* see backend.h: may come from several threads */
    enum kvr_status (*norms)(void *ud, const struct kvr_layer_norms *norms,
                             struct kvr_error *err);
    /* Queries [n][H * key_dim] and keys [n][G * key_dim] after RoPE. */
    enum kvr_status (*query_key)(void *ud, uint32_t layer, uint32_t first,
                                 uint32_t n, const float *query,
                                 const float *key, struct kvr_error *err);
    /* Values [n][G * value_dim]. */
    enum kvr_status (*values)(void *ud, uint32_t layer, uint32_t first,
                              uint32_t n, const float *value,
                              struct kvr_error *err);
    /* Residual [n][hidden]: 0 the embedding, l + 1 after layer l, n_layer + 1
     * after the final norm. */
    enum kvr_status (*hidden)(void *ud, uint32_t index, uint32_t first,
                              uint32_t n, const float *hidden,
                              struct kvr_error *err);
    /* Input of the down projection, [n][n_ff]. */
    enum kvr_status (*mlp)(void *ud, uint32_t layer, uint32_t first, uint32_t n,
                           const float *activation, struct kvr_error *err);
};

struct kvr_decoder;

struct kvr_decoder_options {
    uint32_t max_tokens; /* that the cache will hold */
    uint32_t max_rows;   /* most tokens of one feed */
    uint32_t threads;    /* 0: processors */
    enum kvr_compute compute;
    enum kvr_row_type rows; /* that the observer would like */
};

/* Borrows the model. */
enum kvr_status kvr__decoder_new(struct kvr_decoder **out,
                                 const struct kvr_model *model,
                                 const struct kvr_backend *backend,
                                 const struct kvr_decoder_options *options,
                                 struct kvr_error *err) KVR_MUST_CHECK;
void kvr__decoder_free(struct kvr_decoder *decoder);

/* What kvr__decoder_new will ask of a device. */
struct kvr_device_options
kvr__decoder_device(const struct kvr_model *model,
                    const struct kvr_decoder_options *options);

/* Bytes that kvr__decoder_new will allocate, the weights' file not counted. */
uint64_t kvr__decoder_bytes(const struct kvr_model *model,
                            const struct kvr_decoder_options *options);

/* Tokens fed so far: the position of the next one. */
uint32_t kvr__decoder_position(const struct kvr_decoder *decoder);

/* Feeds n tokens, 1 <= n <= max_rows; observer may be NULL and is borrowed
 * until kvr__decoder_drain. An id that the
 * model does not have is KVR_ERR_INPUT, more than max_tokens KVR_ERR_LIMIT. */
enum kvr_status kvr__decoder_feed(struct kvr_decoder *decoder,
                                  const int32_t *ids, uint32_t n,
                                  const struct kvr_observer *observer,
                                  struct kvr_error *err) KVR_MUST_CHECK;

/* fn(ud, first, n) after the observer saw all of the feeds before and before it
 * sees any of a later one. */
enum kvr_status kvr__decoder_defer(struct kvr_decoder *decoder,
                                   kvr_deferred_fn fn, void *ud, uint32_t first,
                                   uint32_t n,
                                   struct kvr_error *err) KVR_MUST_CHECK;
/* Returns when the observer has seen all, and what was deferred is done. */
enum kvr_status kvr__decoder_drain(struct kvr_decoder *decoder,
                                   struct kvr_error *err) KVR_MUST_CHECK;

/* Logits [n_vocab] after row `row` of the last feed. Not finite is
 * KVR_ERR_INPUT naming the step. */
enum kvr_status kvr__decoder_logits(struct kvr_decoder *decoder, float *logits,
                                    uint32_t row,
                                    struct kvr_error *err) KVR_MUST_CHECK;

/* log p(targets[i]) after row i of the last feed, i < n <= its rows. */
enum kvr_status kvr__decoder_log_prob(struct kvr_decoder *decoder, float *out,
                                      const int32_t *targets, uint32_t n,
                                      struct kvr_error *err) KVR_MUST_CHECK;

#endif
