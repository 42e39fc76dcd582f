/* products.cu -- matrix products by cuBLAS, and what is made of logits.
 *
 * Row-major out[n][rows] = in[n][cols] weight[rows][cols]^T is cuBLAS's
 * column-major out^T = weight in^T with both read as they lie.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "elementwise.cuh"
#include "expand.cuh"
#include "host.cuh"
#include "log_prob.cuh"

/* Logits of so many bytes at a time. */
static const uint64_t logits_bytes = 64ull << 20;

static const float *floats(const struct kvr_tensor *t)
{
    return static_cast<const float *>(t->data);
}

static cudaDataType_t blas_type(enum kvr_cuda_type type)
{
    return type == KVR_CUDA_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* Rows first.. of `in` in the device's half type. */
static enum kvr_status narrow(struct kvr_device *device,
                              const struct kvr_tensor *in, uint32_t first,
                              uint32_t n, struct kvr_error *err)
{
    const uint64_t cells = (uint64_t)n * in->cols;
    enum kvr_status status;

    if (device->narrow_of == in && device->narrow_first == first &&
        device->narrow_n == n)
        return KVR_OK;
    device->narrow_of = nullptr;
    status = kvr_cuda_grow(device, &device->narrowed,
                           (uint64_t)device->options.max_rows * in->cols * 2,
                           "activations", err);
    if (status == KVR_OK)
        status = KVR_CUDA(
            err, kvr_cuda_narrow(device->narrowed.data, device->type,
                                 floats(in) + (uint64_t)first * in->cols, cells,
                                 device->compute));
    if (status != KVR_OK)
        return status;
    device->narrow_of = in;
    device->narrow_first = first;
    device->narrow_n = n;
    return KVR_OK;
}

/* out[n][weight->rows] = beta out + in[first + i] weight^T */
static enum kvr_status product(struct kvr_device *device, float *out,
                               float beta, const struct kvr_tensor *in,
                               uint32_t first, const struct kvr_tensor *weight,
                               uint32_t n, struct kvr_error *err)
{
    const float one = 1.0f;
    const int rows = (int)weight->rows, cols = (int)weight->cols;
    enum kvr_status status;

    if (weight->type == KVR_CUDA_F32)
        return KVR_CUBLAS(
            err, cublasSgemm(device->blas, CUBLAS_OP_T, CUBLAS_OP_N, rows,
                             (int)n, cols, &one, floats(weight), cols,
                             floats(in) + (uint64_t)first * in->cols, cols,
                             &beta, out, rows));
    status = narrow(device, in, first, n, err);
    if (status != KVR_OK)
        return status;
    return KVR_CUBLAS(
        err, cublasGemmEx(device->blas, CUBLAS_OP_T, CUBLAS_OP_N, rows, (int)n,
                          cols, &one, weight->data, blas_type(weight->type),
                          cols, device->narrowed.data, blas_type(weight->type),
                          cols, &beta, out, CUDA_R_32F, rows,
                          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

enum kvr_status kvr_cuda_matmul(struct kvr_device *device,
                                struct kvr_tensor *out, bool accumulate,
                                const struct kvr_tensor *in, uint32_t first,
                                const struct kvr_tensor *weight,
                                const struct kvr_tensor *bias, uint32_t n,
                                struct kvr_error *err)
{
    float *to = static_cast<float *>(out->data);
    enum kvr_status status = KVR_OK;

    kvr_cuda_touch(device, out);
    if (bias != nullptr)
        status = KVR_CUDA(err, kvr_cuda_bias(to, floats(bias), accumulate,
                                             (uint32_t)weight->rows, n,
                                             device->compute));
    if (status != KVR_OK)
        return status;
    return product(device, to, accumulate || bias != nullptr ? 1.0f : 0.0f, in,
                   first, weight, n, err);
}

enum kvr_status kvr_cuda_log_prob_of(struct kvr_device *device, float *out,
                                     const struct kvr_tensor *in,
                                     const struct kvr_tensor *weight,
                                     float softcap, const int32_t *targets,
                                     uint32_t n, struct kvr_error *err)
{
    const uint64_t row = weight->rows * sizeof(float);
    const uint64_t fit = logits_bytes / row;
    const uint32_t most = fit == 0 ? 1 : fit < n ? (uint32_t)fit : n;
    const size_t bytes = n * sizeof(float);
    enum kvr_status status;

    if ((status = kvr_cuda_grow(device, &device->logits, most * row, "logits",
                                err)) != KVR_OK ||
        (status = kvr_cuda_grow(device, &device->targets, 2 * bytes, "targets",
                                err)) != KVR_OK ||
        (status = kvr_cuda_send_up(device, device->targets.data, targets, bytes,
                                   err)) != KVR_OK)
        return status;
    const int32_t *ids = static_cast<const int32_t *>(device->targets.data);
    float *found = static_cast<float *>(device->targets.data) + n;
    float *logits = static_cast<float *>(device->logits.data);
    for (uint32_t i = 0; i < n && status == KVR_OK; i += most) {
        const uint32_t some = n - i < most ? n - i : most;
        status = product(device, logits, 0.0f, in, i, weight, some, err);
        if (status == KVR_OK)
            status =
                KVR_CUDA(err, kvr_cuda_log_prob(found + i, logits, softcap,
                                                ids + i, (uint32_t)weight->rows,
                                                some, device->compute));
    }
    if (status != KVR_OK)
        return status;
    return kvr_cuda_fetch(device, out, found, bytes, err);
}
