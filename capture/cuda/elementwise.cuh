/* elementwise.cuh -- sums, activations and rotations of activations.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_ELEMENTWISE_CUH
#define KVR_CUDA_ELEMENTWISE_CUH

#include "backend.h"
#include "kernels.cuh"

/* x[count] += y[count] */
cudaError_t kvr_cuda_add(float *x, const float *y, uint64_t count,
                         cudaStream_t stream);

/* x[n][cols] = bias[cols] (accumulate: += bias) */
cudaError_t kvr_cuda_bias(float *x, const float *bias, bool accumulate,
                          uint32_t cols, uint32_t n, cudaStream_t stream);

/* gate[count] = activation(gate) * up; up may be NULL */
cudaError_t kvr_cuda_activate(float *gate, const float *up,
                              enum kvr_activation activation, uint64_t count,
                              cudaStream_t stream);

/* As backend.h's rope: x[n][heads * dim], angles[n][rope_dim]. */
cudaError_t kvr_cuda_rope(float *x, const float *angles, uint32_t heads,
                          uint32_t dim, uint32_t rope_dim, uint32_t n,
                          cudaStream_t stream);

/* As backend.h's store: cache[heads * max_keys][dim], in[n][heads * dim]. */
cudaError_t kvr_cuda_store(float *cache, const float *in, uint32_t heads,
                           uint32_t dim, uint32_t max_keys, uint32_t first,
                           uint32_t n, cudaStream_t stream);

#endif
