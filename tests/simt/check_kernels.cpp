/* check_kernels.cpp -- every operation but attention and expansion, against
 * plain loops in double.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "arrays.h"
#include "elementwise.cuh"
#include "embed.cuh"
#include "log_prob.cuh"
#include "norm.cuh"
#include "value_out.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

static const size_t counts[] = {1, 31, 255, 256, 257, 1000};

START_TEST(add)
{
    for (size_t n : counts) {
        fenced<float> x(n), y(n), before(n);
        fill(before, n, -1, 1);
        fill(y, n + 1, -1, 1);
        in_every_order(
            [&] {
                std::memcpy(x.get(), before.get(), x.bytes());
                return kvr_cuda_add(x.get(), y.get(), n, nullptr);
            },
            x);
        for (size_t i = 0; i < n; i++)
            ck_assert(x[i] == before[i] + y[i]);
    }
}
END_TEST

START_TEST(bias)
{
    for (uint32_t cols : {1u, 7u, 300u})
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            const uint32_t n = 3;
            fenced<float> x(n * cols), before(n * cols), b(cols);
            fill(before, cols, -1, 1);
            fill(b, cols + 1, -1, 1);
            in_every_order(
                [&] {
                    if (accumulate)
                        std::memcpy(x.get(), before.get(), x.bytes());
                    return kvr_cuda_bias(x.get(), b.get(), accumulate, cols, n,
                                         nullptr);
                },
                x);
            for (size_t i = 0; i < x.size(); i++)
                ck_assert(x[i] == (accumulate ? before[i] : 0) + b[i % cols]);
        }
}
END_TEST

static double activation_of(enum kvr_activation activation, double x)
{
    switch (activation) {
    case KVR_SILU:
        return x / (1 + std::exp(-x));
    case KVR_GELU:
        return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case KVR_GELU_TANH:
        return 0.5 * x *
               (1 +
                std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default:
        return x < 0 ? 0 : x;
    }
}

START_TEST(activations)
{
    for (int which = 0; which < KVR_N_ACTIVATION; which++)
        for (size_t n : counts)
            for (int with_up = 0; with_up < 2; with_up++) {
                const auto activation = (enum kvr_activation)which;
                fenced<float> gate(n), before(n), up(n);
                fill(before, n, -12, 12);
                fill(up, n + 1, -2, 2);
                in_every_order(
                    [&] {
                        std::memcpy(gate.get(), before.get(), gate.bytes());
                        return kvr_cuda_activate(gate.get(),
                                                 with_up ? up.get() : nullptr,
                                                 activation, n, nullptr);
                    },
                    gate);
                for (size_t i = 0; i < n; i++) {
                    const double wanted =
                        activation_of(activation, (double)before[i]) *
                        (with_up ? (double)up[i] : 1.0);
                    ck_near((double)gate[i], wanted,
                            2e-6 * std::fabs(wanted) + 1e-7);
                }
            }
}
END_TEST

START_TEST(activations_at_the_ends)
{
    const float ends[] = {-INFINITY, -1e30f, -200, 0, 200, 1e30f};

    for (int which = 0; which < KVR_N_ACTIVATION; which++) {
        fenced<float> gate(7);
        std::memcpy(gate.get(), ends, sizeof ends);
        gate[6] = NAN;
        ck_assert_int_eq(kvr_cuda_activate(gate.get(), nullptr,
                                           (enum kvr_activation)which, 7,
                                           nullptr),
                         cudaSuccess);
        for (int i = 1; i < 3; i++)
            ck_assert(gate[i] == 0);
        for (int i = 3; i < 6; i++)
            ck_assert(gate[i] == ends[i]);
        ck_assert(std::isnan(gate[6]));
    }
    ck_assert_int_eq(
        kvr_cuda_activate(nullptr, nullptr, KVR_N_ACTIVATION, 1, nullptr),
        cudaErrorInvalidValue);
}
END_TEST

static void rope_case(uint32_t heads, uint32_t dim, uint32_t rope_dim,
                      uint32_t n)
{
    fenced<float> x((size_t)n * heads * dim), before(x.size());
    fenced<float> angles((size_t)n * rope_dim);
    const uint32_t half = rope_dim / 2;

    fill(before, dim, -1, 1);
    fill(angles, rope_dim, -1, 1);
    in_every_order(
        [&] {
            std::memcpy(x.get(), before.get(), x.bytes());
            return kvr_cuda_rope(x.get(), angles.get(), heads, dim, rope_dim, n,
                                 nullptr);
        },
        x);
    for (size_t i = 0; i < x.size(); i++) {
        const size_t row = i / dim / heads, j = i % dim;
        double wanted = (double)before[i];
        if (j < rope_dim) {
            const double c = (double)angles[row * rope_dim + j % half];
            const double s = (double)angles[row * rope_dim + half + j % half];
            wanted = j < half ? wanted * c - (double)before[i + half] * s
                              : wanted * c + (double)before[i - half] * s;
        }
        ck_near((double)x[i], wanted, 2e-7);
    }
}

START_TEST(rope)
{
    rope_case(1, 2, 2, 1);
    rope_case(3, 12, 12, 5);
    rope_case(2, 16, 4, 7); /* part of a head turns */
    rope_case(9, 64, 64, 3);
    rope_case(2, 8, 0, 3); /* none */
}
END_TEST

