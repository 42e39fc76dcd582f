/* runtime.cpp -- devices, memory, copies, streams and events of
 * simt_runtime.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "simt_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

struct copy {
    uint64_t number;
    void *to;
    const void *from;
    size_t bytes;
};

struct CUstream_st {
    std::deque<copy> late; /* copies that have not run */
    uint64_t n_copy;
};

struct CUevent_st {
    cudaStream_t stream; /* that it was recorded on; NULL: never */
    uint64_t after;      /* copies of that stream before it */
};

namespace
{
std::mutex hold; /* of all below */
std::map<const char *, size_t> device_memory, host_memory;
size_t used;
cudaError_t last_error;

uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *value = std::getenv(name);

    return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

cudaError_t failed(cudaError_t error)
{
    last_error = error;
    return error;
}

/* [at, at + bytes) is within one allocation. */
bool within(const std::map<const char *, size_t> &memory, const void *at,
            size_t bytes)
{
    const char *first = static_cast<const char *>(at);
    auto next = memory.upper_bound(first);

    if (next == memory.begin())
        return false;
    --next;
    return first + bytes <= next->first + next->second;
}

cudaError_t give(std::map<const char *, size_t> &memory, void **out,
                 size_t bytes)
{
    const size_t rounded = (bytes + 255) / 256 * 256;
    char *fresh = static_cast<char *>(std::aligned_alloc(256, rounded));

    *out = fresh;
    if (fresh == nullptr)
        return failed(cudaErrorMemoryAllocation);
    std::memset(fresh, 0xff, rounded);
    memory[fresh] = bytes;
    return cudaSuccess;
}

cudaError_t take_back(std::map<const char *, size_t> &memory, void *given,
                      size_t *bytes)
{
    const auto found = memory.find(static_cast<const char *>(given));

    *bytes = 0;
    if (given == nullptr)
        return cudaSuccess;
    if (found == memory.end())
        return failed(cudaErrorInvalidValue);
    *bytes = found->second;
    memory.erase(found);
    std::free(given);
    return cudaSuccess;
}

/* Runs the copies of a stream before number `end`. */
void run_late(cudaStream_t stream, uint64_t end)
{
    while (stream != nullptr && !stream->late.empty() &&
           stream->late.front().number < end) {
        const copy c = stream->late.front();
        std::memcpy(c.to, c.from, c.bytes);
        stream->late.pop_front();
    }
}
} // namespace

bool simt_fails(enum simt_call kind)
{
    static const char *const names[SIMT_N_CALL] = {"any",    "alloc",  "host",
                                                   "copy",   "sync",   "event",
                                                   "stream", "launch", "blas"};
    static std::mutex own;
    static uint64_t count, fails_at;
    static int wanted = -2; /* kind; -1: none; -2: not read yet */
    const std::lock_guard<std::mutex> guard(own);

    if (wanted == -2) {
        const char *text = std::getenv("SIMT_FAIL");
        const char *colon = text != nullptr ? std::strchr(text, ':') : nullptr;
        wanted = -1;
        for (int i = 0; colon != nullptr && i < SIMT_N_CALL; i++)
            if (std::strlen(names[i]) == (size_t)(colon - text) &&
                std::strncmp(names[i], text, (size_t)(colon - text)) == 0)
                wanted = i;
        fails_at = colon != nullptr ? std::strtoull(colon + 1, nullptr, 10) : 0;
    }
    if (wanted != SIMT_ANY && wanted != (int)kind)
        return false;
    return ++count == fails_at;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorUnknown:
        break;
    }
    return "unknown error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return cudaGetErrorString(error);
}

cudaError_t cudaGetLastError()
{
    const std::lock_guard<std::mutex> guard(hold);
    const cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError()
{
    const std::lock_guard<std::mutex> guard(hold);

    return last_error;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    if (number_of("SIMT_DRIVER", 1) == 0)
        return cudaErrorInsufficientDriver;
    *count = (int)number_of("SIMT_DEVICES", 1);
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
    if (device != 0)
        return cudaErrorInvalidValue;
    *out = {};
    std::snprintf(out->name, sizeof out->name, "an emulated device");
    out->totalGlobalMem = number_of("SIMT_MEMORY", 8ull << 30);
    out->major = (int)number_of("SIMT_MAJOR", 9);
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    const std::lock_guard<std::mutex> guard(hold);

    *total = number_of("SIMT_MEMORY", 8ull << 30);
    *free_bytes = *total > used ? *total - used : 0;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    const bool fails = simt_fails(SIMT_ALLOC);
    const std::lock_guard<std::mutex> guard(hold);

    *out = nullptr;
    if (fails || bytes > number_of("SIMT_MEMORY", 8ull << 30) - used)
        return failed(cudaErrorMemoryAllocation);
    const cudaError_t error = give(device_memory, out, bytes);
    if (error == cudaSuccess)
        used += bytes;
    return error;
}

cudaError_t cudaFree(void *memory)
{
    const std::lock_guard<std::mutex> guard(hold);
    size_t bytes;
    const cudaError_t error = take_back(device_memory, memory, &bytes);

    used -= bytes;
    return error;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    const bool fails = simt_fails(SIMT_HOST);
    const std::lock_guard<std::mutex> guard(hold);

    *out = nullptr;
    return fails ? failed(cudaErrorMemoryAllocation)
                 : give(host_memory, out, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    const std::lock_guard<std::mutex> guard(hold);
    size_t bytes;

    return take_back(host_memory, memory, &bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    if (simt_fails(SIMT_COPY))
        return failed(cudaErrorUnknown);
    const std::lock_guard<std::mutex> guard(hold);
    const bool from_device =
        kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const bool to_device =
        kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;

    if (from_device != within(device_memory, from, bytes) ||
        to_device != within(device_memory, to, bytes))
        return failed(cudaErrorInvalidValue);
    if (kind != cudaMemcpyDeviceToHost || stream == nullptr ||
        !within(host_memory, to, bytes)) {
        std::memcpy(to, from, bytes);
        return cudaSuccess;
    }
    std::memset(to, 0xff, bytes);
    stream->late.push_back({stream->n_copy++, to, from, bytes});
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                       cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t)
{
    if (simt_fails(SIMT_COPY))
        return failed(cudaErrorUnknown);
    const std::lock_guard<std::mutex> guard(hold);

    if (!within(device_memory, to, bytes))
        return failed(cudaErrorInvalidValue);
    std::memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    if (simt_fails(SIMT_STREAM))
        return failed(cudaErrorUnknown);
    *out = new CUstream_st();
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (simt_fails(SIMT_SYNC))
        return failed(cudaErrorIllegalAddress);
    const std::lock_guard<std::mutex> guard(hold);

    run_late(stream, UINT64_MAX);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    return cudaSuccess;
}

/* What the other stream does next happens after what the event saw. */
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned)
{
    if (simt_fails(SIMT_STREAM))
        return failed(cudaErrorUnknown);
    const std::lock_guard<std::mutex> guard(hold);

    run_late(event->stream, event->after);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    if (simt_fails(SIMT_EVENT))
        return failed(cudaErrorUnknown);
    *out = new CUevent_st();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (simt_fails(SIMT_EVENT))
        return failed(cudaErrorUnknown);
    const std::lock_guard<std::mutex> guard(hold);

    event->stream = stream;
    event->after = stream->n_copy;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (simt_fails(SIMT_SYNC))
        return failed(cudaErrorIllegalAddress);
    const std::lock_guard<std::mutex> guard(hold);

    run_late(event->stream, event->after);
    return cudaSuccess;
}
