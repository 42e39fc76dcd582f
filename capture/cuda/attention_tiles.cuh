/* attention_tiles.cuh -- products of 64 queries with 128 keys, and of what
 * becomes of them with the values.
 *
 * Each of eight warps owns eight queries, each of its lanes four keys: 32
 * products a thread, for which three 16-byte words are read from shared
 * memory per dimension. Columns of a head come through shared memory 16 at a
 * time, the next 16 on their way in registers meanwhile. Since a warp has all
 * of a row, softmax needs no barrier.
 *
 * Shared memory: weights [warp][slot of key][query], 32 kB; then queries
 * [dimension][query] and keys [dimension][key], or values [key][column].
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_ATTENTION_TILES_CUH
#define KVR_CUDA_ATTENTION_TILES_CUH

#include "attention_kernels.cuh"

enum {
    TILE_WARPS = 8,
    TILE_THREADS = TILE_WARPS * KVR_WARP,
    ROWS = 8, /* queries of a warp */
    COLS = 4, /* keys of a lane */
    TILE_QUERIES = TILE_WARPS * ROWS,
    TILE_KEYS = KVR_WARP * COLS,
    DEPTH = 16,
    QUERY_LINE = TILE_QUERIES + 4, /* stores spread over the banks */
    KEY_LINE = TILE_KEYS + 4,
    WEIGHT_FLOATS = TILE_WARPS * TILE_KEYS * ROWS,
    STAGE_FLOATS = DEPTH * (QUERY_LINE + KEY_LINE),
    KEY_LOADS = TILE_KEYS * DEPTH / 4 / TILE_THREADS,
};

/* What a thread knows of its tile. Columns of values per lane: VC. */
struct tile {
    uint32_t head, kv_head;
    uint32_t row0; /* the warp's first row of the call */
    uint32_t lane; /* of the warp */
    uint32_t last; /* last key that a row of the block sees */
    bool by_four;  /* queries and keys */
    bool values_by_four;
    float *weights; /* the warp's, in shared memory */
    float *stage;
};

/* A kernel's arguments. */
struct tiled_call {
    struct kvr_cuda_attention a;
    bool by_four, values_by_four, rows_by_four;
};

inline struct tiled_call kvr_tiled_call(const struct kvr_cuda_attention *call)
{
    const size_t item = call->row_type == KVR_CUDA_F16 ? 2 : 4;
    struct tiled_call c = {*call, false, false, false};

    c.by_four = kvr_by_four(call->query, sizeof(float), call->key_dim) &&
                kvr_by_four(call->keys, sizeof(float), call->key_dim);
    c.values_by_four =
        kvr_by_four(call->values, sizeof(float), call->value_dim) &&
        kvr_by_four(call->out, sizeof(float), call->value_dim);
    c.rows_by_four = kvr_by_four(call->rows, item, call->stride);
    return c;
}

inline dim3 kvr_tiled_grid(const struct kvr_cuda_attention *call)
{
    return dim3((call->n + TILE_QUERIES - 1) / TILE_QUERIES, call->n_head);
}

/* Values take up to 16 x 32 VC floats of the stage. */
inline size_t kvr_tiled_shared(int vc)
{
    const int values = DEPTH * KVR_WARP * vc;

    return (WEIGHT_FLOATS + (values > STAGE_FLOATS ? values : STAGE_FLOATS)) *
           sizeof(float);
}

/* The longest rows first. */
inline __device__ struct tile kvr_this_tile(const struct tiled_call &c)
{
    const uint32_t block = gridDim.x - 1 - blockIdx.x;
    const uint32_t warp = threadIdx.x / KVR_WARP;
    const uint32_t end = (block + 1) * TILE_QUERIES;
    struct tile t;

    t.head = blockIdx.y;
    t.kv_head = t.head / (c.a.n_head / c.a.n_kv_head);
    t.row0 = block * TILE_QUERIES + warp * ROWS;
    t.lane = threadIdx.x % KVR_WARP;
    t.last = c.a.first + (end < c.a.n ? end : c.a.n) - 1;
    t.by_four = c.by_four;
    t.values_by_four = c.values_by_four;
    t.weights = kvr_shared + warp * TILE_KEYS * ROWS;
    t.stage = kvr_shared + WEIGHT_FLOATS;
    return t;
}

/* First tile with a key that some row of the block sees. */
inline __device__ uint32_t kvr_first_tile(const struct tiled_call &c)
{
    const uint32_t block = gridDim.x - 1 - blockIdx.x;
    const uint32_t key =
        kvr_first_key(c.a.span, c.a.first + block * TILE_QUERIES);

    return key / TILE_KEYS * TILE_KEYS;
}

