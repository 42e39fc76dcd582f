/* attention.cu -- which kernels a call takes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "attention_kernels.cuh"

size_t kvr_cuda_attention_scratch(const struct kvr_cuda_attention *call)
{
    return call->n == 1 ? kvr_attention_step_scratch(call) : 0;
}

cudaError_t kvr_cuda_attention(const struct kvr_cuda_attention *call,
                               cudaStream_t stream)
{
    if (call->n == 0 || call->n_kv_head == 0 ||
        call->n_head % call->n_kv_head != 0 ||
        call->key_dim > KVR_MAX_HEAD_DIM ||
        call->value_dim > KVR_MAX_HEAD_DIM ||
        (call->rows != nullptr && call->stride < call->first + call->n))
        return cudaErrorInvalidValue;
    if (call->n == 1)
        return kvr_attention_step(call, stream);
    return call->rows != nullptr ? kvr_attention_rows(call, stream)
                                 : kvr_attention_flash(call, stream);
}
