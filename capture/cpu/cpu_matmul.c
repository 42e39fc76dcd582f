/* cpu_matmul.c -- products of activations with stored weights.
 *
 * Many rows: a panel of the weight is expanded to f32 and handed to OpenBLAS.
 * A few rows: each stored row is expanded within the dot product, so that
 * decoding reads the quantised bytes only. All arithmetic is f32.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cpu_private.h"

#include "kvr_blas.h"
#include "kvr_memory.h"
#include "kvr_parallel.h"
#include "kvr_softmax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_ROWS = 3 };

struct product {
    struct kvr_device *device;
    const struct kvr_tensor *weight, *bias;
    const float *in; /* [n, cols] */
    float *out;      /* [n, weight rows] */
    bool accumulate;
    uint32_t n;
};

static uint32_t panels(const struct kvr_tensor *weight)
{
    return (uint32_t)((weight->rows + KVR_CPU_PANEL - 1) / KVR_CPU_PANEL);
}

/* Product of x with the `n` values from `from` on of a stored row: expanded
 * within for the types that have such a loop and where whole blocks are asked
 * for, else the blocks that hold them are expanded into scratch. */
static float dot_stored(const struct kvr_device *device,
                        const struct kvr_tensor *weight, uint64_t row,
                        uint64_t from, uint64_t n, const float *x,
                        float *scratch)
{
    const struct kvr_quant_row *type = weight->type;

    if (weight->f32 != NULL)
        return device->kernels->dot(weight->f32 + row * weight->cols + from, x,
                                    n);
    const uint64_t before = from % type->block;
    const uint8_t *stored = weight->stored + row * weight->row_bytes +
                            from / type->block * type->bytes;
    const uint64_t blocks = (before + n + type->block - 1) / type->block;
    if (before == 0 && n == blocks * type->block) {
        if (type->type == KVR_QUANT_Q4_1)
            return device->kernels->dot_q4_1(stored, x, n);
        if (type->type == KVR_QUANT_Q8_0)
            return device->kernels->dot_q8_0(stored, x, n);
    }
    type->expand(scratch, stored, blocks * type->block);
    return device->kernels->dot(scratch + before, x, n);
}

static enum kvr_status few_rows(uint32_t item, uint32_t worker, void *ud,
                                struct kvr_error *err)
{
    const struct product *p = ud;
    const uint64_t rows = p->weight->rows, cols = p->weight->cols;
    const uint64_t from = (uint64_t)item * KVR_CPU_PANEL;
    const uint64_t to =
        rows - from < KVR_CPU_PANEL ? rows : from + KVR_CPU_PANEL;

    (void)err;
    for (uint64_t r = from; r < to; r++)
        for (uint32_t i = 0; i < p->n; i++) {
            float *out = &p->out[i * rows + r];
            const float x =
                dot_stored(p->device, p->weight, r, 0, cols, p->in + i * cols,
                           p->device->scratch[worker]);
            *out = p->accumulate ? *out + x : x;
            if (p->bias != NULL)
                *out += p->bias->f32[r];
        }
    return KVR_OK;
}

/* The panel as f32 [some, cols]: in the file, or expanded. */
static const float *expand_panel(const struct kvr_tensor *weight, uint64_t from,
                                 uint64_t some, float *scratch)
{
    if (weight->f32 != NULL)
        return weight->f32 + from * weight->cols;
    weight->type->expand(scratch, weight->stored + from * weight->row_bytes,
                         some * weight->cols);
    return scratch;
}

static enum kvr_status one_panel(uint32_t item, uint32_t worker, void *ud,
                                 struct kvr_error *err)
{
    const struct product *p = ud;
    const uint64_t rows = p->weight->rows, cols = p->weight->cols;
    const uint64_t from = (uint64_t)item * KVR_CPU_PANEL;
    const uint64_t some =
        rows - from < KVR_CPU_PANEL ? rows - from : KVR_CPU_PANEL;
    const float *panel =
        expand_panel(p->weight, from, some, p->device->scratch[worker]);

    (void)err;
    const struct kvr_product product = {
        .m = p->n,
        .n = some,
        .k = cols,
        .alpha = 1,
        .a = p->in,
        .a_step = cols,
        .b = panel,
        .b_step = cols,
        .b_turned = true,
        .beta = p->accumulate ? 1 : 0,
        .c = p->out + from,
        .c_step = rows,
    };
    kvr_blas_matrix(&product);
    if (p->bias != NULL)
        for (uint32_t i = 0; i < p->n; i++)
            for (uint64_t r = from; r < from + some; r++)
                p->out[i * rows + r] += p->bias->f32[r];
    return KVR_OK;
}

