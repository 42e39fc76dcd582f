/* decoder.c -- the forward pass, in the words of the back-end table.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "decoder_private.h"

#include "kvr_memory.h"
#include "quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns of the widest activation that is read back. */
static uint64_t widest(const struct kvr_config *c)
{
    const enum kvr_dim dims[] = {KVR_DIM_HIDDEN, KVR_DIM_QUERY, KVR_DIM_KEY,
                                 KVR_DIM_VALUE,  KVR_DIM_FF,    KVR_DIM_ROPE};
    uint64_t most = 0;

    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (kvr__dim_size(c, dims[i]) > most)
            most = kvr__dim_size(c, dims[i]);
    return most < c->rope_dim ? c->rope_dim : most;
}

uint64_t kvr__decoder_bytes(const struct kvr_model *model,
                            const struct kvr_decoder_options *options)
{
    const struct kvr_config *c = &model->config;
    const uint64_t cache = (uint64_t)c->n_layer * c->n_kv_head *
                           (c->key_dim + c->value_dim) * options->max_tokens;
    const uint64_t row =
        3ull * c->hidden + kvr__dim_size(c, KVR_DIM_QUERY) +
        kvr__dim_size(c, KVR_DIM_KEY) + kvr__dim_size(c, KVR_DIM_VALUE) +
        kvr__dim_size(c, KVR_DIM_HEADS) + 2ull * c->n_ff + 2ull * c->rope_dim +
        widest(c) + kvr__dim_size(c, KVR_DIM_QUERY) +
        kvr__dim_size(c, KVR_DIM_VALUE) + 3ull * c->n_kv_head +
        2ull * c->n_head;
    /* attention rows or an expanded panel, per thread (64 and 128 rows) */
    const uint64_t block = 64ull * options->max_tokens;
    const uint64_t panel = 128ull * (widest(c) + options->max_rows);

    return 4 * (cache + row * options->max_rows + c->n_vocab +
                (block > panel ? block : panel) *
                    (options->threads > 0 ? options->threads : 2));
}

struct wanted {
    struct kvr_tensor **tensor;
    uint64_t rows, cols;
};

/* Is something made apart and then added to the residual? */
static bool adds_apart(const struct kvr_model *model)
{
    return model->model_file[KVR_POSITIONS] != NULL ||
           model->layer_file[KVR_ATTN_POST_NORM] != NULL;
}

static enum kvr_status make_buffers(struct kvr_decoder *d,
                                    struct kvr_error *err)
{
    const struct kvr_config *c = &d->model->config;
    const uint32_t n = d->options.max_rows;
    const struct wanted list[] = {
        {&d->x, n, c->hidden},
        {&d->normed, n, c->hidden},
        {&d->query, n, kvr__dim_size(c, KVR_DIM_QUERY)},
        {&d->key, n, kvr__dim_size(c, KVR_DIM_KEY)},
        {&d->value, n, kvr__dim_size(c, KVR_DIM_VALUE)},
        {&d->mixed, n, kvr__dim_size(c, KVR_DIM_HEADS)},
        {&d->gate, n, c->n_ff},
        {&d->up, n, c->n_ff},
        {&d->logits, 1, c->n_vocab},
        {&d->added, n, adds_apart(d->model) ? c->hidden : 0},
        {&d->angles, n, c->rope_dim},
        {&d->angles_local, n,
         d->model->inv_freq_local != NULL ? c->rope_dim : 0},
        {&d->outs, n, c->n_head},
    };
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < sizeof list / sizeof list[0] && status == KVR_OK;
         i++)
        status = d->backend->buffer(list[i].tensor, d->device, list[i].rows,
                                    list[i].cols, err);
    return status;
}

static enum kvr_status make_caches(struct kvr_decoder *d, struct kvr_error *err)
{
    const struct kvr_config *c = &d->model->config;
    const uint64_t rows = (uint64_t)c->n_kv_head * d->options.max_tokens;
    enum kvr_status status = KVR_OK;

