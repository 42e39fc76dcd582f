/* check_attention.cpp -- every way to attend against plain double loops.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "arrays.h"
#include "attention.cuh"
#include "lab/attention_rows.cuh"

#include <cuda_fp16.h>

struct shape {
    uint32_t n_head, n_kv_head, key_dim, value_dim, first, n, span;
    float softcap;
    uint32_t more; /* of the stride than there are keys */
};

typedef cudaError_t (*attend_fn)(const struct kvr_cuda_attention *call,
                                 cudaStream_t stream);
typedef size_t (*scratch_fn)(const struct kvr_cuda_attention *call);

struct problem {
    struct shape shape;
    uint32_t max_keys, keys_seen;
    fenced<float> query, keys, values;
    struct kvr_cuda_attention call;
    /* [n_head][n][keys_seen] and [n_head][n] */
    std::vector<double> rows, lse, out;

    explicit problem(const struct shape &s);
};

static double logit(struct problem &p, uint32_t head, uint32_t row,
                    uint32_t key)
{
    const struct shape &s = p.shape;
    const size_t kv = head / (s.n_head / s.n_kv_head);
    double sum = 0;

    for (uint32_t d = 0; d < s.key_dim; d++)
        sum +=
            (double)p.query[((size_t)row * s.n_head + head) * s.key_dim + d] *
            (double)p.keys[(kv * p.max_keys + key) * s.key_dim + d];
    sum *= (double)p.call.scale;
    return s.softcap > 0
               ? (double)s.softcap * std::tanh(sum / (double)s.softcap)
               : sum;
}

static void expect_row(struct problem &p, uint32_t head, uint32_t row)
{
    const struct shape &s = p.shape;
    const size_t kv = head / (s.n_head / s.n_kv_head);
    const uint32_t keys = s.first + row + 1;
    const uint32_t from = s.span > 0 && keys > s.span ? keys - s.span : 0;
    double *weights = &p.rows[((size_t)head * s.n + row) * p.keys_seen];
    double sum = 0;

    for (uint32_t k = from; k < keys; k++)
        sum += weights[k] = std::exp(logit(p, head, row, k));
    for (uint32_t k = from; k < keys; k++) {
        weights[k] /= sum;
        for (uint32_t d = 0; d < s.value_dim; d++)
            p.out[((size_t)row * s.n_head + head) * s.value_dim + d] +=
                weights[k] *
                (double)p.values[(kv * p.max_keys + k) * s.value_dim + d];
    }
    p.lse[(size_t)head * s.n + row] = std::log(sum);
}

/* Tokens that are not stored yet are NaN. */
problem::problem(const struct shape &s)
    : shape(s), max_keys(s.first + s.n + 3), keys_seen(s.first + s.n),
      query((size_t)s.n * s.n_head * s.key_dim),
      keys((size_t)s.n_kv_head * max_keys * s.key_dim),
      values((size_t)s.n_kv_head * max_keys * s.value_dim), call(),
      rows((size_t)s.n_head * s.n * keys_seen), lse((size_t)s.n_head * s.n),
      out((size_t)s.n * s.n_head * s.value_dim)
{
    fill(query, s.key_dim + s.n, -2.0f, 2.0f);
    fill(keys, s.first + 7, -2.0f, 2.0f);
    fill(values, s.value_dim + 11, -1.0f, 1.0f);
    for (uint32_t kv = 0; kv < s.n_kv_head; kv++)
        for (uint32_t k = keys_seen; k < max_keys; k++) {
            for (uint32_t d = 0; d < s.key_dim; d++)
                keys[((size_t)kv * max_keys + k) * s.key_dim + d] = NAN;
            for (uint32_t d = 0; d < s.value_dim; d++)
                values[((size_t)kv * max_keys + k) * s.value_dim + d] = NAN;
        }
    call.query = query.get();
    call.keys = keys.get();
    call.values = values.get();
    call.n_head = s.n_head;
    call.n_kv_head = s.n_kv_head;
    call.key_dim = s.key_dim;
    call.value_dim = s.value_dim;
    call.max_keys = max_keys;
    call.first = s.first;
    call.n = s.n;
    call.scale = 1.0f / std::sqrt((float)s.key_dim);
    call.softcap = s.softcap;
    call.span = s.span;
    call.layer = 3;
    for (uint32_t h = 0; h < s.n_head; h++)
        for (uint32_t r = 0; r < s.n; r++)
            expect_row(*this, h, r);
}

