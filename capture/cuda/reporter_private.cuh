/* reporter_private.cuh -- the reporter's insides: its caller and its thread.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_REPORTER_PRIVATE_CUH
#define KVR_CUDA_REPORTER_PRIVATE_CUH

#include "reporter.cuh"

#include <condition_variable>
#include <mutex>
#include <thread>

enum { N_ITEMS = 1024, N_FLUSH = 64 };

struct item {
    enum { ROWS, SENT, DEFERRED } kind;
    uint64_t end;   /* of its place: a position in the ring */
    size_t at;      /* where its place lies */
    uint64_t flush; /* that brought it */
    struct kvr_cuda_rows rows;
    struct kvr_send send;
    size_t offset[KVR_SEND_MAX]; /* of a tensor within the place */
    struct {
        kvr_deferred_fn fn;
        void *ud;
        uint32_t first, n;
    } deferred;
};

struct kvr_cuda_reporter {
    struct kvr_device *device;
    char *ring, *twin; /* on the device, and pinned on the host */
    uint64_t capacity;

    /* the caller's */
    uint64_t head, copied; /* positions: taken, and asked to be copied */
    size_t place;          /* taken last */
    uint64_t added;        /* items */
    cudaEvent_t ready, done[N_FLUSH];
    kvr_cuda_bad *bad; /* [N_FLUSH] pinned: the flag as of that flush */

    /* under the lock; published and n_flush change only in the caller */
    std::mutex lock;
    std::condition_variable changed;
    uint64_t n_flush, synced;     /* flushes asked for, and known to be here */
    uint64_t published, finished; /* items visible, and done with */
    uint64_t tail;                /* position: free below */
    bool stop;
    struct kvr_error failure; /* the first one */
    struct item items[N_ITEMS];

    std::thread thread;
};

/* reporter_thread.cu: hands published items out until stop. */
void kvr_cuda_reporter_run(struct kvr_cuda_reporter *reporter);

#endif
