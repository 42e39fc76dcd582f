/* check_codec.c -- a tile's stream is a function of the tile.
 *
 * The same tiles are packed by compressors that lie elsewhere and were used for
 * other tiles before: every stream must be the same, and give the tile back.
 * KVR_CODEC_ROUNDS says how often (3000: as many as one tile in 10,000 needs to
 * show); short planes 50 times as often.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "codec.h"
#include "kvr_half.h"
#include "kvr_hash.h"
#include "kvr_random.h"

#include "suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 96, ROWS = 64, KEYS = 370, N = ROWS * KEYS };

static struct kvr_error err;

/* Rows as a capture writes them: nothing above the diagonal, so the first tile
 * of a head is mostly zeros; few exponents, random mantissas. */
static void make_tile(uint16_t *tile, uint32_t number)
{
    const struct kvr_random s = {
        .seed = 7, .purpose = KVR_RANDOM_TEST, .head = number};
    const uint32_t first = number % 6 * ROWS;

    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < KEYS; i++) {
            const double u = kvr_random_real(&s, r, 0, i);
            const float x = (float)exp(-9 * u) / (float)(first + r + 1);
            tile[r * KEYS + i] = i <= first + r ? kvr_f32_to_f16(x) : 0;
        }
}

/* Memory that is never touched, so that the next compressor lies elsewhere. */
static void *shift(uint32_t round)
{
    void *p = malloc((size_t)(1 + round * 7919 % 4093) * 4096);

    ck_assert_ptr_nonnull(p);
    return p;
}

static uint64_t pack(struct codec *codec, const uint16_t *tile, bool unpack)
{
    const uint8_t *packed;
    size_t n_packed;

    must(kvr__codec_pack(codec, &packed, &n_packed, tile, N, 2, &err));
    ck_assert_uint_lt(n_packed, 2 * N);
    if (unpack) {
        uint16_t *back = malloc(2 * N);
        uint8_t *copy = malloc(n_packed);
        memcpy(copy, packed, n_packed);
        ck_assert(kvr__codec_unpack(codec, back, N, 2, copy, n_packed, true));
        ck_assert_int_eq(memcmp(back, tile, 2 * N), 0);
        free(back);
        free(copy);
        must(kvr__codec_pack(codec, &packed, &n_packed, tile, N, 2, &err));
    }
    return kvr_hash64(packed, n_packed) ^ n_packed;
}

static uint32_t asked_rounds(void)
{
    const char *asked = getenv("KVR_CODEC_ROUNDS");

    return asked != NULL ? (uint32_t)strtoul(asked, NULL, 10) : 40;
}

START_TEST(one_tile_one_stream)
{
    const uint32_t rounds = asked_rounds();
    uint16_t *tiles = malloc((size_t)TILES * N * sizeof *tiles);
    uint64_t first[TILES];

    for (uint32_t k = 0; k < TILES; k++)
        make_tile(tiles + (size_t)k * N, k);
    for (uint32_t round = 0; round < rounds; round++) {
        struct codec *codec;
        void *room = shift(round);
        must(kvr__codec_new(&codec, 1, &err));
        for (uint32_t i = 0; i < TILES; i++) {
            const uint32_t k = (i * 37 + round) % TILES;
            const uint64_t now = pack(codec, tiles + (size_t)k * N, round == 0);
            if (round == 0)
                first[k] = now;
            ck_assert_msg(first[k] == now, "tile %u, round %u", k, round);
        }
        kvr__codec_free(codec);
        free(room);
    }
    free(tiles);
}
END_TEST

/* Planes about as short as what ISA-L keeps back: few values, so that runs come
 * again. */
START_TEST(short_planes_have_one_stream)
{
    static const size_t sizes[] = {1,   2,   15,  16,  17,   18,
                                   33,  64,  255, 287, 288,  289,
                                   290, 305, 306, 576, 1024, 4096};
    enum { N_SIZE = sizeof sizes / sizeof sizes[0], KINDS = 8 };
    const struct kvr_random s = {.seed = 9, .purpose = KVR_RANDOM_TEST};
    uint64_t first[N_SIZE][KINDS];
    uint16_t plain[4096];

    for (uint32_t round = 0; round < 50 * asked_rounds(); round++) {
        struct codec *codec;
        void *room = shift(round);
        must(kvr__codec_new(&codec, 1, &err));
        for (uint32_t k = 0; k < N_SIZE; k++)
            for (uint32_t kind = 0; kind < KINDS; kind++) {
                const uint8_t *packed;
                size_t n_packed;
                for (size_t i = 0; i < sizes[k]; i++)
                    plain[i] =
                        (uint16_t)(kvr_random_real(&s, (uint32_t)i, 0, kind) *
                                   (1 << kind));
                must(kvr__codec_pack(codec, &packed, &n_packed, plain, sizes[k],
                                     2, &err));
                const uint64_t now = kvr_hash64(packed, n_packed) ^ n_packed;
                if (round == 0)
                    first[k][kind] = now;
                ck_assert_msg(first[k][kind] == now, "%zu numbers, round %u",
                              sizes[k], round);
            }
        kvr__codec_free(codec);
        free(room);
    }
}
END_TEST

/* Lengths around every internal size; zeros, noise, one value. */
START_TEST(every_length_comes_back)
{
    static const size_t sizes[] = {1, 2, 4, 8};
    const struct kvr_random s = {.seed = 8, .purpose = KVR_RANDOM_TEST};
    uint8_t *plain = malloc(8 * 1100), *back = malloc(8 * 1100);
    struct codec *codec;

    must(kvr__codec_new(&codec, 1, &err));
    for (size_t n = 1; n < 1100; n += n < 300 ? 1 : 97)
        for (size_t k = 0; k < 12; k++) {
            const size_t size = sizes[k % 4], bytes = n * size;
            const uint8_t *packed;
            size_t n_packed;
            for (size_t i = 0; i < bytes; i++)
                plain[i] = k < 4   ? 0
                           : k < 8 ? (uint8_t)kvr_random_below(
                                         &s, (uint32_t)i, 0, (uint32_t)n, 256)
                                   : 61;
            must(kvr__codec_pack(codec, &packed, &n_packed, plain, n, size,
                                 &err));
            uint8_t *copy = malloc(n_packed);
            memcpy(copy, packed, n_packed);
            ck_assert(
                kvr__codec_unpack(codec, back, n, size, copy, n_packed, true));
            ck_assert_int_eq(memcmp(back, plain, bytes), 0);
            free(copy);
        }
    kvr__codec_free(codec);
    free(plain);
    free(back);
}
END_TEST

KVR_SUITE("codec", one_tile_one_stream, short_planes_have_one_stream,
          every_length_comes_back)