/* What one thread carries of the next 16 dimensions. */
struct carried {
    float4 query, keys[KEY_LOADS];
};

inline __device__ struct carried kvr_fetch(const struct kvr_cuda_attention &a,
                                           const struct tile &t, uint32_t key0,
                                           uint32_t d)
{
    const uint32_t at = threadIdx.x / 4, column = d + threadIdx.x % 4 * 4;
    const uint32_t block_row = t.row0 / TILE_QUERIES * TILE_QUERIES + at;
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    struct carried c = {zero, {zero, zero}};

    if (block_row < a.n)
        c.query = kvr_load4(a.query + ((size_t)block_row * a.n_head + t.head) *
                                          a.key_dim,
                            column, a.key_dim, t.by_four);
#pragma unroll
    for (uint32_t i = 0; i < KEY_LOADS; i++) {
        const uint32_t key = key0 + at + i * (TILE_THREADS / 4);
        if (key <= t.last)
            c.keys[i] = kvr_load4(
                a.keys + ((size_t)t.kv_head * a.max_keys + key) * a.key_dim,
                column, a.key_dim, t.by_four);
    }
    return c;
}

inline __device__ void kvr_put_column(float *to, uint32_t line, float4 x)
{
    to[0] = x.x;
    to[line] = x.y;
    to[2 * line] = x.z;
    to[3 * line] = x.w;
}

inline __device__ void kvr_put(const struct tile &t, const struct carried &c)
{
    const uint32_t at = threadIdx.x / 4, d = threadIdx.x % 4 * 4;
    float *keys = t.stage + DEPTH * QUERY_LINE;

    kvr_put_column(t.stage + d * QUERY_LINE + at, QUERY_LINE, c.query);
#pragma unroll
    for (uint32_t i = 0; i < KEY_LOADS; i++)
        kvr_put_column(keys + d * KEY_LINE + at + i * (TILE_THREADS / 4),
                       KEY_LINE, c.keys[i]);
}

/* s += products over the 16 dimensions in the stage. */
inline __device__ void kvr_multiply(float s[ROWS][COLS], const struct tile &t)
{
    const float *query = t.stage + t.row0 % TILE_QUERIES;
    const float *keys = t.stage + DEPTH * QUERY_LINE + t.lane * COLS;

#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        const float4 low = *(const float4 *)(query + d * QUERY_LINE);
        const float4 high = *(const float4 *)(query + d * QUERY_LINE + 4);
        const float4 key = *(const float4 *)(keys + d * KEY_LINE);
        const float q[ROWS] = {low.x,  low.y,  low.z,  low.w,
                               high.x, high.y, high.z, high.w};
        const float k[COLS] = {key.x, key.y, key.z, key.w};
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j++)
                s[i][j] += q[i] * k[j];
    }
}

/* Logits of the warp's rows and the lane's keys, -infinity outside the mask.
 * All threads of the block call. */
inline __device__ void kvr_logits(float s[ROWS][COLS],
                                  const struct kvr_cuda_attention &a,
                                  const struct tile &t, uint32_t key0)
{
    const uint32_t mine = key0 + t.lane * COLS, top = a.first + t.row0;
    /* some row of the warp may see some key of the lane */
    const bool busy = t.row0 < a.n && mine < top + ROWS &&
                      mine + COLS > kvr_first_key(a.span, top);
    struct carried next = kvr_fetch(a, t, key0, 0);

#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLS; j++)
            s[i][j] = 0.0f;
    for (uint32_t d = 0; d < a.key_dim; d += DEPTH) {
        __syncthreads(); /* what the stage held is read */
        kvr_put(t, next);
        __syncthreads();
        if (d + DEPTH < a.key_dim)
            next = kvr_fetch(a, t, key0, d + DEPTH);
        if (busy)
            kvr_multiply(s, t);
    }
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        const uint32_t step = top + i;
        const uint32_t from = kvr_first_key(a.span, step);
#pragma unroll
        for (uint32_t j = 0; j < COLS; j++)
            s[i][j] = t.row0 + i < a.n && mine + j >= from && mine + j <= step
                          ? kvr_soft_cap(s[i][j] * a.scale, a.softcap)
                          : -INFINITY;
    }
}

/* Leaves the tile's weights where kvr_add_values finds them. The slots of a
 * lane's four keys lie apart, so that lanes write side by side. */
