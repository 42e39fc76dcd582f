/* check_expand.cpp -- stored types on the device, bit for bit as the host
 * expands them, and rounding to narrow types.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "arrays.h"
#include "expand.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
#include "kvr_half.h"
#include "quant.h"
}

/* Any bytes are a block; halves that are infinite or NaN are left to
 * `special`. */
static void random_blocks(fenced<uint8_t> &bytes, uint32_t type_bytes,
                          uint64_t seed)
{
    struct numbers numbers = {seed};

    for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = (uint8_t)numbers.next();
    for (size_t i = 0; i + 1 < bytes.size(); i++)
        if ((bytes[i + 1] & 0x7c) == 0x7c && type_bytes != 1)
            bytes[i + 1] ^= 0x40;
}

static void check_narrow(const struct kvr_quant_row *row, uint8_t *in,
                         const float *wanted, size_t n)
{
    fenced<__half> halves(n);
    fenced<__nv_bfloat16> brains(n);

    in_every_order(
        [&] {
            return kvr_cuda_expand(halves.get(), KVR_CUDA_F16, in, row->type, n,
                                   nullptr);
        },
        halves);
    in_every_order(
        [&] {
            return kvr_cuda_expand(brains.get(), KVR_CUDA_BF16, in, row->type,
                                   n, nullptr);
        },
        brains);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_eq(__half_as_ushort(halves[i]),
                          kvr_f32_to_f16(wanted[i]));
        ck_assert_uint_eq(__bfloat16_as_ushort(brains[i]),
                          __bfloat16_as_ushort(__float2bfloat16_rn(wanted[i])));
    }
}

static void check_type(const struct kvr_quant_row *row, size_t n_blocks)
{
    const size_t n = n_blocks * row->block;
    fenced<uint8_t> in(n_blocks * row->bytes);
    fenced<float> found(n);
    std::vector<float> wanted(n);

    random_blocks(in, row->bytes, row->type * 131 + n_blocks);
    row->expand(wanted.data(), in.get(), n);
    in_every_order(
        [&] {
            return kvr_cuda_expand(found.get(), KVR_CUDA_F32, in.get(),
                                   row->type, n, nullptr);
        },
        found);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(std::memcmp(&found[i], &wanted[i], 4) == 0,
                      "%s, value %zu: %.9g, not %.9g", row->name, i,
                      (double)found[i], (double)wanted[i]);
    check_narrow(row, in.get(), wanted.data(), n);
}

START_TEST(every_type_of_the_host)
{
    uint32_t n_types = 0;

    for (uint32_t type = 0; type < 64; type++) {
        const struct kvr_quant_row *row = kvr__quant_find(type);
        const bool known = row != nullptr && row->expand != nullptr;
        ck_assert_int_eq(kvr_cuda_expands(type), known);
        if (!known)
            continue;
        n_types++;
        for (size_t n_blocks : {1, 2, 9})
            check_type(row, n_blocks);
    }
    ck_assert_uint_ge(n_types, 15);
}
END_TEST

START_TEST(every_half_as_a_scale)
{
    const struct kvr_quant_row *row = kvr__quant_find(KVR_QUANT_F16);
    const size_t n = 65536;
    fenced<uint8_t> in(2 * n);
    fenced<float> found(n);

    for (size_t i = 0; i < n; i++) {
        const uint16_t half = (uint16_t)i;
        std::memcpy(&in[2 * i], &half, 2);
    }
    ck_assert_int_eq(kvr_cuda_expand(found.get(), KVR_CUDA_F32, in.get(),
                                     row->type, n, nullptr),
                     cudaSuccess);
    for (size_t i = 0; i < n; i++) {
        const float wanted = kvr_f16_to_f32((uint16_t)i);
        if (std::isnan(wanted))
            ck_assert(std::isnan(found[i]));
        else
            ck_assert(std::memcmp(&found[i], &wanted, 4) == 0);
    }
}
END_TEST

START_TEST(refuses_other_types)
{
    fenced<uint8_t> in(64);
    fenced<float> out(32);

    ck_assert_int_eq(
        kvr_cuda_expand(out.get(), KVR_CUDA_F32, in.get(), 16, 32, nullptr),
        cudaErrorInvalidValue);
    ck_assert(!kvr_cuda_expands(16));
}
END_TEST

/* Halves, the middles between them, and the floats on either side. */
START_TEST(narrow_rounds_to_nearest_even)
{
    std::vector<float> values;

    for (unsigned i = 0; i < 0x7c00; i++) {
        const float low = kvr_f16_to_f32((uint16_t)i);
        const float high =
            i == 0x7bff ? 65536.0f : kvr_f16_to_f32((uint16_t)(i + 1));
        const float middle = low + (high - low) / 2;
        for (float x : {low, middle, std::nextafterf(middle, 0.0f),
                        std::nextafterf(middle, INFINITY)}) {
            values.push_back(x);
            values.push_back(-x);
        }
    }
    const size_t n = values.size();
    fenced<float> in(n), copy(n);
    fenced<__half> out(n);
    fenced<__nv_bfloat16> brain(n);
    std::memcpy(in.get(), values.data(), in.bytes());
    ck_assert_int_eq(
        kvr_cuda_narrow(out.get(), KVR_CUDA_F16, in.get(), n, nullptr),
        cudaSuccess);
    ck_assert_int_eq(
        kvr_cuda_narrow(copy.get(), KVR_CUDA_F32, in.get(), n, nullptr),
        cudaSuccess);
    ck_assert_int_eq(
        kvr_cuda_narrow(brain.get(), KVR_CUDA_BF16, in.get(), n, nullptr),
        cudaSuccess);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_eq(__half_as_ushort(out[i]), kvr_f32_to_f16(in[i]));
        ck_assert(std::memcmp(&copy[i], &in[i], 4) == 0);
        const double kept = (double)__bfloat162float(brain[i]);
        ck_near(kept, (double)in[i], std::fabs((double)in[i]) * 0x1p-8);
    }
}
END_TEST

KVR_SUITE("expand", every_type_of_the_host, every_half_as_a_scale,
          refuses_other_types, narrow_rounds_to_nearest_even)
