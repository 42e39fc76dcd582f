/* attention_rows_2.cu -- version 2: a block a row, its logits in shared
 * memory from the product to the probabilities.
 *
 * Better than version 1: one kernel, no scratch, each probability is written
 * once and in its final type. What is left: every query reads all keys and
 * values for itself, so that 2048 queries of a head read 4 GB of keys through
 * the caches, one multiply-add for each float read; and a row must fit in
 * shared memory, which ends at about 12000 keys. Version 3 answers both.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "attention_rows.cuh"

#include "attention_kernels.cuh"
#include "launch.cuh"

enum { BLOCK = 256, N_WARPS = BLOCK / KVR_WARP, MOST_KEYS = 11 * 1024 };

struct second_version {
    struct kvr_cuda_attention a;
};

/* A warp a key, lanes along the dimensions. */
static __device__ void make_logits(float *logits, const float *query,
                                   const float *keys,
                                   const struct kvr_cuda_attention &a,
                                   uint32_t from, uint32_t end)
{
    const uint32_t lane = threadIdx.x % KVR_WARP;

    for (uint32_t k = from + threadIdx.x / KVR_WARP; k < end; k += N_WARPS) {
        float sum = 0.0f;
        for (uint32_t d = lane; d < a.key_dim; d += KVR_WARP)
            sum += query[d] * keys[(size_t)k * a.key_dim + d];
        sum = kvr_reduce_warp<kvr_sum>(sum);
        if (lane == 0)
            logits[k - from] = kvr_soft_cap(sum * a.scale, a.softcap);
    }
}

/* A thread a column of the output, over all keys. */
static __device__ void add_values(float *out, const float *weights,
                                  const float *values,
                                  const struct kvr_cuda_attention &a,
                                  uint32_t from, uint32_t end)
{
    for (uint32_t d = threadIdx.x; d < a.value_dim; d += BLOCK) {
        float sum = 0.0f;
        for (uint32_t k = from; k < end; k++)
            sum += weights[k - from] * values[(size_t)k * a.value_dim + d];
        out[d] = sum;
    }
}

template <class Row>
static __global__ void attend_row(const struct second_version v)
{
    const struct kvr_cuda_attention &a = v.a;
    const uint32_t r = blockIdx.x, h = blockIdx.y, end = a.first + r + 1;
    const uint32_t from = kvr_first_key(a.span, end - 1);
    const size_t at = (size_t)h * a.n + r;
    const size_t cache = (size_t)(h / (a.n_head / a.n_kv_head)) * a.max_keys;
    float *query = kvr_shared + 3 * N_WARPS, *logits = query + a.key_dim;
    Row *out = (Row *)a.rows + at * a.stride;
    float top = -INFINITY, sum = 0.0f, mass = 0.0f;

    for (uint32_t d = threadIdx.x; d < a.key_dim; d += BLOCK)
        query[d] = a.query[((size_t)r * a.n_head + h) * a.key_dim + d];
    __syncthreads();
    make_logits(logits, query, a.keys + cache * a.key_dim, a, from, end);
    __syncthreads();
    for (uint32_t k = from + threadIdx.x; k < end; k += BLOCK)
        top = fmaxf(top, logits[k - from]);
    top = kvr_reduce_block<kvr_max>(top, kvr_shared);
    for (uint32_t k = from + threadIdx.x; k < end; k += BLOCK)
        sum += kvr_exp_below(logits[k - from], top);
    sum = kvr_reduce_block<kvr_sum>(sum, kvr_shared + N_WARPS);
    for (uint32_t k = threadIdx.x; k < end; k += BLOCK) {
        const float p =
            k < from ? 0.0f
                     : kvr_exp_below(logits[k - from], top) * (1.0f / sum);
        kvr_round(out + k, p);
        mass += p;
        if (k >= from)
            logits[k - from] = p;
    }
    /* its barrier also ends the writing of the weights */
    mass = kvr_reduce_block<kvr_sum>(mass, kvr_shared + 2 * N_WARPS);
    add_values(a.out + ((size_t)r * a.n_head + h) * a.value_dim, logits,
               a.values + cache * a.value_dim, a, from, end);
    if (threadIdx.x != 0)
        return;
    kvr_note_bad(a, h, end - 1, top + logf(sum));
    a.lse[at] = top + logf(sum);
    a.mass[at] = mass;
}

size_t kvr_lab_attention_rows_2_scratch(const struct kvr_cuda_attention *)
{
    return 0;
}

cudaError_t kvr_lab_attention_rows_2(const struct kvr_cuda_attention *call,
                                     cudaStream_t stream)
{
    const struct second_version v = {*call};
    const uint32_t keys = call->first + call->n;
    const size_t shared =
        (3 * N_WARPS + call->key_dim + (size_t)keys) * sizeof(float);

    if (keys > MOST_KEYS)
        return cudaErrorInvalidValue;
    return kvr_launch(call->row_type == KVR_CUDA_F16 ? attend_row<__half>
                                                     : attend_row<float>,
                      dim3(call->n, call->n_head), BLOCK, shared, stream, v);
}