inline __device__ void kvr_put_weights(const struct tile &t,
                                       const float p[ROWS][COLS])
{
#pragma unroll
    for (int j = 0; j < COLS; j++) {
        float *slot = t.weights + (j * KVR_WARP + t.lane) * ROWS;
        *(float4 *)slot = make_float4(p[0][j], p[1][j], p[2][j], p[3][j]);
        *(float4 *)(slot + 4) = make_float4(p[4][j], p[5][j], p[6][j], p[7][j]);
    }
}

/* Column c of a lane: neighbours read one another's neighbours. */
template <int VC>
inline __device__ uint32_t kvr_column(uint32_t lane, uint32_t c)
{
    return VC == 2 ? lane * 2 + c : c / 4 * (4 * KVR_WARP) + lane * 4 + c % 4;
}

/* Four columns each of VC / 2 of the 16 values from `key` on. */
template <int VC>
inline __device__ void kvr_fetch_values(float4 v[VC / 2],
                                        const struct kvr_cuda_attention &a,
                                        const struct tile &t, uint32_t key)
{
    constexpr uint32_t per_row = KVR_WARP * VC / 4;

#pragma unroll
    for (uint32_t i = 0; i < VC / 2; i++) {
        const uint32_t at = threadIdx.x + i * TILE_THREADS;
        const uint32_t mine = key + at / per_row;
        v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (mine <= t.last)
            v[i] =
                kvr_load4(a.values + ((size_t)t.kv_head * a.max_keys + mine) *
                                         a.value_dim,
                          at % per_row * 4, a.value_dim, t.values_by_four);
    }
}

/* acc += weights of 16 keys from `key` of the tile on, times their values. */
template <int VC>
inline __device__ void kvr_multiply_values(float acc[ROWS][VC],
                                           const struct tile &t, uint32_t key)
{
#pragma unroll
    for (uint32_t k = 0; k < DEPTH; k++) {
        const uint32_t slot = k % COLS * KVR_WARP + (key + k) / COLS;
        const float4 low = *(const float4 *)(t.weights + slot * ROWS);
        const float4 high = *(const float4 *)(t.weights + slot * ROWS + 4);
        const float w[ROWS] = {low.x,  low.y,  low.z,  low.w,
                               high.x, high.y, high.z, high.w};
        const float *row = t.stage + k * (KVR_WARP * VC);
#pragma unroll
        for (uint32_t c = 0; c < VC; c++) {
            const float v = row[kvr_column<VC>(t.lane, c)];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                acc[i][c] += w[i] * v;
        }
    }
}

/* acc += the tile's weights times its values. All threads call. */
template <int VC>
inline __device__ void kvr_add_values(float acc[ROWS][VC],
                                      const struct kvr_cuda_attention &a,
                                      const struct tile &t, uint32_t key0)
{
    float4 next[VC / 2];

    kvr_fetch_values<VC>(next, a, t, key0);
    for (uint32_t k = 0; k < TILE_KEYS && key0 + k <= t.last; k += DEPTH) {
        __syncthreads(); /* what the stage held is read */
#pragma unroll
        for (uint32_t i = 0; i < VC / 2; i++)
            ((float4 *)t.stage)[threadIdx.x + i * TILE_THREADS] = next[i];
        __syncthreads(); /* and the weights are written */
        if (k + DEPTH < TILE_KEYS)
            kvr_fetch_values<VC>(next, a, t, key0 + k + DEPTH);
        if (t.row0 < a.n)
            kvr_multiply_values<VC>(acc, t, k);
    }
}

/* The warp's rows of the output, times `factor` of each. */
template <int VC>
inline __device__ void
kvr_write_out(const struct kvr_cuda_attention &a, const struct tile &t,
              const float acc[ROWS][VC], const float factor[ROWS])
{
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        if (t.row0 + i >= a.n)
            break;
        float *out =
            a.out + ((size_t)(t.row0 + i) * a.n_head + t.head) * a.value_dim;
#pragma unroll
        for (uint32_t c = 0; c < VC; c++)
            if (kvr_column<VC>(t.lane, c) < a.value_dim)
                out[kvr_column<VC>(t.lane, c)] = acc[i][c] * factor[i];
    }
}

/* The columns of a lane that `value_dim` columns need: 2, 4 or 8. */
inline int kvr_value_columns(uint32_t value_dim)
{
    return value_dim <= 2 * KVR_WARP ? 2 : value_dim <= 4 * KVR_WARP ? 4 : 8;
}

#endif
