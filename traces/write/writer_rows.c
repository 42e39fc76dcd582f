/* writer_rows.c -- attention rows, rounded into their head's open tile.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "writer.h"
#include "round.h"

#include "kvr_half.h"
#include "kvr_memory.h"

enum { F16_LARGEST = 0x7bff, F16_MINUS = 0x8000 };

/* Rounds the mantissa to `bits`, ties to even, on the bit pattern: a carry
 * into the exponent is right, and subnormals become multiples of a power. */
static void round_mantissa(uint16_t *half, size_t n, uint32_t bits)
{
    const uint32_t drop = 10 - bits;

    if (bits == 0 || drop == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        const uint32_t odd = half[i] >> drop & 1u;
        half[i] = (uint16_t)((half[i] + (1u << (drop - 1)) - 1 + odd) >>
                             drop << drop);
    }
}

static enum kvr_status refuse_weight(const struct kvr_writer *w, uint32_t layer,
                                     uint32_t head, uint32_t row,
                                     const float *bad, size_t key,
                                     struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: layer %u head %u row %u key %zu: weight %g: expected "
                    "a finite number >= 0",
                    w->path, w->content->box->shape.layers[layer].layer, head,
                    row, key, (double)*bad);
}

/* One row: checked, summed as given, rounded into the open tile, where -0 is
 * 0. */
static enum kvr_status store_row(struct kvr_writer *w, uint32_t layer,
                                 uint32_t head, uint32_t row, const float *in,
                                 struct kvr_error *err)
{
    struct content *c = w->content;
    const uint32_t slot = c->first_slot[SET_ATTENTION][layer] + head;
    const struct kvr_trace_shape *shape = &c->box->shape;
    const uint32_t n =
        kvr__row_keys(&shape->layers[layer], row, shape->n_token);
    const float most = shape->dtype == KVR_F16 ? 65504.0f : 3e38f;
    uint8_t *to = kvr__content_row(c, slot, row);
    struct mass_row *mass = &w->mass[slot];
    double sum;

    if (!kvr__sum_weights(&sum, in, n, most)) {
        size_t key = 0;
        while (in[key] >= 0 && in[key] <= most)
            key++;
        return refuse_weight(w, layer, head, row, in + key, key, err);
    }
    if (to == NULL || !kvr_grow((void **)&mass->value, &mass->capacity,
                                (size_t)row + 1, sizeof(float)))
        return kvr_no_memory(err, "an open tile", (size_t)n * KVR_TILE_ROWS);
    mass->value[row] = (float)sum;
    if (shape->dtype == KVR_F32) {
        float *whole = (float *)(void *)to;
        for (uint32_t i = 0; i < n; i++)
            whole[i] = in[i] + 0.0f;
        return KVR_OK;
    }
    uint16_t *half = (uint16_t *)(void *)to;
    kvr_f32_to_f16_n(half, in, n);
    for (uint32_t i = 0; i < n; i++)
        half[i] &= 0x7fff;
    round_mantissa(half, n, shape->round_bits);
    return KVR_OK;
}

/* Rows on their way into one head: floats or halves. */
struct given_rows {
    const float *floats;
    const uint16_t *halves; /* where floats is NULL */
    size_t stride;
};

/* One row of halves: checked, its bits kept. */
static enum kvr_status store_half_row(struct kvr_writer *w, uint32_t layer,
                                      uint32_t head, uint32_t row,
                                      const uint16_t *in, struct kvr_error *err)
{
    struct content *c = w->content;
    const uint32_t slot = c->first_slot[SET_ATTENTION][layer] + head;
    const struct kvr_trace_shape *shape = &c->box->shape;
    const uint32_t n =
        kvr__row_keys(&shape->layers[layer], row, shape->n_token);
    uint16_t *to = (uint16_t *)(void *)kvr__content_row(c, slot, row);
    unsigned bad = 0;

    if (to == NULL)
        return kvr_no_memory(err, "an open tile", (size_t)n * KVR_TILE_ROWS);
    for (uint32_t i = 0; i < n; i++) {
        const unsigned minus = in[i] == F16_MINUS;
        bad |= (in[i] > F16_LARGEST) & !minus;
        to[i] = minus ? 0 : in[i]; /* -0 becomes 0 */
    }
    if (bad == 0)
        return KVR_OK;
    uint32_t key = 0;
    while (in[key] <= F16_LARGEST || in[key] == F16_MINUS)
        key++;
    const float value = kvr_f16_to_f32(in[key]);
    return refuse_weight(w, layer, head, row, &value, key, err);
}

static enum kvr_status give_rows(struct kvr_writer *w, uint32_t layer,
                                 uint32_t head, uint32_t first, uint32_t n,
                                 const struct given_rows *in,
                                 struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &w->content->box->shape;
    const uint32_t slot = w->content->first_slot[SET_ATTENTION][layer] + head;
    struct head_rows *rows = &w->content->heads[slot];
    enum kvr_status status;

    if (first != rows->n_row || n > shape->n_token - first)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u head %u: rows %u..%u: expected "
                        "%u next and at most %u tokens",
                        w->path, layer, head, first, first + n - 1, rows->n_row,
                        shape->n_token);
    for (uint32_t r = 0; r < n; r++) {
        if (rows->n_row - rows->n_tiled == KVR_TILE_ROWS) {
            status = kvr__writer_close_tile(w, slot, err);
            if (status != KVR_OK)
                return kvr__writer_failed(w, status, err);
        }
        if (in->floats != NULL)
            status = store_row(w, layer, head, first + r,
                               in->floats + r * in->stride, err);
        else
            status = store_half_row(w, layer, head, first + r,
                                    in->halves + r * in->stride, err);
        if (status != KVR_OK)
            return status;
        rows->n_row++;
    }
    return KVR_OK;
}

static enum kvr_status check_head(struct kvr_writer *w, uint32_t layer,
                                  uint32_t head, struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &w->content->box->shape;
    const enum kvr_status status = kvr__writer_state(w, err);

    if (status != KVR_OK)
        return status;
    if (layer >= shape->n_layer || head >= shape->layers[layer].n_head ||
        (shape->layers[layer].stores & KVR_STORES_ATTENTION) == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u head %u: there is none", w->path,
                        layer, head);
    return KVR_OK;
}

enum kvr_status kvr_writer_rows(struct kvr_writer *w, uint32_t layer,
                                uint32_t head, uint32_t first, uint32_t n,
                                const float *in, size_t stride,
                                struct kvr_error *err)
{
    const struct given_rows rows = {.floats = in, .stride = stride};
    const enum kvr_status status = check_head(w, layer, head, err);

    if (status != KVR_OK)
        return status;
    return give_rows(w, layer, head, first, n, &rows, err);
}

enum kvr_status kvr_writer_half_rows(struct kvr_writer *w, uint32_t layer,
                                     uint32_t head, uint32_t first, uint32_t n,
                                     const uint16_t *in, size_t stride,
                                     struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &w->content->box->shape;
    const struct given_rows rows = {.halves = in, .stride = stride};
    const enum kvr_status status = check_head(w, layer, head, err);

    if (status != KVR_OK)
        return status;
    if (shape->dtype != KVR_F16 || shape->round_bits != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: rows of f16 for a trace of other numbers",
                        w->path);
    return give_rows(w, layer, head, first, n, &rows, err);
}
