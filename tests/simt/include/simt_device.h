/* simt_device.h -- the device language for a host compiler.
 *
 * The threads of a block are fibres of one host thread (simt.cpp). Between
 * barriers a warp runs as far ahead of the others as it gets, and within it a
 * lane ahead of the other lanes, so that a missing barrier meets stale data.
 * What is not here does not compile; what is here and used in a way that the
 * emulation cannot follow (a partial mask) ends the launch with an error.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_DEVICE_H
#define SIMT_DEVICE_H

#include "simt_runtime.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* Only the one dynamic array, `extern __shared__ float kvr_shared[]`: a
 * variable of a function cannot be __thread, so a static one does not
 * compile. */
#define __shared__ __thread
#ifndef SIMT_FAST /* a module that is opened late defines it as nothing */
#define SIMT_FAST __attribute__((tls_model("initial-exec")))
#endif

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

struct alignas(8) float2 {
    float x, y;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

struct alignas(8) uint2 {
    unsigned x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline float2 make_float2(float x, float y)
{
    return {x, y};
}

inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

/* Of the fibre that runs on this host thread. */
extern __thread uint3 threadIdx SIMT_FAST;
extern __thread uint3 blockIdx SIMT_FAST;
extern __thread uint3 blockDim SIMT_FAST;
extern __thread uint3 gridDim SIMT_FAST;

/* Runs body once per thread of the grid, blocks on several host threads. An
 * error where the launch breaks a limit of the hardware, where threads
 * diverge at a barrier, or where shared memory was written past its end. */
cudaError_t simt_launch(dim3 grid, dim3 block, size_t shared_bytes,
                        const std::function<void()> &body);

/* The order in which blocks, warps and lanes run; no result may depend on it.
 * 0: ascending, 1: descending, others: shuffled anew at every barrier. */
extern unsigned simt_order_seed;

/* Host threads that run blocks; 0: as many as processors. */
extern unsigned simt_host_threads;

/* Fibres switched to since the start; what an emulated kernel costs. */
unsigned long long simt_switches();

enum { SIMT_WARP = 32 };

/* Barriers know the line that they stand in: threads that wait in different
 * lines have diverged. */
void simt_block_barrier(int line);

/* Publishes this lane's value, waits for the warp; the 32 values. */
const uint64_t *simt_exchange(unsigned mask, uint64_t value, int line);

unsigned simt_lane();

inline void __syncthreads(int line = __builtin_LINE())
{
    simt_block_barrier(line);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
    simt_exchange(mask, 0, line);
}

/* The value of lane `from` of this lane's segment, or its own. */
template <class T>
T simt_pick(unsigned mask, T value, int from, bool inside, int line)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "one word");
    uint64_t word = 0;
    T out;

    std::memcpy(&word, &value, sizeof value);
    const uint64_t *all = simt_exchange(mask, word, line);
    word = all[inside ? from : (int)simt_lane()];
    std::memcpy(&out, &word, sizeof out);
    return out;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = SIMT_WARP,
              int line = __builtin_LINE())
{
    const int lane = (int)simt_lane();

    return simt_pick(mask, value, lane / width * width + (from & (width - 1)),
                     true, line);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int flip, int width = SIMT_WARP,
                  int line = __builtin_LINE())
{
    const int lane = (int)simt_lane(), from = lane ^ flip;

    return simt_pick(mask, value, from, from / width <= lane / width, line);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, int by, int width = SIMT_WARP,
                   int line = __builtin_LINE())
{
    const int lane = (int)simt_lane(), from = lane + by;

    return simt_pick(mask, value, from, from / width == lane / width, line);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, int by, int width = SIMT_WARP,
                 int line = __builtin_LINE())
{
    const int lane = (int)simt_lane(), from = lane - by;

    return simt_pick(mask, value, from, from >= lane / width * width, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              int line = __builtin_LINE())
{
    const uint64_t *all = simt_exchange(mask, predicate != 0, line);
    unsigned bits = 0;

    for (int i = 0; i < SIMT_WARP; i++)
        bits |= (unsigned)all[i] << i;
    return bits;
}

inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return __ballot_sync(mask, predicate, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return __ballot_sync(mask, predicate, line) == 0xffffffffu;
}

/* Blocks run on several host threads: atomics are the host's. */
template <class T> T atomicMax(T *at, T value)
{
    T old = __atomic_load_n(at, __ATOMIC_SEQ_CST);

    while (old < value &&
           !__atomic_compare_exchange_n(at, &old, value, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return old;
}

template <class T> T __ldg(const T *at)
{
    return *at;
}

inline float __uint_as_float(unsigned bits)
{
    float value;

    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __float_as_uint(float value)
{
    unsigned bits;

    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

#endif
