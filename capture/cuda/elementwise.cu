/* elementwise.cu -- one thread an element, neighbours in neighbouring lanes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "elementwise.cuh"

#include "device.cuh"
#include "launch.cuh"

enum { BLOCK = 256 };

static __global__ void add(float *x, const float *y, uint64_t count)
{
    for (uint64_t i = kvr_grid_thread(); i < count; i += kvr_grid_threads())
        x[i] += y[i];
}

cudaError_t kvr_cuda_add(float *x, const float *y, uint64_t count,
                         cudaStream_t stream)
{
    return kvr_launch(add, kvr_blocks(count, BLOCK), BLOCK, 0, stream, x, y,
                      count);
}

static __global__ void add_bias(float *x, const float *bias, bool accumulate,
                                uint32_t cols, uint64_t count)
{
    for (uint64_t i = kvr_grid_thread(); i < count; i += kvr_grid_threads())
        x[i] = accumulate ? x[i] + bias[i % cols] : bias[i % cols];
}

cudaError_t kvr_cuda_bias(float *x, const float *bias, bool accumulate,
                          uint32_t cols, uint32_t n, cudaStream_t stream)
{
    const uint64_t count = (uint64_t)n * cols;

    return kvr_launch(add_bias, kvr_blocks(count, BLOCK), BLOCK, 0, stream, x,
                      bias, accumulate, cols, count);
}

struct silu {
    static __device__ float of(float x)
    {
        return x / (1.0f + expf(-x));
    }
};

struct gelu {
    static __device__ float of(float x)
    {
        return 0.5f * x * erfcf(-0.70710678118654752f * x);
    }
};

/* x (1 + tanh(u)) / 2 is x times the logistic function of 2 u: no digits are
 * lost where tanh(u) is near -1. */
struct gelu_tanh {
    static __device__ float of(float x)
    {
        const float twice_u = 1.5957691216057308f * (x + 0.044715f * x * x * x);
        return x / (1.0f + expf(-twice_u));
    }
};

struct relu {
    static __device__ float of(float x)
    {
        return x < 0.0f ? 0.0f : x; /* NaN stays */
    }
};

template <class Op>
static __global__ void activate(float *gate, const float *up, uint64_t count)
{
    for (uint64_t i = kvr_grid_thread(); i < count; i += kvr_grid_threads())
        gate[i] = up != nullptr ? Op::of(gate[i]) * up[i] : Op::of(gate[i]);
}

cudaError_t kvr_cuda_activate(float *gate, const float *up,
                              enum kvr_activation activation, uint64_t count,
                              cudaStream_t stream)
{
    const dim3 grid = kvr_blocks(count, BLOCK);

    switch (activation) {
    case KVR_SILU:
        return kvr_launch(activate<silu>, grid, BLOCK, 0, stream, gate, up,
                          count);
    case KVR_GELU:
        return kvr_launch(activate<gelu>, grid, BLOCK, 0, stream, gate, up,
                          count);
    case KVR_GELU_TANH:
        return kvr_launch(activate<gelu_tanh>, grid, BLOCK, 0, stream, gate, up,
                          count);
    case KVR_RELU:
        return kvr_launch(activate<relu>, grid, BLOCK, 0, stream, gate, up,
                          count);
    case KVR_N_ACTIVATION:
        break;
    }
    return cudaErrorInvalidValue;
}

/* One thread a pair. */
static __global__ void rotate(float *x, const float *angles, uint32_t heads,
                              uint32_t dim, uint32_t half_dim, uint64_t n_pairs)
{
    for (uint64_t i = kvr_grid_thread(); i < n_pairs; i += kvr_grid_threads()) {
        const uint64_t head = i / half_dim, row = head / heads;
        const uint32_t j = (uint32_t)(i % half_dim);
        const float cosine = angles[row * 2 * half_dim + j];
        const float sine = angles[row * 2 * half_dim + half_dim + j];
        float *a = x + head * dim + j, *b = a + half_dim;
        const float left = *a, right = *b;
        *a = left * cosine - right * sine;
        *b = right * cosine + left * sine;
    }
}

cudaError_t kvr_cuda_rope(float *x, const float *angles, uint32_t heads,
                          uint32_t dim, uint32_t rope_dim, uint32_t n,
                          cudaStream_t stream)
{
    const uint64_t n_pairs = (uint64_t)n * heads * (rope_dim / 2);

    if (n_pairs == 0)
        return cudaSuccess;
    return kvr_launch(rotate, kvr_blocks(n_pairs, BLOCK), BLOCK, 0, stream, x,
                      angles, heads, dim, rope_dim / 2, n_pairs);
}

static __global__ void store(float *cache, const float *in, uint32_t heads,
                             uint32_t dim, uint32_t max_keys, uint32_t first,
                             uint64_t count)
{
    for (uint64_t i = kvr_grid_thread(); i < count; i += kvr_grid_threads()) {
        const uint64_t head = i / dim % heads, token = i / dim / heads;
        cache[(head * max_keys + first + token) * dim + i % dim] = in[i];
    }
}

cudaError_t kvr_cuda_store(float *cache, const float *in, uint32_t heads,
                           uint32_t dim, uint32_t max_keys, uint32_t first,
                           uint32_t n, cudaStream_t stream)
{
    const uint64_t count = (uint64_t)n * heads * dim;

    return kvr_launch(store, kvr_blocks(count, BLOCK), BLOCK, 0, stream, cache,
                      in, heads, dim, max_keys, first, count);
}