    d->keys = kvr_calloc(c->n_layer, sizeof(struct kvr_tensor *));
    d->values = kvr_calloc(c->n_layer, sizeof(struct kvr_tensor *));
    if (d->keys == NULL || d->values == NULL)
        return kvr_no_memory(err, "layers", c->n_layer);
    for (uint32_t l = 0; l < c->n_layer && status == KVR_OK; l++) {
        status =
            d->backend->buffer(&d->keys[l], d->device, rows, c->key_dim, err);
        if (status == KVR_OK)
            status = d->backend->buffer(&d->values[l], d->device, rows,
                                        c->value_dim, err);
    }
    return status;
}

static enum kvr_status make_host(struct kvr_decoder *d, struct kvr_error *err)
{
    const struct kvr_config *c = &d->model->config;
    const size_t n = d->options.max_rows;
    const uint64_t cols[KVR_SEND_MAX] = {
        [KVR_SHOWN_KEY] = widest(c), /* and all that is shown alone */
        [KVR_SHOWN_VALUE] = kvr__dim_size(c, KVR_DIM_VALUE),
        [KVR_SHOWN_OUT] = c->n_head,
        [KVR_SHOWN_QUERY] = kvr__dim_size(c, KVR_DIM_QUERY),
    };
    bool all = true;

    for (int i = 0; i < KVR_SEND_MAX; i++) {
        if (i > 0 && d->backend->send != NULL)
            continue;
        d->shown[i] = kvr_calloc(n, cols[i] * sizeof(float));
        all = all && d->shown[i] != NULL;
    }
    d->host = d->shown[0];
    d->norms = kvr_calloc(n, 3ull * c->n_kv_head * sizeof(float));
    d->places = kvr_calloc(n, sizeof *d->places);
    if (!all || d->norms == NULL || d->places == NULL)
        return kvr_no_memory(err, "activations", n * widest(c) * sizeof(float));
    return KVR_OK;
}

/* Bytes of what make_buffers and make_caches ask for. */
static uint64_t buffer_bytes(const struct kvr_model *model,
                             const struct kvr_decoder_options *options)
{
    const struct kvr_config *c = &model->config;
    const uint64_t cache = (uint64_t)c->n_layer * c->n_kv_head *
                           (c->key_dim + c->value_dim) * options->max_tokens;
    const uint64_t row = 3ull * c->hidden + kvr__dim_size(c, KVR_DIM_QUERY) +
                         kvr__dim_size(c, KVR_DIM_KEY) +
                         kvr__dim_size(c, KVR_DIM_VALUE) +
                         kvr__dim_size(c, KVR_DIM_HEADS) + 2ull * c->n_ff +
                         2ull * c->rope_dim + c->n_head;

    return 4 * (cache + row * options->max_rows + c->n_vocab);
}

struct kvr_device_options
kvr__decoder_device(const struct kvr_model *model,
                    const struct kvr_decoder_options *options)
{
    struct kvr_device_options out = {
        .threads = options->threads,
        .max_rows = options->max_rows,
        .max_keys = options->max_tokens,
        .compute = options->compute,
        .rows = options->rows,
        .buffer_bytes = buffer_bytes(model, options),
        .heads = model->config.n_head,
    };
    uint64_t bf16 = 0;

    for (size_t i = 0; i < model->n_stored; i++) {
        const uint64_t n = model->stored[i].rows * model->stored[i].cols;
        out.n_weight += n;
        bf16 += model->stored[i].type == KVR_QUANT_BF16 ? n : 0;
    }
    out.bf16 = bf16 > out.n_weight / 2;
    return out;
}

enum kvr_status kvr__decoder_new(struct kvr_decoder **out,
                                 const struct kvr_model *model,
                                 const struct kvr_backend *backend,
                                 const struct kvr_decoder_options *options,
                                 struct kvr_error *err)
{
    const struct kvr_device_options device =
        kvr__decoder_device(model, options);
    struct kvr_decoder *d = kvr_calloc(1, sizeof *d);
    enum kvr_status status;

