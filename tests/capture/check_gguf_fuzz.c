/* check_gguf_fuzz.c -- damaged model files and arbitrary text: a status, never
 * a crash. The seed is fixed; run it under the sanitizers.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"
#include "tokenizer.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "kvr_random.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 400, HEADER = 8320 };

static char path[64];

/* FUZZ_ROUNDS asks for a longer run. */
static uint32_t rounds(void)
{
    const char *wanted = getenv("FUZZ_ROUNDS");
    const long n = wanted != NULL ? strtol(wanted, NULL, 10) : ROUNDS;

    return n > 0 ? (uint32_t)n : ROUNDS;
}

static uint32_t draw(uint32_t round, uint32_t index, uint32_t n)
{
    const struct kvr_random stream = {.seed = 20240607,
                                      .purpose = KVR_RANDOM_TEST};

    return kvr_random_below(&stream, round, 0, index, n);
}

static void setup(void)
{
    snprintf(path, sizeof path, "/tmp/kvr-fuzz-XXXXXX");
    suite_make_file(path);
}

static void teardown(void)
{
    unlink(path);
}

/* What a capture would do with the file, as far as it goes. */
static bool try_model(void)
{
    const struct kvr_decoder_options options = {
        .max_tokens = 4, .max_rows = 2, .threads = 1};
    static const int32_t ids[] = {1, 2, 3};
    struct kvr_model model;
    struct kvr_tokenizer *tokenizer = NULL;
    struct kvr_decoder *decoder = NULL;
    struct kvr_error err = {0};
    enum kvr_status status = kvr__model_init(&model, path, &err);

    if (status == KVR_OK)
        status = kvr__tokenizer_from_gguf(&tokenizer, model.gguf, &err);
    if (status == KVR_OK)
        status = kvr__decoder_new(&decoder, &model, &kvr__backend_cpu, &options,
                                  &err);
    if (status == KVR_OK)
        status = kvr__decoder_feed(decoder, ids, 2, NULL, &err);
    if (status == KVR_OK)
        status = kvr__decoder_feed(decoder, ids + 2, 1, NULL, &err);
    ck_assert_int_ne(status, KVR_ERR_INTERNAL);
    ck_assert(status == KVR_OK || err.message[0] != '\0');
    kvr__decoder_free(decoder);
    kvr__tokenizer_free(tokenizer);
    kvr__model_fini(&model);
    return status == KVR_OK;
}

/* Some bytes changed, mostly in the header; sometimes cut. */
static size_t damage(uint8_t *bytes, size_t size, uint32_t round)
{
    const uint32_t n = 1 + draw(round, 0, 4);

    for (uint32_t i = 0; i < n; i++) {
        const bool header = draw(round, 4 * i + 1, 8) != 0;
        const uint32_t at =
            draw(round, 4 * i + 2, header ? HEADER : (uint32_t)size);
        const uint32_t how = draw(round, 4 * i + 3, 4);
        const uint8_t value = (uint8_t)draw(round, 4 * i + 4, 256);
        bytes[at] = how == 0   ? 0xff
                    : how == 1 ? (uint8_t)(bytes[at] ^ (1u << (value & 7)))
                               : value;
        if (how == 3 && at + 8 <= size) /* a large length or count */
            memset(bytes + at, 0xff, value % 9);
    }
    return draw(round, 63, 10) == 0 ? draw(round, 64, (uint32_t)size) : size;
}

START_TEST(damaged_models_never_crash)
{
    struct kvr_error err = {0};
    uint8_t *whole, *bytes;
    size_t size;
    const uint32_t n = rounds();
    uint32_t loaded = 0;

    must(kvr_file_read(&whole, &size,
                       KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf", 1 << 20,
                       &err));
    bytes = kvr_calloc(size, 1);
    for (uint32_t round = 0; round < n; round++) {
        memcpy(bytes, whole, size);
        const size_t left = damage(bytes, size, round);
        FILE *file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(bytes, 1, left, file), left);
        fclose(file);
        loaded += try_model();
    }
    /* both ways out were taken */
    ck_assert_uint_gt(loaded, n / 50);
    ck_assert_uint_lt(loaded, n);
    free(bytes);
    free(whole);
}
END_TEST

