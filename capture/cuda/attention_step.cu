/* attention_step.cu -- one query per head: the keys are split over enough
 * blocks to fill a device, and a second kernel joins the splits.
 *
 * A block reads each of its keys and values once for up to eight query heads
 * that share them. Eight lanes read a key, 128 bytes at a time. What a split
 * leaves (largest logit, sum, output not yet normalised; its logits where rows
 * are wanted) is joined in the order of the splits, whose number depends on
 * the shape of the call only.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "attention_kernels.cuh"

#include "launch.cuh"

enum {
    SPLIT_BLOCK = 128,
    SPLIT_WARPS = SPLIT_BLOCK / KVR_WARP,
    TEAM = 8, /* lanes on one key */
    TEAMS = SPLIT_BLOCK / TEAM,
    AT_ONCE = 2, /* keys of a team in flight */
    JOIN_BLOCK = 256,
    JOIN_WARPS = JOIN_BLOCK / KVR_WARP,
    /* blocks of a call; those of an H200 hold about four each */
    ENOUGH_BLOCKS = 512,
    LEAST_KEYS = 32, /* of a split */
    MOST_KEYS = 256,
    MOST_HEADS = 8,
};

struct step {
    struct kvr_cuda_attention a;
    uint32_t from, n_keys; /* keys seen: from..from+n_keys-1 */
    uint32_t chunk, n_splits;
    uint32_t value_threads; /* on one value, four columns each */
    uint32_t key_line;      /* key_dim, rounded up to four */
    bool keys_by_four, values_by_four;
    /* scratch */
    float *tops, *sums; /* [n_head][n_splits] */
    float *parts;       /* [n_head][n_splits][value_dim] */
    float *logits;      /* [n_head][n_keys]; NULL: no rows wanted */
};

/* The power of two from 16 on that has `value_dim` columns by fours. */
static uint32_t value_threads(uint32_t value_dim)
{
    uint32_t threads = 16;

    while (threads * 4 < value_dim)
        threads *= 2;
    return threads;
}

static struct step plan(const struct kvr_cuda_attention *call)
{
    struct step s = {};
    const uint32_t splits = ENOUGH_BLOCKS / call->n_kv_head + 1;

    s.a = *call;
    s.from = kvr_first_key(call->span, call->first);
    s.n_keys = call->first + 1 - s.from;
    s.chunk = (s.n_keys / splits / LEAST_KEYS + 1) * LEAST_KEYS;
    if (s.chunk > MOST_KEYS)
        s.chunk = MOST_KEYS;
    s.n_splits = (s.n_keys + s.chunk - 1) / s.chunk;
    s.value_threads = value_threads(call->value_dim);
    s.key_line = (call->key_dim + 3) / 4 * 4;
    s.keys_by_four = kvr_by_four(call->keys, sizeof(float), call->key_dim);
    s.values_by_four =
        kvr_by_four(call->values, sizeof(float), call->value_dim);
    s.tops = call->scratch;
    s.sums = s.tops + (size_t)call->n_head * s.n_splits;
    s.parts = s.sums + (size_t)call->n_head * s.n_splits;
    s.logits =
        call->rows == nullptr
            ? nullptr
            : s.parts + (size_t)call->n_head * s.n_splits * call->value_dim;
    return s;
}

size_t kvr_attention_step_scratch(const struct kvr_cuda_attention *call)
{
    struct kvr_cuda_attention shape = *call;

    shape.scratch = nullptr;
    const struct step s = plan(&shape);
    return (size_t)call->n_head * ((size_t)s.n_splits * (2 + call->value_dim) +
                                   (call->rows != nullptr ? s.n_keys : 0));
}

/* A block's part of the work: `n` keys from `key` for `heads` query heads. */
struct share {
    uint32_t head, heads, kv_head, key, n;
};

