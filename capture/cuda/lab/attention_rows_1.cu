/* attention_rows_1.cu -- version 1: three kernels, as one would write them
 * down. Logits to memory, softmax over them, probabilities times values.
 *
 * Every logit is written and read twice and every probability read again in
 * f32: at 2048 keys that is four trips of 8 kB a row, and scratch for all of
 * them. Both products take 16 x 16 tiles with one result a thread, two reads
 * of shared memory for each multiply-add.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "attention_rows.cuh"

#include "attention_kernels.cuh"
#include "launch.cuh"

enum { SIDE = 16, LINE = SIDE + 1, ROW_BLOCK = 256 };

/* logits: [n_head][n][keys] */
struct first_version {
    struct kvr_cuda_attention a;
    float *logits;
    uint32_t keys;
};

/* Where row r of head h begins, and what of it is seen. */
static inline __device__ float *row_of(const struct first_version &v,
                                       uint32_t h, uint32_t r)
{
    return v.logits + ((size_t)h * v.a.n + r) * v.keys;
}

static __global__ void make_logits(const struct first_version v)
{
    float *queries = kvr_shared, *keys = queries + SIDE * LINE;
    const uint32_t h = blockIdx.z, kv = h / (v.a.n_head / v.a.n_kv_head);
    const uint32_t x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    const uint32_t r = blockIdx.y * SIDE + y, k0 = blockIdx.x * SIDE;
    const uint32_t step = v.a.first + r, k = k0 + x;
    float sum = 0.0f;

    for (uint32_t d = 0; d < v.a.key_dim; d += SIDE) {
        const bool in = d + x < v.a.key_dim;
        const size_t query = ((size_t)r * v.a.n_head + h) * v.a.key_dim + d + x;
        const size_t key =
            ((size_t)kv * v.a.max_keys + k0 + y) * v.a.key_dim + d + x;
        queries[y * LINE + x] = in && r < v.a.n ? v.a.query[query] : 0.0f;
        keys[y * LINE + x] = in && k0 + y < v.keys ? v.a.keys[key] : 0.0f;
        __syncthreads();
        for (uint32_t i = 0; i < SIDE; i++)
            sum += queries[y * LINE + i] * keys[x * LINE + i];
        __syncthreads();
    }
    if (r >= v.a.n || k >= v.keys)
        return;
    row_of(v, h, r)[k] = k <= step && k >= kvr_first_key(v.a.span, step)
                             ? kvr_soft_cap(sum * v.a.scale, v.a.softcap)
                             : -INFINITY;
}

template <class Row> static __global__ void soften(const struct first_version v)
{
    const uint32_t r = blockIdx.x, h = blockIdx.y, end = v.a.first + r + 1;
    const size_t at = (size_t)h * v.a.n + r;
    const uint32_t n_warps = ROW_BLOCK / KVR_WARP;
    float *row = row_of(v, h, r);
    Row *out = (Row *)v.a.rows + at * v.a.stride;
    float top = -INFINITY, sum = 0.0f, mass = 0.0f;

    for (uint32_t k = threadIdx.x; k < end; k += ROW_BLOCK)
        top = fmaxf(top, row[k]);
    top = kvr_reduce_block<kvr_max>(top, kvr_shared);
    for (uint32_t k = threadIdx.x; k < end; k += ROW_BLOCK)
        sum += kvr_exp_below(row[k], top);
    sum = kvr_reduce_block<kvr_sum>(sum, kvr_shared + n_warps);
    for (uint32_t k = threadIdx.x; k < v.keys; k += ROW_BLOCK) {
        const float p =
            k < end ? kvr_exp_below(row[k], top) * (1.0f / sum) : 0.0f;
        row[k] = p;
        mass += p;
        if (k < end)
            kvr_round(out + k, p);
    }
    mass = kvr_reduce_block<kvr_sum>(mass, kvr_shared + 2 * n_warps);
    if (threadIdx.x != 0)
        return;
    kvr_note_bad(v.a, h, v.a.first + r, top + logf(sum));
    v.a.lse[at] = top + logf(sum);
    v.a.mass[at] = mass;
}

static __global__ void add_values(const struct first_version v)
{
    float *weights = kvr_shared, *values = weights + SIDE * LINE;
    const uint32_t h = blockIdx.z, kv = h / (v.a.n_head / v.a.n_kv_head);
    const uint32_t x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    const uint32_t r = blockIdx.y * SIDE + y, d = blockIdx.x * SIDE + x;
    float sum = 0.0f;

    for (uint32_t k = 0; k < v.keys; k += SIDE) {
        const size_t value =
            ((size_t)kv * v.a.max_keys + k + y) * v.a.value_dim;
        weights[y * LINE + x] =
            r < v.a.n && k + x < v.keys ? row_of(v, h, r)[k + x] : 0.0f;
        values[y * LINE + x] =
            d < v.a.value_dim && k + y < v.keys ? v.a.values[value + d] : 0.0f;
        __syncthreads();
        for (uint32_t i = 0; i < SIDE; i++)
            sum += weights[y * LINE + i] * values[i * LINE + x];
        __syncthreads();
    }
    if (r < v.a.n && d < v.a.value_dim)
        v.a.out[((size_t)r * v.a.n_head + h) * v.a.value_dim + d] = sum;
}

size_t kvr_lab_attention_rows_1_scratch(const struct kvr_cuda_attention *call)
{
    return (size_t)call->n_head * call->n * (call->first + call->n);
}

cudaError_t kvr_lab_attention_rows_1(const struct kvr_cuda_attention *call,
                                     cudaStream_t stream)
{
    const struct first_version v = {*call, call->scratch,
                                    call->first + call->n};
    const uint32_t rows = (call->n + SIDE - 1) / SIDE;
    const size_t tiles = 2 * SIDE * LINE * sizeof(float);
    const size_t reductions = 3 * (ROW_BLOCK / KVR_WARP) * sizeof(float);
    cudaError_t error = kvr_launch(
        make_logits, dim3((v.keys + SIDE - 1) / SIDE, rows, call->n_head),
        SIDE * SIDE, tiles, stream, v);

    if (error == cudaSuccess)
        error = kvr_launch(
            call->row_type == KVR_CUDA_F16 ? soften<__half> : soften<float>,
            dim3(call->n, call->n_head), ROW_BLOCK, reductions, stream, v);
    if (error != cudaSuccess)
        return error;
    return kvr_launch(
        add_values,
        dim3((call->value_dim + SIDE - 1) / SIDE, rows, call->n_head),
        SIDE * SIDE, tiles, stream, v);
}
