/* check_simt.cpp -- the emulation itself: what it must catch, and what it
 * must compute.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "arrays.h"
#include "launch.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "kvr_half.h"
}

extern __shared__ __align__(16) float kvr_shared[];

enum { BLOCK = 128 };

/* Two barriers are needed: flags say which are there. */
static __global__ void turn_round(float *x, int rounds, bool one, bool two)
{
    const unsigned i = threadIdx.x;

    for (int r = 0; r < rounds; r++) {
        kvr_shared[i] = x[blockIdx.x * BLOCK + i];
        if (one)
            __syncthreads();
        x[blockIdx.x * BLOCK + i] = kvr_shared[BLOCK - 1 - i];
        if (two)
            __syncthreads();
    }
}

/* In how many of four orders the result is right. */
static int right_orders(bool one, bool two)
{
    fenced<float> x(4 * BLOCK);
    int right = 0;

    for (simt_order_seed = 0; simt_order_seed < 4; simt_order_seed++) {
        bool good = true;
        for (size_t i = 0; i < x.size(); i++)
            x[i] = (float)i;
        ck_assert_int_eq(kvr_launch(turn_round, 4, BLOCK, BLOCK * 4, nullptr,
                                    x.get(), 3, one, two),
                         cudaSuccess);
        for (size_t i = 0; i < x.size(); i++)
            good &= x[i] == (float)(i / BLOCK * BLOCK + BLOCK - 1 - i % BLOCK);
        right += good;
    }
    simt_order_seed = 0;
    return right;
}

START_TEST(missing_barrier_shows)
{
    ck_assert_int_eq(right_orders(true, true), 4);
    ck_assert_int_eq(right_orders(false, true), 0);
    ck_assert_int_eq(right_orders(true, false), 0);
    ck_assert_int_eq(right_orders(false, false), 0);
}
END_TEST

/* A lane sees what another wrote after the warp's barrier only. */
static __global__ void warp_turn(float *x, bool barrier)
{
    kvr_shared[threadIdx.x] = x[threadIdx.x];
    if (barrier)
        __syncwarp();
    x[threadIdx.x] = kvr_shared[threadIdx.x ^ 31];
}

START_TEST(missing_warp_barrier_shows)
{
    for (int barrier = 0; barrier < 2; barrier++) {
        fenced<float> x(BLOCK);
        bool good = true;
        for (size_t i = 0; i < BLOCK; i++)
            x[i] = (float)i;
        ck_assert_int_eq(kvr_launch(warp_turn, 1, BLOCK, BLOCK * 4, nullptr,
                                    x.get(), barrier),
                         cudaSuccess);
        for (size_t i = 0; i < BLOCK; i++)
            good &= x[i] == (float)(i ^ 31);
        ck_assert_int_eq(good, barrier);
    }
}
END_TEST

static __global__ void diverge(int how)
{
    const bool half = threadIdx.x < BLOCK / 2, odd = threadIdx.x % 2 == 1;

    switch (how) {
    case 0: /* a warp is past its end */
        if (half)
            __syncthreads();
        break;
    case 1: /* so is every other lane */
        if (odd)
            __syncwarp();
        break;
    case 2: /* two barriers that are not one */
        if (half)
            __syncthreads();
        else
            __syncthreads();
        break;
    case 3: /* a block's and a warp's */
        if (odd)
            __syncthreads();
        else
            __syncwarp();
        break;
    case 4: /* two shuffles that are not one */
        if (odd)
            (void)__shfl_sync(0xffffffffu, 1, 0);
        else
            (void)__shfl_sync(0xffffffffu, 1, 0);
        break;
    case 5: /* a partial mask */
        (void)__shfl_xor_sync(0x0000ffffu, 1, 1);
        break;
    case 6:
        if (odd)
            (void)__ballot_sync(0xaaaaaaaau, 1);
        break;
    default: /* all is well */
        __syncthreads();
        __syncwarp();
        break;
    }
}

START_TEST(divergence_fails)
{
    for (int how = 0; how < 7; how++)
        ck_assert_int_eq(kvr_launch(diverge, 3, BLOCK, 0, nullptr, how),
                         cudaErrorLaunchFailure);
    ck_assert_int_eq(kvr_launch(diverge, 3, BLOCK, 0, nullptr, 7), cudaSuccess);
}
END_TEST