template <int HEADS>
static __device__ struct share share_of(const struct step &s)
{
    const uint32_t group = s.a.n_head / s.a.n_kv_head;
    const uint32_t before = blockIdx.z * HEADS;
    const uint32_t start = blockIdx.x * s.chunk;
    struct share mine;

    mine.kv_head = blockIdx.y;
    mine.head = mine.kv_head * group + before;
    mine.heads = group - before < HEADS ? group - before : HEADS;
    mine.key = s.from + start;
    mine.n = s.n_keys - start < s.chunk ? s.n_keys - start : s.chunk;
    return mine;
}

/* query: [HEADS][key_line], zeros where there is nothing. */
template <int HEADS>
static __device__ void load_queries(float *query, const struct step &s,
                                    const struct share &mine)
{
    for (uint32_t at = threadIdx.x; at < HEADS * s.key_line;
         at += SPLIT_BLOCK) {
        const uint32_t h = at / s.key_line, d = at % s.key_line;
        query[at] = h < mine.heads && d < s.a.key_dim
                        ? s.a.query[(size_t)(mine.head + h) * s.a.key_dim + d]
                        : 0.0f;
    }
}

static inline __device__ float dot4(float4 a, float4 b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

/* logits: [HEADS][chunk] */
template <int HEADS>
static __device__ void make_logits(float *logits, const float *query,
                                   const struct step &s,
                                   const struct share &mine)
{
    const uint32_t team = threadIdx.x / TEAM, member = threadIdx.x % TEAM;
    const float *keys =
        s.a.keys +
        ((size_t)mine.kv_head * s.a.max_keys + mine.key) * s.a.key_dim;

    for (uint32_t k0 = 0; k0 < mine.n; k0 += AT_ONCE * TEAMS) {
        float dot[AT_ONCE][HEADS] = {};
        for (uint32_t d = member * 4; d < s.a.key_dim; d += 4 * TEAM) {
            float4 key[AT_ONCE];
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                const uint32_t k = k0 + i * TEAMS + team;
                /* a key past the end: any that is there */
                key[i] =
                    kvr_load4(keys + (size_t)(k < mine.n ? k : 0) * s.a.key_dim,
                              d, s.a.key_dim, s.keys_by_four);
            }
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                const float4 q = *(const float4 *)&query[h * s.key_line + d];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    dot[i][h] += dot4(key[i], q);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t k = k0 + i * TEAMS + team;
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                for (int flip = TEAM / 2; flip > 0; flip /= 2)
                    dot[i][h] +=
                        __shfl_xor_sync(KVR_ALL_LANES, dot[i][h], flip);
                if (member == (uint32_t)h % TEAM && k < mine.n)
                    logits[h * s.chunk + k] =
                        kvr_soft_cap(dot[i][h] * s.a.scale, s.a.softcap);
            }
        }
    }
}

/* The logits become weights relative to the largest; one warp a head. */
static __device__ void soften(float *logits, const struct step &s,
                              const struct share &mine)
{
    const uint32_t lane = threadIdx.x % KVR_WARP;

    for (uint32_t h = threadIdx.x / KVR_WARP; h < mine.heads;
         h += SPLIT_WARPS) {
        const size_t head = mine.head + h;
        float *row = logits + h * s.chunk;
        float top = -INFINITY, sum = 0.0f;
        for (uint32_t k = lane; k < mine.n; k += KVR_WARP)
            top = fmaxf(top, row[k]);
        top = kvr_reduce_warp<kvr_max>(top);
        for (uint32_t k = lane; k < mine.n; k += KVR_WARP) {
            const float logit = row[k];
            if (s.logits != nullptr)
                s.logits[head * s.n_keys + mine.key - s.from + k] = logit;
            row[k] = kvr_exp_below(logit, top);
            sum += row[k];
        }
        sum = kvr_reduce_warp<kvr_sum>(sum);
        if (lane == 0) {
            s.tops[head * s.n_splits + blockIdx.x] = top;
            s.sums[head * s.n_splits + blockIdx.x] = sum;
        }
    }
}

static inline __device__ void add_scaled(float4 *acc, float w, float4 v)
{
    acc->x += w * v.x;
    acc->y += w * v.y;
    acc->z += w * v.z;
    acc->w += w * v.w;
}

