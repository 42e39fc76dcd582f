/* reader_judge.c -- are the arrays of a trace what their names say?
 *
 * Shapes are judged when a trace is opened, and so is every number beside its
 * rows, here: a sink that is no share, a norm that is no number would spoil
 * what is computed from them without a word. Arrays that are read when they are
 * asked for are looked through in blocks and not kept. Rows are judged where
 * they are read (reader.c).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader_h5.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16384 };

/* Most that the weights of a row may sum to. A softmax gives 1 within its own
 * rounding; an import takes what is off by 1/8, to be divided by its sum. */
#define MOST_MASS 1.125f

/* What a number of an array may be. */
static const struct bounds {
    float least, most;
    const char *expected;
} array_bounds[KVR_N_ARRAY] = {
    [KVR_LSE] = {-3e38f, 3e38f, "a finite number"},
    [KVR_ROW_MASS] = {0, MOST_MASS, "0 to about 1"},
    [KVR_SINK_MASS] = {0, 1, "a share, 0 to 1"},
    [KVR_KEY_NORM] = {0, 3e38f, "a finite number of at least 0"},
    [KVR_VALUE_NORM1] = {0, 3e38f, "a finite number of at least 0"},
    [KVR_VALUE_NORM2] = {0, 3e38f, "a finite number of at least 0"},
    [KVR_VALUE_OUT_NORM1] = {0, 3e38f, "a finite number of at least 0"},
};

/* Number of the first that is outside; n: none. */
static size_t first_outside(const float *value, size_t n, float least,
                            float most)
{
    unsigned bad = 0;

    for (size_t i = 0; i < n; i++)
        bad |= !(value[i] >= least && value[i] <= most);
    for (size_t i = 0; bad != 0 && i < n; i++)
        if (!(value[i] >= least && value[i] <= most))
            return i;
    return n;
}

/* Numbers first.. of an array, n of them. */
static enum kvr_status judge(const struct kvr_trace *trace, uint32_t layer,
                             enum kvr_array array, const float *value,
                             size_t first, size_t n, struct kvr_error *err)
{
    const struct bounds *b = &array_bounds[array];
    const uint32_t t = trace->box->shape.n_token;
    const struct kvr_layer_shape *y = &trace->box->layers[layer];
    const size_t i = first_outside(value, n, b->least, b->most);

    if (i == n)
        return KVR_OK;
    const uint32_t row = (uint32_t)((first + i) / t);
    const bool of_heads = trace->arrays[layer][array].rows == y->n_head;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: layer %u head %u row %u: %s is %g, expected %s",
                    trace->path, y->layer,
                    of_heads ? kvr_head_number(y, row) : row,
                    (uint32_t)((first + i) % t), kvr_array_name(array),
                    (double)value[i], b->expected);
}

static enum kvr_status judge_stored(const struct kvr_trace *trace,
                                    uint32_t layer, enum kvr_array array,
                                    float *block, struct kvr_error *err)
{
    const struct lazy_array *a = &trace->arrays[layer][array];
    const size_t n = (size_t)a->rows * trace->box->shape.n_token;
    enum kvr_status status = KVR_OK;

    for (size_t at = 0; status == KVR_OK && at < n; at += BLOCK) {
        const size_t m = n - at < BLOCK ? n - at : BLOCK;
        if (!kvr_read_at(trace->fd, block, m * sizeof *block,
                         a->offset + at * sizeof *block))
            return kvr_fail(err, KVR_ERR_IO, "%s: %s cannot be read: %s",
                            trace->path, kvr_array_name(array),
                            errno != 0 ? strerror(errno) : "it ends before");
        status = judge(trace, layer, array, block, at, m, err);
    }
    return status;
}

static enum kvr_status judge_mlp(const struct kvr_trace *trace, uint32_t layer,
                                 struct kvr_error *err)
{
    const struct mlp_sums *m = &trace->mlp[layer];
    const uint32_t t = trace->box->shape.n_token;
    const uint32_t number = trace->box->layers[layer].layer;

    if ((m->mass == NULL) != (m->active == NULL))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: mlp_mass without mlp_active, or the "
                        "other way round",
                        trace->path, number);
    for (uint32_t i = 0; m->mass != NULL && i < m->n_ff; i++)
        if (!(m->mass[i] >= 0 && m->mass[i] <= 3e38f) || m->active[i] > t)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: layer %u neuron %u: mlp_mass %g and "
                            "mlp_active %u of %u tokens",
                            trace->path, number, i, (double)m->mass[i],
                            m->active[i], t);
    return KVR_OK;
}

/* A probability that is not known is NaN; a log of one is at most 0, but for
 * rounding. */
static enum kvr_status judge_tokens(const struct kvr_trace *trace,
                                    struct kvr_error *err)
{
    const struct kvr_trace_tokens *t = &trace->tokens;

    for (uint32_t i = 0; i < trace->box->shape.n_token; i++) {
        if (t->logprob != NULL && t->logprob[i] > 1e-3f)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: token %u: logprob is %g, expected at most 0",
                            trace->path, i, (double)t->logprob[i]);
        if (t->class_of != NULL && t->class_of[i] > KVR_TOKEN_DIGIT)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: token %u: class is %u, expected 0 to %d",
                            trace->path, i, t->class_of[i], KVR_TOKEN_DIGIT);
    }
    return KVR_OK;
}