static size_t make_text(uint8_t *text, size_t room, uint32_t round)
{
    static const char *const bits[] = {
        " ",        "  ",           "the",
        "he",       "\xe2\x96\x81", "\xe2\x96",
        "<s>",      "\n",           "\t",
        "'s",       "12",           "\xf0\x9f\x91\xa8\xe2\x80\x8d",
        "\xc2\xa0", "<|im_end|>",   "<|im_",
        "<0x41>",   "\xe2\x80\x83", "a",
        ".",        "\xcc\x81",
    };
    const uint32_t n = draw(round, 0, 60);
    size_t size = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t pick = draw(round, i + 1, 24);
        if (pick < 20 && size + 16 < room) {
            memcpy(text + size, bits[pick], strlen(bits[pick]));
            size += strlen(bits[pick]);
        } else if (size < room) {
            text[size++] = (uint8_t)draw(round, 1000 + i, 256);
        }
    }
    return size;
}

/* The ids' bytes are the text's, but for the blank that was added. */
static void check_round_trip(struct kvr_tokenizer *t, const uint8_t *text,
                             size_t size, bool special)
{
    struct kvr_ids ids = {0};
    struct kvr_error err = {0};
    size_t at = 0;

    must(kvr__tokenizer_encode(&ids, t, text, size, special, &err));
    for (size_t i = 0; i < ids.n; i++) {
        struct kvr_slice piece = kvr__tokenizer_piece(t, ids.ids[i]);
        if (i == 0 && ids.spaced) {
            ck_assert_int_eq(piece.bytes[0], ' ');
            piece.bytes++;
            piece.size--;
        }
        ck_assert_uint_le(piece.size, size - at);
        ck_assert(piece.size == 0 ||
                  memcmp(piece.bytes, text + at, piece.size) == 0);
        at += piece.size;
    }
    ck_assert_uint_eq(at, size);
    free(ids.ids);
}

START_TEST(any_text_comes_back)
{
    static const char *const models[] = {
        KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf",
        KVR_TEST_DATA "/golden/gguf/f32.gguf",
    };
    struct kvr_gguf *gguf;
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};
    uint8_t text[1024];

    must(kvr__gguf_open(&gguf, models[_i], &err));
    must(kvr__tokenizer_from_gguf(&t, gguf, &err));
    for (uint32_t round = 0, n = rounds(); round < n; round++) {
        const size_t size = make_text(text, sizeof text, round);
        check_round_trip(t, text, size, round % 2 == 0);
    }
    kvr__tokenizer_free(t);
    kvr__gguf_close(gguf);
}
END_TEST

/* Long words take n log n steps, not n squared. */
START_TEST(long_texts_are_quick)
{
    enum { SIZE = 1 << 19 };
    struct kvr_gguf *gguf;
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};
    uint8_t *text = kvr_calloc(SIZE, 1);
    static const char *const fill[] = {"he", " ", "\xe2\x96\x81", "1"};

    const size_t n = strlen(fill[_i]);
    for (size_t i = 0; i + n <= SIZE; i += n)
        memcpy(text + i, fill[_i], n);
    must(kvr__gguf_open(&gguf, KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf",
                        &err));
    must(kvr__tokenizer_from_gguf(&t, gguf, &err));
    check_round_trip(t, text, SIZE / n * n, true);
    kvr__tokenizer_free(t);
    kvr__gguf_close(gguf);
    must(kvr__gguf_open(&gguf, KVR_TEST_DATA "/golden/gguf/f32.gguf", &err));
    must(kvr__tokenizer_from_gguf(&t, gguf, &err));
    check_round_trip(t, text, SIZE / n * n, true);
    kvr__tokenizer_free(t);
    kvr__gguf_close(gguf);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_fuzz");
    TCase *tc = tcase_create("gguf_fuzz");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, damaged_models_never_crash);
    tcase_add_loop_test(tc, any_text_comes_back, 0, 2);
    tcase_add_loop_test(tc, long_texts_are_quick, 0, 4);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