START_TEST(store)
{
    const uint32_t heads = 3, dim = 5, max_keys = 11;

    for (uint32_t first : {0u, 4u, 9u})
        for (uint32_t n : {1u, 2u}) {
            fenced<float> in((size_t)n * heads * dim);
            fenced<float> cache((size_t)heads * max_keys * dim);
            fill(in, first + n, -1, 1);
            in_every_order(
                [&] {
                    return kvr_cuda_store(cache.get(), in.get(), heads, dim,
                                          max_keys, first, n, nullptr);
                },
                cache);
            for (uint32_t h = 0; h < heads; h++)
                for (uint32_t t = 0; t < max_keys; t++)
                    for (uint32_t d = 0; d < dim; d++) {
                        const float found =
                            cache[((size_t)h * max_keys + t) * dim + d];
                        if (t < first || t >= first + n)
                            ck_assert(std::isnan(found));
                        else
                            ck_assert(found ==
                                      in[((t - first) * heads + h) * dim + d]);
                    }
        }
}
END_TEST

/* Rounds to the table's type, and gives what is in it. */
template <class T> static float put(T *out, float x);

template <> float put(float *out, float x)
{
    return *out = x;
}

template <> float put(__half *out, float x)
{
    *out = __float2half_rn(x);
    return __half2float(*out);
}

template <> float put(__nv_bfloat16 *out, float x)
{
    *out = __float2bfloat16_rn(x);
    return __bfloat162float(*out);
}

template <class T> static void embed_case(enum kvr_cuda_type type)
{
    const int32_t ids[] = {4, 0, 6, 4, 1};
    const uint32_t n = 5, rows = 7, cols = 77;
    fenced<T> table(rows * cols);
    fenced<float> out(n * cols), wanted(rows * cols);
    fenced<int32_t> at(n);

    fill(wanted, 1, -1, 1);
    for (size_t i = 0; i < table.size(); i++)
        wanted[i] = put(&table[i], wanted[i]);
    std::memcpy(at.get(), ids, sizeof ids);
    in_every_order(
        [&] {
            return kvr_cuda_embed(out.get(), table.get(), type, 1.25f, at.get(),
                                  cols, n, nullptr);
        },
        out);
    for (size_t i = 0; i < out.size(); i++)
        ck_assert(out[i] ==
                  wanted[(size_t)ids[i / cols] * cols + i % cols] * 1.25f);
}

START_TEST(embed)
{
    embed_case<float>(KVR_CUDA_F32);
    embed_case<__half>(KVR_CUDA_F16);
    embed_case<__nv_bfloat16>(KVR_CUDA_BF16);
}
END_TEST

static void norm_row(double *out, const float *x, enum kvr_norm_kind kind,
                     double eps, uint32_t cols)
{
    double mean = 0, squares = 0;

    for (uint32_t k = 0; k < cols && kind == KVR_LAYER_NORM; k++)
        mean += (double)x[k] / cols;
    for (uint32_t k = 0; k < cols; k++)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean) / cols;
    for (uint32_t k = 0; k < cols; k++)
        out[k] = ((double)x[k] - mean) / std::sqrt(squares + eps);
}

static void norm_case(enum kvr_norm_kind kind, uint32_t cols, uint32_t n,
                      bool with_bias, bool in_place)
{
    fenced<float> in((size_t)n * cols), out(in.size()), weight(cols);
    fenced<float> biases(cols);
    std::vector<double> wanted(in.size());
    const float eps = 1e-5f;

    fill(in, cols + n, -1, 1.5f);
    in[cols / 2] = 900.0f; /* one channel far from the others */
    fill(weight, cols, 0.5f, 2);
    fill(biases, cols + 1, -1, 1);
    for (uint32_t i = 0; i < n; i++)
        norm_row(&wanted[(size_t)i * cols], &in[(size_t)i * cols], kind,
                 (double)eps, cols);
    in_every_order(
        [&] {
            if (in_place)
                std::memcpy(out.get(), in.get(), in.bytes());
            return kvr_cuda_norm(
                out.get(), in_place ? out.get() : in.get(), kind, weight.get(),
                with_bias ? biases.get() : nullptr, eps, cols, n, nullptr);
        },
        out);
    for (size_t i = 0; i < out.size(); i++) {
        const double bias = with_bias ? (double)biases[i % cols] : 0.0;
        const double scaled = wanted[i] * (double)weight[i % cols];
        ck_near((double)out[i], scaled + bias,
                3e-7 * (std::fabs(scaled) + std::fabs(bias)) + 1e-12);
    }
}