    *out = NULL;
    if (d == NULL)
        return kvr_no_memory(err, "the decoder", sizeof *d);
    d->model = model;
    d->backend = backend;
    d->options = *options;
    if ((status = backend->open(&d->device, &device, err)) != KVR_OK ||
        (status = kvr__weights_init(&d->weights, model, backend, d->device,
                                    err)) != KVR_OK ||
        (status = make_buffers(d, err)) != KVR_OK ||
        (status = make_caches(d, err)) != KVR_OK ||
        (status = make_host(d, err)) != KVR_OK) {
        kvr__decoder_free(d);
        return status;
    }
    *out = d;
    return KVR_OK;
}

void kvr__decoder_free(struct kvr_decoder *d)
{
    if (d == NULL)
        return;
    d->backend->close(d->device);
    kvr__weights_fini(&d->weights);
    free(d->keys);
    free(d->values);
    for (int i = 0; i < KVR_SEND_MAX; i++)
        free(d->shown[i]);
    free(d->norms);
    free(d->places);
    free(d);
}

uint32_t kvr__decoder_position(const struct kvr_decoder *d)
{
    return d->position;
}

/* Angles as the reference computes them: f32 products of position and
 * frequency. */
static enum kvr_status write_angles(struct kvr_decoder *d,
                                    struct kvr_tensor *angles,
                                    const float *inv_freq, uint32_t n,
                                    struct kvr_error *err)
{
    const uint32_t half = d->model->config.rope_dim / 2;

    if (inv_freq == NULL)
        return KVR_OK;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < half; j++) {
            const float angle = (float)(d->position + i) * inv_freq[j];
            float *row = d->host + (size_t)i * 2 * half;
            row[j] = (float)cos((double)angle);
            row[half + j] = (float)sin((double)angle);
        }
    return d->backend->write(d->device, angles, d->host, n, err);
}

static enum kvr_status check_feed(const struct kvr_decoder *d,
                                  const int32_t *ids, uint32_t n,
                                  struct kvr_error *err)
{
    const uint32_t n_vocab = d->model->config.n_vocab;

    if (n == 0 || n > d->options.max_rows ||
        n > d->options.max_tokens - d->position)
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "%" PRIu32 " tokens at position %" PRIu32
                        ": the decoder takes %" PRIu32 " at a time and holds "
                        "%" PRIu32,
                        n, d->position, d->options.max_rows,
                        d->options.max_tokens);
    if (d->weights.model[KVR_POSITIONS] != NULL &&
        d->position + n > d->model->config.n_context)
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "position %" PRIu32 ": the model has %" PRIu32
                        " learned positions",
                        d->position + n - 1, d->model->config.n_context);
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "token %" PRIu32 ": id %" PRId32
                            ", the model has ids 0 to %" PRIu32,
                            d->position + i, ids[i], n_vocab - 1);
    return KVR_OK;
}

enum kvr_status kvr__decoder_feed(struct kvr_decoder *d, const int32_t *ids,
                                  uint32_t n, const struct kvr_observer *o,
                                  struct kvr_error *err)
{
    const struct kvr_model *model = d->model;
    struct kvr_tensor *const *w = d->weights.model;
    enum kvr_status status;

