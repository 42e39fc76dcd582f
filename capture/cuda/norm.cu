/* norm.cu -- a warp a row where rows are short (heads), a block a row where
 * they are long.
 *
 * One channel may be 1000 times the others: sums are doubles, as on the CPU.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "norm.cuh"

#include "device.cuh"
#include "launch.cuh"

enum {
    WARP_BLOCK = 128, /* of warps with a row each */
    ROW_BLOCK = 512,  /* on one row */
    SHORT = 512,      /* columns that a warp still does by itself */
};

struct row_norm {
    float *out;
    const float *in, *weight, *bias;
    float eps;
    uint32_t cols, n_row;
};

/* A group of threads that works on one row: `rank` of `size`. */
struct one_warp {
    unsigned rank, size;
    double *scratch;
    __device__ double sum(double x)
    {
        return kvr_reduce_warp<kvr_sum>(x);
    }
};

struct whole_block {
    unsigned rank, size;
    double *scratch; /* the next reduction's part of it */
    __device__ double sum(double x)
    {
        x = kvr_reduce_block<kvr_sum>(x, scratch);
        scratch += ROW_BLOCK / KVR_WARP;
        return x;
    }
};

template <class Group>
static __device__ void rms_norm(Group group, const struct row_norm &norm,
                                const float *x, float *y)
{
    double sum = 0;

    for (uint32_t k = group.rank; k < norm.cols; k += group.size)
        sum += (double)x[k] * (double)x[k];
    const double mean = group.sum(sum) / (double)norm.cols;
    const float factor = (float)(1.0 / sqrt(mean + (double)norm.eps));
    for (uint32_t k = group.rank; k < norm.cols; k += group.size)
        y[k] = x[k] * factor * norm.weight[k];
}

template <class Group>
static __device__ void layer_norm(Group group, const struct row_norm &norm,
                                  const float *x, float *y)
{
    double sum = 0, squares = 0;

    for (uint32_t k = group.rank; k < norm.cols; k += group.size)
        sum += (double)x[k];
    const double mean = group.sum(sum) / (double)norm.cols;
    for (uint32_t k = group.rank; k < norm.cols; k += group.size)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    const double variance = group.sum(squares) / (double)norm.cols;
    const double factor = 1.0 / sqrt(variance + (double)norm.eps);
    for (uint32_t k = group.rank; k < norm.cols; k += group.size) {
        const float scaled = (float)(((double)x[k] - mean) * factor);
        y[k] = scaled * norm.weight[k] +
               (norm.bias != nullptr ? norm.bias[k] : 0.0f);
    }
}

template <class Group>
static __device__ void norm_row(Group group, const struct row_norm &norm,
                                uint64_t row, enum kvr_norm_kind kind)
{
    const float *x = norm.in + row * norm.cols;
    float *y = norm.out + row * norm.cols;

    if (kind == KVR_RMS_NORM)
        rms_norm(group, norm, x, y);
    else
        layer_norm(group, norm, x, y);
}

static __global__ void __launch_bounds__(WARP_BLOCK)
    norm_short(const struct row_norm norm, enum kvr_norm_kind kind)
{
    const uint64_t row = kvr_grid_thread() / KVR_WARP;
    const struct one_warp warp = {threadIdx.x % KVR_WARP, KVR_WARP, nullptr};

    if (row < norm.n_row) /* alike in the warp's lanes */
        norm_row(warp, norm, row, kind);
}

static __global__ void __launch_bounds__(ROW_BLOCK)
    norm_long(const struct row_norm norm, enum kvr_norm_kind kind)
{
    const struct whole_block block = {threadIdx.x, ROW_BLOCK,
                                      (double *)kvr_shared};

    norm_row(block, norm, blockIdx.x, kind);
}

cudaError_t kvr_cuda_norm(float *out, const float *in, enum kvr_norm_kind kind,
                          const float *weight, const float *bias, float eps,
                          uint32_t cols, uint32_t n_row, cudaStream_t stream)
{
    const struct row_norm norm = {out, in, weight, bias, eps, cols, n_row};
    const size_t scratch = 2 * (ROW_BLOCK / KVR_WARP) * sizeof(double);

    if (cols <= SHORT)
        return kvr_launch(norm_short,
                          kvr_blocks((uint64_t)n_row * KVR_WARP, WARP_BLOCK),
                          WARP_BLOCK, 0, stream, norm, kind);
    return kvr_launch(norm_long, n_row, ROW_BLOCK, scratch, stream, norm, kind);
}