/* acc: four columns of each head's output, over every n-th key. */
template <int HEADS>
static __device__ void add_values(float4 acc[HEADS], const float *weights,
                                  const struct step &s,
                                  const struct share &mine)
{
    const uint32_t column = threadIdx.x % s.value_threads * 4;
    const uint32_t line = threadIdx.x / s.value_threads;
    const uint32_t n_lines = SPLIT_BLOCK / s.value_threads;
    const float *values =
        s.a.values +
        ((size_t)mine.kv_head * s.a.max_keys + mine.key) * s.a.value_dim;

#pragma unroll 4
    for (uint32_t k = line; k < mine.n; k += n_lines) {
        const float4 v = kvr_load4(values + (size_t)k * s.a.value_dim, column,
                                   s.a.value_dim, s.values_by_four);
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            if (h < (int)mine.heads)
                add_scaled(&acc[h], weights[h * s.chunk + k], v);
    }
}

/* parts of the block's heads: the sum over the lines of threads. */
template <int HEADS>
static __device__ void write_parts(const float *acc, const struct step &s,
                                   const struct share &mine)
{
    const uint32_t width = 4 * s.value_threads;
    const uint32_t n_lines = SPLIT_BLOCK / s.value_threads;

    for (uint32_t at = threadIdx.x; at < mine.heads * s.a.value_dim;
         at += SPLIT_BLOCK) {
        const uint32_t h = at / s.a.value_dim, d = at % s.a.value_dim;
        const size_t head = mine.head + h;
        float sum = 0.0f;
        for (uint32_t line = 0; line < n_lines; line++)
            sum += acc[(line * HEADS + h) * width + d];
        s.parts[(head * s.n_splits + blockIdx.x) * s.a.value_dim + d] = sum;
    }
}

template <int HEADS>
static __global__ void __launch_bounds__(SPLIT_BLOCK) split(const struct step s)
{
    float *query = kvr_shared, *weights = query + HEADS * s.key_line;
    const struct share mine = share_of<HEADS>(s);
    float4 acc[HEADS] = {};

    load_queries<HEADS>(query, s, mine);
    __syncthreads();
    make_logits<HEADS>(weights, query, s, mine);
    __syncthreads();
    soften(weights, s, mine);
    __syncthreads();
    add_values<HEADS>(acc, weights, s, mine);
    __syncthreads(); /* weights are read: their place is taken */
    for (int h = 0; h < HEADS; h++) {
        const uint32_t line = threadIdx.x / s.value_threads;
        const uint32_t at = threadIdx.x % s.value_threads;
        ((float4 *)kvr_shared)[(line * HEADS + h) * s.value_threads + at] =
            acc[h];
    }
    __syncthreads();
    write_parts<HEADS>(kvr_shared, s, mine);
}

/* The factor that brings each split to the scale of the row. */
static __device__ float join_totals(float *factor, float *scratch,
                                    const struct step &s, float *sum_out)
{
    const size_t head = blockIdx.x;
    float top = -INFINITY, sum = 0.0f;

    for (uint32_t i = threadIdx.x; i < s.n_splits; i += JOIN_BLOCK)
        top = fmaxf(top, s.tops[head * s.n_splits + i]);
    top = kvr_reduce_block<kvr_max>(top, scratch);
    for (uint32_t i = threadIdx.x; i < s.n_splits; i += JOIN_BLOCK) {
        factor[i] = kvr_exp_below(s.tops[head * s.n_splits + i], top);
        sum += factor[i] * s.sums[head * s.n_splits + i];
    }
    *sum_out = kvr_reduce_block<kvr_sum>(sum, scratch + JOIN_WARPS);
    return top;
}

