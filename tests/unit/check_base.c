/* check_base.c -- numbers, half precision, threads, random streams.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_half.h"
#include "kvr_isa.h"
#include "kvr_options.h"
#include "kvr_parallel.h"
#include "kvr_random.h"
#include "kvr_text.h"

#include "suite.h"

#include <math.h>
#include <string.h>

START_TEST(half_survives_the_round_trip)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float f = kvr_f16_to_f32((uint16_t)h);
        if (isnan(f))
            ck_assert(isnan(kvr_f16_to_f32(kvr_f32_to_f16(f))));
        else
            ck_assert_uint_eq(kvr_f32_to_f16(f), h);
    }
}
END_TEST

START_TEST(half_arrays_agree_with_single_values)
{
    enum { N = 4096 + 3 };
    static float in[N], wide[N];
    static uint16_t out[N];

    for (uint32_t i = 0; i < N; i++)
        in[i] = (float)(ldexp((double)(i * 2654435761u >> 7), -40) *
                        (i % 3 == 0 ? 1e-4 : 1));
    kvr_f32_to_f16_n(out, in, N);
    kvr_f16_to_f32_n(wide, out, N);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_uint_eq(out[i], kvr_f32_to_f16(in[i]));
        ck_assert(wide[i] == kvr_f16_to_f32(out[i]));
    }
}
END_TEST

START_TEST(half_rounds_to_even)
{
    ck_assert_uint_eq(kvr_f32_to_f16(1.0f + 0x1p-11f), 0x3c00);
    ck_assert_uint_eq(kvr_f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);
    ck_assert_uint_eq(kvr_f32_to_f16(0x1p-25f), 0);
    ck_assert_uint_eq(kvr_f32_to_f16(0x1.8p-25f), 1);
    ck_assert_uint_eq(kvr_f32_to_f16(65520.0f), 0x7c00);
    ck_assert_uint_eq(kvr_f32_to_f16(65519.0f), 0x7bff);
}
END_TEST

START_TEST(numbers_are_read_strictly)
{
    uint32_t u;
    double r;

    ck_assert(kvr_parse_u32(&u, "4294967295", 10) && u == UINT32_MAX);
    ck_assert(!kvr_parse_u32(&u, "4294967296", 10));
    ck_assert(!kvr_parse_u32(&u, "-1", 2));
    ck_assert(!kvr_parse_u32(&u, "", 0));
    ck_assert(!kvr_parse_u32(&u, " 1", 2));
    ck_assert(kvr_parse_real(&r, "1e-3", 4) && r == 1e-3);
    ck_assert(!kvr_parse_real(&r, "nan", 3));
    ck_assert(!kvr_parse_real(&r, "0x10", 4));
    ck_assert(!kvr_parse_real(&r, "1e999", 5));
}
END_TEST

START_TEST(lists_take_numbers_and_ranges)
{
    struct kvr_error err = {0};
    bool marks[8];

    must(kvr_parse_list(marks, 8, "0,4-6", "layer", &err));
    for (int i = 0; i < 8; i++)
        ck_assert(marks[i] == (i == 0 || (i >= 4 && i <= 6)));
    must_fail(kvr_parse_list(marks, 8, "8", "layer", &err), KVR_ERR_USAGE,
              "below 8");
    must_fail(kvr_parse_list(marks, 8, "3-2", "layer", &err), KVR_ERR_USAGE,
              "3-2");
    must_fail(kvr_parse_list(marks, 8, "1,,2", "layer", &err), KVR_ERR_USAGE,
              "layer list");
}
END_TEST

START_TEST(utf8_names_the_first_bad_byte)
{
    size_t bad = 99;

    ck_assert(kvr_utf8_valid((const uint8_t *)"a\xc3\xa9z", 4, &bad));
    ck_assert(!kvr_utf8_valid((const uint8_t *)"a\xc3z", 3, &bad));
    ck_assert_uint_eq(bad, 1);
    ck_assert(!kvr_utf8_valid((const uint8_t *)"\xc0\x80", 2, &bad));
    ck_assert(!kvr_utf8_valid((const uint8_t *)"\xed\xa0\x80", 3, &bad));
}
END_TEST

struct squares {
    uint32_t out[1000];
};

static enum kvr_status square(uint32_t item, uint32_t worker, void *ud,
                              struct kvr_error *err)
{
    struct squares *s = ud;

    (void)worker;
    if (item == 777 || item == 888)
        return kvr_fail(err, KVR_ERR_INPUT, "item %u", item);
    s->out[item] = item * item;
    return KVR_OK;
}

START_TEST(parallel_for_does_every_item_and_reports_the_first_failure)
{
    static struct squares s;
    struct kvr_error err = {0};

    for (uint32_t threads = 1; threads <= 4; threads++) {
        memset(&s, 0, sizeof s);
        must(kvr_parallel_for(700, threads, square, &s, &err));
        for (uint32_t i = 0; i < 700; i++)
            ck_assert_uint_eq(s.out[i], i * i);
        must_fail(kvr_parallel_for(1000, threads, square, &s, &err),
                  KVR_ERR_INPUT, "item 777");
    }
}
END_TEST

START_TEST(random_streams_depend_on_key_and_counter_only)
{
    const struct kvr_random a = {.seed = 1, .purpose = KVR_RANDOM_TEST};
    const struct kvr_random b = {.seed = 2, .purpose = KVR_RANDOM_TEST};
    double sum = 0;

    ck_assert(kvr_random_real(&a, 3, 4, 5) == kvr_random_real(&a, 3, 4, 5));
    ck_assert(kvr_random_real(&a, 3, 4, 5) != kvr_random_real(&b, 3, 4, 5));
    ck_assert(kvr_random_real(&a, 3, 4, 5) != kvr_random_real(&a, 3, 5, 4));
    for (uint32_t i = 0; i < 20000; i++) {
        sum += kvr_random_real(&a, i, 0, 0);
        ck_assert_uint_lt(kvr_random_below(&a, i, 0, 0, 7), 7);
    }
    ck_assert_double_eq_tol(sum / 20000, 0.5, 0.01);
}
END_TEST

/* Known answer of Philox4x32-10, Random123's kat_vectors: zero key and
 * counter. Ours has purpose in the counter, so purpose 0 gives all zeros. */
