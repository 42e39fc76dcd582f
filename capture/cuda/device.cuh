/* device.cuh -- what kernels share: warps, blocks, narrow types.
 *
 * Shared memory is one dynamic array, at most 48 kB of it, so that every
 * launch is good on every architecture and the emulation can fence it. Blocks
 * are whole warps, along x.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_DEVICE_CUH
#define KVR_CUDA_DEVICE_CUH

#include "kernels.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { KVR_WARP = 32, KVR_SHARED_LIMIT = 48 * 1024 };

extern __shared__ __align__(16) float kvr_shared[];

constexpr unsigned KVR_ALL_LANES = 0xffffffffu;

struct kvr_sum {
    template <class T> static __device__ T of(T a, T b)
    {
        return a + b;
    }
};

struct kvr_max {
    static __device__ float of(float a, float b)
    {
        return fmaxf(a, b);
    }
};

/* Every lane gets the result; the same bits in each, whatever the order. */
template <class Op, class T> __device__ T kvr_reduce_warp(T x)
{
    for (int flip = KVR_WARP / 2; flip > 0; flip /= 2)
        x = Op::of(x, __shfl_xor_sync(KVR_ALL_LANES, x, flip));
    return x;
}

/* Every thread gets the result. `scratch`: one T for each warp, free to be
 * written by the time any thread calls, and again after the next barrier. */
template <class Op, class T> __device__ T kvr_reduce_block(T x, T *scratch)
{
    const unsigned n_warps = blockDim.x / KVR_WARP;

    x = kvr_reduce_warp<Op>(x);
    if (threadIdx.x % KVR_WARP == 0)
        scratch[threadIdx.x / KVR_WARP] = x;
    __syncthreads();
    x = scratch[0];
    for (unsigned w = 1; w < n_warps; w++)
        x = Op::of(x, scratch[w]);
    return x;
}

inline __device__ float kvr_widen(float x)
{
    return x;
}

inline __device__ float kvr_widen(__half x)
{
    return __half2float(x);
}

inline __device__ float kvr_widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

inline __device__ void kvr_round(float *out, float x)
{
    *out = x;
}

inline __device__ void kvr_round(__half *out, float x)
{
    *out = __float2half_rn(x);
}

inline __device__ void kvr_round(__nv_bfloat16 *out, float x)
{
    *out = __float2bfloat16_rn(x);
}

/* c * tanh(x / c), x where c is 0 */
inline __device__ float kvr_soft_cap(float x, float cap)
{
    return cap > 0.0f ? cap * tanhf(x / cap) : x;
}

/* Blocks of `threads` that cover `n` items, no more than a grid may have:
 * kernels stride over the grid. */
inline dim3 kvr_blocks(uint64_t n, unsigned threads)
{
    const uint64_t blocks = (n + threads - 1) / threads;

    return dim3(blocks < 0x7fffffffu ? (unsigned)blocks : 0x7fffffffu);
}

/* Index of this thread in the grid, and their number. */
inline __device__ uint64_t kvr_grid_thread()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

inline __device__ uint64_t kvr_grid_threads()
{
    return (uint64_t)gridDim.x * blockDim.x;
}

#endif
