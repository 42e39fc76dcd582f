/* cpu_private.h -- shared by the files of the CPU back end.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CPU_PRIVATE_H
#define CPU_PRIVATE_H

#include "backend.h"
#include "cpu_kernels.h"
#include "quant.h"

/* Rows of a weight expanded at a time before a matrix product, and rows of
 * attention made at a time. */
enum { KVR_CPU_PANEL = 128, KVR_CPU_BLOCK = 64 };

struct kvr_tensor {
    uint64_t rows, cols;
    float *f32; /* a buffer, a vector, or an F32 weight in the file */
    bool owned; /* f32 is ours to free */
    const uint8_t *stored; /* a weight; NULL for buffers */
    const struct kvr_quant_row *type;
    size_t row_bytes;
    struct kvr_tensor *next;
};

struct kvr_device {
    struct kvr_device_options options;
    const struct kvr_cpu_kernels *kernels;
    struct kvr_tensor *tensors;
    uint32_t n_workers;
    bool holds_blas;
    /* per worker: `scratch_floats`, grown when tensors are made */
    float **scratch;
    size_t scratch_floats;
};

/* Threads worth starting for this many multiply-adds. */
uint32_t kvr__cpu_threads(const struct kvr_device *device, uint64_t work);

/* Row `row` of a weight as floats, in place or expanded into scratch. */
const float *kvr__cpu_row(const struct kvr_tensor *weight, uint64_t row,
                          float *scratch);

enum kvr_status kvr__cpu_matmul(struct kvr_device *device,
                                struct kvr_tensor *out, bool accumulate,
                                const struct kvr_tensor *in, uint32_t first,
                                const struct kvr_tensor *weight,
                                const struct kvr_tensor *bias, uint32_t n,
                                struct kvr_error *err);
enum kvr_status kvr__cpu_log_prob(struct kvr_device *device, float *out,
                                  const struct kvr_tensor *in,
                                  const struct kvr_tensor *weight,
                                  float softcap, const int32_t *targets,
                                  uint32_t n, struct kvr_error *err);
enum kvr_status kvr__cpu_value_out(struct kvr_device *device,
                                   struct kvr_tensor *out,
                                   const struct kvr_tensor *value,
                                   const struct kvr_tensor *weight,
                                   uint32_t n_head, uint32_t n_kv_head,
                                   uint32_t n, struct kvr_error *err);
enum kvr_status kvr__cpu_attention(struct kvr_device *device,
                                   const struct kvr_attention *call,
                                   struct kvr_error *err);

#endif
