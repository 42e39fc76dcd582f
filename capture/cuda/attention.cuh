/* attention.cuh -- causal attention, with its rows or without.
 *
 * Softmax in f32. No memory grows with T squared: rows are written for the n
 * queries of the call, and where nobody wants them no row is formed.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_ATTENTION_CUH
#define KVR_CUDA_ATTENTION_CUH

#include "kernels.cuh"

struct kvr_cuda_attention {
    float *out;          /* [n][n_head * value_dim] */
    const float *query;  /* [n][n_head * key_dim] */
    const float *keys;   /* [n_kv_head * max_keys][key_dim] */
    const float *values; /* [n_kv_head * max_keys][value_dim] */
    uint32_t layer, n_head, n_kv_head, key_dim, value_dim, max_keys;
    uint32_t first, n; /* the queries' positions; their keys are stored */
    float scale, softcap;
    uint32_t span; /* keys a row sees, its own included; 0: all */

    /* rows: [n_head][n][stride] of row_type (f32 or f16), keys 0..first+r,
     * zero outside the mask; what lies beyond first+r is not written. NULL:
     * not wanted, and the kernel never forms them. */
    void *rows;
    enum kvr_cuda_type row_type;
    size_t stride;     /* at least first + n */
    float *lse, *mass; /* [n_head][n], either may be NULL; mass: the f32 sum of
                          the probabilities before rounding to row_type */
    kvr_cuda_bad *bad;
    /* scratch of kvr_cuda_attention_scratch() floats */
    float *scratch;
};

/* Floats that a call of this shape needs; grows with n * first at most where
 * rows are wanted as f16 (one query block's worth), not with T squared. */
size_t kvr_cuda_attention_scratch(const struct kvr_cuda_attention *call);

cudaError_t kvr_cuda_attention(const struct kvr_cuda_attention *call,
                               cudaStream_t stream);

#endif
