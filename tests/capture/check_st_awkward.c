/* check_st_awkward.c -- every st_* file of tests/awkward does what
 * tests/awkward/README.md says, and so do files damaged here.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_capture.h"
#include "kvr_file.h"
#include "kvr_memory.h"
#include "quant.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AWKWARD KVR_TEST_DATA "/awkward/"

enum { MAX_WORDS = 5 };

static const struct {
    const char *file;
    const char *words[MAX_WORDS]; /* all in the message */
    const char *not_this;         /* and this is not; NULL: anything */
} refused[] = {
    {"st_header_len_huge.safetensors", {"9223372036854775808"}, NULL},
    {"st_header_len_past_eof.safetensors", {"incomplete file"}, NULL},
    {"st_header_not_json.safetensors", {"not JSON", "byte "}, NULL},
    {"st_offsets_overlap.safetensors",
     {"'k_proj'", "'v_proj'", "overlap"},
     NULL},
    {"st_offsets_hole.safetensors", {"8 bytes", "'b'", "no tensor"}, NULL},
    {"st_shape_bytes_mismatch.safetensors",
     {"'t'", "[1000, 1000]", "F32", "4000000", " 4"},
     NULL},
    {"st_duplicate_name.safetensors", {"duplicate", "a"}, "offset"},
    {"st_dtype_f8.safetensors",
     {"model.layers.0.self_attn.q_proj.weight", "F8_E4M3", "F32 F16 BF16"},
     "config.json"},
    {"st_bf16_mixed.safetensors", {"config.json", "missing"}, NULL},
    {"st_missing_shard",
     {"model-00002-of-00002.safetensors", "incomplete download"},
     "tensor '"},
    {"st_missing_shard/config.json",
     {"model-00002-of-00002.safetensors"},
     NULL},
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

START_TEST(bad_file_is_refused_by_name)
{
    char path[512];
    struct kvr_model model;
    struct kvr_error err = {0};
    const double start = seconds();
    const char *slash = strrchr(refused[_i].file, '/');

    snprintf(path, sizeof path, "%s%s", AWKWARD, refused[_i].file);
    const enum kvr_status status = kvr__model_init(&model, path, &err);
    kvr__model_fini(&model);
    ck_assert_int_eq(kvr_status_exit_code(status), 3);
    const size_t n = slash != NULL ? (size_t)(slash - refused[_i].file)
                                   : strcspn(refused[_i].file, "/");
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)n, refused[_i].file);
    if (strstr(refused[_i].file, "bf16") == NULL)
        ck_assert_msg(strstr(err.message, name) != NULL, "%s", err.message);
    for (int k = 0; k < MAX_WORDS && refused[_i].words[k] != NULL; k++)
        ck_assert_msg(strstr(err.message, refused[_i].words[k]) != NULL,
                      "'%s' lacks '%s'", err.message, refused[_i].words[k]);
    ck_assert_msg(refused[_i].not_this == NULL ||
                      strstr(err.message, refused[_i].not_this) == NULL,
                  "'%s'", err.message);
    ck_assert(seconds() - start < 2);
}
END_TEST

START_TEST(bf16_is_widened_exactly)
{
    struct kvr_safetensors *st;
    struct kvr_error err = {0};
    float values[4];
    uint32_t bits[4];
    uint16_t stored[4];

    must(kvr__safetensors_open(&st, AWKWARD "st_bf16_mixed.safetensors", &err));
    ck_assert_uint_eq(kvr__safetensors_n_tensors(st), 2);
    const struct kvr_st_tensor *b = kvr__safetensors_tensor(st, 1);
    ck_assert_str_eq(b->name, "b");
    ck_assert_uint_eq(b->type, KVR_QUANT_BF16);
    ck_assert_uint_eq(b->size, sizeof stored);
    kvr__quant_find(b->type)->expand(values, b->data, 4);
    memcpy(bits, values, sizeof bits);
    memcpy(stored, b->data, sizeof stored);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(bits[i], (uint32_t)stored[i] << 16);
    ck_assert(values[0] == 1.0f && values[1] == -2.5f);
    ck_assert(values[2] > 2.9e38f && isfinite(values[2]));
    ck_assert(values[3] > 0 && values[3] < 1.2e-38f);
    kvr__safetensors_close(st);
}
END_TEST

/* ---- the control ---- */

