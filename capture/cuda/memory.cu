/* memory.cu -- memory of both sides, copies between them, failures as words.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "host.cuh"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>

/* "cudaMalloc" of "cudaMalloc(&p, n)", and a file without its folders. */
static int call_length(const char *call)
{
    return (int)strcspn(call, "(");
}

static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');

    return slash != nullptr ? slash + 1 : file;
}

enum kvr_status kvr_cuda_check(struct kvr_error *err, cudaError_t error,
                               const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return KVR_OK;
    return kvr_fail(err,
                    error == cudaErrorMemoryAllocation ? KVR_ERR_MEMORY
                                                       : KVR_ERR_INTERNAL,
                    "CUDA: %.*s failed: %s (%s:%d)", call_length(call), call,
                    cudaGetErrorString(error), base_name(file), line);
}

enum kvr_status kvr_cublas_check(struct kvr_error *err, cublasStatus_t error,
                                 const char *call, const char *file, int line)
{
    if (error == CUBLAS_STATUS_SUCCESS)
        return KVR_OK;
    return kvr_fail(err,
                    error == CUBLAS_STATUS_ALLOC_FAILED ? KVR_ERR_MEMORY
                                                        : KVR_ERR_INTERNAL,
                    "cuBLAS: %.*s failed: status %d (%s:%d)", call_length(call),
                    call, (int)error, base_name(file), line);
}

void kvr_cuda_size(char *out, uint64_t bytes)
{
    static const char units[] = "KMGT";
    double size = (double)bytes / 1024;
    int unit = 0;

    while (size >= 1024 && units[unit + 1] != '\0') {
        size /= 1024;
        unit++;
    }
    snprintf(out, KVR_CUDA_SIZE_TEXT, "%.1f %ciB", size, units[unit]);
}

size_t kvr_cuda_type_size(enum kvr_cuda_type type)
{
    return type == KVR_CUDA_F32 ? sizeof(float) : sizeof(uint16_t);
}

enum kvr_status kvr_cuda_malloc(void **out, struct kvr_device *device,
                                uint64_t bytes, const char *what,
                                struct kvr_error *err)
{
    const cudaError_t error = cudaMalloc(out, bytes > 0 ? bytes : 1);
    char asked[KVR_CUDA_SIZE_TEXT], left[KVR_CUDA_SIZE_TEXT];
    size_t free_bytes = 0, total = 0;

    if (error != cudaErrorMemoryAllocation)
        return kvr_cuda_check(err, error, "cudaMalloc", __FILE__, __LINE__);
    *out = nullptr;
    cudaGetLastError(); /* it is told here and now */
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess)
        free_bytes = 0;
    kvr_cuda_size(asked, bytes);
    kvr_cuda_size(left, free_bytes);
    return kvr_fail(err, KVR_ERR_MEMORY,
                    "CUDA: no memory on the device for %s: %s asked, %s free; "
                    "%sfewer tokens or a smaller --prompt-chunk need less",
                    what, asked, left,
                    device->type == KVR_CUDA_F32 ? "--compute f16, " : "");
}

enum kvr_status kvr_cuda_pinned(void **out, uint64_t bytes, const char *what,
                                struct kvr_error *err)
{
    const cudaError_t error =
        cudaHostAlloc(out, bytes > 0 ? bytes : 1, cudaHostAllocDefault);
    char asked[KVR_CUDA_SIZE_TEXT];

    if (error != cudaErrorMemoryAllocation)
        return kvr_cuda_check(err, error, "cudaHostAlloc", __FILE__, __LINE__);
    *out = nullptr;
    cudaGetLastError();
    kvr_cuda_size(asked, bytes);
    return kvr_fail(err, KVR_ERR_MEMORY,
                    "CUDA: no pinned memory of the host for %s: %s asked", what,
                    asked);
}

enum kvr_status kvr_cuda_grow(struct kvr_device *device,
                              struct kvr_cuda_scratch *scratch, uint64_t bytes,
                              const char *what, struct kvr_error *err)
{
    enum kvr_status status;

    if (bytes <= scratch->bytes)
        return KVR_OK;
    status = KVR_CUDA(err, cudaFree(scratch->data)); /* waits for its users */
    scratch->data = nullptr;
    scratch->bytes = 0;
    if (status == KVR_OK)
        status = kvr_cuda_malloc(&scratch->data, device, bytes, what, err);
    if (status == KVR_OK)
        scratch->bytes = bytes;
    return status;
}

