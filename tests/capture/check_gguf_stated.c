/* check_gguf_stated.c -- what a GGUF file states is applied, compared with what
 * the file holds, or refused by name: 0 and false are values, not absence.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "gguf_made.h"
#include "kvr_capture.h"
#include "kvr_file.h"
#include "tokenizer.h"

#include <string.h>
#include <unistd.h>

#define TINY KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf"
#define LOST KVR_TEST_DATA "/capture/field/split-lost-tensor/"

static char path[64];

static void setup(void)
{
    snprintf(path, sizeof path, "/tmp/kvr-stated-XXXXXX");
    suite_make_file(path);
}

static void teardown(void)
{
    unlink(path);
}

static enum kvr_status open_with(struct kvr_model *model,
                                 const struct made_key *keys, size_t n,
                                 struct kvr_error *err)
{
    const struct made_gguf changes = {.keys = keys, .n_keys = n};

    made_gguf_write(path, TINY, &changes);
    return kvr__model_init(model, path, err);
}

/* Where the tensor's bytes lie: the file is read once more. */
static size_t offset_in_file(const char *name, const struct kvr_gguf_tensor *t)
{
    uint8_t *bytes;
    size_t size, at = 0;
    struct kvr_error err = {0};

    must(kvr_file_read(&bytes, &size, name, 1 << 20, &err));
    while (at + t->size <= size && memcmp(bytes + at, t->data, t->size) != 0)
        at++;
    ck_assert_uint_le(at + t->size, size);
    free(bytes);
    return at;
}

static const struct {
    struct made_key keys[2];
    const char *says;
} refused[] = {
    {{{"llama.rope.freq_base", KVR_GGUF_F32, 0, NULL}},
     "llama.rope.freq_base is 0, expected above 0"},
    {{{"llama.rope.freq_base", KVR_GGUF_F32, -1, NULL}},
     "llama.rope.freq_base is -1"},
    {{{"llama.attention.layer_norm_rms_epsilon", KVR_GGUF_F32, -1, NULL}},
     "llama.attention.layer_norm_rms_epsilon is -1, expected 0 or more"},
    {{{"llama.attention.causal", KVR_GGUF_BOOL, 0, NULL}},
     "'llama.attention.causal' (0)"},
    {{{"llama.rope.scaling.attn_factor", KVR_GGUF_F32, 0, NULL}},
     "'llama.rope.scaling.attn_factor' (0)"},
    {{{"llama.rope.scaling.attn_factor", KVR_GGUF_F32, 2, NULL}},
     "'llama.rope.scaling.attn_factor' (2)"},
    {{{"llama.attention.scale", KVR_GGUF_F32, 1, NULL}},
     "'llama.attention.scale' (1)"},
    {{{"llama.attention.sliding_window", KVR_GGUF_U32, 4, NULL}},
     "'llama.attention.sliding_window' (4)"},
    {{{"llama.use_novelty", KVR_GGUF_BOOL, 0, NULL}}, "llama.use_novelty"},
    {{{"llama.novelty", KVR_GGUF_STRING, 0, ""}}, "llama.novelty"},
    {{{"llama.attention.key_length", KVR_GGUF_U32, 0, NULL}},
     "llama.attention.key_length is 0"},
    {{{"llama.rope.scaling.factor", KVR_GGUF_F32, -2, NULL}},
     "llama.rope.scaling.factor is -2"},
    {{{"llama.rope.scaling.factor", KVR_GGUF_F32, 2, NULL},
      {"llama.rope.scale_linear", KVR_GGUF_F32, 4, NULL}},
     "rope.scaling.factor is 2, but rope.scale_linear is 4"},
    {{{"", KVR_GGUF_STRING, 0, "x"}}, "the key of metadata pair"},
    {{{"general.architecture", KVR_GGUF_STRING, 0, ""}}, "architecture ''"},
    {{{"split.tensors.count", KVR_GGUF_I32, 100, NULL}},
     "split.tensors.count is 100"},
};

START_TEST(what_is_not_applied_is_refused)
{
    struct kvr_model model;
    struct kvr_error err = {0};
    const size_t n = refused[_i].keys[1].name != NULL ? 2 : 1;

    const enum kvr_status status = open_with(&model, refused[_i].keys, n, &err);
    kvr__model_fini(&model);
    ck_assert_int_eq(kvr_status_exit_code(status), 3);
    ck_assert_msg(strstr(err.message, refused[_i].says) != NULL, "%s",
                  err.message);
}
END_TEST

