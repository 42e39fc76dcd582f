/* expand.cuh -- stored tensors to floats, and floats to narrow ones.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_EXPAND_CUH
#define KVR_CUDA_EXPAND_CUH

#include "kernels.cuh"

/* True for the stored types of quant.h that expand on the device. */
bool kvr_cuda_expands(uint32_t stored_type);

/* out[n] from the blocks of `in`. As f32 the bits are those of quant.h's
 * expansion; narrower types round those once more, to nearest even. n is a
 * multiple of the type's block. */
cudaError_t kvr_cuda_expand(void *out, enum kvr_cuda_type type,
                            const uint8_t *in, uint32_t stored_type, uint64_t n,
                            cudaStream_t stream);

/* out[n] = in[n] rounded to nearest even. */
cudaError_t kvr_cuda_narrow(void *out, enum kvr_cuda_type type, const float *in,
                            uint64_t n, cudaStream_t stream);

#endif