enum kvr_status kvr__cpu_matmul(struct kvr_device *device,
                                struct kvr_tensor *out, bool accumulate,
                                const struct kvr_tensor *in, uint32_t first,
                                const struct kvr_tensor *weight,
                                const struct kvr_tensor *bias, uint32_t n,
                                struct kvr_error *err)
{
    struct product p = {
        .device = device,
        .weight = weight,
        .bias = bias,
        .in = in->f32 + first * in->cols,
        .out = out->f32,
        .accumulate = accumulate,
        .n = n,
    };
    const uint32_t threads =
        kvr__cpu_threads(device, n * weight->rows * weight->cols);

    return kvr_parallel_for(panels(weight), threads,
                            n <= FEW_ROWS ? few_rows : one_panel, &p, err);
}

/* ---- log softmax of one target per row, without the logits ---- */

struct scores {
    struct kvr_device *device;
    const struct kvr_tensor *in, *weight;
    const int32_t *targets;
    float softcap;
    uint32_t n;
    float *logits; /* [worker][n, panel] */
    float *max;    /* [panel][n], and the sums of exp(logit - max) */
    double *sum;
    float *target; /* [n] */
};

static enum kvr_status score_panel(uint32_t item, uint32_t worker, void *ud,
                                   struct kvr_error *err)
{
    const struct scores *s = ud;
    const uint64_t rows = s->weight->rows, cols = s->weight->cols;
    const uint64_t from = (uint64_t)item * KVR_CPU_PANEL;
    const uint64_t some =
        rows - from < KVR_CPU_PANEL ? rows - from : KVR_CPU_PANEL;
    float *logits = s->logits + (size_t)worker * s->n * KVR_CPU_PANEL;
    const float *panel =
        expand_panel(s->weight, from, some, s->device->scratch[worker]);

    (void)err;
    const struct kvr_product product = {
        .m = s->n,
        .n = some,
        .k = cols,
        .alpha = 1,
        .a = s->in->f32,
        .a_step = cols,
        .b = panel,
        .b_step = cols,
        .b_turned = true,
        .c = logits,
        .c_step = KVR_CPU_PANEL,
    };
    kvr_blas_matrix(&product);
    for (uint32_t i = 0; i < s->n; i++) {
        float *row = logits + (size_t)i * KVR_CPU_PANEL;
        const size_t at = (size_t)item * s->n + i;
        if (s->softcap > 0)
            s->device->kernels->soft_cap(row, some, s->softcap);
        s->sum[at] = kvr_sum_exp(row, some, &s->max[at]);
        const uint64_t target = (uint64_t)s->targets[i];
        if (target >= from && target < from + some)
            s->target[i] = row[target - from];
    }
    return KVR_OK;
}

/* In the order of the panels: no result depends on the threads. */
static void combine(float *out, const struct scores *s, uint32_t n_panels)
{
    for (uint32_t i = 0; i < s->n; i++) {
        float max = s->max[i];
        double sum = 0;
        for (uint32_t p = 1; p < n_panels; p++)
            max = fmaxf(max, s->max[(size_t)p * s->n + i]);
        for (uint32_t p = 0; p < n_panels; p++) {
            const size_t at = (size_t)p * s->n + i;
            sum += s->sum[at] * exp((double)s->max[at] - (double)max);
        }
        out[i] = (float)((double)s->target[i] - (double)max - log(sum));
    }
}

enum kvr_status kvr__cpu_log_prob(struct kvr_device *device, float *out,
                                  const struct kvr_tensor *in,
                                  const struct kvr_tensor *weight,
                                  float softcap, const int32_t *targets,
                                  uint32_t n, struct kvr_error *err)
{
    const uint32_t n_panels = panels(weight);
    const uint32_t threads =
        kvr__cpu_threads(device, n * weight->rows * weight->cols);
    const size_t cells = (size_t)n_panels * n;
    struct scores s = {
        .device = device,
        .in = in,
        .weight = weight,
        .targets = targets,
        .softcap = softcap,
        .n = n,
        .logits = kvr_aligned_calloc((size_t)device->n_workers * n,
                                     KVR_CPU_PANEL * sizeof(float)),
        .max = kvr_calloc(cells, sizeof(float)),
        .sum = kvr_calloc(cells, sizeof(double)),
        .target = kvr_calloc(n, sizeof(float)),
    };
    enum kvr_status status;

    if (s.logits == NULL || s.max == NULL || s.sum == NULL || s.target == NULL)
        status = kvr_no_memory(err, "token probabilities",
                               cells * (sizeof(float) + sizeof(double)));
    else
        status = kvr_parallel_for(n_panels, threads, score_panel, &s, err);
    if (status == KVR_OK)
        combine(out, &s, n_panels);
    free(s.logits);
    free(s.max);
    free(s.sum);
    free(s.target);
    return status;
}

