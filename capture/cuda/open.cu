/* open.cu -- is there a device, does the model fit, and the device itself.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reporter.cuh"

#include <cinttypes>
#include <cstdio>
#include <new>

/* Beside weights, buffers and the ring: the context's own memory, cuBLAS's
 * workspace, logits of a block and chunks of weights. */
static const uint64_t reserve_bytes = 512ull << 20;
enum { CAPABILITY = 8 };

enum kvr_status kvr_cuda_probe(char *device, struct kvr_error *err)
{
    int n = 0;
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceCount(&n);

    if (error == cudaErrorInsufficientDriver) {
        cudaGetLastError();
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "there is no NVIDIA driver, or one that is older than "
                        "CUDA %d.%d needs",
                        CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && n == 0)) {
        cudaGetLastError();
        return kvr_fail(err, KVR_ERR_UNSUPPORTED, "there is no CUDA device");
    }
    if (error != cudaSuccess ||
        KVR_CUDA(err, cudaGetDeviceProperties(&properties, 0)) != KVR_OK)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "the CUDA device does not answer: %s",
                        cudaGetErrorString(
                            error != cudaSuccess ? error : cudaGetLastError()));
    if (properties.major < CAPABILITY)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%.100s has compute capability %d.%d: expected %d.0 or "
                        "later",
                        properties.name, properties.major, properties.minor,
                        CAPABILITY);
    snprintf(device, KVR_DEVICE_NAME, "%.100s", properties.name);
    return KVR_OK;
}

static uint64_t bytes_of(const struct kvr_device_options *options,
                         enum kvr_compute compute)
{
    return options->n_weight * (compute == KVR_COMPUTE_F32 ? 4 : 2) +
           options->buffer_bytes + kvr_cuda_staging(options) + reserve_bytes;
}

static enum kvr_status too_large(const struct kvr_device_options *options,
                                 enum kvr_compute compute, uint64_t free_bytes,
                                 struct kvr_error *err)
{
    char need[KVR_CUDA_SIZE_TEXT], have[KVR_CUDA_SIZE_TEXT];
    char half[KVR_CUDA_SIZE_TEXT];
    const uint64_t half_bytes = bytes_of(options, KVR_COMPUTE_F16);

    kvr_cuda_size(need, bytes_of(options, compute));
    kvr_cuda_size(have, free_bytes);
    kvr_cuda_size(half, half_bytes);
    if (compute == KVR_COMPUTE_F32 && half_bytes <= free_bytes)
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "about %s of the device's memory are needed, %s are "
                        "free; --compute %s needs about %s",
                        need, have, options->bf16 ? "bf16" : "f16", half);
    return kvr_fail(err, KVR_ERR_LIMIT,
                    "about %s of the device's memory are needed, %s are free; "
                    "fewer tokens or a smaller --prompt-chunk need less",
                    need, have);
}

enum kvr_status kvr_cuda_plan(struct kvr_compute_plan *out,
                              const struct kvr_device_options *options,
                              struct kvr_error *err)
{
    const enum kvr_compute half =
        options->bf16 ? KVR_COMPUTE_BF16 : KVR_COMPUTE_F16;
    enum kvr_compute compute = options->compute;
    size_t free_bytes = 0, total = 0;
    const enum kvr_status status =
        KVR_CUDA(err, cudaMemGetInfo(&free_bytes, &total));
    bool forced = false;

    if (status != KVR_OK)
        return status;
    if (compute == KVR_COMPUTE_AUTO) {
        forced = bytes_of(options, KVR_COMPUTE_F32) > free_bytes;
        compute = forced ? half : KVR_COMPUTE_F32;
    }
    if (bytes_of(options, compute) > free_bytes)
        return too_large(options, compute, free_bytes, err);
    out->compute = compute;
    out->device_bytes = bytes_of(options, compute);
    if (compute == KVR_COMPUTE_F32)
        snprintf(out->text, sizeof out->text,
                 "f32 without TF32, weights expanded to f32");
    else
        snprintf(out->text, sizeof out->text,
                 "%s products summed in f32, weights and inputs rounded to "
                 "%s%s",
                 compute == KVR_COMPUTE_F16 ? "f16" : "bf16",
                 compute == KVR_COMPUTE_F16 ? "f16" : "bf16",
                 forced ? " (f32 does not fit)" : "");
    return KVR_OK;
}

