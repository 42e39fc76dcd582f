/* cpu_backend.c -- the reference back end: f32 on the host's processors.
 *
 * Weights stay where the model file is mapped, in their stored type, and are
 * expanded when they are used.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cpu_private.h"

#include "kvr_blas.h"
#include "kvr_memory.h"
#include "kvr_parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Starting and joining a thread costs about as much as this many
 * multiply-adds; below it a second thread does not pay. */
enum { WORK_PER_THREAD = 1 << 21 };

uint32_t kvr__cpu_threads(const struct kvr_device *device, uint64_t work)
{
    const uint64_t worth = work / WORK_PER_THREAD + 1;

    return worth < device->n_workers ? (uint32_t)worth : device->n_workers;
}

const float *kvr__cpu_row(const struct kvr_tensor *weight, uint64_t row,
                          float *scratch)
{
    if (weight->f32 != NULL)
        return weight->f32 + row * weight->cols;
    weight->type->expand(scratch, weight->stored + row * weight->row_bytes,
                         weight->cols);
    return scratch;
}

static void cpu_close(struct kvr_device *device)
{
    if (device == NULL)
        return;
    while (device->tensors != NULL) {
        struct kvr_tensor *tensor = device->tensors;
        device->tensors = tensor->next;
        if (tensor->owned)
            free(tensor->f32);
        free(tensor);
    }
    for (uint32_t i = 0; device->scratch != NULL && i < device->n_workers; i++)
        free(device->scratch[i]);
    free(device->scratch);
    if (device->holds_blas)
        kvr_blas_release(device->n_workers);
    free(device);
}

/* Room for `floats` in every worker's scratch; what was there is lost. */
static enum kvr_status grow_scratch(struct kvr_device *device, size_t floats,
                                    struct kvr_error *err)
{
    if (floats <= device->scratch_floats)
        return KVR_OK;
    for (uint32_t i = 0; i < device->n_workers; i++) {
        float *fresh = kvr_aligned_calloc(floats, sizeof *fresh);
        if (fresh == NULL)
            return kvr_no_memory(err, "scratch", floats * sizeof *fresh);
        free(device->scratch[i]);
        device->scratch[i] = fresh;
    }
    device->scratch_floats = floats;
    return KVR_OK;
}

static enum kvr_status cpu_plan(struct kvr_compute_plan *out,
                                const struct kvr_device_options *options,
                                struct kvr_error *err)
{
    if (options->compute != KVR_COMPUTE_AUTO &&
        options->compute != KVR_COMPUTE_F32)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "--compute %s: the cpu back end computes in f32",
                        options->compute == KVR_COMPUTE_F16 ? "f16" : "bf16");
    *out = (struct kvr_compute_plan){
        .compute = KVR_COMPUTE_F32,
        .text = "f32, weights expanded to f32",
    };
    return KVR_OK;
}

static enum kvr_status cpu_open(struct kvr_device **out,
                                const struct kvr_device_options *options,
                                struct kvr_error *err)
{
    struct kvr_device *device = kvr_calloc(1, sizeof *device);
    size_t block;

    *out = NULL;
    if (device == NULL)
        return kvr_no_memory(err, "the cpu back end", sizeof *device);
    device->options = *options;
    device->kernels = kvr__cpu_kernels();
    device->n_workers = kvr_parallel_workers(UINT32_MAX, options->threads);
    device->scratch = kvr_calloc(device->n_workers, sizeof *device->scratch);
    enum kvr_status status;
    if (device->scratch == NULL ||
        !kvr_mul_size(&block, KVR_CPU_BLOCK, options->max_keys))
        status = kvr_no_memory(err, "scratch", options->max_keys);
    else
        status = grow_scratch(device, block, err);
    if (status == KVR_OK) {
        status = kvr_blas_hold(device->n_workers, err);
        device->holds_blas = status == KVR_OK;
    }
    if (status != KVR_OK) {
        cpu_close(device);
        return status;
    }
    *out = device;
    return KVR_OK;
}

static struct kvr_tensor *new_tensor(struct kvr_device *device, uint64_t rows,
                                     uint64_t cols)
{
    struct kvr_tensor *tensor = kvr_calloc(1, sizeof *tensor);

    if (tensor == NULL)
        return NULL;
    tensor->rows = rows;
    tensor->cols = cols;
    tensor->next = device->tensors;
    device->tensors = tensor;
    return tensor;
}

