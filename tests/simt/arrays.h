/* arrays.h -- what the kernel checks share: arrays fenced at both ends, made
 * numbers, and running a launch in several orders.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_ARRAYS_H
#define SIMT_ARRAYS_H

#include "fibre.h"
#include "suite.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

/* n items, each byte 0xff at first (NaN), between fences whose bytes must not
 * change; for the address sanitizer they are out of bounds. */
template <class T> class fenced
{
  public:
    explicit fenced(size_t n)
        : n_(n), bytes_(n * sizeof(T)), memory_(bytes_ + 2 * FENCE, 0xff)
    {
        raise(true);
    }
    fenced(const fenced &) = delete;
    fenced &operator=(const fenced &) = delete;
    ~fenced()
    {
        check();
    }

    T *get()
    {
        return reinterpret_cast<T *>(memory_.data() + FENCE);
    }
    T &operator[](size_t i)
    {
        return get()[i];
    }
    size_t size() const
    {
        return n_;
    }
    size_t bytes() const
    {
        return bytes_;
    }
    void clear()
    {
        std::memset(static_cast<void *>(get()), 0xff, bytes_);
    }
    void check()
    {
        raise(false);
        for (size_t i = 0; i < FENCE; i++)
            ck_assert_msg(memory_[i] == 0xff &&
                              memory_[FENCE + bytes_ + i] == 0xff,
                          "written outside an array");
    }

  private:
    enum { FENCE = 512 };
    void raise(bool up)
    {
        const char *begin = reinterpret_cast<const char *>(memory_.data());
        simt::fence(begin, begin + FENCE, up);
        simt::fence(begin + FENCE + bytes_, begin + bytes_ + 2 * FENCE, up);
    }
    size_t n_, bytes_;
    std::vector<unsigned char> memory_;
};

/* A stream of numbers, the same everywhere. */
struct numbers {
    uint64_t state;
    uint32_t next()
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (uint32_t)(state >> 33);
    }
    float between(float low, float high)
    {
        return low + (high - low) * (float)(next() % 100001) / 100000.0f;
    }
};

inline void fill(fenced<float> &a, uint64_t seed, float low, float high)
{
    struct numbers numbers = {seed * 977 + 5};

    for (size_t i = 0; i < a.size(); i++)
        a[i] = numbers.between(low, high);
}

/* NaN counts as far away. */
#define ck_near(found, wanted, most) \
    do { \
        const double near_found = (found), near_wanted = (wanted); \
        ck_assert_msg(std::fabs(near_found - near_wanted) <= (most), \
                      #found ": %.9g, not %.9g", near_found, near_wanted); \
    } while (0)

/* Runs `launch` in several orders; every array of `outputs` must have the same
 * bits after each. */
template <class Launch, class... Output>
void in_every_order(Launch launch, Output &...outputs)
{
    std::vector<unsigned char> first, now;

    for (simt_order_seed = 0; simt_order_seed < 3; simt_order_seed++) {
        (outputs.clear(), ...);
        ck_assert_int_eq(launch(), cudaSuccess);
        now.clear();
        (now.insert(now.end(), (unsigned char *)outputs.get(),
                    (unsigned char *)outputs.get() + outputs.bytes()),
         ...);
        if (simt_order_seed == 0)
            first = now;
        ck_assert_msg(first == now, "order %u gives other bits",
                      simt_order_seed);
    }
    simt_order_seed = 0;
}

#endif
