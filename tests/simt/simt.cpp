/* simt.cpp -- grids, blocks and warps behind simt_device.h.
 *
 * Blocks are dealt to host threads, each with fibres of its own for the
 * threads of its block. Shared memory starts as NaN in every block, ends in a
 * pattern that must survive, and is fenced by the address sanitizer.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "fibre.h"
#include "simt_device.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

/* What every architecture grants without asking. */
enum { MAX_THREADS = 1024, MAX_SHARED = 48 * 1024, FENCE = 1024 };
static const unsigned MAX_GRID_YZ = 65535;
static const unsigned char UNWRITTEN = 0xff, FENCE_BYTE = 0xa5;
/* Fewer threads than this in a grid are not worth a second host thread. */
static const size_t WORTH_A_THREAD = 2048;

enum wait { RUNNING, AT_BLOCK_BARRIER, AT_WARP_BARRIER, DONE };

struct lane {
    simt::fibre fibre;
    uint3 index;
    unsigned number; /* in the block */
    enum wait wait;
    int line;
    unsigned parity; /* of the warp's exchanges so far */
};

/* Two sets: a lane may be one exchange ahead of one that still reads. */
struct warp {
    uint64_t slots[2][SIMT_WARP];
};

struct worker {
    std::vector<std::unique_ptr<lane>> lanes; /* the first `n` are in use */
    std::vector<warp> warps;
    std::vector<size_t> warp_order, lane_order;
    simt::fibre home;
    lane *current = nullptr;
    size_t n = 0;
    const std::function<void()> *body = nullptr;
    const char *why = nullptr; /* the block has failed */
    std::mt19937 random;
};

__thread uint3 threadIdx SIMT_FAST;
__thread uint3 blockIdx SIMT_FAST;
__thread uint3 blockDim SIMT_FAST;
__thread uint3 gridDim SIMT_FAST;
static __thread worker *self SIMT_FAST;
extern __thread __align__(128) float kvr_shared[];
__thread __align__(128) float kvr_shared[(MAX_SHARED + FENCE) / sizeof(float)];

unsigned simt_order_seed;
unsigned simt_host_threads;
static std::atomic<unsigned long long> switches;

unsigned long long simt_switches()
{
    return switches;
}

static void back_to_scheduler()
{
    simt::change(self->current->fibre, self->home, false);
}

/* Ends the block from within a fibre. */
static void give_up(const char *why)
{
    self->why = why;
    for (;;)
        back_to_scheduler();
}

static void wait_for(enum wait what, int line)
{
    self->current->wait = what;
    self->current->line = line;
    back_to_scheduler();
}

void simt_block_barrier(int line)
{
    wait_for(AT_BLOCK_BARRIER, line);
}

unsigned simt_lane()
{
    return self->current->number % SIMT_WARP;
}

const uint64_t *simt_exchange(unsigned mask, uint64_t value, int line)
{
    lane *me = self->current;
    uint64_t *slots = self->warps[me->number / SIMT_WARP].slots[me->parity];

    if (mask != 0xffffffffu)
        give_up("a partial warp mask, which is not emulated");
    me->parity ^= 1;
    slots[me->number % SIMT_WARP] = value;
    wait_for(AT_WARP_BARRIER, line);
    return slots;
}

static void fibre_main()
{
    simt::arrived(self->current->fibre);
    (*self->body)();
    self->current->wait = DONE;
    simt::change(self->current->fibre, self->home, true);
}

/* Whether all of [first, last) wait for the same thing in the same line. */
static bool together(const worker &w, size_t first, size_t last, enum wait what)
{
    for (size_t i = first; i < last; i++)
        if (w.lanes[i]->wait != what ||
            (what != DONE && w.lanes[i]->line != w.lanes[first]->line))
            return false;
    return true;
}

static void release(worker &w, size_t first, size_t last)
{
    for (size_t i = first; i < last; i++)
        w.lanes[i]->wait = RUNNING;
}

static void arrange(worker &w, std::vector<size_t> &order)
{
    if (simt_order_seed > 1)
        std::shuffle(order.begin(), order.end(), w.random);
}

static void start_order(std::vector<size_t> &order, size_t n)
{
    order.resize(n);
    std::iota(order.begin(), order.end(), size_t{0});
    if (simt_order_seed == 1)
        std::reverse(order.begin(), order.end());
}

/* Runs a warp as far as it gets. */
static void run_warp(worker &w, size_t number)
{
    const size_t first = number * SIMT_WARP;
    unsigned long long count = 0;

    do {
        release(w, first, first + SIMT_WARP);
        arrange(w, w.lane_order);
        for (size_t at : w.lane_order) {
            w.current = w.lanes[first + at].get();
            threadIdx = w.current->index;
            simt::change(w.home, w.current->fibre, false);
            count++;
            if (w.why != nullptr)
                return;
        }
    } while (together(w, first, first + SIMT_WARP, AT_WARP_BARRIER));
    switches += count;
}

static void start_block(worker &w, dim3 block)
{
    w.n = (size_t)block.x * block.y * block.z;
    w.warps.resize(w.n / SIMT_WARP);
    while (w.lanes.size() < w.n)
        w.lanes.push_back(std::make_unique<lane>());
    for (size_t i = 0; i < w.n; i++) {
        lane &l = *w.lanes[i];
        l.index.x = (unsigned)(i % block.x);
        l.index.y = (unsigned)(i / block.x % block.y);
        l.index.z = (unsigned)(i / block.x / block.y);
        l.number = (unsigned)i;
        l.wait = RUNNING;
        l.parity = 0;
        simt::start(l.fibre, fibre_main);
    }
    start_order(w.warp_order, w.n / SIMT_WARP);
    start_order(w.lane_order, SIMT_WARP);
}