    if ((status = check_feed(d, ids, n, err)) != KVR_OK ||
        (status = kvr__decoder_show_to(d, o, err)) != KVR_OK ||
        (status = write_angles(d, d->angles, model->inv_freq, n, err)) !=
            KVR_OK ||
        (status = write_angles(d, d->angles_local, model->inv_freq_local, n,
                               err)) != KVR_OK ||
        (status = kvr__decoder_embed(d, ids, n, err)) != KVR_OK ||
        (status = kvr__decoder_show_hidden(d, 0, d->x, n, o, err)) != KVR_OK)
        return status;
    for (uint32_t l = 0; l < model->config.n_layer; l++)
        if ((status = kvr__decoder_layer(d, l, n, o, err)) != KVR_OK)
            return status;
    if ((status = kvr__decoder_normalise(d, d->normed, d->x, w[KVR_OUTPUT_NORM],
                                         w[KVR_OUTPUT_NORM_BIAS], 1, n, err)) !=
            KVR_OK ||
        (status = kvr__decoder_show_hidden(d, model->config.n_layer + 1,
                                           d->normed, n, o, err)) != KVR_OK)
        return status;
    d->position += n;
    d->last_rows = n;
    return KVR_OK;
}

enum kvr_status kvr__decoder_logits(struct kvr_decoder *d, float *logits,
                                    uint32_t row, struct kvr_error *err)
{
    enum kvr_status status;

    if (row >= d->last_rows)
        return kvr_fail(err, KVR_ERR_INTERNAL,
                        "logits of row %" PRIu32 " of %" PRIu32, row,
                        d->last_rows);
    if ((status = d->backend->matmul(d->device, d->logits, false, d->normed,
                                     row, d->weights.model[KVR_OUTPUT], NULL, 1,
                                     err)) != KVR_OK ||
        (status = d->backend->read(d->device, logits, d->logits, 0, 1, err)) !=
            KVR_OK)
        return status;
    const double cap = d->model->config.logit_softcap;
    for (uint32_t i = 0; i < d->model->config.n_vocab && cap > 0; i++)
        logits[i] = (float)(cap * tanh((double)logits[i] / cap));
    for (uint32_t i = 0; i < d->model->config.n_vocab; i++)
        if (!isfinite(logits[i]))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "step %" PRIu32 ": logit %" PRIu32 " is not finite",
                            d->position - d->last_rows + row, i);
    return KVR_OK;
}

/* Through the logits, where the back end has no function for it. */
static enum kvr_status log_prob_slowly(struct kvr_decoder *d, float *out,
                                       const int32_t *targets, uint32_t n,
                                       struct kvr_error *err)
{
    const uint32_t n_vocab = d->model->config.n_vocab;
    float *logits = kvr_calloc(n_vocab, sizeof *logits);
    enum kvr_status status = KVR_OK;

    if (logits == NULL)
        return kvr_no_memory(err, "logits", n_vocab * sizeof *logits);
    for (uint32_t i = 0; i < n && status == KVR_OK; i++) {
        status = kvr__decoder_logits(d, logits, i, err);
        double max = -INFINITY, sum = 0;
        for (uint32_t k = 0; k < n_vocab; k++)
            max = fmax(max, (double)logits[k]);
        for (uint32_t k = 0; k < n_vocab; k++)
            sum += exp((double)logits[k] - max);
        out[i] = (float)((double)logits[targets[i]] - max - log(sum));
    }
    free(logits);
    return status;
}

enum kvr_status kvr__decoder_log_prob(struct kvr_decoder *d, float *out,
                                      const int32_t *targets, uint32_t n,
                                      struct kvr_error *err)
{
    enum kvr_status status;

    if (n == 0 || n > d->last_rows)
        return kvr_fail(err, KVR_ERR_INTERNAL,
                        "%" PRIu32 " targets after "
                        "%" PRIu32 " rows",
                        n, d->last_rows);
    if (d->backend->log_prob == NULL)
        return log_prob_slowly(d, out, targets, n, err);
    status = d->backend->log_prob(
        d->device, out, d->normed, d->weights.model[KVR_OUTPUT],
        (float)d->model->config.logit_softcap, targets, n, err);
    for (uint32_t i = 0; i < n && status == KVR_OK; i++)
        if (!isfinite(out[i]))
            status = kvr_fail(err, KVR_ERR_INPUT,
                              "step %" PRIu32 ": logits are not finite",
                              d->position - d->last_rows + i);
    return status;
}
