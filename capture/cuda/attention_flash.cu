/* attention_flash.cu -- several queries whose rows nobody wants: one pass
 * over the keys, sums put right whenever a larger logit comes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "attention_tiles.cuh"

#include "launch.cuh"

/* s becomes weights relative to the largest logit so far; sums and outputs
 * follow it. The sums are this lane's until the end. */
template <int VC>
static __device__ void soften(float s[ROWS][COLS], float top[ROWS],
                              float sum[ROWS], float acc[ROWS][VC])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float mine =
            fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3]));
        const float now = fmaxf(top[i], kvr_reduce_warp<kvr_max>(mine));
        const float factor = kvr_exp_below(top[i], now);
        top[i] = now;
        sum[i] *= factor;
#pragma unroll
        for (int c = 0; c < VC; c++)
            acc[i][c] *= factor;
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            s[i][j] = kvr_exp_below(s[i][j], now);
            sum[i] += s[i][j];
        }
    }
}

template <int VC>
static __global__ void __launch_bounds__(TILE_THREADS)
    attend(const struct tiled_call c)
{
    const struct tile t = kvr_this_tile(c);
    float s[ROWS][COLS], acc[ROWS][VC] = {};
    float top[ROWS], sum[ROWS] = {};

#pragma unroll
    for (int i = 0; i < ROWS; i++)
        top[i] = -INFINITY;
    for (uint32_t key0 = kvr_first_tile(c); key0 <= t.last; key0 += TILE_KEYS) {
        kvr_logits(s, c.a, t, key0);
        soften<VC>(s, top, sum, acc);
        kvr_put_weights(t, s);
        kvr_add_values<VC>(acc, c.a, t, key0);
    }
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        const float total = kvr_reduce_warp<kvr_sum>(sum[i]);
        const float lse = top[i] + logf(total);
        sum[i] = 1.0f / total;
        if (t.lane != 0 || t.row0 + i >= c.a.n)
            continue;
        kvr_note_bad(c.a, t.head, c.a.first + t.row0 + i, lse);
        if (c.a.lse != nullptr)
            c.a.lse[(size_t)t.head * c.a.n + t.row0 + i] = lse;
        if (c.a.mass != nullptr)
            c.a.mass[(size_t)t.head * c.a.n + t.row0 + i] = total * sum[i];
    }
    kvr_write_out<VC>(c.a, t, acc, sum);
}

template <int VC>
static cudaError_t launch(const struct kvr_cuda_attention *call,
                          cudaStream_t stream)
{
    return kvr_launch(attend<VC>, kvr_tiled_grid(call), TILE_THREADS,
                      kvr_tiled_shared(VC), stream, kvr_tiled_call(call));
}

cudaError_t kvr_attention_flash(const struct kvr_cuda_attention *call,
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