static float item_of(void *rows, enum kvr_cuda_type type, size_t at)
{
    return type == KVR_CUDA_F16 ? __half2float(((__half *)rows)[at])
                                : ((float *)rows)[at];
}

static bool untouched(void *rows, enum kvr_cuda_type type, size_t at)
{
    return type == KVR_CUDA_F16 ? ((uint16_t *)rows)[at] == 0xffff
                                : ((uint32_t *)rows)[at] == 0xffffffff;
}

static void check_rows(struct problem &p, void *rows)
{
    const struct shape &s = p.shape;
    const double most = p.call.row_type == KVR_CUDA_F16 ? 2.5e-4 : 2e-6;

    for (size_t r = 0; r < (size_t)s.n_head * s.n; r++)
        for (uint32_t k = 0; k < p.call.stride; k++) {
            const size_t at = r * p.call.stride + k;
            if (k > s.first + r % s.n) {
                ck_assert_msg(untouched(rows, p.call.row_type, at),
                              "written beyond the row");
                continue;
            }
            const double wanted = p.rows[r * p.keys_seen + k];
            const float found = item_of(rows, p.call.row_type, at);
            if (wanted == 0.0)
                ck_assert_msg(found == 0.0f, "not zero outside the mask");
            ck_near((double)found, wanted, most);
        }
}

/* One way to attend: with rows of one type, or without. */
static void attend(const struct shape &shape, attend_fn attend_with,
                   scratch_fn scratch_of, bool wanted, enum kvr_cuda_type type)
{
    struct problem p(shape);
    const size_t n_rows = (size_t)shape.n_head * shape.n;
    const size_t item = type == KVR_CUDA_F16 ? 2 : 4;

    p.call.row_type = type;
    p.call.stride = wanted ? p.keys_seen + shape.more : 0;
    fenced<unsigned char> rows(n_rows * p.call.stride * item);
    fenced<float> out(n_rows * shape.value_dim), lse(n_rows), mass(n_rows);
    fenced<kvr_cuda_bad> bad(1);
    p.call.rows = wanted ? rows.get() : nullptr;
    fenced<float> scratch(scratch_of(&p.call));
    p.call.out = out.get();
    p.call.lse = lse.get();
    p.call.mass = mass.get();
    p.call.bad = bad.get();
    p.call.scratch = scratch.get();
    in_every_order(
        [&] {
            scratch.clear();
            bad[0] = 0;
            return attend_with(&p.call, nullptr);
        },
        rows, out, lse, mass);
    ck_assert(bad[0] == 0);
    if (wanted)
        check_rows(p, rows.get());
    for (size_t i = 0; i < n_rows; i++) {
        ck_near((double)lse[i], p.lse[i], 1e-5);
        ck_near((double)mass[i], 1.0, 2e-6);
    }
    for (size_t i = 0; i < out.size(); i++)
        ck_near((double)out[i], p.out[i], 4e-6);
}

static void attend_all_ways(const struct shape &s)
{
    attend(s, kvr_cuda_attention, kvr_cuda_attention_scratch, true,
           KVR_CUDA_F32);
    attend(s, kvr_cuda_attention, kvr_cuda_attention_scratch, true,
           KVR_CUDA_F16);
    attend(s, kvr_cuda_attention, kvr_cuda_attention_scratch, false,
           KVR_CUDA_F32);
}

/* Versions of the lab, on the shapes that told them apart while they grew. */
static void versions(attend_fn attend_with, scratch_fn scratch_of)
{
    const struct shape shapes[] = {
        {1, 1, 4, 4, 0, 1, 0, 0, 0},        {4, 2, 16, 16, 0, 17, 0, 0, 3},
        {3, 1, 20, 36, 30, 33, 0, 2.0f, 1}, {2, 2, 33, 17, 5, 40, 7, 0, 0},
        {2, 1, 8, 8, 130, 20, 129, 0, 0},
    };

    for (const struct shape &s : shapes) {
        attend(s, attend_with, scratch_of, true, KVR_CUDA_F32);
        attend(s, attend_with, scratch_of, true, KVR_CUDA_F16);
    }
}

