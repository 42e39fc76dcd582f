/* norm.cuh -- RMS and layer norms.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_NORM_CUH
#define KVR_CUDA_NORM_CUH

#include "backend.h"
#include "kernels.cuh"

/* in, out: [n * parts][cols], each row normalised by itself; out may be in.
 * weight[cols]; bias[cols] or NULL. */
cudaError_t kvr_cuda_norm(float *out, const float *in, enum kvr_norm_kind kind,
                          const float *weight, const float *bias, float eps,
                          uint32_t cols, uint32_t n_row, cudaStream_t stream);

#endif
