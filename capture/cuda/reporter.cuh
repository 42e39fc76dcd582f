/* reporter.cuh -- results on their way to the host, in order, while the
 * device goes on.
 *
 * A ring of device memory with its twin in pinned memory: kernels write into
 * the one, a stream copies stretches of it into the other, a thread hands
 * items to their callbacks (rows of several heads at once) and frees their
 * places. Where the callbacks are slow the ring is full and the caller waits:
 * nothing grows.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_REPORTER_CUH
#define KVR_CUDA_REPORTER_CUH

#include "host.cuh"

/* Bytes of the ring; KVREPLAY_CUDA_STAGING, a number, stands for it. */
uint64_t kvr_cuda_staging(const struct kvr_device_options *options);

enum kvr_status kvr_cuda_reporter_new(struct kvr_cuda_reporter **out,
                                      struct kvr_device *device,
                                      struct kvr_error *err);
/* What was not reported is dropped. NULL is fine. */
void kvr_cuda_reporter_free(struct kvr_cuda_reporter *reporter);

/* Rows of one attention call: [n_head][n][stride] of `type`, then lse and
 * mass, [n_head][n] each, at these places of an item. */
struct kvr_cuda_rows {
    uint32_t layer, n_head, first, n;
    size_t stride;
    enum kvr_cuda_type type;
    bool lse_only;
    size_t lse, mass;
    kvr_rows_fn report;
    void *ud;
};

/* A place of `bytes` on the device for the next item; waits where there is
 * none. The failure of a callback is the answer of this and of all below. */
enum kvr_status kvr_cuda_reporter_place(void **out,
                                        struct kvr_cuda_reporter *reporter,
                                        size_t bytes, struct kvr_error *err);
/* Most bytes of an item that leave room for others beside it. */
size_t kvr_cuda_reporter_share(const struct kvr_cuda_reporter *reporter);

/* The item in the place taken last: what lies there once `compute` is here. */
enum kvr_status kvr_cuda_reporter_rows(struct kvr_cuda_reporter *reporter,
                                       const struct kvr_cuda_rows *rows,
                                       struct kvr_error *err);

/* As backend.h's. */
enum kvr_status kvr_cuda_send(struct kvr_device *device,
                              const struct kvr_send *what,
                              struct kvr_error *err);
enum kvr_status kvr_cuda_defer(struct kvr_device *device, kvr_deferred_fn fn,
                               void *ud, uint32_t first, uint32_t n,
                               struct kvr_error *err);
enum kvr_status kvr_cuda_drain(struct kvr_device *device,
                               struct kvr_error *err);

#endif