START_TEST(lab_version_1)
{
    versions(kvr_lab_attention_rows_1, kvr_lab_attention_rows_1_scratch);
}
END_TEST

START_TEST(lab_version_2)
{
    versions(kvr_lab_attention_rows_2, kvr_lab_attention_rows_2_scratch);
}
END_TEST

START_TEST(one_token)
{
    attend_all_ways({1, 1, 4, 4, 0, 1, 0, 0, 0});
    attend_all_ways({4, 2, 16, 16, 0, 1, 0, 0, 3});
    attend_all_ways({3, 3, 5, 3, 0, 1, 1, 0, 1});
}
END_TEST

START_TEST(sizes_that_divide_nothing)
{
    attend_all_ways({2, 1, 12, 12, 0, 2, 0, 0, 0});
    attend_all_ways({3, 3, 20, 36, 0, 7, 0, 0, 5});
    attend_all_ways({2, 2, 7, 5, 0, 65, 0, 0, 2});
    attend_all_ways({1, 1, 17, 66, 3, 130, 0, 0, 1});
    attend_all_ways({1, 1, 33, 130, 127, 63, 0, 0, 0});
}
END_TEST

START_TEST(sizes_that_divide)
{
    attend_all_ways({1, 1, 16, 64, 0, 64, 0, 0, 0});
    attend_all_ways({1, 1, 64, 128, 64, 64, 0, 0, 0});
    attend_all_ways({1, 1, 32, 256, 128, 128, 0, 0, 0});
}
END_TEST

START_TEST(widest_heads)
{
    attend_all_ways({1, 1, 256, 256, 30, 9, 0, 0, 1});
    attend_all_ways({2, 1, 256, 256, 150, 1, 0, 0, 1});
    attend_all_ways({1, 1, 255, 253, 40, 3, 0, 0, 1});
    attend_all_ways({1, 1, 255, 253, 40, 1, 0, 0, 1});
}
END_TEST

START_TEST(heads_share_keys)
{
    attend_all_ways({6, 2, 16, 16, 10, 21, 0, 0, 0});
    attend_all_ways({5, 1, 12, 20, 10, 21, 0, 0, 0});
    for (uint32_t group : {2u, 3u, 5u, 8u, 9u})
        attend_all_ways({2 * group, 2, 8, 12, 70, 1, 0, 0, 0});
}
END_TEST

START_TEST(a_chunk_of_a_prompt)
{
    for (uint32_t first : {1u, 63u, 123u, 124u, 128u})
        attend_all_ways({1, 1, 8, 8, first, 9, 0, 0, 2});
}
END_TEST

START_TEST(soft_cap)
{
    attend_all_ways({2, 1, 8, 8, 3, 70, 0, 1.5f, 2});
    attend_all_ways({2, 1, 8, 8, 90, 1, 0, 1.5f, 2});
    attend_all_ways({2, 1, 8, 8, 3, 20, 6, 30.0f, 2});
}
END_TEST

static const uint32_t spans[] = {1,  2,   3,   63,  64,  65,
                                 66, 127, 128, 129, 130, 131};

/* Rows whose window begins or ends at every place of a tile. */
START_TEST(window_at_every_edge)
{
    for (uint32_t span : {1u, 2u, 64u, 127u, 128u, 129u})
        attend_all_ways({1, 1, 4, 4, 0, 131, span, 0, 1});
    for (uint32_t span : {2u, 65u, 131u}) {
        attend_all_ways({1, 1, 4, 4, 129, 3, span, 0, 1});
        attend_all_ways({1, 1, 4, 4, 254, 4, span, 0, 0});
    }
}
END_TEST

START_TEST(window_of_a_step)
{
    for (uint32_t first : {1u, 32u, 130u})
        for (uint32_t span : spans)
            attend_all_ways({2, 1, 4, 4, first, 1, span, 0, 1});
}
END_TEST

START_TEST(many_splits)
{
    attend_all_ways({1, 1, 8, 72, 600, 1, 0, 0, 0});
    attend_all_ways({64, 64, 4, 4, 700, 1, 0, 0, 0});
    attend_all_ways({128, 128, 4, 4, 1100, 1, 0, 0, 3});
}
END_TEST

