/* value_out.cuh -- L1 norms of values through the output matrix.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_VALUE_OUT_CUH
#define KVR_CUDA_VALUE_OUT_CUH

#include "kernels.cuh"

/* out[n_head][n] as backend.h says: value[n][n_kv_head * dim], weight
 * [rows][n_head * dim] of `type`. */
cudaError_t kvr_cuda_value_out(float *out, const float *value,
                               const void *weight, enum kvr_cuda_type type,
                               uint32_t rows, uint32_t dim, uint32_t n_head,
                               uint32_t n_kv_head, uint32_t n,
                               cudaStream_t stream);

#endif