enum kvr_status kvr_cuda_send_up(struct kvr_device *device, void *out,
                                 const void *in, size_t bytes,
                                 struct kvr_error *err)
{
    struct kvr_cuda_upload *up =
        &device->upload[device->next_upload++ % KVR_CUDA_UPLOADS];
    enum kvr_status status = KVR_CUDA(err, cudaEventSynchronize(up->done));

    if (status != KVR_OK)
        return status;
    if (bytes > up->bytes) {
        cudaFreeHost(up->data);
        up->data = nullptr;
        up->bytes = 0;
        status = kvr_cuda_pinned(&up->data, bytes, "uploads", err);
        if (status != KVR_OK)
            return status;
        up->bytes = bytes;
    }
    memcpy(up->data, in, bytes);
    status =
        KVR_CUDA(err, cudaMemcpyAsync(out, up->data, bytes,
                                      cudaMemcpyHostToDevice, device->compute));
    if (status != KVR_OK)
        return status;
    return KVR_CUDA(err, cudaEventRecord(up->done, device->compute));
}

static uint64_t bad_key(kvr_cuda_bad bad)
{
    return UINT64_MAX - (uint64_t)bad;
}

uint32_t kvr_cuda_bad_step(kvr_cuda_bad bad)
{
    return (uint32_t)bad_key(bad);
}

enum kvr_status kvr_cuda_not_finite(kvr_cuda_bad bad, struct kvr_error *err)
{
    const uint64_t key = bad_key(bad);

    return kvr_fail(err, KVR_ERR_INPUT,
                    "layer %" PRIu64 " head %" PRIu64 " step %" PRIu32
                    ": attention is not finite",
                    key >> 48, key >> 32 & 0xffff, (uint32_t)key);
}

enum kvr_status kvr_cuda_fetch(struct kvr_device *device, void *out,
                               const void *in, size_t bytes,
                               struct kvr_error *err)
{
    const size_t bad_at = (bytes + 7) / 8 * 8, need = bad_at + 8;
    kvr_cuda_bad bad = 0;
    enum kvr_status status = KVR_OK;

    if (need > device->pinned_bytes) {
        cudaFreeHost(device->pinned);
        device->pinned = nullptr;
        device->pinned_bytes = 0;
        status = kvr_cuda_pinned(&device->pinned, need, "results", err);
        if (status != KVR_OK)
            return status;
        device->pinned_bytes = need;
    }
    char *pinned = static_cast<char *>(device->pinned);
    if ((status = KVR_CUDA(err, cudaMemcpyAsync(pinned, in, bytes,
                                                cudaMemcpyDeviceToHost,
                                                device->compute))) != KVR_OK ||
        (status = KVR_CUDA(
             err, cudaMemcpyAsync(pinned + bad_at, device->bad, sizeof bad,
                                  cudaMemcpyDeviceToHost, device->compute))) !=
            KVR_OK ||
        (status = KVR_CUDA(err, cudaStreamSynchronize(device->compute))) !=
            KVR_OK)
        return status;
    memcpy(out, pinned, bytes);
    memcpy(&bad, pinned + bad_at, sizeof bad);
    return bad == 0 ? KVR_OK : kvr_cuda_not_finite(bad, err);
}

void kvr_cuda_touch(struct kvr_device *device, const struct kvr_tensor *t)
{
    if (device->narrow_of == t)
        device->narrow_of = nullptr;
}

struct kvr_tensor *kvr_cuda_new_tensor(struct kvr_device *device, uint64_t rows,
                                       uint64_t cols, enum kvr_cuda_type type,
                                       struct kvr_error *err)
{
    struct kvr_tensor *tensor = new (std::nothrow) kvr_tensor();
    char what[64];

    if (tensor == nullptr) {
        kvr_fail(err, KVR_ERR_MEMORY, "no memory for a tensor");
        return nullptr;
    }
    tensor->rows = rows;
    tensor->cols = cols;
    tensor->type = type;
    tensor->next = device->tensors;
    device->tensors = tensor;
    snprintf(what, sizeof what, "a tensor of %" PRIu64 " x %" PRIu64, rows,
             cols);
    if (cols != 0 && rows > UINT64_MAX / 4 / cols) {
        kvr_fail(err, KVR_ERR_MEMORY, "no memory for %s", what);
        return nullptr;
    }
    if (kvr_cuda_malloc(&tensor->data, device,
                        rows * cols * kvr_cuda_type_size(type), what,
                        err) != KVR_OK)
        return nullptr;
    return tensor;
}
