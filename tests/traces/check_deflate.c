/* check_deflate.c -- our deflate against another's inflate, and its codes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "codec.h"
#include "deflate.h"

#include "suite.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 200000 };

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Deflates n bytes, compares what comes back, returns the stream's size. The
 * room is exactly what the bound says: a sanitizer sees a byte too many. */
static size_t round_trip(const uint8_t *in, size_t n, size_t plane)
{
    const size_t room = kvr__deflate_bound(n, plane);
    uint8_t *out = malloc(room), *back = malloc(n + 1);
    struct codec *codec = NULL;
    struct kvr_error err = {0};

    ck_assert(out != NULL && back != NULL);
    must(kvr__codec_new(&codec, CODEC_QUICK, &err));
    const size_t size = kvr__deflate(out, in, n, plane);
    ck_assert_uint_le(size, room);
    ck_assert(kvr__codec_inflate(codec, back, n, out, size));
    ck_assert(n == 0 || memcmp(back, in, n) == 0);
    kvr__codec_free(codec);
    free(out);
    free(back);
    return size;
}

static uint8_t *bytes(size_t n)
{
    uint8_t *in = calloc(n + 1, 1);

    ck_assert(in != NULL);
    return in;
}

START_TEST(every_short_length_comes_back)
{
    uint64_t state = 1;
    uint8_t *in = bytes(400);

    for (uint32_t kind = 0; kind < 3; kind++)
        for (size_t n = 0; n <= 400; n++) {
            for (size_t i = 0; i < n; i++)
                in[i] = kind == 0   ? 7
                        : kind == 1 ? (uint8_t)draw(&state)
                                    : draw(&state) % 5 == 0;
            round_trip(in, n, 0);
        }
    free(in);
}
END_TEST

/* Runs of all lengths up to three matches, each between other bytes. */
START_TEST(runs_of_every_length_come_back)
{
    uint8_t *in = bytes(MOST);

    for (uint32_t shift = 0; shift < 9; shift++) {
        size_t n = shift;
        memset(in, 1, n);
        for (uint32_t run = 1; n + run + 3 < MOST && run < 600; run++) {
            memset(in + n, run % 3 == 0 ? 9 : 0, run);
            n += run;
            in[n++] = 3;
            in[n++] = (uint8_t)run;
        }
        round_trip(in, n, 0);
    }
    free(in);
}
END_TEST

START_TEST(one_byte_throughout_is_small)
{
    uint8_t *in = bytes(MOST);

    for (int byte = 0; byte < 256; byte += 51) {
        memset(in, byte, MOST);
        ck_assert_uint_lt(round_trip(in, MOST, 0), 700);
    }
    free(in);
}
END_TEST

START_TEST(noise_grows_by_the_headers_alone)
{
    uint64_t state = 3;
    uint8_t *in = bytes(MOST);

    for (size_t i = 0; i < MOST; i++)
        in[i] = (uint8_t)draw(&state);
    ck_assert_uint_le(round_trip(in, MOST, 0), MOST + 6 + 7 * 6);
    free(in);
}
END_TEST

/* Half of the bytes are 0, a quarter 1 and so on: the lengths are limited. */
START_TEST(skewed_bytes_come_back_near_their_entropy)
{
    uint64_t state = 4;
    uint8_t *in = bytes(MOST);

    for (size_t i = 0; i < MOST; i++) {
        uint32_t bits = draw(&state);
        while ((bits & 1) != 0) {
            in[i]++;
            bits >>= 1;
        }
    }
    /* 2 bits each */
    ck_assert_uint_lt(round_trip(in, MOST, 0), MOST / 4 + MOST / 80);
    free(in);
}
END_TEST

START_TEST(planes_of_any_size_come_back)
{
    static const size_t planes[] = {1,     2,     100,   32767,
                                    32768, 32769, 65536, MOST};
    uint64_t state = 5;
    uint8_t *in = bytes(MOST);

    for (size_t i = 0; i < MOST; i++)
        in[i] = draw(&state) % 3 == 0 ? (uint8_t)draw(&state) : 0;
    for (size_t i = 0; i < sizeof planes / sizeof planes[0]; i++)
        round_trip(in, planes[i] < 100 ? 5000 : MOST, planes[i]);
    free(in);
}
END_TEST

/* Fibonacci numbers make the deepest tree there is. */
START_TEST(lengths_are_limited_and_use_all_of_the_code_space)
{
    uint32_t count[HUFFMAN_MAX_SYMBOLS] = {0};
    uint8_t bits[HUFFMAN_MAX_SYMBOLS];
    uint16_t code[HUFFMAN_MAX_SYMBOLS];

    for (uint32_t n = 2; n <= HUFFMAN_MAX_SYMBOLS; n += n < 30 ? 1 : 64) {
        for (uint32_t i = 0; i < n; i++)
            count[i] = i < 2 || i > 22 ? 1 : count[i - 1] + count[i - 2];
        kvr__huffman_lengths(bits, count, n, HUFFMAN_MAX_BITS);
        uint32_t space = 0;
        for (uint32_t i = 0; i < n; i++) {
            ck_assert(bits[i] > 0 && bits[i] <= HUFFMAN_MAX_BITS);
            space += 1u << (HUFFMAN_MAX_BITS - bits[i]);
        }
        ck_assert_uint_eq(space, 1u << HUFFMAN_MAX_BITS);
        kvr__huffman_codes(code, bits, n);
        for (uint32_t i = 0; i < n; i++) /* none begins another */
            for (uint32_t k = 0; k < n; k++)
                ck_assert(k == i || bits[k] < bits[i] ||
                          (code[k] & ((1u << bits[i]) - 1)) != code[i]);
    }
}
END_TEST

KVR_SUITE("deflate", every_short_length_comes_back,
          runs_of_every_length_come_back, one_byte_throughout_is_small,
          noise_grows_by_the_headers_alone,
          skewed_bytes_come_back_near_their_entropy,
          planes_of_any_size_come_back,
          lengths_are_limited_and_use_all_of_the_code_space)