static const struct made_key usual[] = {
    {"llama.attention.causal", KVR_GGUF_BOOL, 1, NULL},
    {"llama.rope.scaling.attn_factor", KVR_GGUF_F32, 1, NULL},
    {"llama.rope.scaling.yarn_ext_factor", KVR_GGUF_F32, -1, NULL},
    {"llama.expert_count", KVR_GGUF_U32, 0, NULL},
    {"llama.attention.clamp_kqv", KVR_GGUF_F32, 0, NULL},
    {"llama.attention.sliding_window", KVR_GGUF_U32, 0, NULL},
    {"llama.rope.scaling.factor", KVR_GGUF_F32, 0, NULL},
};

START_TEST(defaults_say_nothing_new)
{
    struct kvr_model plain, model;
    struct kvr_error err = {0};

    must(kvr__model_init(&plain, TINY, &err));
    must(open_with(&model, &usual[_i], 1, &err));
    for (uint32_t j = 0; j < plain.config.rope_dim / 2; j++)
        ck_assert(plain.inv_freq[j] == model.inv_freq[j]);
    kvr__model_fini(&plain);
    kvr__model_fini(&model);
}
END_TEST

/* As in llama.cpp: a type of none scales nothing, whatever the factor. */
START_TEST(type_none_is_no_scaling)
{
    static const struct made_key none[] = {
        {"llama.rope.scaling.type", KVR_GGUF_STRING, 0, "none"},
        {"llama.rope.scale_linear", KVR_GGUF_F32, 4, NULL},
    };
    struct kvr_model model;
    struct kvr_error err = {0};

    must(open_with(&model, none, 2, &err));
    ck_assert(model.config.rope.linear == 1);
    kvr__model_fini(&model);
    must(open_with(&model, none + 1, 1, &err));
    ck_assert(model.config.rope.linear == 4);
    kvr__model_fini(&model);
}
END_TEST

START_TEST(names_are_kept)
{
    static const struct {
        const char *stated, *expected; /* NULL: the file's own */
    } names[] = {
        {"", NULL},
        {"\xc3\xa9t\xc3\xa9 \xe2\x82\xac", "\xc3\xa9t\xc3\xa9 \xe2\x82\xac"},
        {"a\x01\xff", "a??"},
    };
    struct kvr_model model;
    struct kvr_error err = {0};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct made_key key = {"general.name", KVR_GGUF_STRING, 0,
                                     names[i].stated};
        must(open_with(&model, &key, 1, &err));
        ck_assert_str_eq(model.name, names[i].expected != NULL
                                         ? names[i].expected
                                         : strrchr(path, '/') + 1);
        kvr__model_fini(&model);
    }
}
END_TEST

/* A character is not cut in two. */
START_TEST(long_names_end_with_a_character)
{
    char name[301] = "";
    struct kvr_model model;
    struct kvr_error err = {0};
    const struct made_key key = {"general.name", KVR_GGUF_STRING, 0, name};

    for (size_t i = 0; i < 300; i += 3)
        memcpy(name + i, "\xe2\x82\xac", 4);
    must(open_with(&model, &key, 1, &err));
    const size_t n = strlen(model.name);
    ck_assert_uint_le(n, sizeof model.name - 1);
    ck_assert_uint_eq((n - 3) % 3, 0);
    ck_assert_str_eq(model.name + n - 6, "\xe2\x82\xac...");
    kvr__model_fini(&model);
}
END_TEST

START_TEST(bytes_of_no_tensor_are_refused)
{
    struct kvr_gguf *gguf;
    struct kvr_error err = {0};
    struct made_gguf changes = {.lost = "blk.0.attn_norm.weight"};

    made_gguf_write(path, TINY, &changes);
    must_fail(kvr__gguf_open(&gguf, path, &err), KVR_ERR_INPUT,
              "belong to no tensor");
    changes = (struct made_gguf){.tail = 32};
    made_gguf_write(path, TINY, &changes);
    must_fail(kvr__gguf_open(&gguf, path, &err), KVR_ERR_INPUT,
              "32 bytes at its end");
    changes.tail = 3;
    made_gguf_write(path, TINY, &changes);
    must_fail(kvr__gguf_open(&gguf, path, &err), KVR_ERR_INPUT,
              "3 bytes at its end");
    changes.tail = 0; /* the padding belongs to the format */
    made_gguf_write(path, TINY, &changes);
    must(kvr__gguf_open(&gguf, path, &err));
    kvr__gguf_close(gguf);
}
END_TEST

