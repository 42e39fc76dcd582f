/* check_tokenizer_json.c -- tokenizer.json: what is read gives the ids that
 * Hugging Face's tokenizers gives (they were made with it, version 0.23.3),
 * and what is not understood is refused by name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "hf_tokenizer.h"

#include "kvr_memory.h"
#include "kvr_random.h"
#include "tokenizer.h"

#include <string.h>
#include <unistd.h>

#define TINY KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf"
#define BLANK "\xe2\x96\x81"

static char folder[64], path[96];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-json-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
}

static void teardown(void)
{
    static const char *const names[] = {"tokenizer_config.json",
                                        "generation_config.json",
                                        "chat_template.jinja"};
    char beside[128];

    for (size_t i = 0; i < 3; i++) {
        snprintf(beside, sizeof beside, "%s/%s", folder, names[i]);
        unlink(beside);
    }
    unlink(path);
    rmdir(folder);
}

static void write_beside(const char *name, const char *text)
{
    char beside[128];

    snprintf(beside, sizeof beside, "%s/%s", folder, name);
    hf_write(beside, hf_json(text));
}

static struct kvr_tokenizer *load(json_t *root)
{
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    hf_write(path, root);
    must(kvr__tokenizer_from_json(&t, path, &err));
    return t;
}

/* Ids as text: "1 2 3". */
static const char *ids_of(struct kvr_tokenizer *t, const char *text)
{
    static char out[512];
    struct kvr_ids ids = {0};
    struct kvr_error err = {0};
    size_t used = 0;

    must(kvr__tokenizer_encode(&ids, t, (const uint8_t *)text, strlen(text),
                               true, &err));
    out[0] = '\0';
    for (size_t i = 0; i < ids.n; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%d",
                                 i > 0 ? " " : "", ids.ids[i]);
    free(ids.ids);
    return out;
}

/* A byte-level vocabulary: a b c G(blank) N(newline) 1 2 ' s . and merges;
 * `parts`: normalizer, pre_tokenizer, post_processor, more of the model. */
static json_t *small(const char *parts)
{
    json_t *root = hf_json(
        "{'added_tokens': [{'id': 16, 'content': '<x>', 'special': true},"
        "{'id': 17, 'content': '<r>', 'special': true, 'rstrip': true},"
        "{'id': 18, 'content': '<l>', 'special': false, 'lstrip': true}],"
        "'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 1, 'c': 2,"
        "'\xc4\xa0': 3, '\xc4\x8a': 4, '1': 5, '2': 6, '.': 7, 'ab': 8,"
        "'\xc4\xa0"
        "a': 9, '12': 10, 'abc': 11, '\xc4\xa0\xc4\xa0': 12, '..': 13,"
        "'a.': 14, 'ca': 15},"
        "'merges': ['a b', '\xc4\xa0 a', '1 2', '\xc4\xa0 \xc4\xa0', '. .',"
        "'a .', 'c a']}}");
    json_t *more = hf_json(parts);
    json_t *model = json_object_get(more, "model");

    if (model != NULL) {
        json_object_update(json_object_get(root, "model"), model);
        json_object_del(more, "model");
    }
    json_object_update(root, more);
    json_decref(more);
    return root;
}

#define BYTE_LEVEL \
    "{'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': "
#define SPLIT(regex, behaviour, invert) \
    "{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': " \
    "'Split', 'pattern': {" regex "}, 'behavior': '" behaviour \
    "', 'invert': " invert "}, " BYTE_LEVEL "false}]}}"
#define PLAIN "{'pre_tokenizer': " BYTE_LEVEL "true}}"
#define PLAIN_WITH(tokens) \
    "{'pre_tokenizer': " BYTE_LEVEL "true}, 'added_tokens': [" tokens "]}"