/* Where the first bad row is noted, of all ways to attend. */
static kvr_cuda_bad noted(struct problem &p, bool wanted)
{
    const size_t n_rows = (size_t)p.shape.n_head * p.shape.n;

    p.call.stride = p.keys_seen;
    fenced<float> rows(n_rows * p.call.stride), lse(n_rows);
    fenced<float> out(n_rows * p.shape.value_dim);
    fenced<kvr_cuda_bad> bad(1);
    p.call.rows = wanted ? rows.get() : nullptr;
    p.call.out = out.get();
    p.call.lse = lse.get();
    p.call.bad = bad.get();
    fenced<float> scratch(kvr_cuda_attention_scratch(&p.call));
    p.call.scratch = scratch.get();
    bad[0] = 0;
    ck_assert_int_eq(kvr_cuda_attention(&p.call, nullptr), cudaSuccess);
    return bad[0];
}

static kvr_cuda_bad place(uint64_t layer, uint64_t head, uint64_t step)
{
    return UINT64_MAX - (layer << 48 | head << 32 | step);
}

START_TEST(names_the_first_bad_row)
{
    for (int wanted = 0; wanted < 2; wanted++)
        for (float worse : {NAN, INFINITY}) {
            struct problem p({3, 1, 8, 8, 20, 70, 0, 0, 0});
            for (uint32_t row : {69u, 66u, 5u, 40u})
                p.query[((size_t)row * 3 + (row < 66 ? 2 : 1)) * 8 + 3] = worse;
            ck_assert(noted(p, wanted) == place(3, 1, 20 + 66));
            struct problem step({3, 1, 8, 8, 200, 1, 0, 0, 0});
            step.query[2 * 8] = worse;
            ck_assert(noted(step, wanted) == place(3, 2, 200));
        }
}
END_TEST

/* A single key that is lost makes every row that sees it bad, none before. */
START_TEST(names_a_bad_key)
{
    for (int wanted = 0; wanted < 2; wanted++) {
        struct problem p({2, 2, 8, 8, 0, 140, 0, 0, 0});
        p.keys[(1 * (size_t)p.max_keys + 129) * 8] = NAN;
        ck_assert(noted(p, wanted) == place(3, 1, 129));
    }
}
END_TEST

/* Logits far below the others vanish, wherever they are. */
START_TEST(minus_infinity_is_a_number)
{
    for (int wanted = 0; wanted < 2; wanted++)
        for (uint32_t n : {1u, 70u}) {
            struct problem p({1, 1, 4, 4, 100 - n, n, 0, 0, 0});
            for (size_t i = 0; i < p.query.size(); i++)
                p.query[i] = 1.0f;
            for (uint32_t k = 1; k < 90; k++)
                p.keys[4 * (size_t)k] = -INFINITY;
            ck_assert(noted(p, wanted) == 0);
        }
}
END_TEST

START_TEST(refuses_what_it_cannot)
{
    struct problem p({2, 2, 8, 8, 0, 4, 0, 0, 0});
    fenced<float> rows(64);

    p.call.n_kv_head = 0;
    ck_assert_int_eq(kvr_cuda_attention(&p.call, nullptr),
                     cudaErrorInvalidValue);
    p.call.n_kv_head = 2;
    p.call.value_dim = 257;
    ck_assert_int_eq(kvr_cuda_attention(&p.call, nullptr),
                     cudaErrorInvalidValue);
    p.call.value_dim = 8;
    p.call.rows = rows.get();
    p.call.stride = 3;
    ck_assert_int_eq(kvr_cuda_attention(&p.call, nullptr),
                     cudaErrorInvalidValue);
}
END_TEST

KVR_SUITE("attention", lab_version_1, lab_version_2, one_token,
          sizes_that_divide_nothing, sizes_that_divide, widest_heads,
          heads_share_keys, a_chunk_of_a_prompt, soft_cap, window_at_every_edge,
          window_of_a_step, many_splits, names_the_first_bad_row,
          names_a_bad_key, minus_infinity_is_a_number, refuses_what_it_cannot)