static enum kvr_status make_streams(struct kvr_device *device,
                                    struct kvr_error *err)
{
    enum kvr_status status;

    if ((status = KVR_CUDA(err, cudaSetDevice(0))) != KVR_OK ||
        (status = KVR_CUDA(
             err, cudaStreamCreateWithFlags(
                      &device->compute, cudaStreamNonBlocking))) != KVR_OK ||
        (status = KVR_CUDA(err, cudaStreamCreateWithFlags(
                                    &device->copy, cudaStreamNonBlocking))) !=
            KVR_OK)
        return status;
    for (int i = 0; i < KVR_CUDA_UPLOADS && status == KVR_OK; i++)
        status =
            KVR_CUDA(err, cudaEventCreateWithFlags(&device->upload[i].done,
                                                   cudaEventDisableTiming |
                                                       cudaEventBlockingSync));
    return status;
}

/* Sums of halves are f32 throughout; products of f32 are never TF32's. */
static enum kvr_status make_blas(struct kvr_device *device,
                                 struct kvr_error *err)
{
    const cublasMath_t math =
        device->type == KVR_CUDA_F32
            ? CUBLAS_DEFAULT_MATH
            : static_cast<cublasMath_t>(
                  CUBLAS_DEFAULT_MATH |
                  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    enum kvr_status status = KVR_CUBLAS(err, cublasCreate(&device->blas));

    if (status == KVR_OK)
        status =
            KVR_CUBLAS(err, cublasSetStream(device->blas, device->compute));
    if (status == KVR_OK)
        status = KVR_CUBLAS(err, cublasSetMathMode(device->blas, math));
    return status;
}

enum kvr_status kvr_cuda_open(struct kvr_device **out,
                              const struct kvr_device_options *options,
                              struct kvr_error *err)
{
    struct kvr_device *device = new (std::nothrow) kvr_device();
    void *bad = nullptr;
    enum kvr_status status;

    *out = nullptr;
    if (device == nullptr)
        return kvr_fail(err, KVR_ERR_MEMORY, "no memory for the CUDA back end");
    device->options = *options;
    status = kvr_cuda_plan(&device->plan, options, err);
    device->type = device->plan.compute == KVR_COMPUTE_F16    ? KVR_CUDA_F16
                   : device->plan.compute == KVR_COMPUTE_BF16 ? KVR_CUDA_BF16
                                                              : KVR_CUDA_F32;
    if (status != KVR_OK || (status = make_streams(device, err)) != KVR_OK ||
        (status = make_blas(device, err)) != KVR_OK ||
        (status = kvr_cuda_malloc(&bad, device, sizeof *device->bad, "a flag",
                                  err)) != KVR_OK) {
        kvr_cuda_close(device);
        return status;
    }
    device->bad = static_cast<kvr_cuda_bad *>(bad);
    if ((status = KVR_CUDA(err, cudaMemsetAsync(bad, 0, sizeof *device->bad,
                                                device->compute))) != KVR_OK ||
        (status = kvr_cuda_reporter_new(&device->reporter, device, err)) !=
            KVR_OK) {
        kvr_cuda_close(device);
        return status;
    }
    *out = device;
    return KVR_OK;
}

/* Whatever was made, in reverse; failures of freeing have no one to tell. */
void kvr_cuda_close(struct kvr_device *device)
{
    if (device == nullptr)
        return;
    kvr_cuda_reporter_free(device->reporter);
    if (device->compute != nullptr)
        cudaStreamSynchronize(device->compute);
    while (device->tensors != nullptr) {
        struct kvr_tensor *tensor = device->tensors;
        device->tensors = tensor->next;
        cudaFree(tensor->data);
        delete tensor;
    }
    struct kvr_cuda_scratch *const scratch[] = {
        &device->narrowed, &device->logits,  &device->attention,
        &device->ids,      &device->targets, &device->chunk};
    for (struct kvr_cuda_scratch *s : scratch)
        cudaFree(s->data);
    cudaFree(device->bad);
    cudaFreeHost(device->pinned);
    for (struct kvr_cuda_upload &up : device->upload) {
        cudaFreeHost(up.data);
        if (up.done != nullptr)
            cudaEventDestroy(up.done);
    }
    if (device->blas != nullptr)
        cublasDestroy(device->blas);
    if (device->copy != nullptr)
        cudaStreamDestroy(device->copy);
    if (device->compute != nullptr)
        cudaStreamDestroy(device->compute);
    delete device;
}