static const struct {
    const char *parts, *text, *ids;
} cases[] = {
    {PLAIN, "ab  ab12.", "8 3 3 8 10 7"},
    {PLAIN, "a<x>b", "0 16 1"},
    {PLAIN, "a <r> \n b", "0 3 17 1"},
    {PLAIN, "a \n<l> b", "0 18 3 1"},
    {PLAIN, "abc", "8 2"},
    /* raw tokens go first, longer normalized ones find what is left */
    {PLAIN_WITH("{'id': 1, 'content': 'b', 'normalized': false},"
                "{'id': 8, 'content': 'ab', 'normalized': true}"),
     "abaab", "0 1 0 0 1"},
    {PLAIN_WITH("{'id': 1, 'content': 'b', 'normalized': true},"
                "{'id': 8, 'content': 'ab', 'normalized': false}"),
     "abbab", "8 1 8"},
    {"{'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': true}}", "ab",
     "3 8"},
    {"{'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': true}}",
     " ab", "3 8"},
    {"{'pre_tokenizer': " BYTE_LEVEL "true}, 'model': {'ignore_merges': true}}",
     "abc", "11"},
    {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': "
     "'Digits', 'individual_digits': true}, " BYTE_LEVEL "true}]}}",
     "a  12", "0 12 5 6"},
    {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': "
     "'Digits', 'individual_digits': false}, " BYTE_LEVEL "true}]}}",
     "a  12", "0 12 10"},
    {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': "
     "'Punctuation', 'behavior': 'Isolated'}, " BYTE_LEVEL "false}]}}",
     "a..", "0 7 7"},
    {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': "
     "'Punctuation', 'behavior': 'Contiguous'}, " BYTE_LEVEL "false}]}}",
     "a..", "0 13"},
    {SPLIT("'Regex': '[^\\\\s.]+|\\\\s+|\\\\.{1,2}'", "Isolated", "false"),
     "ab  a...", "8 12 0 13 7"},
    {SPLIT("'Regex': '[^\\\\s.]+|\\\\s+|\\\\.{1,2}'", "Removed", "true"),
     "ab  a...", "8 12 0 13 7"},
    {SPLIT("'String': 'b.'", "Isolated", "false"), "ab.a.", "0 1 7 14"},
    {"{'normalizer': {'type': 'NFC'}, 'pre_tokenizer': " BYTE_LEVEL "true}}",
     "ab", "8"},
};

START_TEST(ids_are_those_of_the_other_implementation)
{
    struct kvr_tokenizer *t = load(small(cases[_i].parts));

    ck_assert_str_eq(ids_of(t, cases[_i].text), cases[_i].ids);
    kvr__tokenizer_free(t);
}
END_TEST

