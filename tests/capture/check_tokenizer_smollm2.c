/* check_tokenizer_smollm2.c -- the real model's tokenizer against
 * tests/golden/smollm2/tokenizer_cases.json, both columns, and the prompts:
 * from the GGUF's metadata, and from a tokenizer.json of the same vocabulary.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "chat.h"
#include "golden.h"
#include "hf_tokenizer.h"

#include "kvr_file.h"
#include "tokenizer.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

static struct kvr_gguf *gguf;
static struct kvr_tokenizer *tokenizer;

static void setup(void)
{
    struct kvr_error err = {0};

    must(kvr__gguf_open(&gguf, golden_model(), &err));
    must(kvr__tokenizer_from_gguf(&tokenizer, gguf, &err));
}

/* What the metadata do not say in tokenizer.json stands beside it. */
static void setup_json(bool pairs)
{
    char folder[] = "/tmp/kvr-hf-XXXXXX", path[64], config[64];
    struct kvr_error err = {0};

    must(kvr__gguf_open(&gguf, golden_model(), &err));
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", folder);
    hf_write(path, hf_byte_level(gguf, pairs));
    hf_write(config, hf_json("{'bos_token': '<|im_start|>', 'eos_token':"
                             "{'content': '<|im_end|>'}}"));
    must(kvr__tokenizer_from_json(&tokenizer, path, &err));
    unlink(config);
    unlink(path);
    rmdir(folder);
}

static void setup_json_texts(void)
{
    setup_json(false);
}

static void setup_json_pairs(void)
{
    setup_json(true);
}

static void teardown(void)
{
    kvr__tokenizer_free(tokenizer);
    kvr__gguf_close(gguf);
}

static void check_text(const char *name, const uint8_t *text, size_t size,
                       const int32_t *expected, size_t n, bool special)
{
    struct kvr_ids ids = {0};
    struct kvr_error err = {0};
    size_t at = 0;

    must(kvr__tokenizer_encode(&ids, tokenizer, text, size, special, &err));
    ck_assert_msg(ids.n == n, "%s: %zu ids, expected %zu", name, ids.n, n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(ids.ids[i] == expected[i],
                      "%s: id %zu is %d, expected %d", name, i, ids.ids[i],
                      expected[i]);
        const struct kvr_slice piece =
            kvr__tokenizer_piece(tokenizer, ids.ids[i]);
        ck_assert_uint_le(piece.size, size - at);
        ck_assert_mem_eq(piece.bytes, text + at, piece.size);
        at += piece.size;
    }
    ck_assert_uint_eq(at, size);
    free(ids.ids);
}

/* Whether the case has this column. */
static int check_column(const json_t *item, const char *column, bool special)
{
    const json_t *list = json_object_get(item, column);
    const json_t *text = json_object_get(item, "text");
    int32_t ids[4096];
    const size_t n = json_array_size(list);

    if (list == NULL)
        return 0;
    ck_assert_uint_le(n, 4096);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    check_text(json_string_value(json_object_get(item, "name")),
               (const uint8_t *)json_string_value(text),
               json_string_length(text), ids, n, special);
    return 1;
}

START_TEST(golden_cases_are_equal)
{
    json_error_t error;
    json_t *cases =
        json_load_file(KVR_TEST_DATA "/golden/smollm2/tokenizer_cases.json",
                       JSON_ALLOW_NUL, &error);
    size_t i;
    int checked = 0;
    json_t *item;

    ck_assert_msg(cases != NULL, "%s", error.text);
    ck_assert_uint_eq(json_array_size(cases), 34);
    json_array_foreach(cases, i, item)
    {
        checked += check_column(item, "ids", true);
        checked += check_column(item, "ids_no_special", false);
    }
    ck_assert_int_eq(checked, 34 + 31); /* three prompts have one column */
    json_decref(cases);
}
END_TEST

