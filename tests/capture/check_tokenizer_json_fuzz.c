/* check_tokenizer_json_fuzz.c -- damaged tokenizer.json files: a status and a
 * message, never a crash; what loads encodes. The seed is fixed; FUZZ_ROUNDS
 * asks for a longer run; run it under the sanitizers.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "hf_tokenizer.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "kvr_random.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 1500 };

static char folder[64], path[96];

static uint32_t rounds(void)
{
    const char *wanted = getenv("FUZZ_ROUNDS");
    const long n = wanted != NULL ? strtol(wanted, NULL, 10) : ROUNDS;

    return n > 0 ? (uint32_t)n : ROUNDS;
}

static uint32_t draw(uint32_t round, uint32_t index, uint32_t n)
{
    const struct kvr_random stream = {.seed = 20240608,
                                      .purpose = KVR_RANDOM_TEST};

    return kvr_random_below(&stream, round, 0, index, n);
}

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-fuzz-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
}

static void teardown(void)
{
    unlink(path);
    rmdir(folder);
}

/* Texts that change what the JSON says while it stays JSON. */
static const char *const words[] = {
    "null",
    "true",
    "-1",
    "0",
    "1e9",
    "[]",
    "{}",
    "\"\"",
    "\"BPE\"",
    "\"Split\"",
    "[[]]",
    "4294967296",
    "\"a b\"",
    "\"<s>\"",
    "\"ByteLevel\"",
    "\"Metaspace\"",
    "\"\\u2581\"",
    "{\"String\":\" \"}",
    "{\"Regex\":\"\\\\s+(?!\\\\S)|.\"}",
    "{\"Regex\":\"[[\"}",
};

/* End of the JSON value that begins at text[at]. */
static size_t value_end(const char *text, size_t at, size_t size)
{
    int depth = 0;
    bool quoted = false;

    for (; at < size; at++) {
        const char c = text[at];
        if (quoted && c == '\\')
            at++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{'))
            depth++;
        else if (!quoted && (c == ']' || c == '}') && --depth < 0)
            return at;
        else if (!quoted && depth == 0 && c == ',')
            return at;
    }
    return at;
}

/* A value somewhere after `at` is replaced by one of the words. */
static char *replace(char *text, size_t *size, uint32_t round, uint32_t i)
{
    const uint32_t limit = draw(round, 8 * i, 3) == 0 ? (uint32_t)*size : 900;
    size_t at = draw(round, 8 * i + 1, limit);
    const char *word =
        words[draw(round, 8 * i + 2, sizeof words / sizeof words[0])];

    while (at < *size && text[at] != ':' && text[at] != ',')
        at++;
    if (at + 1 >= *size)
        return text;
    const size_t end = value_end(text, ++at, *size), n = strlen(word);
    char *changed = malloc(*size + n + 1);
    ck_assert_ptr_nonnull(changed);
    memcpy(changed, text, at);
    memcpy(changed + at, word, n);
    memcpy(changed + at + n, text + end, *size - end);
    *size = at + n + *size - end;
    changed[*size] = '\0';
    free(text);
    return changed;
}

/* Returns whether the file loaded. */
static bool try_file(void)
{
    static const uint8_t text[] = "he \xe2\x96\x81  12's<s>\n\xff.the";
    struct kvr_tokenizer *t = NULL;
    struct kvr_ids ids = {0};
    struct kvr_error err = {0};
    enum kvr_status status = kvr__tokenizer_from_json(&t, path, &err);

    ck_assert_int_ne(status, KVR_ERR_INTERNAL);
    ck_assert((status == KVR_OK) == (t != NULL));
    ck_assert(status == KVR_OK || err.message[0] != '\0');
    const bool loaded = status == KVR_OK;
    if (loaded)
        status =
            kvr__tokenizer_encode(&ids, t, text, sizeof text - 1, true, &err);
    ck_assert_int_ne(status, KVR_ERR_INTERNAL);
    for (size_t i = 0; i < ids.n; i++)
        ck_assert_uint_lt((size_t)ids.ids[i], kvr__tokenizer_size(t));
    free(ids.ids);
    kvr__tokenizer_free(t);
    return loaded;
}

static char *read_whole(size_t *size)
{
    uint8_t *bytes;
    struct kvr_error err = {0};

    must(kvr_file_read(&bytes, size, path, 1 << 24, &err));
    return (char *)bytes;
}

static const struct {
    const char *model;
    json_t *(*make)(const struct kvr_gguf *gguf);
} sources[] = {
    {KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf", hf_byte_fallback},
    {KVR_TEST_DATA "/golden/gguf/f32.gguf", NULL},
};

START_TEST(damaged_files_never_crash)
{
    struct kvr_gguf *gguf;
    struct kvr_error err = {0};
    size_t size;
    uint32_t loaded = 0;

    must(kvr__gguf_open(&gguf, sources[_i].model, &err));
    json_t *root = sources[_i].make != NULL ? sources[_i].make(gguf)
                                            : hf_byte_level(gguf, true);
    hf_write(path, root);
    kvr__gguf_close(gguf);
    char *whole = read_whole(&size);
    ck_assert(try_file());
    for (uint32_t round = 0, n = rounds(); round < n; round++) {
        size_t left = size;
        char *text = kvr_strndup(whole, size);
        const uint32_t changes = 1 + draw(round, 0, 2);
        for (uint32_t i = 1; i <= changes; i++)
            text = replace(text, &left, round, i);
        if (draw(round, 90, 8) == 0)
            text[draw(round, 91, (uint32_t)left)] = (char)draw(round, 92, 256);
        if (draw(round, 93, 16) == 0)
            left = draw(round, 94, (uint32_t)left);
        FILE *file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(text, 1, left, file), left);
        fclose(file);
        free(text);
        loaded += try_file();
    }
    ck_assert_uint_gt(loaded, rounds() / 50);
    ck_assert_uint_lt(loaded, rounds());
    free(whole);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_json_fuzz");
    TCase *tc = tcase_create("tokenizer_json_fuzz");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, damaged_files_never_crash, 0, 2);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