static const struct {
    const char *parts, *says;
    enum kvr_status status;
} refused[] = {
    {"{'normalizer': {'type': 'NFKC'}}", "normalizer 'NFKC'",
     KVR_ERR_UNSUPPORTED},
    {"{'normalizer': {'type': 'Sequence', 'normalizers': [{'type': "
     "'Lowercase'}]}}",
     "normalizer 'Lowercase'", KVR_ERR_UNSUPPORTED},
    {"{'normalizer': {'type': 'Sequence'}}", "Sequence without", KVR_ERR_INPUT},
    {"{'pre_tokenizer': {'type': 'Whitespace'}}", "'Whitespace'",
     KVR_ERR_UNSUPPORTED},
    {"{'pre_tokenizer': null}", "byte_fallback", KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': 'a'", "MergedWithNext", "false"), "MergedWithNext",
     KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': 'a'", "Isolated", "true"), "invert", KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': '\\\\w+'", "Isolated", "false"), "'\\w'",
     KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': 'a*'", "Isolated", "false"), "can match nothing",
     KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': '(a'", "Isolated", "false"), "not understood",
     KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': '^a'", "Isolated", "false"), "'^'", KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': 'a{2}+'", "Isolated", "false"), "'}+'",
     KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': '[a[b]]'", "Isolated", "false"), "class within",
     KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': '[a&&b]'", "Isolated", "false"), "'&&'",
     KVR_ERR_UNSUPPORTED},
    {SPLIT("'Regex': '(?<n>a)'", "Isolated", "false"), "kind of group",
     KVR_ERR_UNSUPPORTED},
    {"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [" BYTE_LEVEL
     "true}, {'type': 'Digits'}]}}",
     "after ByteLevel", KVR_ERR_UNSUPPORTED},
    {"{'pre_tokenizer': " BYTE_LEVEL
     "true}, 'post_processor': {'type': 'BertProcessing'}}",
     "post_processor 'BertProcessing'", KVR_ERR_UNSUPPORTED},
    {"{'pre_tokenizer': " BYTE_LEVEL
     "true}, 'post_processor': {'type': 'TemplateProcessing', 'single': "
     "[{'Sequence': {'id': 'A'}}, {'SpecialToken': {'id': '<x>'}}]}}",
     "TemplateProcessing with single", KVR_ERR_UNSUPPORTED},
    {"{'pre_tokenizer': " BYTE_LEVEL "true}, 'model': {'type': 'Unigram'}}",
     "'Unigram'", KVR_ERR_UNSUPPORTED},
    {"{'pre_tokenizer': " BYTE_LEVEL
     "true}, 'model': {'end_of_word_suffix': '</w>'}}",
     "end_of_word_suffix", KVR_ERR_UNSUPPORTED},
    {"{'pre_tokenizer': " BYTE_LEVEL "true}, 'model': {'merges': ['a x']}}",
     "merge 0 ('a x')", KVR_ERR_INPUT},
    {"{'pre_tokenizer': " BYTE_LEVEL "true}, 'model': {'merges': [7]}}",
     "merge 0", KVR_ERR_INPUT},
    {"{'pre_tokenizer': " BYTE_LEVEL
     "true}, 'model': {'vocab': {'a': 99999999}}}",
     "99999999", KVR_ERR_INPUT},
    {"{'pre_tokenizer': " BYTE_LEVEL
     "true}, 'model': {'vocab': {'a': 0, 'b': 0}}}",
     "id 0 of another", KVR_ERR_INPUT},
    {"{'pre_tokenizer': " BYTE_LEVEL
     "true}, 'added_tokens': [{'id': 2, 'content': 'zz'}]}",
     "'zz'", KVR_ERR_INPUT},
    {"{'pre_tokenizer': " BYTE_LEVEL
     "true}, 'added_tokens': [{'id': 20, 'content': 'ab'}]}",
     "vocabulary has it as 8", KVR_ERR_INPUT},
    {"{'pre_tokenizer': " BYTE_LEVEL
     "true}, 'added_tokens': [{'id': 16, 'content': 'z', 'single_word': "
     "true}]}",
     "single_word", KVR_ERR_UNSUPPORTED},
};

START_TEST(what_is_not_understood_is_refused_by_name)
{
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    hf_write(path, small(refused[_i].parts));
    must_fail(kvr__tokenizer_from_json(&t, path, &err), refused[_i].status,
              refused[_i].says);
    ck_assert_ptr_nonnull(strstr(err.message, path));
    ck_assert_ptr_null(t);
}
END_TEST

START_TEST(texts_that_would_change_are_refused)
{
    struct kvr_tokenizer *t;
    struct kvr_ids ids = {0};
    struct kvr_error err = {0};

    /* 'a' and a combining acute accent */
    t = load(
        small("{'normalizer': {'type': 'NFC'}, 'pre_tokenizer': " BYTE_LEVEL
              "true}}"));
    must_fail(kvr__tokenizer_encode(&ids, t, (const uint8_t *)"a\xcc\x81", 3,
                                    true, &err),
              KVR_ERR_UNSUPPORTED, "U+0301 at byte 1");
    kvr__tokenizer_free(t);
    t = load(small(SPLIT("'Regex': 'a+'", "Removed", "true")));
    must_fail(
        kvr__tokenizer_encode(&ids, t, (const uint8_t *)"aab", 3, true, &err),
        KVR_ERR_INPUT, "byte 2");
    kvr__tokenizer_free(t);
    /* a pattern that backtracks for ever on this text */
    char text[64];
    memset(text, 'a', sizeof text);
    text[63] = 'b';
    t = load(
        small(SPLIT("'Regex': '(?:a|a|aa)+(?:c|1)'", "Isolated", "false")));
    must_fail(
        kvr__tokenizer_encode(&ids, t, (const uint8_t *)text, 64, true, &err),
        KVR_ERR_LIMIT, "too many steps");
    kvr__tokenizer_free(t);
    free(ids.ids);
}
END_TEST

/* The tiny model's vocabulary, and its merges by rank in place of scores. */
START_TEST(byte_fallback_equals_the_scores)
{
    static const char *const bits[] = {
        " ",    "  ",    "the", "he",  "ran",      "in",
        "rain", "hello", "\n",  "\t",  "<s>",      "'s",
        "12",   "a",     ".",   "end", "\xc3\xa9", "\xf0\x9f\x91\xa8"};
    const struct kvr_random stream = {.seed = 31, .purpose = KVR_RANDOM_TEST};
    struct kvr_gguf *gguf;
    struct kvr_tokenizer *own, *json;
    struct kvr_error err = {0};
    char expected[512];

    must(kvr__gguf_open(&gguf, TINY, &err));
    must(kvr__tokenizer_from_gguf(&own, gguf, &err));
    json = load(hf_byte_fallback(gguf));
    ck_assert(kvr__tokenizer_adds_bos(json));
    ck_assert_int_eq(kvr__tokenizer_bos(json), 1);
    for (uint32_t round = 0; round < 500; round++) {
        char text[256] = "";
        const uint32_t n = kvr_random_below(&stream, round, 0, 0, 12);
        for (uint32_t i = 0, used = 0; i < n; i++)
            used += (uint32_t)snprintf(
                text + used, sizeof text - used, "%s",
                bits[kvr_random_below(&stream, round, 0, i + 1, 18)]);
        snprintf(expected, sizeof expected, "%s", ids_of(own, text));
        ck_assert_msg(strcmp(ids_of(json, text), expected) == 0,
                      "'%s': %s, expected %s", text, ids_of(json, text),
                      expected);
    }
    kvr__tokenizer_free(own);
    kvr__tokenizer_free(json);
    kvr__gguf_close(gguf);
}
END_TEST

/* ids: 0 U+2581, 1 a, 2 b, 3 U+2581a, 4 U+2581U+2581, 5 <0x0A>, 6 ab */
static json_t *metaspace(const char *scheme, const char *split)
{
    char parts[256];
    json_t *root =
        hf_json("{'model': {'type': 'BPE', 'byte_fallback': true, 'vocab': {"
                "'" BLANK "': 0, 'a': 1, 'b': 2, '" BLANK "a': 3, '" BLANK BLANK
                "': 4, '<0x0A>': 5, 'ab': 6},"
                "'merges': ['" BLANK " " BLANK "', '" BLANK " a', 'a b']}}");

    snprintf(parts, sizeof parts,
             "{'type': 'Metaspace', 'replacement': '" BLANK
             "', 'prepend_scheme': '%s', 'split': %s}",
             scheme, split);
    json_object_set_new(root, "pre_tokenizer", hf_json(parts));
    return root;
}

START_TEST(metaspace_is_as_it_says)
{
    static const struct {
        const char *scheme, *split, *text, *ids;
    } spaces[] = {
        {"never", "false", "ab  a\n", "6 4 1 5"},
        {"never", "true", "ab  a", "6 0 3"},
        {"first", "false", "ab", "3 2"},
        {"first", "false", " ab", "3 2"},
        {"always", "true", "a  b", "3 0 0 2"},
        {"always", "false", "a  b", "3 4 2"},
    };
    struct kvr_tokenizer *t =
        load(metaspace(spaces[_i].scheme, spaces[_i].split));

    ck_assert_str_eq(ids_of(t, spaces[_i].text), spaces[_i].ids);
    kvr__tokenizer_free(t);
}
END_TEST

START_TEST(files_beside_it_add_ends_and_the_chat)
{
    struct kvr_tokenizer *t;
    char jinja[128];

    write_beside("tokenizer_config.json",
                 "{'eos_token': {'content': '<x>'}, 'bos_token': '<r>',"
                 "'chat_template': [{'name': 'tools', 'template': 'no'},"
                 "{'name': 'default', 'template': 'yes'}]}");
    write_beside("generation_config.json", "{'eos_token_id': [16, 17, 999]}");
    t = load(small(PLAIN));
    ck_assert(kvr__tokenizer_is_end(t, 16));
    ck_assert(kvr__tokenizer_is_end(t, 17));
    ck_assert(!kvr__tokenizer_is_end(t, 0));
    ck_assert_int_eq(kvr__tokenizer_bos(t), 17);
    ck_assert(!kvr__tokenizer_adds_bos(t));
    ck_assert(kvr_slice_is(kvr__tokenizer_chat_template(t), "yes"));
    ck_assert(kvr__tokenizer_add_end(t, 3));
    ck_assert(kvr__tokenizer_is_end(t, 3));
    kvr__tokenizer_free(t);
    snprintf(jinja, sizeof jinja, "%s/chat_template.jinja", folder);
    FILE *file = fopen(jinja, "w");
    ck_assert_ptr_nonnull(file);
    fputs("newer", file);
    fclose(file);
    t = load(small(PLAIN));
    ck_assert(kvr_slice_is(kvr__tokenizer_chat_template(t), "newer"));
    kvr__tokenizer_free(t);
}
END_TEST

/* Two files that say it differently: neither is taken. */
START_TEST(contradictions_beside_it_are_refused)
{
    static const struct {
        const char *beside, *says;
    } files[] = {
        {"{'add_bos_token': true}", "adds no BOS token"},
        {"{'add_eos_token': true}", "add_eos_token"},
    };
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    hf_write(path, small(PLAIN));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        write_beside("tokenizer_config.json", files[i].beside);
        const enum kvr_status status = kvr__tokenizer_from_json(&t, path, &err);
        ck_assert_int_eq(kvr_status_exit_code(status), 3);
        ck_assert_msg(strstr(err.message, files[i].says) != NULL, "%s",
                      err.message);
    }
    write_beside("tokenizer_config.json",
                 "{'add_bos_token': false, 'add_eos_token': false}");
    must(kvr__tokenizer_from_json(&t, path, &err));
    kvr__tokenizer_free(t);
}
END_TEST