/* The output matrix is gone: its embedding would be taken for it. */
START_TEST(lost_tensor_of_a_split_is_missed)
{
    struct kvr_model model;
    struct kvr_error err = {0};

    must_fail(kvr__model_init(&model, LOST "lost-00001-of-00002.gguf", &err),
              KVR_ERR_INPUT, "split.tensors.count is 12");
    ck_assert_ptr_nonnull(strstr(err.message, "11 tensors"));
    kvr__model_fini(&model);
    must(kvr__model_init(&model, LOST "whole-00001-of-00002.gguf", &err));
    ck_assert_ptr_nonnull(model.model_file[KVR_OUTPUT]);
    kvr__model_fini(&model);
}
END_TEST

/* NaN in a gate: no conversion of it to an integer (the
 * sanitizers look at that), and no trace. */
START_TEST(weights_that_are_no_numbers_end_the_run)
{
    static const uint8_t nan[2] = {0x00, 0x7e};
    const struct made_gguf same = {0};
    struct kvr_gguf *gguf;
    struct kvr_capture *capture;
    struct kvr_capture_result result;
    struct kvr_error err = {0};
    char output[80];

    made_gguf_write(path, TINY, &same);
    must(kvr__gguf_open(&gguf, path, &err));
    const struct kvr_gguf_tensor *t =
        kvr__gguf_tensor_named(gguf, "blk.0.ffn_gate.weight");
    ck_assert_ptr_nonnull(t);
    ck_assert_uint_eq(t->type, 1); /* f16 */
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    const size_t at = offset_in_file(path, t);
    ck_assert_int_eq(fseek(file, (long)at, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(nan, 1, sizeof nan, file), sizeof nan);
    ck_assert_int_eq(fclose(file), 0);
    kvr__gguf_close(gguf);
    snprintf(output, sizeof output, "%s.kvt.h5", path);
    const struct kvr_capture_options options = {
        .model = path, .prompt = "hello", .output = output};
    must(kvr_capture_new(&capture, &options, &err));
    must_fail(kvr_capture_run(capture, &result, NULL, NULL, &err),
              KVR_ERR_INPUT, "finite");
    kvr_capture_free(capture);
    ck_assert_int_ne(access(output, F_OK), 0);
}
END_TEST

START_TEST(tokens_behind_the_text_are_refused)
{
    static const struct made_key adds = {"tokenizer.ggml.add_eos_token",
                                         KVR_GGUF_BOOL, 1, NULL};
    const struct made_gguf changes = {.keys = &adds, .n_keys = 1};
    struct kvr_gguf *gguf;
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    made_gguf_write(path, TINY, &changes);
    must(kvr__gguf_open(&gguf, path, &err));
    must_fail(kvr__tokenizer_from_gguf(&t, gguf, &err), KVR_ERR_UNSUPPORTED,
              "add_eos_token");
    kvr__gguf_close(gguf);
}
END_TEST

#define COUNT(list) (int)(sizeof(list) / sizeof(list)[0])

int main(void)
{
    Suite *suite = suite_create("gguf_stated");
    TCase *tc = tcase_create("gguf_stated");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, what_is_not_applied_is_refused, 0, COUNT(refused));
    tcase_add_loop_test(tc, defaults_say_nothing_new, 0, COUNT(usual));
    tcase_add_test(tc, type_none_is_no_scaling);
    tcase_add_test(tc, names_are_kept);
    tcase_add_test(tc, long_names_end_with_a_character);
    tcase_add_test(tc, bytes_of_no_tensor_are_refused);
    tcase_add_test(tc, lost_tensor_of_a_split_is_missed);
    tcase_add_test(tc, tokens_behind_the_text_are_refused);
    tcase_add_test(tc, weights_that_are_no_numbers_end_the_run);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