START_TEST(norms)
{
    for (uint32_t cols : {1u, 12u, 31u, 64u, 512u, 513u, 576u, 1500u})
        for (int in_place = 0; in_place < 2; in_place++) {
            norm_case(KVR_RMS_NORM, cols, 5, false, in_place);
            norm_case(KVR_LAYER_NORM, cols, 3, in_place, in_place);
        }
}
END_TEST

static void log_prob_case(uint32_t cols, uint32_t n, float cap)
{
    fenced<float> logits((size_t)n * cols), out(n);
    fenced<int32_t> targets(n);

    fill(logits, cols, -20, 20);
    for (uint32_t i = 0; i < n; i++)
        targets[i] = (int32_t)((cols - 1) * i / (n > 1 ? n - 1 : 1));
    in_every_order(
        [&] {
            return kvr_cuda_log_prob(out.get(), logits.get(), cap,
                                     targets.get(), cols, n, nullptr);
        },
        out);
    for (uint32_t i = 0; i < n; i++) {
        const float *row = &logits[(size_t)i * cols];
        double sum = 0;
        auto capped = [&](size_t k) {
            const double x = (double)row[k];
            return cap > 0 ? (double)cap * std::tanh(x / (double)cap) : x;
        };
        for (uint32_t k = 0; k < cols; k++)
            sum += std::exp(capped(k));
        ck_near((double)out[i], capped((size_t)targets[i]) - std::log(sum),
                1e-5);
    }
}

START_TEST(log_probabilities)
{
    for (uint32_t cols : {1u, 272u, 1023u, 1024u, 1025u, 5000u}) {
        log_prob_case(cols, 3, 0);
        log_prob_case(cols, 2, 8);
    }
}
END_TEST

template <class T>
static void value_out_case(enum kvr_cuda_type type, uint32_t rows, uint32_t dim,
                           uint32_t n_head, uint32_t n_kv_head, uint32_t n)
{
    const size_t cols = (size_t)n_head * dim;
    fenced<float> value((size_t)n * n_kv_head * dim), wide(rows * cols);
    fenced<float> out((size_t)n_head * n);
    fenced<T> weight(rows * cols);

    fill(value, n, -1, 1);
    fill(wide, dim, -1, 1);
    for (size_t i = 0; i < weight.size(); i++)
        wide[i] = put(&weight[i], wide[i]);
    in_every_order(
        [&] {
            return kvr_cuda_value_out(out.get(), value.get(), weight.get(),
                                      type, rows, dim, n_head, n_kv_head, n,
                                      nullptr);
        },
        out);
    for (uint32_t h = 0; h < n_head; h++)
        for (uint32_t i = 0; i < n; i++) {
            const size_t kv = h / (n_head / n_kv_head);
            double sum = 0;
            for (uint32_t r = 0; r < rows; r++) {
                double product = 0;
                for (uint32_t d = 0; d < dim; d++)
                    product += (double)wide[r * cols + h * dim + d] *
                               (double)value[(i * n_kv_head + kv) * dim + d];
                sum += std::fabs(product);
            }
            ck_near((double)out[(size_t)h * n + i], sum, 2e-6 * sum);
        }
}

START_TEST(value_sizes)
{
    for (uint32_t n : {1u, 2u, 8u, 9u, 63u, 65u, 130u})
        value_out_case<float>(KVR_CUDA_F32, 65, 12, 4, 2, n);
    for (uint32_t rows : {1u, 31u, 64u, 130u})
        for (uint32_t n : {1u, 20u})
            value_out_case<float>(KVR_CUDA_F32, rows, 17, 3, 1, n);
    value_out_case<__half>(KVR_CUDA_F16, 70, 16, 2, 2, 1);
    value_out_case<__half>(KVR_CUDA_F16, 70, 40, 2, 2, 10);
    value_out_case<__nv_bfloat16>(KVR_CUDA_BF16, 70, 16, 2, 1, 1);
    value_out_case<__nv_bfloat16>(KVR_CUDA_BF16, 70, 32, 2, 1, 10);
}
END_TEST

KVR_SUITE("kernels", add, bias, activations, activations_at_the_ends, rope,
          store, embed, norms, log_probabilities, value_sizes)
