/* attention_rows.cuh -- earlier versions of attention with rows wanted, kept
 * for what they teach; called as kvr_cuda_attention is.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_LAB_ATTENTION_ROWS_CUH
#define KVR_LAB_ATTENTION_ROWS_CUH

#include "attention.cuh"

cudaError_t kvr_lab_attention_rows_1(const struct kvr_cuda_attention *call,
                                     cudaStream_t stream);
size_t kvr_lab_attention_rows_1_scratch(const struct kvr_cuda_attention *call);

cudaError_t kvr_lab_attention_rows_2(const struct kvr_cuda_attention *call,
                                     cudaStream_t stream);
size_t kvr_lab_attention_rows_2_scratch(const struct kvr_cuda_attention *call);

#endif