/* ---- the size of a value after the output matrix ---- */

struct value_sizes {
    struct kvr_device *device;
    const struct kvr_tensor *value, *weight;
    uint32_t n_head, n_kv_head, n, dim;
    float *out;   /* [head][n] */
    double *part; /* [panel][head][n] */
};

/* Sums of |W_h v| over one panel of the output matrix's rows. */
static enum kvr_status size_panel(uint32_t item, uint32_t worker, void *ud,
                                  struct kvr_error *err)
{
    const struct value_sizes *s = ud;
    const uint64_t rows = s->weight->rows, cols = s->weight->cols;
    const uint64_t from = (uint64_t)item * KVR_CPU_PANEL;
    const uint64_t some =
        rows - from < KVR_CPU_PANEL ? rows - from : KVR_CPU_PANEL;
    float *scratch = s->device->scratch[worker];
    const float *panel = expand_panel(s->weight, from, some, scratch);
    float *product = scratch + KVR_CPU_PANEL * cols;
    const uint32_t group = s->n_head / s->n_kv_head;
    double *part = s->part + (size_t)item * s->n_head * s->n;

    (void)err;
    for (uint32_t h = 0; h < s->n_head; h++) {
        const struct kvr_product values = {
            .m = s->n,
            .n = some,
            .k = s->dim,
            .alpha = 1,
            .a = s->value->f32 + (size_t)(h / group) * s->dim,
            .a_step = s->value->cols,
            .b = panel + (size_t)h * s->dim,
            .b_step = cols,
            .b_turned = true,
            .c = product,
            .c_step = KVR_CPU_PANEL,
        };
        kvr_blas_matrix(&values);
        for (uint32_t i = 0; i < s->n; i++) {
            double sum = 0;
            for (uint64_t r = 0; r < some; r++)
                sum += (double)fabsf(product[(size_t)i * KVR_CPU_PANEL + r]);
            part[(size_t)h * s->n + i] = sum;
        }
    }
    return KVR_OK;
}

/* The same for a few rows, from the stored bytes. */
static enum kvr_status size_few(uint32_t item, uint32_t worker, void *ud,
                                struct kvr_error *err)
{
    const struct value_sizes *s = ud;
    const uint64_t rows = s->weight->rows;
    const uint64_t from = (uint64_t)item * KVR_CPU_PANEL;
    const uint64_t to =
        rows - from < KVR_CPU_PANEL ? rows : from + KVR_CPU_PANEL;
    const uint32_t group = s->n_head / s->n_kv_head;
    double *part = s->part + (size_t)item * s->n_head * s->n;

    (void)err;
    for (uint64_t r = from; r < to; r++)
        for (uint32_t h = 0; h < s->n_head; h++)
            for (uint32_t i = 0; i < s->n; i++)
                part[(size_t)h * s->n + i] += (double)fabsf(dot_stored(
                    s->device, s->weight, r, (uint64_t)h * s->dim, s->dim,
                    s->value->f32 + i * s->value->cols +
                        (size_t)(h / group) * s->dim,
                    s->device->scratch[worker]));
    return KVR_OK;
}

enum kvr_status kvr__cpu_value_out(struct kvr_device *device,
                                   struct kvr_tensor *out,
                                   const struct kvr_tensor *value,
                                   const struct kvr_tensor *weight,
                                   uint32_t n_head, uint32_t n_kv_head,
                                   uint32_t n, struct kvr_error *err)
{
    const uint32_t n_panels = panels(weight);
    const size_t cells = (size_t)n_head * n;
    struct value_sizes s = {
        .device = device,
        .value = value,
        .weight = weight,
        .n_head = n_head,
        .n_kv_head = n_kv_head,
        .n = n,
        .dim = (uint32_t)(value->cols / n_kv_head),
        .part = kvr_calloc(n_panels * cells, sizeof(double)),
    };

    if (s.part == NULL)
        return kvr_no_memory(err, "value norms",
                             n_panels * cells * sizeof(double));
    const enum kvr_status status = kvr_parallel_for(
        n_panels, kvr__cpu_threads(device, n * weight->rows * weight->cols),
        n <= FEW_ROWS ? size_few : size_panel, &s, err);
    for (size_t i = 0; i < cells && status == KVR_OK; i++) {
        double sum = 0;
        for (uint32_t p = 0; p < n_panels; p++)
            sum += s.part[p * cells + i];
        out->f32[i] = (float)sum;
    }
    free(s.part);
    return status;
}
