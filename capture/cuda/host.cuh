/* host.cuh -- the host's side of the CUDA back end: the device, its tensors,
 * and how a failed call becomes a status.
 *
 * Everything is asked for on one stream, `compute`; results leave through the
 * reporter's ring on another, `copy`.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_HOST_CUH
#define KVR_CUDA_HOST_CUH

#include "backend.h"
#include "kernels.cuh"

#include <cublas_v2.h>

struct kvr_cuda_reporter;

struct kvr_tensor {
    uint64_t rows, cols;
    enum kvr_cuda_type type;
    void *data;
    struct kvr_tensor *next;
};

/* Device memory that only grows; what was there is lost. */
struct kvr_cuda_scratch {
    void *data;
    size_t bytes;
};

enum { KVR_CUDA_UPLOADS = 4 };

/* Pinned memory that small things pass on their way to the device. */
struct kvr_cuda_upload {
    void *data;
    size_t bytes;
    cudaEvent_t done;
};

struct kvr_device {
    struct kvr_device_options options;
    struct kvr_compute_plan plan;
    enum kvr_cuda_type type; /* of matrices */
    cudaStream_t compute, copy;
    cublasHandle_t blas;
    struct kvr_tensor *tensors;
    struct kvr_cuda_scratch narrowed, logits, attention, ids, targets, chunk;
    /* what `narrowed` holds, NULL: nothing */
    const struct kvr_tensor *narrow_of;
    uint32_t narrow_first, narrow_n;
    struct kvr_cuda_upload upload[KVR_CUDA_UPLOADS];
    uint32_t next_upload;
    void *pinned; /* for what is read at once */
    size_t pinned_bytes;
    kvr_cuda_bad *bad;
    struct kvr_cuda_reporter *reporter;
};

/* KVR_OK, or a message with the call, file and line. */
#define KVR_CUDA(err, call) \
    kvr_cuda_check((err), (call), #call, __FILE__, __LINE__)
enum kvr_status kvr_cuda_check(struct kvr_error *err, cudaError_t error,
                               const char *call, const char *file, int line);
#define KVR_CUBLAS(err, call) \
    kvr_cublas_check((err), (call), #call, __FILE__, __LINE__)
enum kvr_status kvr_cublas_check(struct kvr_error *err, cublasStatus_t error,
                                 const char *call, const char *file, int line);

/* "1.5 GiB". */
enum { KVR_CUDA_SIZE_TEXT = 32 };
void kvr_cuda_size(char *out, uint64_t bytes);

size_t kvr_cuda_type_size(enum kvr_cuda_type type);

/* memory.cu. A failed allocation says what was asked, what is free and what
 * would need less. */
enum kvr_status kvr_cuda_malloc(void **out, struct kvr_device *device,
                                uint64_t bytes, const char *what,
                                struct kvr_error *err);
enum kvr_status kvr_cuda_pinned(void **out, uint64_t bytes, const char *what,
                                struct kvr_error *err);
enum kvr_status kvr_cuda_grow(struct kvr_device *device,
                              struct kvr_cuda_scratch *scratch, uint64_t bytes,
                              const char *what, struct kvr_error *err);
/* `in` may be changed after the call. */
enum kvr_status kvr_cuda_send_up(struct kvr_device *device, void *out,
                                 const void *in, size_t bytes,
                                 struct kvr_error *err);
/* Waits for all that was asked; a row that was not finite is a failure. */
enum kvr_status kvr_cuda_fetch(struct kvr_device *device, void *out,
                               const void *in, size_t bytes,
                               struct kvr_error *err);
/* Tensor `t` is about to be written: what was derived from it is stale. */
void kvr_cuda_touch(struct kvr_device *device, const struct kvr_tensor *t);
struct kvr_tensor *kvr_cuda_new_tensor(struct kvr_device *device, uint64_t rows,
                                       uint64_t cols, enum kvr_cuda_type type,
                                       struct kvr_error *err);

/* KVR_ERR_INPUT naming layer, head and step. */
enum kvr_status kvr_cuda_not_finite(kvr_cuda_bad bad, struct kvr_error *err);
uint32_t kvr_cuda_bad_step(kvr_cuda_bad bad);

/* open.cu */
enum kvr_status kvr_cuda_probe(char *device, struct kvr_error *err);
enum kvr_status kvr_cuda_plan(struct kvr_compute_plan *out,
                              const struct kvr_device_options *options,
                              struct kvr_error *err);
enum kvr_status kvr_cuda_open(struct kvr_device **out,
                              const struct kvr_device_options *options,
                              struct kvr_error *err);
void kvr_cuda_close(struct kvr_device *device);

/* weight.cu */
enum kvr_status kvr_cuda_weight(struct kvr_tensor **out,
                                struct kvr_device *device,
                                const struct kvr_weight *weight,
                                struct kvr_error *err);

/* products.cu */
enum kvr_status kvr_cuda_matmul(struct kvr_device *device,
                                struct kvr_tensor *out, bool accumulate,
                                const struct kvr_tensor *in, uint32_t first,
                                const struct kvr_tensor *weight,
                                const struct kvr_tensor *bias, uint32_t n,
                                struct kvr_error *err);
enum kvr_status kvr_cuda_log_prob_of(struct kvr_device *device, float *out,
                                     const struct kvr_tensor *in,
                                     const struct kvr_tensor *weight,
                                     float softcap, const int32_t *targets,
                                     uint32_t n, struct kvr_error *err);

/* rows.cu */
enum kvr_status kvr_cuda_attend(struct kvr_device *device,
                                const struct kvr_attention *call,
                                struct kvr_error *err);

#endif