static enum kvr_status cpu_weight(struct kvr_tensor **out,
                                  struct kvr_device *device,
                                  const struct kvr_weight *weight,
                                  struct kvr_error *err)
{
    const struct kvr_quant_row *type = kvr__quant_find(weight->type);
    struct kvr_tensor *tensor;
    size_t floats;

    if (type == NULL || type->expand == NULL)
        return kvr_fail(err, KVR_ERR_INTERNAL, "weight type %u", weight->type);
    tensor = new_tensor(device, weight->rows, weight->cols);
    if (tensor == NULL)
        return kvr_no_memory(err, "a tensor", sizeof *tensor);
    tensor->type = type;
    tensor->stored = weight->data;
    tensor->row_bytes = weight->cols / type->block * type->bytes;
    /* f32 is used where it lies, as long as it lies straight */
    if (type->type == KVR_QUANT_F32 && (uintptr_t)weight->data % 4 == 0)
        tensor->f32 = (float *)(uintptr_t)weight->data;
    if (weight->rows == 1 && tensor->f32 == NULL) { /* a gain or a bias */
        tensor->owned = true;
        tensor->f32 = kvr_aligned_calloc(weight->cols, sizeof(float));
        if (tensor->f32 == NULL)
            return kvr_no_memory(err, "a tensor", weight->cols);
        type->expand(tensor->f32, weight->data, weight->cols);
    }
    *out = tensor;
    /* a panel of expanded rows, and what value_out makes of it */
    if (!kvr_mul_size(&floats, KVR_CPU_PANEL,
                      weight->cols + device->options.max_rows))
        return kvr_no_memory(err, "scratch", SIZE_MAX);
    return grow_scratch(device, floats, err);
}

static enum kvr_status cpu_buffer(struct kvr_tensor **out,
                                  struct kvr_device *device, uint64_t rows,
                                  uint64_t cols, struct kvr_error *err)
{
    struct kvr_tensor *tensor = new_tensor(device, rows, cols);
    uint64_t cells;

    if (tensor == NULL)
        return kvr_no_memory(err, "a tensor", sizeof *tensor);
    if (kvr_mul_u64(&cells, rows, cols) && cells <= SIZE_MAX / sizeof(float))
        tensor->f32 = kvr_aligned_calloc((size_t)cells, sizeof(float));
    tensor->owned = true;
    if (tensor->f32 == NULL)
        return kvr_no_memory(err, "activations or the key/value cache",
                             (size_t)(rows * cols * sizeof(float)));
    *out = tensor;
    return KVR_OK;
}

static enum kvr_status cpu_write(struct kvr_device *device,
                                 struct kvr_tensor *tensor, const float *in,
                                 uint32_t n, struct kvr_error *err)
{
    (void)device;
    (void)err;
    memcpy(tensor->f32, in, n * tensor->cols * sizeof *in);
    return KVR_OK;
}

static enum kvr_status cpu_read(struct kvr_device *device, float *out,
                                const struct kvr_tensor *tensor, uint32_t first,
                                uint32_t n, struct kvr_error *err)
{
    (void)device;
    (void)err;
    memcpy(out, tensor->f32 + first * tensor->cols,
           n * tensor->cols * sizeof *out);
    return KVR_OK;
}

static enum kvr_status cpu_embed(struct kvr_device *device,
                                 struct kvr_tensor *out,
                                 const struct kvr_tensor *weight, float scale,
                                 const int32_t *ids, uint32_t n,
                                 struct kvr_error *err)
{
    (void)device;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        float *row = out->f32 + i * out->cols;
        weight->type->expand(
            row, weight->stored + (size_t)ids[i] * weight->row_bytes,
            weight->cols);
        for (uint64_t k = 0; k < weight->cols && scale != 1.0f; k++)
            row[k] *= scale;
    }
    return KVR_OK;
}

/* One channel may be 1000 times the others: sums are doubles. */
static void rms_norm(float *y, const float *x, const struct kvr_norm *norm,
                     uint64_t n)
{
    const float *gain = norm->weight->f32;
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (uint64_t k = 0; k < n; k++)
        sum += (double)x[k] * (double)x[k];
    const float factor =
        (float)(1.0 / sqrt(sum / (double)n + (double)norm->eps));
    for (uint64_t k = 0; k < n; k++)
        y[k] = x[k] * factor * gain[k];
}