enum kvr_status kvr__judge_arrays(const struct kvr_trace *trace,
                                  struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &trace->box->shape;
    float *block = kvr_calloc(BLOCK, sizeof *block);
    enum kvr_status status = KVR_OK;

    if (block == NULL)
        return kvr_no_memory(err, "arrays", BLOCK * sizeof *block);
    for (uint32_t l = 0; status == KVR_OK && l < shape->n_layer; l++) {
        for (int i = 0; status == KVR_OK && i < KVR_N_ARRAY; i++) {
            const struct lazy_array *a = &trace->arrays[l][i];
            if (a->data != NULL)
                status = judge(trace, l, (enum kvr_array)i, a->data, 0,
                               (size_t)a->rows * shape->n_token, err);
            else if (a->offset != 0)
                status = judge_stored(trace, l, (enum kvr_array)i, block, err);
        }
        if (status == KVR_OK)
            status = judge_mlp(trace, l, err);
    }
    free(block);
    return status == KVR_OK ? judge_tokens(trace, err) : status;
}

/* How far the stored weights' sum may be from the sum before storage: half a
 * step of each rounded weight (relative for normal numbers, a fixed step for
 * subnormal ones), and single-precision adding up. */
static double sum_tolerance(const struct kvr_trace_shape *shape, uint32_t n,
                            double mass)
{
    double relative = (n + 1) * 0x1p-24, absolute = n * 0x1p-60;

    if (shape->dtype == KVR_F16) {
        const int bits = shape->round_bits != 0 ? (int)shape->round_bits : 10;
        relative += ldexp(1, -bits - 1);
        absolute += n * ldexp(0x1p-25, 10 - bits);
        if (bits < 10) { /* rounded twice: to f16, then to its bits */
            relative += 0x1p-11;
            absolute += n * 0x1p-25;
        }
    }
    return mass * relative + absolute;
}

/* Sixty-four numbers at a time in floats, the rest in doubles: a quick sum,
 * right to 64 * 2^-24 of itself. */
static double sum_of(const float *value, uint32_t n)
{
    double sum = 0;
    uint32_t i = 0;

    for (; i + 64 <= n; i += 64) {
        float lane[8] = {0};
        for (uint32_t k = 0; k < 64; k += 8)
            for (uint32_t j = 0; j < 8; j++)
                lane[j] += value[i + k + j];
        sum += (double)(((lane[0] + lane[1]) + (lane[2] + lane[3])) +
                        ((lane[4] + lane[5]) + (lane[6] + lane[7])));
    }
    for (; i < n; i++)
        sum += (double)value[i];
    return sum;
}

/* A weight on a key that the layer's mask hides from the row. */
static enum kvr_status judge_mask(const struct kvr_trace *trace,
                                  const struct stored_rows *rows, uint32_t row,
                                  const float *value, struct kvr_error *err)
{
    const struct kvr_layer_shape *y = &trace->box->layers[rows->layer];
    const uint32_t first = kvr__row_first_key(y, row);
    const size_t key = first_outside(value, first, 0, 0);

    if (key == first)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "layer %u head %u row %u key %zu: weight %.9g outside of "
                    "the %s of %u",
                    y->layer, kvr_head_number(y, rows->head), row, key,
                    (double)value[key], kvr__mask_name(y->mask), y->span);
}

enum kvr_status kvr__row_claims(struct row_claims *out,
                                const struct kvr_trace *trace, uint32_t layer,
                                struct kvr_error *err)
{
    uint32_t n;

    const enum kvr_status status =
        kvr_trace_array(&out->mass, &n, trace, layer, KVR_ROW_MASS, err);
    return status != KVR_OK ? status
                            : kvr_trace_array(&out->sink, &n, trace, layer,
                                              KVR_SINK_MASS, err);
}

enum kvr_status kvr__judge_sum(const struct kvr_trace *trace, uint32_t layer,
                               uint32_t head, uint32_t row,
                               const struct row_claims *claims, double sum,
                               double error, struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &trace->box->shape;
    const struct kvr_layer_shape *y = &shape->layers[layer];
    const size_t at = (size_t)head * shape->n_token + row;
    const float *mass = claims->mass;
    const double lost = claims->sink != NULL ? (double)claims->sink[at] : 0;
    const double most = (double)MOST_MASS - lost;
    const double stated = mass != NULL ? (double)mass[at] : most;
    const double far =
        sum_tolerance(shape, kvr__row_keys(y, row, shape->n_token), stated) +
        error;

    if (isfinite(sum) && sum <= most + far &&
        (mass == NULL || fabs(sum - stated) <= far))
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "layer %u head %u row %u: the weights sum to %.9g, %s %.9g "
                    "(sink_mass %.9g)",
                    y->layer, kvr_head_number(y, head), row, sum,
                    mass != NULL ? "row_mass is" : "expected at most", stated,
                    lost);
}

enum kvr_status kvr__judge_rows(const struct kvr_trace *trace,
                                const struct stored_rows *rows,
                                const float *value, size_t stride,
                                struct kvr_error *err)
{
    const uint32_t t = trace->box->shape.n_token;
    struct row_claims claims;

    enum kvr_status status = kvr__row_claims(&claims, trace, rows->layer, err);
    if (status != KVR_OK)
        return status;
    for (uint32_t r = 0; status == KVR_OK && r < rows->n; r++) {
        const float *weight = value + r * stride;
        const uint32_t row = rows->first + r;
        const uint32_t n =
            kvr__row_keys(&trace->box->layers[rows->layer], row, t);
        const double sum = sum_of(weight, n);
        status = judge_mask(trace, rows, row, weight, err);
        if (status == KVR_OK) /* rows of f32 were rounded to 2^-30 */
            status =
                kvr__judge_sum(trace, rows->layer, rows->head, row, &claims,
                               sum, n * 0x1p-31 + sum * 0x1p-18, err);
    }
    if (status != KVR_OK)
        kvr_error_prefix(err, "%s", trace->path);
    return status;
}
