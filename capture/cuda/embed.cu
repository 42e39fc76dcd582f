/* embed.cu -- one thread an element of the rows asked for.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "embed.cuh"

#include "device.cuh"
#include "launch.cuh"

enum { BLOCK = 256 };

template <class T>
static __global__ void embed(float *out, const T *table, float scale,
                             const int32_t *ids, uint32_t cols, uint64_t count)
{
    for (uint64_t i = kvr_grid_thread(); i < count; i += kvr_grid_threads()) {
        const uint64_t row = (uint64_t)ids[i / cols];
        out[i] = kvr_widen(table[row * cols + i % cols]) * scale;
    }
}

cudaError_t kvr_cuda_embed(float *out, const void *table,
                           enum kvr_cuda_type type, float scale,
                           const int32_t *ids, uint32_t cols, uint32_t n,
                           cudaStream_t stream)
{
    const uint64_t count = (uint64_t)n * cols;
    const dim3 grid = kvr_blocks(count, BLOCK);

    switch (type) {
    case KVR_CUDA_F32:
        return kvr_launch(embed<float>, grid, BLOCK, 0, stream, out,
                          (const float *)table, scale, ids, cols, count);
    case KVR_CUDA_F16:
        return kvr_launch(embed<__half>, grid, BLOCK, 0, stream, out,
                          (const __half *)table, scale, ids, cols, count);
    case KVR_CUDA_BF16:
        return kvr_launch(embed<__nv_bfloat16>, grid, BLOCK, 0, stream, out,
                          (const __nv_bfloat16 *)table, scale, ids, cols,
                          count);
    }
    return cudaErrorInvalidValue;
}
