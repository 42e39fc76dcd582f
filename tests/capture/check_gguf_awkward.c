/* check_gguf_awkward.c -- every gguf_* and txt_* file of tests/awkward does
 * what tests/awkward/README.md says.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"
#include "suite.h"

#include "kvr_capture.h"
#include "kvr_file.h"
#include "kvr_log.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define AWKWARD KVR_TEST_DATA "/awkward/"
#define TINY AWKWARD "gguf_ok_tiny.gguf"

enum { MAX_WORDS = 4 };

static const struct {
    const char *file;
    const char *words[MAX_WORDS]; /* all in the message */
    const char *not_this;         /* and this is not; NULL: anything */
} refused[] = {
    {"gguf_html_page.gguf",
     {"not a GGUF file", "<!DO", "download failed"},
     NULL},
    {"gguf_empty.gguf", {"empty file"}, NULL},
    {"gguf_truncated_header.gguf",
     {"tokenizer.ggml.tokens", " bytes in all"},
     NULL},
    {"gguf_truncated_data.gguf",
     {"tensor 'blk.", "ends at byte", "the file has"},
     NULL},
    {"gguf_big_endian.gguf", {"big-endian"}, "50331648"},
    {"gguf_version1.gguf", {"version 1", "2 and 3"}, NULL},
    {"gguf_n_kv_huge.gguf", {"9223372036854775808", "24 bytes"}, NULL},
    {"gguf_n_tensors_huge.gguf", {"2305843009213693952", "24 bytes"}, NULL},
    {"gguf_key_len_huge.gguf", {"18446744073709551615"}, NULL},
    {"gguf_array_len_huge.gguf", {"4611686018427387904"}, NULL},
    {"gguf_array_nested_deep.gguf", {"nested deeper"}, NULL},
    {"gguf_kv_type_unknown.gguf", {"value type 77", "metadata key"}, NULL},
    {"gguf_align_zero.gguf", {"general.alignment is 0"}, NULL},
    {"gguf_ndims_255.gguf", {"tensor '", "255 dimensions"}, NULL},
    {"gguf_dim_zero.gguf", {"tensor '", "is 0"}, NULL},
    {"gguf_dims_product_wraps.gguf", {"tensor '", "size overflows"}, NULL},
    {"gguf_offset_past_eof.gguf", {"tensor 'b'", "1099511627776"}, NULL},
    {"gguf_offset_unaligned.gguf",
     {"tensor '", "offset 17", "alignment 32"},
     NULL},
    {"gguf_duplicate_key.gguf",
     {"llama.attention.head_count_kv", "twice"},
     NULL},
    {"gguf_quant_iq4xs.gguf", {"output_norm.weight"}, "corrupt"},
    {"gguf_key_length_16.gguf",
     {"attention.key_length 16", "blk.0.attn_q.weight", "[32, 32]", "[32, 64]"},
     NULL},
    {"gguf_split_part-00001-of-00003.gguf",
     {"-00002-of-00003.gguf", "-00003-of-00003.gguf"},
     "ffn_up"},
    {"gguf_vocab_only.gguf", {"no tensors"}, NULL},
    {"gguf_arch_unsupported.gguf", {"mamba", "supported: llama"}, "missing"},
    {"gguf_no_tokenizer.gguf", {"tokenizer.ggml.model"}, NULL},
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

START_TEST(bad_model_is_refused_by_name)
{
    char path[512];
    struct kvr_capture *capture;
    struct kvr_error err = {0};
    const double start = seconds();

    snprintf(path, sizeof path, "%s%s", AWKWARD, refused[_i].file);
    const struct kvr_capture_options options = {
        .model = path, .prompt = "hello", .output = "never.kvt.h5"};
    const enum kvr_status status = kvr_capture_new(&capture, &options, &err);
    ck_assert_int_eq(kvr_status_exit_code(status), 3);
    ck_assert_ptr_null(capture);
    ck_assert_msg(strstr(err.message, refused[_i].file) != NULL, "%s",
                  err.message);
    for (int k = 0; k < MAX_WORDS && refused[_i].words[k] != NULL; k++)
        ck_assert_msg(strstr(err.message, refused[_i].words[k]) != NULL,
                      "'%s' lacks '%s'", err.message, refused[_i].words[k]);
    ck_assert_msg(refused[_i].not_this == NULL ||
                      strstr(err.message, refused[_i].not_this) == NULL,
                  "'%s'", err.message);
    ck_assert(seconds() - start < 2);
    ck_assert(!kvr_file_exists("never.kvt.h5"));
    ck_assert(!kvr_file_exists("never.kvt.h5.part"));
}
END_TEST

/* Greedy ids after the prompt of ok_tiny.expected.json. */
static void generate(struct golden_run *run, const int32_t *prompt,
                     uint32_t n_prompt, int32_t *out, uint32_t n)
{
    struct kvr_error err = {0};
    float logits[512];

    ck_assert_uint_le(run->model.config.n_vocab, 512);
    golden_feed(run, prompt, n_prompt, n_prompt);
    uint32_t row = n_prompt - 1;
    for (uint32_t i = 0; i < n; i++, row = 0) {
        must(kvr__decoder_logits(run->decoder, logits, row, &err));
        out[i] = 0;
        for (uint32_t k = 1; k < run->model.config.n_vocab; k++)
            out[i] = logits[k] > logits[out[i]] ? (int32_t)k : out[i];
        golden_feed(run, &out[i], 1, 1);
    }
}

static json_t *expected_json(void)
{
    json_error_t error;
    json_t *root = json_load_file(AWKWARD "ok_tiny.expected.json", 0, &error);

    ck_assert_msg(root != NULL, "%s", error.text);
    return root;
}

static uint32_t read_ids(const json_t *root, const char *name, int32_t *out)
{
    const json_t *list = json_object_get(root, name);

    for (size_t i = 0; i < json_array_size(list); i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (uint32_t)json_array_size(list);
}

START_TEST(control_agrees)
{
    static const char *const files[] = {TINY, AWKWARD "gguf_version2_ok.gguf"};
    json_t *root = expected_json();
    int32_t prompt[16], greedy[16], found[16];
    const uint32_t n = read_ids(root, "prompt_ids", prompt);
    const uint32_t n_new = read_ids(root, "greedy_ids_after_prompt", greedy);
    const uint32_t T = n + n_new;
    struct golden_run run;

    golden_run_init(&run, files[_i], T, n, 1);
    generate(&run, prompt, n, found, n_new);
    for (uint32_t i = 0; i < n_new; i++)
        ck_assert_int_eq(found[i], greedy[i]);
    for (size_t l = 0; l < 2; l++)
        for (size_t h = 0; h < 4; h++)
            for (size_t k = 0; k < T; k++) {
                const json_t *rows = json_object_get(root, "last_row");
                const double e = json_number_value(json_array_get(
                    json_array_get(json_array_get(rows, l), h), k));
                const double a =
                    (double)run.attention[((l * 4 + h) * T + T - 1) * T + k];
                ck_assert(fabs(a - e) <= 1e-3);
            }
    ck_assert_uint_eq(run.model.config.n_kv_head, 2);
    golden_run_fini(&run);
    json_decref(root);
}
END_TEST

START_TEST(rotary_factors_are_applied)
{
    static const int32_t expected[] = {45, 56, 61, 23, 56, 272};
    json_t *root = expected_json();
    int32_t prompt[16], found[6];
    const uint32_t n = read_ids(root, "prompt_ids", prompt);
    struct golden_run run;

    golden_run_init(&run, AWKWARD "gguf_rope_freqs.gguf", n + 6, n, 1);
    generate(&run, prompt, n, found, 6);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(found[i], expected[i]);
    golden_run_fini(&run);
    json_decref(root);
}
END_TEST

static int warnings;

static void count_warnings(enum kvr_log_level level, const char *line, void *ud)
{
    (void)ud;
    warnings += level == KVR_LOG_WARNING && strstr(line, "BOS") != NULL;
}

/* The tokens' texts, one after another, are the file's bytes. */
static void check_round_trip(struct kvr_capture *capture, const char *path)
{
    struct kvr_error err = {0};
    uint8_t *bytes;
    size_t size, at = 0;

    must(kvr_file_read(&bytes, &size, path, 1 << 20, &err));
    for (uint32_t i = 0; i < kvr_capture_n_token(capture); i++) {
        const struct kvr_capture_token t = kvr_capture_token(capture, i);
        ck_assert_int_ne(t.id, 0); /* <unk> */
        ck_assert_uint_le(t.text_size, size - at);
        ck_assert_mem_eq(t.text, bytes + at, t.text_size);
        at += t.text_size;
    }
    ck_assert_uint_eq(at, size);
    free(bytes);
}

static const char *const texts[] = {
    "txt_leading_spaces.txt", "txt_crlf_tabs.txt",  "txt_emoji_zwj.txt",
    "txt_invalid_utf8.bin",   "txt_nul_inside.bin", "txt_bos_literal.txt",
    "txt_empty.txt",
};

START_TEST(text_comes_back)
{
    char path[512];
    struct kvr_capture *capture;
    struct kvr_error err = {0};
    const bool twice = strcmp(texts[_i], "txt_bos_literal.txt") == 0;

    warnings = 0;
    kvr_log_set_sink(count_warnings, NULL);
    snprintf(path, sizeof path, "%s%s", AWKWARD, texts[_i]);
    const struct kvr_capture_options options = {.model = TINY,
                                                .prompt_file = path};
    must(kvr_capture_new(&capture, &options, &err));
    check_round_trip(capture, path);
    ck_assert_int_eq(kvr_capture_token(capture, 0).id, 1); /* the BOS */
    ck_assert_int_eq(warnings, twice);
    ck_assert_ptr_nonnull(strstr(kvr_capture_plan(capture)->bos, "added id 1"));
    ck_assert((strstr(kvr_capture_plan(capture)->bos, "two") != NULL) == twice);
    kvr_capture_free(capture);
}
END_TEST

START_TEST(special_text_can_be_plain)
{
    struct kvr_capture *capture;
    struct kvr_error err = {0};
    const struct kvr_capture_options options = {
        .model = TINY,
        .prompt_file = AWKWARD "txt_bos_literal.txt",
        .no_special = true,
    };

    must(kvr_capture_new(&capture, &options, &err));
    ck_assert_int_ne(kvr_capture_token(capture, 1).id, 1);
    check_round_trip(capture, options.prompt_file);
    kvr_capture_free(capture);
}
END_TEST

/* Memory of the refusals above stays small. */
START_TEST(refusing_takes_little_memory)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
#if !defined(__SANITIZE_ADDRESS__)
    ck_assert_int_lt(use.ru_maxrss, 200 * 1024);
#endif
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_awkward");
    TCase *tc = tcase_create("gguf_awkward");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, bad_model_is_refused_by_name, 0,
                        sizeof refused / sizeof refused[0]);
    tcase_add_test(tc, refusing_takes_little_memory);
    tcase_add_loop_test(tc, control_agrees, 0, 2);
    tcase_add_test(tc, rotary_factors_are_applied);
    tcase_add_loop_test(tc, text_comes_back, 0, sizeof texts / sizeof texts[0]);
    tcase_add_test(tc, special_text_can_be_plain);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
