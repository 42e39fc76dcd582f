/* log_prob.cuh -- log probability of one token of each row of logits.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_LOG_PROB_CUH
#define KVR_CUDA_LOG_PROB_CUH

#include "kernels.cuh"

/* out[i] = log softmax(cap(logits[i]))[targets[i]]; logits[n][cols];
 * cap: c * tanh(logit / c), nothing where softcap is 0. */
cudaError_t kvr_cuda_log_prob(float *out, const float *logits, float softcap,
                              const int32_t *targets, uint32_t cols, uint32_t n,
                              cudaStream_t stream);

#endif