static uint32_t read_ids(const json_t *root, const char *name, int32_t *out)
{
    const json_t *list = json_object_get(root, name);

    for (size_t i = 0; i < json_array_size(list); i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (uint32_t)json_array_size(list);
}

static void generate(struct golden_run *run, const int32_t *prompt, uint32_t n,
                     const int32_t *expected, uint32_t n_new)
{
    struct kvr_error err = {0};
    float logits[512];
    uint32_t row = n - 1;

    golden_feed(run, prompt, n, n);
    for (uint32_t i = 0; i < n_new; i++, row = 0) {
        int32_t best = 0;
        must(kvr__decoder_logits(run->decoder, logits, row, &err));
        for (uint32_t k = 1; k < run->model.config.n_vocab; k++)
            best = logits[k] > logits[best] ? (int32_t)k : best;
        ck_assert_int_eq(best, expected[i]);
        golden_feed(run, &best, 1, 1);
    }
}

START_TEST(same_weights_give_the_same_rows)
{
    static const char *const paths[] = {AWKWARD "st_ok_tiny",
                                        AWKWARD "st_ok_tiny/",
                                        AWKWARD "st_ok_tiny/config.json",
                                        AWKWARD "st_ok_tiny/model.safetensors"};
    json_error_t why;
    json_t *root = json_load_file(AWKWARD "ok_tiny.expected.json", 0, &why);
    int32_t prompt[16], greedy[16];
    struct golden_run hf, gguf;

    ck_assert_ptr_nonnull(root);
    const uint32_t n = read_ids(root, "prompt_ids", prompt);
    const uint32_t n_new = read_ids(root, "greedy_ids_after_prompt", greedy);
    const uint32_t T = n + n_new;
    golden_run_init(&hf, paths[_i], T, n, 1);
    golden_run_init(&gguf, AWKWARD "gguf_ok_tiny.gguf", T, n, 1);
    generate(&hf, prompt, n, greedy, n_new);
    generate(&gguf, prompt, n, greedy, n_new);
    ck_assert(golden_max_diff(hf.attention, gguf.attention,
                              (size_t)2 * 4 * T * T) <= 1e-3);
    for (size_t l = 0; l < 2; l++)
        for (size_t h = 0; h < 4; h++)
            for (size_t k = 0; k < T; k++) {
                const double e = json_number_value(json_array_get(
                    json_array_get(
                        json_array_get(json_object_get(root, "last_row"), l),
                        h),
                    k));
                const double a =
                    (double)hf.attention[((l * 4 + h) * T + T - 1) * T + k];
                ck_assert(fabs(a - e) <= 1e-3);
            }
    golden_run_fini(&hf);
    golden_run_fini(&gguf);
    json_decref(root);
}
END_TEST

/* ---- made here ---- */

static char folder[64];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-st-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static const char *const made[] = {"model.safetensors", "b.safetensors",
                                   "model.safetensors.index.json"};

static void teardown(void)
{
    char path[128];

    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void write_text(const char *name, const void *bytes, size_t size)
{
    char path[128];
    struct kvr_error err = {0};

    snprintf(path, sizeof path, "%s/%s", folder, name);
    must(kvr_file_write(path, bytes, size, true, &err));
}

/* A header and that many bytes of zeros. */
static void write_st(const char *name, const char *header, size_t data)
{
    const size_t n = strlen(header);
    uint8_t *bytes = kvr_calloc(8 + n + data, 1);

    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)n >> (8 * i));
    memcpy(bytes + 8, header, n);
    write_text(name, bytes, 8 + n + data);
    free(bytes);
}

#define T(name, dtype, shape, from, to) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
    ",\"data_offsets\":[" #from "," #to "]}"

