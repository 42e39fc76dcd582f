/* log_prob.cu -- a block a row of logits: the largest, then the sum of the
 * exponentials, in double where it grows long.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "log_prob.cuh"

#include "device.cuh"
#include "launch.cuh"

enum { BLOCK = 1024, N_WARPS = BLOCK / KVR_WARP };

static __global__ void __launch_bounds__(BLOCK)
    log_prob(float *out, const float *logits, float softcap,
             const int32_t *targets, uint32_t cols)
{
    double *sums = (double *)kvr_shared;
    float *tops = (float *)(sums + N_WARPS);
    const float *row = logits + (uint64_t)blockIdx.x * cols;
    float top = -INFINITY;
    double sum = 0;

    for (uint32_t i = threadIdx.x; i < cols; i += BLOCK)
        top = fmaxf(top, row[i]);
    /* the cap is monotonous */
    top = kvr_soft_cap(kvr_reduce_block<kvr_max>(top, tops), softcap);
    for (uint32_t i = threadIdx.x; i < cols; i += BLOCK)
        sum += (double)expf(kvr_soft_cap(row[i], softcap) - top);
    sum = kvr_reduce_block<kvr_sum>(sum, sums);
    if (threadIdx.x == 0) {
        const float target = kvr_soft_cap(row[targets[blockIdx.x]], softcap);
        out[blockIdx.x] = (float)((double)target - (double)top - log(sum));
    }
}

cudaError_t kvr_cuda_log_prob(float *out, const float *logits, float softcap,
                              const int32_t *targets, uint32_t cols, uint32_t n,
                              cudaStream_t stream)
{
    return kvr_launch(log_prob, n, BLOCK,
                      N_WARPS * (sizeof(double) + sizeof(float)), stream, out,
                      logits, softcap, targets, cols);
}