static __global__ void write_shared(unsigned n)
{
    for (unsigned i = threadIdx.x; i < n; i += BLOCK)
        kvr_shared[i] = 1.0f;
}

static __global__ void read_shared(float *out, unsigned n)
{
    float sum = 0;

    for (unsigned i = threadIdx.x; i < n; i += BLOCK)
        sum += kvr_shared[i];
    out[threadIdx.x] = sum;
}

/* Whether a child that runs `body` (its status, 0: fine) ends well. */
template <class Body> static bool child_is_fine(Body body)
{
    int status = 0;
    const pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDERR_FILENO);
        _exit(body());
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

START_TEST(shared_array_one_short)
{
    for (unsigned n : {200u, 201u, 202u}) {
        auto write = [&] {
            return (int)kvr_launch(write_shared, 1, BLOCK, 201 * 4, nullptr, n);
        };
        ck_assert_int_eq(child_is_fine(write), n <= 201);
    }
}
END_TEST

/* What is only read is seen by the address sanitizer alone. */
START_TEST(shared_array_read_past_its_end)
{
    for (unsigned n : {200u, 201u, 202u}) {
        auto read = [&] {
            std::vector<float> out(BLOCK);
            return (int)kvr_launch(read_shared, 1, BLOCK, 201 * 4, nullptr,
                                   out.data(), n);
        };
        ck_assert_int_eq(child_is_fine(read), n <= 201 || !simt::fences());
    }
}
END_TEST

START_TEST(shared_memory_is_nan_in_every_block)
{
    fenced<float> out(BLOCK);

    ck_assert_int_eq(
        kvr_launch(write_shared, 5, BLOCK, BLOCK * 4, nullptr, (unsigned)BLOCK),
        cudaSuccess);
    ck_assert_int_eq(kvr_launch(read_shared, 5, BLOCK, BLOCK * 4, nullptr,
                                out.get(), (unsigned)BLOCK),
                     cudaSuccess);
    for (size_t i = 0; i < BLOCK; i++)
        ck_assert(std::isnan(out[i]));
}
END_TEST

static __global__ void nothing()
{
}

START_TEST(limits)
{
    ck_assert_int_eq(kvr_launch(nothing, 1, 1024, 48 * 1024, nullptr),
                     cudaSuccess);
    ck_assert_int_eq(kvr_launch(nothing, 1, 1056, 0, nullptr),
                     cudaErrorInvalidConfiguration);
    ck_assert_int_eq(kvr_launch(nothing, 1, 33, 0, nullptr),
                     cudaErrorInvalidConfiguration);
    ck_assert_int_eq(kvr_launch(nothing, 0, 32, 0, nullptr),
                     cudaErrorInvalidConfiguration);
    ck_assert_int_eq(kvr_launch(nothing, dim3(1, 65536), 32, 0, nullptr),
                     cudaErrorInvalidConfiguration);
    ck_assert_int_eq(kvr_launch(nothing, 1, 32, 48 * 1024 + 1, nullptr),
                     cudaErrorInvalidValue);
}
END_TEST

struct seen {
    unsigned shuffled, flipped, down, up, part, ballot, any, all;
};

static __global__ void exchange(struct seen *out)
{
    const unsigned full = 0xffffffffu, lane = threadIdx.x % 32;
    struct seen s;

    s.shuffled = __shfl_sync(full, lane * 3, (int)(lane + 5));
    s.flipped = __shfl_xor_sync(full, lane * 3, 9);
    s.down = __shfl_down_sync(full, lane * 3, 7);
    s.up = __shfl_up_sync(full, lane * 3, 7);
    s.part = __shfl_down_sync(full, lane * 3, 3, 8);
    s.ballot = __ballot_sync(full, lane % 3 == 0);
    s.any = (unsigned)__any_sync(full, threadIdx.x == 40);
    s.all = (unsigned)__all_sync(full, threadIdx.x < 40);
    out[threadIdx.x] = s;
}