START_TEST(philox_known_answer)
{
    const struct kvr_random zero = {0};
    uint32_t bits[4];

    kvr_random_bits(bits, &zero, 0, 0, 0);
    ck_assert_uint_eq(bits[0], 0x6627e8d5);
    ck_assert_uint_eq(bits[1], 0xe169c58d);
    ck_assert_uint_eq(bits[2], 0xbc57ac4c);
    ck_assert_uint_eq(bits[3], 0x9b00dbd8);
}
END_TEST

/* "--chat" alone takes no word after it; "--chat=x" has a value. */
START_TEST(option_value_may_be_left_out)
{
    struct values {
        const char *chat;
    } into = {NULL};
    const struct kvr_option list[] = {
        {.name = "chat", .type = KVR_OPTION_MAYBE, .choices = "auto"},
        {.name = NULL},
    };
    const struct kvr_option *const rows[] = {list, NULL};
    char alone[] = "--chat", word[] = "word", with[] = "--chat=gemma";
    char *argv[] = {alone, word, with};
    const char *operands[3];
    size_t n = 0;
    struct kvr_error err = {0};

    must(kvr_options_parse(rows, 2, argv, &into, operands, &n, &err));
    ck_assert_str_eq(into.chat, "auto");
    ck_assert_uint_eq(n, 1);
    ck_assert_str_eq(operands[0], "word");
    must(kvr_options_parse(rows, 3, argv, &into, operands, &n, &err));
    ck_assert_str_eq(into.chat, "gemma");
}
END_TEST

KVR_SUITE("base", half_survives_the_round_trip,
          half_arrays_agree_with_single_values, half_rounds_to_even,
          numbers_are_read_strictly, lists_take_numbers_and_ranges,
          utf8_names_the_first_bad_byte,
          parallel_for_does_every_item_and_reports_the_first_failure,
          random_streams_depend_on_key_and_counter_only, philox_known_answer,
          option_value_may_be_left_out)