START_TEST(prompts_are_equal)
{
    static const char *const names[] = {"prose", "code", "mixed"};
    struct kvr_error err = {0};
    char path[512];
    uint8_t *text;
    size_t size, n;

    snprintf(path, sizeof path, "%s/golden/smollm2/%s.h5", KVR_TEST_DATA,
             names[_i]);
    struct golden *golden = golden_open(path);
    int32_t *ids = golden_i32(golden, "tokens", &n);
    snprintf(path, sizeof path, "%s/golden/smollm2/%s.txt", KVR_TEST_DATA,
             names[_i]);
    must(kvr_file_read(&text, &size, path, 1 << 20, &err));
    check_text(names[_i], text, size, ids, n, true);
    free(ids);
    free(text);
    golden_close(golden);
}
END_TEST

START_TEST(classes_are_told_apart)
{
    static const struct {
        const char *text;
        enum kvr_token_class class_of;
    } cases[] = {
        {"<|im_end|>", KVR_TOKEN_SPECIAL}, {"7", KVR_TOKEN_DIGIT},
        {"\n", KVR_TOKEN_SPACE},           {"   ", KVR_TOKEN_SPACE},
        {"!!!", KVR_TOKEN_PUNCTUATION},    {" --", KVR_TOKEN_PUNCTUATION},
        {" world", KVR_TOKEN_TEXT},        {"+", KVR_TOKEN_PUNCTUATION},
    };
    struct kvr_error err = {0};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_ids ids = {0};
        must(kvr__tokenizer_encode(&ids, tokenizer,
                                   (const uint8_t *)cases[i].text,
                                   strlen(cases[i].text), true, &err));
        ck_assert_uint_eq(ids.n, 1);
        ck_assert_msg(kvr__tokenizer_class(tokenizer, ids.ids[0]) ==
                          cases[i].class_of,
                      "class of '%s'", cases[i].text);
        free(ids.ids);
    }
    ck_assert(!kvr__tokenizer_adds_bos(tokenizer));
    ck_assert_int_eq(kvr__tokenizer_bos(tokenizer), 1);
    ck_assert(kvr__tokenizer_is_end(tokenizer, 2));
}
END_TEST

/* The template of the file, with the default turn that is spelt out in it. */
START_TEST(chat_is_the_models_own)
{
    static const char expected[] =
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
        "trained by Hugging Face<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
        "<|im_start|>assistant\n";
    struct kvr_chat chat;
    struct kvr_error err = {0};

    must(kvr__chat_apply(&chat, "auto", tokenizer, (const uint8_t *)"Who?", 4,
                         &err));
    ck_assert_str_eq(chat.name, "chatml");
    ck_assert_str_eq((const char *)chat.text, expected);
    ck_assert(!chat.bos);
    free(chat.text);
}
END_TEST

/* Any bytes either come back or are refused with the offset of the first
 * byte that has no token. */
START_TEST(odd_bytes_come_back_or_are_named)
{
    struct kvr_error err = {0};
    struct kvr_ids ids = {0};
    static const uint8_t nul[] = {'a', 0, 'b'};
    static const uint8_t bad[] = {'a', 'b', 0xff, 'c'};

    must(kvr__tokenizer_encode(&ids, tokenizer, nul, sizeof nul, true, &err));
    ck_assert_uint_eq(ids.n, 3);
    free(ids.ids);
    ids = (struct kvr_ids){0};
    must_fail(
        kvr__tokenizer_encode(&ids, tokenizer, bad, sizeof bad, true, &err),
        KVR_ERR_INPUT, "offset 2");
    free(ids.ids);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name, SFun from)
{
    TCase *tc = tcase_create(name);

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, from, teardown);
    tcase_add_test(tc, golden_cases_are_equal);
    tcase_add_loop_test(tc, prompts_are_equal, 0, 3);
    tcase_add_test(tc, classes_are_told_apart);
    tcase_add_test(tc, odd_bytes_come_back_or_are_named);
    suite_add_tcase(suite, tc);
    return tc;
}

int main(void)
{
    if (golden_model() == NULL) {
        puts("skipped: no SmolLM2 model (./run model obtains it; "
             "KVREPLAY_MODEL names another place)");
        return 77;
    }
    Suite *suite = suite_create("tokenizer_smollm2");
    tcase_add_test(add_case(suite, "gguf", setup), chat_is_the_models_own);
    (void)add_case(suite, "json", setup_json_texts);
    (void)add_case(suite, "json_pairs", setup_json_pairs);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
