/* attention_rows.cu -- version 3: rows are normalised before they are first
 * written, because the logits are made twice.
 *
 * The first pass over the keys keeps only the largest logit and the sum of
 * exponentials of each row; the second makes the same logits again, writes
 * the probabilities in their final type and multiplies them with the values
 * from shared memory. The versions before it (lab/) moved every logit to
 * memory and back, or every key once per query.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "attention_tiles.cuh"

#include "launch.cuh"

/* Largest logit and sum of exp(logit - top) of the warp's rows, over the keys
 * of this lane until they are joined. */
struct totals {
    float top[ROWS], sum[ROWS];
};

static __device__ void add_tile(struct totals &all, const float s[ROWS][COLS])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float top =
            fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3]));
        if (top > all.top[i]) {
            all.sum[i] *= kvr_exp_below(all.top[i], top);
            all.top[i] = top;
        }
#pragma unroll
        for (int j = 0; j < COLS; j++)
            all.sum[i] += kvr_exp_below(s[i][j], all.top[i]);
    }
}

static __device__ void join_lanes(struct totals &all)
{
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float top = kvr_reduce_warp<kvr_max>(all.top[i]);
        all.sum[i] = kvr_reduce_warp<kvr_sum>(all.sum[i] *
                                              kvr_exp_below(all.top[i], top));
        all.top[i] = top;
    }
}

static __device__ void write_totals(const struct kvr_cuda_attention &a,
                                    const struct tile &t,
                                    const struct totals &all)
{
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        const float lse = all.top[i] + logf(all.sum[i]);
        if (t.lane != 0 || t.row0 + i >= a.n)
            continue;
        kvr_note_bad(a, t.head, a.first + t.row0 + i, lse);
        if (a.lse != nullptr)
            a.lse[(size_t)t.head * a.n + t.row0 + i] = lse;
    }
}

/* The tile's part of the warp's rows, up to each row's own key. */
template <class Row>
static __device__ void write_rows(const struct tiled_call &c,
                                  const struct tile &t,
                                  const float p[ROWS][COLS], uint32_t key0)
{
    const uint32_t key = key0 + t.lane * COLS;

#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        const uint32_t row = t.row0 + i, end = c.a.first + row + 1;
        if (row >= c.a.n)
            break;
        Row *out =
            (Row *)c.a.rows + ((size_t)t.head * c.a.n + row) * c.a.stride + key;
        if (c.rows_by_four && key + COLS <= end) {
            kvr_store4(out, p[i]);
            continue;
        }
#pragma unroll
        for (uint32_t j = 0; j < COLS; j++)
            if (key + j < end)
                kvr_round(out + j, p[i][j]);
    }
}

template <class Row>
static __device__ void write_zeros(const struct tiled_call &c,
                                   const struct tile &t, uint32_t end)
{
    const float zeros[ROWS][COLS] = {};

    for (uint32_t key0 = 0; key0 < end; key0 += TILE_KEYS)
        write_rows<Row>(c, t, zeros, key0);
}

/* s becomes probabilities, which `mass` counts. */
static __device__ void soften(float s[ROWS][COLS], float mass[ROWS],
                              const struct totals &all)
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            s[i][j] = kvr_exp_below(s[i][j], all.top[i]) * all.sum[i];
            mass[i] += s[i][j];
        }
}

template <int VC, class Row>
static __global__ void __launch_bounds__(TILE_THREADS)
    attend_rows(const struct tiled_call c)
{
    const struct tile t = kvr_this_tile(c);
    const uint32_t begin = kvr_first_tile(c);
    struct totals all;
    float s[ROWS][COLS], acc[ROWS][VC] = {}, mass[ROWS] = {}, one[ROWS];

#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        all.top[i] = -INFINITY;
        all.sum[i] = 0.0f;
        one[i] = 1.0f;
    }
    for (uint32_t key0 = begin; key0 <= t.last; key0 += TILE_KEYS) {
        kvr_logits(s, c.a, t, key0);
        add_tile(all, s);
    }
    join_lanes(all);
    write_totals(c.a, t, all);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        all.sum[i] = 1.0f / all.sum[i];
    write_zeros<Row>(c, t, begin);
    for (uint32_t key0 = begin; key0 <= t.last; key0 += TILE_KEYS) {
        kvr_logits(s, c.a, t, key0);
        soften(s, mass, all);
        write_rows<Row>(c, t, s, key0);
        kvr_put_weights(t, s);
        kvr_add_values<VC>(acc, c.a, t, key0);
    }
    kvr_write_out<VC>(c.a, t, acc, one);
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        const float all_lanes = kvr_reduce_warp<kvr_sum>(mass[i]);
        if (t.lane == 0 && t.row0 + i < c.a.n && c.a.mass != nullptr)
            c.a.mass[(size_t)t.head * c.a.n + t.row0 + i] = all_lanes;
    }
}

template <int VC>
static cudaError_t launch(const struct kvr_cuda_attention *call,
                          cudaStream_t stream)
{
    const dim3 grid = kvr_tiled_grid(call);
    const size_t shared = kvr_tiled_shared(VC);

    if (call->row_type == KVR_CUDA_F16)
        return kvr_launch(attend_rows<VC, __half>, grid, TILE_THREADS, shared,
                          stream, kvr_tiled_call(call));
    if (call->row_type == KVR_CUDA_F32)
        return kvr_launch(attend_rows<VC, float>, grid, TILE_THREADS, shared,
                          stream, kvr_tiled_call(call));
    return cudaErrorInvalidValue;
}

cudaError_t kvr_attention_rows(const struct kvr_cuda_attention *call,
                               cudaStream_t stream)
{
    switch (kvr_value_columns(call->value_dim)) {
    case 2:
        return launch<2>(call, stream);
    case 4:
        return launch<4>(call, stream);
    default:
        return launch<8>(call, stream);
    }
}