/* Threads in lines of `width`, each line every n-th split. */
static __device__ void join_parts(const float *factor, float *scratch,
                                  const struct step &s, float scale)
{
    const size_t head = blockIdx.x;
    const uint32_t width = 4 * s.value_threads;
    const uint32_t d = threadIdx.x % width, line = threadIdx.x / width;
    const uint32_t n_lines = JOIN_BLOCK / width;
    float sum = 0.0f;

#pragma unroll 4
    for (uint32_t i = line; i < s.n_splits; i += n_lines)
        if (d < s.a.value_dim)
            sum += factor[i] *
                   s.parts[(head * s.n_splits + i) * s.a.value_dim + d];
    scratch[threadIdx.x] = sum;
    __syncthreads();
    if (line != 0 || d >= s.a.value_dim)
        return;
    for (uint32_t i = 1; i < n_lines; i++)
        sum += scratch[i * width + d];
    s.a.out[head * s.a.value_dim + d] = sum * scale;
}

/* Returns this thread's part of the row's mass. */
template <class Row>
static __device__ float write_row(const struct step &s, float top, float scale)
{
    const size_t head = blockIdx.x;
    Row *out = (Row *)s.a.rows + head * s.a.stride;
    float mass = 0.0f;

    for (uint32_t k = threadIdx.x; k < s.from; k += JOIN_BLOCK)
        kvr_round(out + k, 0.0f);
    for (uint32_t k = threadIdx.x; k < s.n_keys; k += JOIN_BLOCK) {
        const float logit = s.logits[head * s.n_keys + k];
        const float p = kvr_exp_below(logit, top) * scale;
        kvr_round(out + s.from + k, p);
        mass += p;
    }
    return mass;
}

/* Shared memory: three reductions, a line of sums, a factor per split. */
static __global__ void __launch_bounds__(JOIN_BLOCK) join(const struct step s)
{
    float *sums = kvr_shared + 3 * JOIN_WARPS, *factor = sums + JOIN_BLOCK;
    float sum;
    const float top = join_totals(factor, kvr_shared, s, &sum);
    const float scale = 1.0f / sum, lse = top + logf(sum);
    float mass = 0.0f;

    /* the factors are written: a reduction has a barrier */
    join_parts(factor, sums, s, scale);
    if (s.logits != nullptr)
        mass = s.a.row_type == KVR_CUDA_F16 ? write_row<__half>(s, top, scale)
                                            : write_row<float>(s, top, scale);
    else if (threadIdx.x == 0)
        mass = sum * scale;
    mass = kvr_reduce_block<kvr_sum>(mass, kvr_shared + 2 * JOIN_WARPS);
    if (threadIdx.x != 0)
        return;
    kvr_note_bad(s.a, blockIdx.x, s.a.first, lse);
    if (s.a.lse != nullptr)
        s.a.lse[blockIdx.x] = lse;
    if (s.a.mass != nullptr)
        s.a.mass[blockIdx.x] = mass;
}

template <int HEADS>
static cudaError_t launch_split(const struct step &s, cudaStream_t stream)
{
    const uint32_t group = s.a.n_head / s.a.n_kv_head;
    const size_t first = HEADS * (s.key_line + s.chunk);
    const size_t second = 4 * SPLIT_BLOCK * HEADS;

    return kvr_launch(
        split<HEADS>,
        dim3(s.n_splits, s.a.n_kv_head, (group + HEADS - 1) / HEADS),
        SPLIT_BLOCK, (first > second ? first : second) * sizeof(float), stream,
        s);
}

cudaError_t kvr_attention_step(const struct kvr_cuda_attention *call,
                               cudaStream_t stream)
{
    const struct step s = plan(call);
    const uint32_t group = call->n_head / call->n_kv_head;
    const size_t shared =
        (3 * JOIN_WARPS + JOIN_BLOCK + s.n_splits) * sizeof(float);
    cudaError_t error;

    if (call->rows != nullptr && call->row_type == KVR_CUDA_BF16)
        return cudaErrorInvalidValue;
    if (shared > KVR_SHARED_LIMIT)
        return cudaErrorInvalidValue;
    if (group == 1)
        error = launch_split<1>(s, stream);
    else if (group == 2)
        error = launch_split<2>(s, stream);
    else if (group <= 4)
        error = launch_split<4>(s, stream);
    else
        error = launch_split<MOST_HEADS>(s, stream);
    if (error != cudaSuccess)
        return error;
    return kvr_launch(join, call->n_head, JOIN_BLOCK, shared, stream, s);
}
