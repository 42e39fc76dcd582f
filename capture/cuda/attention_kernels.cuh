/* attention_kernels.cuh -- the three ways to attend, and what they share.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_ATTENTION_KERNELS_CUH
#define KVR_CUDA_ATTENTION_KERNELS_CUH

#include "attention.cuh"
#include "device.cuh"

/* Widest heads that the kernels have registers and shared memory for. */
enum { KVR_MAX_HEAD_DIM = 256 };

/* Several queries, with rows (attention_rows.cu) and without
 * (attention_flash.cu); one query (attention_step.cu) with either. */
cudaError_t kvr_attention_rows(const struct kvr_cuda_attention *call,
                               cudaStream_t stream);
cudaError_t kvr_attention_flash(const struct kvr_cuda_attention *call,
                                cudaStream_t stream);
cudaError_t kvr_attention_step(const struct kvr_cuda_attention *call,
                               cudaStream_t stream);
size_t kvr_attention_step_scratch(const struct kvr_cuda_attention *call);

/* Whether rows of `dim` items of a matrix at `matrix` may be read or written
 * four at a time. */
inline bool kvr_by_four(const void *matrix, size_t item_bytes, size_t dim)
{
    return dim % 4 == 0 && (uintptr_t)matrix % (4 * item_bytes) == 0;
}

/* First key that the query of position `step` sees. */
inline __host__ __device__ uint32_t kvr_first_key(uint32_t span, uint32_t step)
{
    return span > 0 && step + 1 > span ? step + 1 - span : 0;
}

inline __device__ void kvr_note_bad(const struct kvr_cuda_attention &a,
                                    uint32_t head, uint32_t step, float lse)
{
    const kvr_cuda_bad place =
        (kvr_cuda_bad)a.layer << 48 | (kvr_cuda_bad)head << 32 | step;

    if (!(fabsf(lse) < INFINITY))
        atomicMax(a.bad, (kvr_cuda_bad)UINT64_MAX - place);
}

/* exp(x - top); a logit that is masked or lost is -infinity and gives 0 even
 * where all are. NaN stays NaN. */
inline __device__ float kvr_exp_below(float x, float top)
{
    return x == -INFINITY ? 0.0f : expf(x - top);
}

/* Columns d..d+3 of a row of `dim` floats, zeros beyond its end. */
inline __device__ float4 kvr_load4(const float *row, uint32_t d, uint32_t dim,
                                   bool by_four)
{
    if (by_four && d < dim)
        return *(const float4 *)(row + d);
    return make_float4(d < dim ? row[d] : 0.0f, d + 1 < dim ? row[d + 1] : 0.0f,
                       d + 2 < dim ? row[d + 2] : 0.0f,
                       d + 3 < dim ? row[d + 3] : 0.0f);
}

inline __device__ void kvr_store4(float *out, const float x[4])
{
    *(float4 *)out = make_float4(x[0], x[1], x[2], x[3]);
}

inline __device__ unsigned kvr_half_bits(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}

inline __device__ void kvr_store4(__half *out, const float x[4])
{
    *(uint2 *)out = make_uint2(kvr_half_bits(x[0]) | kvr_half_bits(x[1]) << 16,
                               kvr_half_bits(x[2]) | kvr_half_bits(x[3]) << 16);
}

#endif