START_TEST(other_files_are_refused)
{
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    must_fail(kvr__tokenizer_from_json(&t, "/nowhere/tokenizer.json", &err),
              KVR_ERR_IO, "/nowhere/tokenizer.json");
    must_fail(kvr__tokenizer_from_json(&t, TINY, &err), KVR_ERR_INPUT, TINY);
    hf_write(path, hf_json("[1]"));
    must_fail(kvr__tokenizer_from_json(&t, path, &err), KVR_ERR_INPUT,
              "expected a JSON object");
    hf_write(path, hf_json("{'a': 1}"));
    must_fail(kvr__tokenizer_from_json(&t, path, &err), KVR_ERR_INPUT,
              "not a tokenizer.json");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_json");
    TCase *tc = tcase_create("tokenizer_json");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, ids_are_those_of_the_other_implementation, 0,
                        sizeof cases / sizeof cases[0]);
    tcase_add_loop_test(tc, what_is_not_understood_is_refused_by_name, 0,
                        sizeof refused / sizeof refused[0]);
    tcase_add_test(tc, texts_that_would_change_are_refused);
    tcase_add_test(tc, byte_fallback_equals_the_scores);
    tcase_add_loop_test(tc, metaspace_is_as_it_says, 0, 6);
    tcase_add_test(tc, files_beside_it_add_ends_and_the_chat);
    tcase_add_test(tc, contradictions_beside_it_are_refused);
    tcase_add_test(tc, other_files_are_refused);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
