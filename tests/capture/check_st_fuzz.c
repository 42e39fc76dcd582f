/* check_st_fuzz.c -- damaged Hugging Face folders: a status, never a crash.
 * The seed is fixed; run it under the sanitizers.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "kvr_random.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 150 };

static const char *const models[] = {"llama_headdim", "gemma3_text", "gpt2",
                                     "gpt_neox_parallel", "phi3"};

static char folder[64], config_path[96], tensors_path[96];

/* FUZZ_ROUNDS asks for a longer run. */
static uint32_t rounds(void)
{
    const char *wanted = getenv("FUZZ_ROUNDS");
    const long n = wanted != NULL ? strtol(wanted, NULL, 10) : ROUNDS;

    return n > 0 ? (uint32_t)n : ROUNDS;
}

static uint32_t draw(uint32_t round, uint32_t index, uint32_t n)
{
    const struct kvr_random stream = {.seed = 20250311,
                                      .purpose = KVR_RANDOM_TEST};

    return kvr_random_below(&stream, round, 0, index, n);
}

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-stfuzz-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(config_path, sizeof config_path, "%s/config.json", folder);
    snprintf(tensors_path, sizeof tensors_path, "%s/model.safetensors", folder);
}

static void teardown(void)
{
    unlink(config_path);
    unlink(tensors_path);
    rmdir(folder);
}

/* What a capture would do with the folder, as far as it goes. */
static bool try_model(void)
{
    const struct kvr_decoder_options options = {
        .max_tokens = 4, .max_rows = 2, .threads = 1};
    static const int32_t ids[] = {1, 2, 3};
    struct kvr_model model;
    struct kvr_decoder *decoder = NULL;
    struct kvr_error err = {0};
    enum kvr_status status = kvr__model_init(&model, folder, &err);

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
    kvr__model_fini(&model);
    return status == KVR_OK;
}

/* A digit for a digit keeps the text JSON; other bytes mostly do not. */
static void damage(uint8_t *bytes, uint32_t from, uint32_t to, uint32_t round,
                   uint32_t salt)
{
    const uint32_t n = 1 + draw(round, salt, 3);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = from + draw(round, salt + 3 * i + 1, to - from);
        const uint32_t how = draw(round, salt + 3 * i + 2, 4);
        const uint32_t value = draw(round, salt + 3 * i + 3, 256);
        if (how == 0) {
            bytes[at] = (uint8_t)value;
            continue;
        }
        while (at < to && (bytes[at] < '0' || bytes[at] > '9'))
            at++;
        if (at < to)
            bytes[at] = (uint8_t)('0' + value % 10);
    }
}

static uint32_t header_end(const uint8_t *bytes, size_t size)
{
    uint64_t n = 0;

    memcpy(&n, bytes, sizeof n);
    ck_assert_uint_le(n + 8, size);
    return (uint32_t)n + 8;
}

START_TEST(damaged_folders_never_crash)
{
    struct kvr_error err = {0};
    uint8_t *config, *tensors;
    size_t n_config, n_tensors;
    char path[512];
    uint32_t loaded = 0;

    snprintf(path, sizeof path, "%s/golden/tiny/%s/config.json", KVR_TEST_DATA,
             models[_i]);
    must(kvr_file_read(&config, &n_config, path, 1 << 20, &err));
    snprintf(path, sizeof path, "%s/golden/tiny/%s/model.safetensors",
             KVR_TEST_DATA, models[_i]);
    must(kvr_file_read(&tensors, &n_tensors, path, 1 << 24, &err));
    uint8_t *a = kvr_calloc(n_config, 1), *b = kvr_calloc(n_tensors, 1);
    for (uint32_t round = 0; round < rounds(); round++) {
        memcpy(a, config, n_config);
        memcpy(b, tensors, n_tensors);
        if (round % 2 == 0)
            damage(a, 0, (uint32_t)n_config, round, 0);
        else
            damage(b, round % 16 == 1 ? 0 : 8, header_end(tensors, n_tensors),
                   round, 32);
        const size_t cut =
            round % 20 == 19 ? draw(round, 60, (uint32_t)n_tensors) : n_tensors;
        must(kvr_file_write(config_path, a, n_config, true, &err));
        must(kvr_file_write(tensors_path, b, cut, true, &err));
        loaded += try_model();
    }
    ck_assert_uint_gt(loaded, 0);
    ck_assert_uint_lt(loaded, rounds());
    free(a);
    free(b);
    free(config);
    free(tensors);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("st_fuzz");
    TCase *tc = tcase_create("st_fuzz");
    tcase_set_timeout(tc, 600);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, damaged_folders_never_crash, 0,
                        (int)(sizeof models / sizeof models[0]));
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
