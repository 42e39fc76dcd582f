/* embed.cuh -- rows of a table.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_EMBED_CUH
#define KVR_CUDA_EMBED_CUH

#include "kernels.cuh"

/* out[n][cols] = table[ids[i]][cols] * scale. */
cudaError_t kvr_cuda_embed(float *out, const void *table,
                           enum kvr_cuda_type type, float scale,
                           const int32_t *ids, uint32_t cols, uint32_t n,
                           cudaStream_t stream);

#endif