START_TEST(lanes_exchange)
{
    fenced<struct seen> out(64);

    in_every_order(
        [&] { return kvr_launch(exchange, 1, 64, 0, nullptr, out.get()); },
        out);
    for (unsigned i = 0; i < 64; i++) {
        const unsigned lane = i % 32;
        ck_assert_uint_eq(out[i].shuffled, (lane + 5) % 32 * 3);
        ck_assert_uint_eq(out[i].flipped, (lane ^ 9) * 3);
        ck_assert_uint_eq(out[i].down, (lane + 7 < 32 ? lane + 7 : lane) * 3);
        ck_assert_uint_eq(out[i].up, (lane >= 7 ? lane - 7 : lane) * 3);
        ck_assert_uint_eq(out[i].part,
                          (lane % 8 + 3 < 8 ? lane + 3 : lane) * 3);
        ck_assert_uint_eq(out[i].ballot, 0x49249249u);
        ck_assert_uint_eq(out[i].any, i >= 32);
        ck_assert_uint_eq(out[i].all, i < 32);
    }
}
END_TEST

static __global__ void count(unsigned *at, unsigned long long *most)
{
    const unsigned block =
        blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread =
        threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;

    at[i] = i;
    atomicMax(most, (unsigned long long)i);
}

START_TEST(every_thread_of_a_grid_runs_once)
{
    const dim3 grid(3, 5, 7), block(8, 4, 2);
    const size_t n = 3 * 5 * 7 * 64;
    fenced<unsigned> at(n);
    fenced<unsigned long long> most(1);

    for (simt_host_threads = 1; simt_host_threads < 5; simt_host_threads++)
        in_every_order(
            [&] {
                most[0] = 0;
                return kvr_launch(count, grid, block, 0, nullptr, at.get(),
                                  most.get());
            },
            at, most);
    simt_host_threads = 0;
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(at[i], i);
    ck_assert_uint_eq(most[0], n - 1);
}
END_TEST

START_TEST(halves_are_exact)
{
    for (unsigned i = 0; i < 65536; i++) {
        const auto bits = (unsigned short)i;
        const float wide = __half2float(__ushort_as_half(bits));
        const float wanted = kvr_f16_to_f32(bits);
        if (std::isnan(wanted)) {
            ck_assert(std::isnan(wide));
            continue;
        }
        ck_assert(std::memcmp(&wide, &wanted, 4) == 0);
        for (float x : {wide, std::nextafterf(wide, INFINITY),
                        std::nextafterf(wide, -INFINITY), wide * 1.0002f,
                        wide * 1.000732421875f})
            ck_assert_uint_eq(__half_as_ushort(__float2half_rn(x)),
                              kvr_f32_to_f16(x));
    }
    ck_assert(std::isnan(__half2float(__float2half_rn(NAN))));
    ck_assert(std::isnan(__bfloat162float(__float2bfloat16_rn(NAN))));
}
END_TEST

/* The nearer neighbour; of two as near, the even one. */
START_TEST(brain_floats_are_exact)
{
    struct numbers numbers = {1};

    for (int i = 0; i < 100000; i++) {
        const unsigned bits = numbers.next() << 1 >> (i % 2 ? 0 : 1);
        const float x = __uint_as_float(i % 5 ? bits : bits & ~0x7fffu);
        if (!std::isfinite(x) || std::fabs(x) > 1e38f)
            continue;
        const float down = __uint_as_float(__float_as_uint(x) & ~0xffffu);
        const float up = __uint_as_float(__float_as_uint(down) + 0x10000u);
        const double below = std::fabs((double)x - (double)down);
        const double above = std::fabs((double)up - (double)x);
        const bool even = (__float_as_uint(down) >> 16) % 2 == 0;
        const float wanted =
            below < above || (below == above && even) ? down : up;
        ck_assert(__bfloat162float(__float2bfloat16_rn(x)) == wanted);
    }
}
END_TEST

KVR_SUITE("simt", missing_barrier_shows, missing_warp_barrier_shows,
          divergence_fails, shared_array_one_short,
          shared_array_read_past_its_end, shared_memory_is_nan_in_every_block,
          limits, lanes_exchange, every_thread_of_a_grid_runs_once,
          halves_are_exact, brain_floats_are_exact)