static bool fence_is_whole(size_t shared_bytes)
{
    const unsigned char *bytes = (const unsigned char *)kvr_shared;

    for (size_t i = 0; i < FENCE; i++)
        if (bytes[shared_bytes + i] != FENCE_BYTE)
            return false;
    return true;
}

/* nullptr, or why the block failed. */
static const char *run_block(worker &w, dim3 block, size_t shared_bytes)
{
    char *end = (char *)kvr_shared + shared_bytes;

    std::memset(kvr_shared, UNWRITTEN, shared_bytes);
    std::memset(end, FENCE_BYTE, FENCE);
    simt::fence(end, (char *)kvr_shared + sizeof kvr_shared, true);
    start_block(w, block);
    w.why = nullptr;
    while (w.why == nullptr) {
        arrange(w, w.warp_order);
        for (size_t number : w.warp_order) {
            run_warp(w, number);
            if (w.why != nullptr)
                break;
        }
        if (w.why != nullptr || together(w, 0, w.n, DONE))
            break;
        if (!together(w, 0, w.n, AT_BLOCK_BARRIER))
            w.why = "threads diverge at a barrier";
    }
    if (w.why != nullptr)
        for (size_t i = 0; i < w.n; i++)
            simt::abandon(w.lanes[i]->fibre);
    simt::fence(end, (char *)kvr_shared + sizeof kvr_shared, false);
    if (w.why == nullptr && !fence_is_whole(shared_bytes))
        w.why = "shared memory is written past its end";
    return w.why;
}

struct grid_run {
    dim3 grid, block;
    size_t shared_bytes, n_blocks;
    const std::function<void()> &body;
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
};

/* The i-th block to run: a permutation of all. */
static size_t nth_block(const grid_run &run, size_t i)
{
    const size_t prime = 1000003;

    if (simt_order_seed == 0)
        return i;
    if (simt_order_seed == 1 || run.n_blocks % prime == 0)
        return run.n_blocks - 1 - i;
    return (i * prime + simt_order_seed) % run.n_blocks;
}

static void run_blocks(worker &w, grid_run &run)
{
    self = &w;
    simt::arrive_home(w.home);
    w.body = &run.body;
    gridDim = {run.grid.x, run.grid.y, run.grid.z};
    blockDim = {run.block.x, run.block.y, run.block.z};
    for (size_t i; !run.failed && (i = run.next++) < run.n_blocks;) {
        const size_t at = nth_block(run, i);
        w.random.seed((unsigned)(simt_order_seed * 7919 + at));
        blockIdx = {(unsigned)(at % run.grid.x),
                    (unsigned)(at / run.grid.x % run.grid.y),
                    (unsigned)(at / run.grid.x / run.grid.y)};
        const char *why = run_block(w, run.block, run.shared_bytes);
        if (why == nullptr)
            continue;
        std::fprintf(stderr, "simt: block (%u,%u,%u): %s\n", blockIdx.x,
                     blockIdx.y, blockIdx.z, why);
        run.failed = true;
    }
}

static cudaError_t check_limits(dim3 grid, dim3 block, size_t shared_bytes)
{
    const size_t n = (size_t)block.x * block.y * block.z;

    if (n == 0 || n > MAX_THREADS || n % SIMT_WARP != 0 || grid.x == 0 ||
        grid.x > 0x7fffffffu || grid.y == 0 || grid.y > MAX_GRID_YZ ||
        grid.z == 0 || grid.z > MAX_GRID_YZ) {
        std::fprintf(stderr,
                     "simt: grid (%u,%u,%u) of blocks (%u,%u,%u): a size "
                     "that is not emulated\n",
                     grid.x, grid.y, grid.z, block.x, block.y, block.z);
        return cudaErrorInvalidConfiguration;
    }
    if (shared_bytes > MAX_SHARED) {
        std::fprintf(stderr, "simt: %zu bytes of shared memory, at most %d\n",
                     shared_bytes, (int)MAX_SHARED);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

static unsigned host_threads()
{
    static const unsigned processors =
        std::max(1u, std::thread::hardware_concurrency());

    return simt_host_threads != 0 ? simt_host_threads : processors;
}

cudaError_t simt_launch(dim3 grid, dim3 block, size_t shared_bytes,
                        const std::function<void()> &body)
{
    static std::mutex one_at_a_time;
    static std::vector<std::unique_ptr<worker>> workers;
    const cudaError_t error = check_limits(grid, block, shared_bytes);

    if (error != cudaSuccess)
        return error;
    if (simt_fails(SIMT_LAUNCH))
        return cudaErrorLaunchFailure;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    grid_run run = {grid, block, shared_bytes, (size_t)grid.x * grid.y * grid.z,
                    body};
    const size_t worth =
        run.n_blocks * block.x * block.y * block.z / WORTH_A_THREAD + 1;
    const size_t n = std::min({(size_t)host_threads(), run.n_blocks, worth});
    while (workers.size() < n)
        workers.push_back(std::make_unique<worker>());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < n; i++)
        threads.emplace_back([&run, i] { run_blocks(*workers[i], run); });
    run_blocks(*workers[0], run);
    for (std::thread &thread : threads)
        thread.join();
    return run.failed ? cudaErrorLaunchFailure : cudaSuccess;
}
