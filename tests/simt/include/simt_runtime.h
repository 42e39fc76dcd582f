/* simt_runtime.h -- the run-time interface that the back end uses, on the host.
 *
 * Device memory is the host's, in allocations of its own, filled with NaNs.
 * Kernels and copies to the device run at once; a copy to pinned memory runs
 * as late as it may, when its stream or an event after it is waited for, and
 * until then its target holds NaNs: who reads early, or lets the source be
 * overwritten, is wrong every time and not only sometimes.
 *
 * SIMT_DEVICES=0 no device; SIMT_DRIVER=0 no driver; SIMT_MEMORY=BYTES of the
 * device; SIMT_FAIL=KIND:N the N-th call of a kind fails (kinds: simt_call).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_RUNTIME_H
#define SIMT_RUNTIME_H

#include <cstddef>
#include <cstdint>

using std::size_t;

#define CUDART_VERSION 13000

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorUnknown = 999,
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

enum { cudaHostAllocDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor;
};

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);

cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                       cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes,
                            cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

template <class T> cudaError_t cudaMalloc(T **out, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(out), bytes);
}

/* Kinds of calls that can be made to fail; ANY counts all of them. */
enum simt_call {
    SIMT_ANY,
    SIMT_ALLOC, /* cudaMalloc */
    SIMT_HOST,  /* cudaHostAlloc */
    SIMT_COPY,
    SIMT_SYNC, /* waits for streams and events */
    SIMT_EVENT,
    SIMT_STREAM,
    SIMT_LAUNCH,
    SIMT_BLAS,
    SIMT_N_CALL,
};

/* Counts a call; true: it is the one that fails. */
bool simt_fails(enum simt_call kind);

#endif
