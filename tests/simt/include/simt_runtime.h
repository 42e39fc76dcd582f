/* simt_runtime.h -- the part of the run-time interface that the kernels' own
 * checks need: device memory is the host's, streams run at once.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_RUNTIME_H
#define SIMT_RUNTIME_H

#include <cstddef>
#include <cstdlib>
#include <cstring>

using std::size_t;

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorLaunchFailure = 719,
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
};

typedef struct CUstream_st *cudaStream_t;

inline cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = std::malloc(bytes);
    return *out != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

inline cudaError_t cudaFree(void *memory)
{
    std::free(memory);
    return cudaSuccess;
}

inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                              cudaMemcpyKind)
{
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}

#endif
