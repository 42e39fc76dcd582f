/* value_out.cu -- many values: a block takes a head and 64 values, and goes
 * over the rows of the output matrix in tiles of 64, 4 x 4 products a thread.
 * Few: a block a head and value, a warp a row.
 *
 * Products are never stored: each is added, without its sign, to its value's
 * sum. Sums are taken in one order, whatever the machine.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "value_out.cuh"

#include "device.cuh"
#include "launch.cuh"

enum {
    TILE = 64,
    SIDE = 16, /* threads along each side of a tile */
    EACH = TILE / SIDE,
    DEPTH = 16,      /* columns of a tile in shared memory at a time */
    LINE = TILE + 4, /* so that stores spread over the banks */
    TILE_BLOCK = SIDE * SIDE,
    ROW_BLOCK = 1024,
    FEW = 8,
};

struct value_out {
    float *out;
    const float *value;
    const void *weight;
    uint32_t rows, dim, n_head, n_kv_head, n;
};

/* Where head h's part of value i begins. */
static inline __device__ const float *value_at(const struct value_out &v,
                                               uint32_t h, uint32_t i)
{
    const uint32_t kv_head = h / (v.n_head / v.n_kv_head);

    return v.value + ((size_t)i * v.n_kv_head + kv_head) * v.dim;
}

template <class T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    value_out_few(const struct value_out v)
{
    const uint32_t h = blockIdx.x, i = blockIdx.y;
    const uint32_t lane = threadIdx.x % KVR_WARP;
    const float *value = value_at(v, h, i);
    const size_t cols = (size_t)v.n_head * v.dim;
    float sum = 0.0f;

    for (uint32_t r = threadIdx.x / KVR_WARP; r < v.rows;
         r += ROW_BLOCK / KVR_WARP) {
        const T *row = (const T *)v.weight + r * cols + (size_t)h * v.dim;
        float product = 0.0f;
        for (uint32_t d = lane; d < v.dim; d += KVR_WARP)
            product += kvr_widen(row[d]) * value[d];
        sum += fabsf(kvr_reduce_warp<kvr_sum>(product));
    }
    /* the lanes of a warp have the same sum: one of them counts */
    sum = kvr_reduce_block<kvr_sum>(lane == 0 ? sum : 0.0f, kvr_shared);
    if (threadIdx.x == 0)
        v.out[(size_t)h * v.n + i] = sum;
}

/* Stores columns from..from+DEPTH-1 of `count` rows of a matrix, `stride` from
 * one to the next, as tile[column][row]; zeros where it has none. */
template <class T>
static __device__ void load_tile(float *tile, const T *from, size_t stride,
                                 uint32_t count, uint32_t depth)
{
    for (uint32_t at = threadIdx.x; at < TILE * DEPTH; at += TILE_BLOCK) {
        const uint32_t row = at / DEPTH, column = at % DEPTH;
        tile[column * LINE + row] = row < count && column < depth
                                        ? kvr_widen(from[row * stride + column])
                                        : 0.0f;
    }
}

/* Products of four values and four rows, all columns. */
template <class T>
static __device__ void products(float p[EACH][EACH], const struct value_out &v,
                                uint32_t h, uint32_t row)
{
    const size_t cols = (size_t)v.n_head * v.dim;
    const uint32_t i = blockIdx.x * TILE;
    float *values = kvr_shared, *weights = kvr_shared + DEPTH * LINE;
    const uint32_t tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

    for (int a = 0; a < EACH; a++)
        for (int b = 0; b < EACH; b++)
            p[a][b] = 0.0f;
    for (uint32_t d = 0; d < v.dim; d += DEPTH) {
        __syncthreads(); /* the last tile is read */
        load_tile(values, value_at(v, h, i) + d, (size_t)v.n_kv_head * v.dim,
                  v.n - i, v.dim - d);
        load_tile(weights,
                  (const T *)v.weight + row * cols + (size_t)h * v.dim + d,
                  cols, v.rows - row, v.dim - d);
        __syncthreads();
        for (int k = 0; k < DEPTH; k++) {
            const float4 a = *(const float4 *)&values[k * LINE + ty * EACH];
            const float4 b = *(const float4 *)&weights[k * LINE + tx * EACH];
            const float left[EACH] = {a.x, a.y, a.z, a.w};
            const float right[EACH] = {b.x, b.y, b.z, b.w};
            for (int s = 0; s < EACH; s++)
                for (int t = 0; t < EACH; t++)
                    p[s][t] += left[s] * right[t];
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(TILE_BLOCK)
    value_out_tiles(const struct value_out v)
{
    const uint32_t h = blockIdx.y;
    const uint32_t tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    float sum[EACH] = {0.0f, 0.0f, 0.0f, 0.0f};

    for (uint32_t row = 0; row < v.rows; row += TILE) {
        float p[EACH][EACH];
        products<T>(p, v, h, row);
        for (int s = 0; s < EACH; s++)
            for (int t = 0; t < EACH; t++)
                sum[s] += fabsf(p[s][t]); /* of rows beyond the end: 0 */
    }
    for (int s = 0; s < EACH; s++) {
        for (int flip = SIDE / 2; flip > 0; flip /= 2)
            sum[s] += __shfl_xor_sync(KVR_ALL_LANES, sum[s], flip);
        const uint32_t i = blockIdx.x * TILE + ty * EACH + s;
        if (tx == 0 && i < v.n)
            v.out[(size_t)h * v.n + i] = sum[s];
    }
}

template <class T>
static cudaError_t launch(const struct value_out &v, cudaStream_t stream)
{
    if (v.n <= FEW)
        return kvr_launch(value_out_few<T>, dim3(v.n_head, v.n), ROW_BLOCK,
                          ROW_BLOCK / KVR_WARP * sizeof(float), stream, v);
    return kvr_launch(value_out_tiles<T>,
                      dim3((v.n + TILE - 1) / TILE, v.n_head), TILE_BLOCK,
                      2 * DEPTH * LINE * sizeof(float), stream, v);
}

cudaError_t kvr_cuda_value_out(float *out, const float *value,
                               const void *weight, enum kvr_cuda_type type,
                               uint32_t rows, uint32_t dim, uint32_t n_head,
                               uint32_t n_kv_head, uint32_t n,
                               cudaStream_t stream)
{
    const struct value_out v = {out, value,  weight,    rows,
                                dim, n_head, n_kv_head, n};

    switch (type) {
    case KVR_CUDA_F32:
        return launch<float>(v, stream);
    case KVR_CUDA_F16:
        return launch<__half>(v, stream);
    case KVR_CUDA_BF16:
        return launch<__nv_bfloat16>(v, stream);
    }
    return cudaErrorInvalidValue;
}
