/* check_pair.c -- rows made from query and key against what else is stored.
 *
 * How far they may be apart follows from how they are stored: f16 queries and
 * keys move a weight by up to 2.5e-3 and f32 ones by up to 1e-6 where logits
 * reach 64, and in proportion beyond; the attention's own rounding comes on
 * top. A logsumexp moves by what the logits do.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "check_parts.h"

#include <math.h>

/* scale * |query| * |key| up to which the two bounds hold as they are. */
static const double usual_reach = 64;

static bool is_rounded(const struct kvr_trace *trace, uint32_t layer)
{
    const struct stored_set *q = &trace->sets[layer][SET_QUERY];
    const struct stored_set *k = &trace->sets[trace->key_layer[layer]][SET_KEY];

    return q->item == sizeof(uint16_t) || k->item == sizeof(uint16_t) ||
           q->from_f16 || k->from_f16;
}

/* Half a step of the stored attention's weight. */
static double storage_error(const struct kvr_trace_shape *shape, double weight)
{
    const int bits = shape->round_bits != 0 ? (int)shape->round_bits : 10;

    if (shape->dtype == KVR_F32)
        return 0x1p-30;
    return weight * (ldexp(1, -bits - 1) + 0x1p-11) + ldexp(0x1p-24, 10 - bits);
}

static enum kvr_status compare_row(const struct kvr_trace *trace,
                                   const struct finding *f, uint32_t row,
                                   const float *made, const float *stored,
                                   double bound, struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &trace->box->shape;
    const struct kvr_layer_shape *y = &shape->layers[f->layer];
    const uint32_t n = kvr__row_keys(y, row, shape->n_token);

    for (uint32_t key = 0; key < n; key++) {
        const double a = (double)made[key], b = (double)stored[key];
        if (fabs(a - b) <= bound + storage_error(shape, a))
            continue;
        return kvr_fail(err, KVR_ERR_NO,
                        "layer %u head %u row %u key %u: query and key give "
                        "weight %.9g, attention is %.9g",
                        y->layer, kvr_head_number(y, f->head), row, key, a, b);
    }
    return KVR_OK;
}

static enum kvr_status check_lse(const struct kvr_trace *trace,
                                 const struct finding *f, uint32_t row,
                                 double made, double bound,
                                 struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &trace->box->shape;
    const float *lse;
    uint32_t rows;

    const enum kvr_status status =
        kvr_trace_array(&lse, &rows, trace, f->layer, KVR_LSE, err);
    if (status != KVR_OK || lse == NULL)
        return status;
    const double stated = (double)lse[(size_t)f->head * shape->n_token + row];
    if (fabs(made - stated) <= bound + fabs(stated) * 0x1p-22)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_NO,
                    "layer %u head %u row %u: query and key give lse %.9g, "
                    "stated is %.9g",
                    shape->layers[f->layer].layer,
                    kvr_head_number(&shape->layers[f->layer], f->head), row,
                    made, stated);
}

static enum kvr_status check_block(const struct check *c, struct finding *f,
                                   uint32_t first, uint32_t n, uint32_t worker,
                                   struct kvr_error *err)
{
    const struct kvr_trace *trace = c->trace;
    const uint32_t t = trace->box->shape.n_token;
    const bool rounded = is_rounded(trace, f->layer);
    const bool attention = trace->sets[f->layer][SET_ATTENTION].present;
    const double dim = trace->box->layers[f->layer].key_dim;
    float *stored = (float *)(void *)c->rows[worker];
    struct made_rows made;

    enum kvr_status status =
        kvr__make_rows(trace, f->layer, f->head, first, c->made[worker], t,
                       &made, c->scratch[worker], err);
    if (status == KVR_OK && attention)
        status = kvr_trace_read_rows(trace, f->layer, f->head, first, n, stored,
                                     t, c->scratch[worker], err);
    if (status != KVR_OK)
        return status;
    for (uint32_t r = 0; r < n; r++) {
        const double more = fmax(1, made.reach[r] / usual_reach);
        /* of a logit: rounded products, and adding them up */
        const double logit =
            made.reach[r] * ((rounded ? 0x1p-10 : 0) + dim * 0x1p-24) + 1e-6;
        status = check_lse(trace, f, first + r, made.lse[r], logit, err);
        if (status == KVR_OK && attention)
            status = compare_row(
                trace, f, first + r, c->made[worker] + (size_t)r * t,
                stored + (size_t)r * t, (rounded ? 2.5e-3 : 1e-6) * more, err);
        if (status != KVR_OK)
            kvr__note_row(f, first + r, err);
    }
    return KVR_OK;
}

void kvr__check_pair(const struct check *c, struct finding *f, uint32_t worker)
{
    const uint32_t t = c->trace->box->shape.n_token;

    if (!kvr__has_pair(c->trace, f->layer))
        return;
    for (uint32_t first = 0; first < t; first += KVR_TILE_ROWS) {
        struct kvr_error err = {0};
        const uint32_t n =
            t - first < KVR_TILE_ROWS ? t - first : KVR_TILE_ROWS;
        if (check_block(c, f, first, n, worker, &err) != KVR_OK)
            kvr__note_row(f, first, &err);
    }
}