static const struct {
    const char *header;
    size_t data;
    const char *words;
} damaged[] = {
    {"{" T("a", "F32", "[2]", 0, 8) "}", 4, "incomplete file"},
    {"{" T("a", "F32", "[2]", 0, 8) "}", 12, "4 bytes at the end"},
    {"{" T("a", "F32", "[2]", 4, 12) "}", 12, "4 bytes before"},
    {"{" T("a", "X9", "[2]", 0, 8) "," T("b", "X9", "[2]", 4, 12) "}", 12,
     "overlap"},
    {"{" T("a", "X9", "[2]", 0, 99) "}", 12, "incomplete file"},
    {"{" T("a", "F32", "[2]", 8, 0) "}", 8, "data_offsets"},
    {"{" T("a", "F32", "[2]", -8, 0) "}", 8, "data_offsets"},
    {"{" T("a", "F32", "[2.5]", 0, 8) "}", 8, "no whole number"},
    {"{" T("a", "F32", "[9223372036854775807,4]", 0, 8) "}", 8,
     "size overflows"},
    {"{" T("a", "F32", "[4611686018427387904]", 0, 8) "}", 8, "size overflows"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) "}", 8, "dimensions"},
    {"{\"a\":7}", 0, "dtype"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "no shape"},
    {"[1]", 0, "not a JSON object"},
    {"{\"a\\u0000b\":{}}", 0, "not JSON"},
};

START_TEST(damage_is_named)
{
    struct kvr_safetensors *st;
    struct kvr_error err = {0};

    write_st("model.safetensors", damaged[_i].header, damaged[_i].data);
    must_fail(kvr__safetensors_open_folder(&st, folder, &err), KVR_ERR_INPUT,
              damaged[_i].words);
    ck_assert_ptr_nonnull(strstr(err.message, "model.safetensors"));
    ck_assert_ptr_null(st);
}
END_TEST

static const struct {
    const char *index, *words;
} indices[] = {
    {"{\"weight_map\":{\"a\":\"../b.safetensors\"}}", "in the folder"},
    {"{\"weight_map\":{\"a\":\"/etc/hostname\"}}", "in the folder"},
    {"{\"weight_map\":{\"a\":\"..\"}}", "in the folder"},
    {"{\"weight_map\":{\"a\":7}}", "in the folder"},
    {"{\"weight_map\":{}}", "weight_map"},
    {"{}", "weight_map"},
    {"{\"weight_map\"", "not JSON"},
    {"{\"weight_map\":{\"a\":\"b.safetensors\",\"a\":\"b.safetensors\"}}",
     "duplicate"},
    {"{\"weight_map\":{\"c\":\"b.safetensors\"}}", "'c' is not in"},
    {"{\"weight_map\":{\"a\":\"b.safetensors\"}}", "does not name tensor 'd'"},
    {"{\"weight_map\":{\"a\":\"x.safetensors\",\"d\":\"y.safetensors\"}}",
     "missing x.safetensors y.safetensors"},
};

START_TEST(index_and_files_must_agree)
{
    struct kvr_safetensors *st;
    struct kvr_error err = {0};

    write_st("b.safetensors",
             "{" T("a", "F32", "[2]", 0, 8) "," T("d", "F16", "[]", 8, 10) "}",
             10);
    write_text("model.safetensors.index.json", indices[_i].index,
               strlen(indices[_i].index));
    must_fail(kvr__safetensors_open_folder(&st, folder, &err), KVR_ERR_INPUT,
              indices[_i].words);
    ck_assert_ptr_null(st);
}
END_TEST

START_TEST(a_pointer_is_no_model)
{
    static const char text[] = "version https://git-lfs.github.com/spec/v1\n";
    struct kvr_safetensors *st;
    struct kvr_error err = {0};

    write_text("model.safetensors", text, sizeof text - 1);
    must_fail(kvr__safetensors_open_folder(&st, folder, &err), KVR_ERR_INPUT,
              "Git LFS pointer");
}
END_TEST

START_TEST(a_folder_without_tensors_is_named)
{
    struct kvr_model model;
    struct kvr_error err = {0};

    must_fail(kvr__model_init(&model, folder, &err), KVR_ERR_INPUT,
              "neither model.safetensors nor");
    kvr__model_fini(&model);
}
END_TEST

#define COUNT(list) (int)(sizeof(list) / sizeof(list)[0])

int main(void)
{
    Suite *suite = suite_create("st_awkward");
    TCase *tc = tcase_create("st_awkward");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, bad_file_is_refused_by_name, 0, COUNT(refused));
    tcase_add_test(tc, bf16_is_widened_exactly);
    tcase_add_loop_test(tc, same_weights_give_the_same_rows, 0, 4);
    tcase_add_loop_test(tc, damage_is_named, 0, COUNT(damaged));
    tcase_add_loop_test(tc, index_and_files_must_agree, 0, COUNT(indices));
    tcase_add_test(tc, a_pointer_is_no_model);
    tcase_add_test(tc, a_folder_without_tensors_is_named);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