static void layer_norm(float *y, const float *x, const struct kvr_norm *norm,
                       uint64_t n)
{
    const float *gain = norm->weight->f32;
    const float *bias = norm->bias != NULL ? norm->bias->f32 : NULL;
    double sum = 0, squares = 0;

#pragma omp simd reduction(+ : sum)
    for (uint64_t k = 0; k < n; k++)
        sum += (double)x[k];
    const double mean = sum / (double)n;
#pragma omp simd reduction(+ : squares)
    for (uint64_t k = 0; k < n; k++)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    const double factor = 1.0 / sqrt(squares / (double)n + (double)norm->eps);
    for (uint64_t k = 0; k < n; k++)
        y[k] = (float)(((double)x[k] - mean) * factor) * gain[k] +
               (bias != NULL ? bias[k] : 0.0f);
}

static enum kvr_status cpu_norm(struct kvr_device *device,
                                struct kvr_tensor *out,
                                const struct kvr_tensor *in,
                                const struct kvr_norm *norm, uint32_t n,
                                struct kvr_error *err)
{
    const uint64_t width = in->cols / norm->parts;

    (void)device;
    (void)err;
    for (uint64_t i = 0; i < (uint64_t)n * norm->parts; i++) {
        const float *x = in->f32 + i * width;
        float *y = out->f32 + i * width;
        if (norm->kind == KVR_RMS_NORM)
            rms_norm(y, x, norm, width);
        else
            layer_norm(y, x, norm, width);
    }
    return KVR_OK;
}

static enum kvr_status cpu_add(struct kvr_device *device, struct kvr_tensor *x,
                               const struct kvr_tensor *y, uint32_t n,
                               struct kvr_error *err)
{
    (void)device;
    (void)err;
    for (uint64_t i = 0; i < n * x->cols; i++)
        x->f32[i] += y->f32[i];
    return KVR_OK;
}

static enum kvr_status cpu_rope(struct kvr_device *device, struct kvr_tensor *x,
                                const struct kvr_tensor *angles, uint32_t heads,
                                uint32_t rope_dim, uint32_t n,
                                struct kvr_error *err)
{
    const uint64_t dim = x->cols / heads, half = rope_dim / 2;

    (void)device;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        const float *cosine = angles->f32 + i * angles->cols;
        const float *sine = cosine + half;
        for (uint32_t h = 0; h < heads; h++) {
            float *a = x->f32 + i * x->cols + h * dim, *b = a + half;
            for (uint64_t j = 0; j < half; j++) {
                const float left = a[j], right = b[j];
                a[j] = left * cosine[j] - right * sine[j];
                b[j] = right * cosine[j] + left * sine[j];
            }
        }
    }
    return KVR_OK;
}

static enum kvr_status cpu_store(struct kvr_device *device,
                                 struct kvr_tensor *cache,
                                 const struct kvr_tensor *in, uint32_t heads,
                                 uint32_t first, uint32_t n,
                                 struct kvr_error *err)
{
    const size_t dim = cache->cols;

    (void)err;
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < n; i++)
            memcpy(cache->f32 +
                       ((size_t)h * device->options.max_keys + first + i) * dim,
                   in->f32 + i * in->cols + h * dim, dim * sizeof(float));
    return KVR_OK;
}

static enum kvr_status cpu_activate(struct kvr_device *device,
                                    struct kvr_tensor *gate,
                                    const struct kvr_tensor *up,
                                    enum kvr_activation activation, uint32_t n,
                                    struct kvr_error *err)
{
    (void)err;
    device->kernels->activate(gate->f32, up != NULL ? up->f32 : NULL,
                              n * gate->cols, activation);
    return KVR_OK;
}

const struct kvr_backend kvr__backend_cpu = {
    .abi = KVR_BACKEND_ABI,
    .name = "cpu",
    .plan = cpu_plan,
    .open = cpu_open,
    .close = cpu_close,
    .weight = cpu_weight,
    .buffer = cpu_buffer,
    .write = cpu_write,
    .read = cpu_read,
    .embed = cpu_embed,
    .norm = cpu_norm,
    .add = cpu_add,
    .matmul = kvr__cpu_matmul,
    .rope = cpu_rope,
    .store = cpu_store,
    .attention = kvr__cpu_attention,
    .activate = cpu_activate,
    .value_out = kvr__cpu_value_out,
    .log_prob = kvr__cpu_log_prob,
};
