/* check_gguf_split.c -- a model in several files is the model in one: a tiny
 * file is cut into parts here, and opened by its first.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "gguf_made.h"
#include "kvr_memory.h"

#include <string.h>
#include <unistd.h>

#define WHOLE KVR_TEST_DATA "/golden/gguf/mixed_tied.gguf"

enum { N_PARTS = 3 };

static char folder[64];

static const char *part_path(int no)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/m-%05d-of-%05d.gguf", folder, no + 1,
             (int)N_PARTS);
    return path;
}

static void put_u16_pair(FILE *file, const char *key, uint16_t value)
{
    gguf_put_text(file, kvr_slice_of(key));
    gguf_put_u32(file, KVR_GGUF_U16);
    gguf_put(file, &value, sizeof value);
}

/* Every third tensor; the metadata go into the first part only. */
static void write_part(const struct kvr_gguf *whole, int no, int count)
{
    const size_t n = kvr__gguf_n_tensors(whole);
    const size_t n_values = no == 0 ? kvr__gguf_n_values(whole) : 0;
    FILE *file = fopen(part_path(no), "wb");
    uint64_t offset = 0;

    ck_assert_ptr_nonnull(file);
    gguf_put(file, "GGUF", 4);
    gguf_put_u32(file, 3);
    gguf_put_u64(file, (n - (size_t)no + N_PARTS - 1) / N_PARTS);
    gguf_put_u64(file, n_values + 2);
    for (size_t i = 0; i < n_values; i++)
        gguf_put_value(file, kvr__gguf_value(whole, i));
    put_u16_pair(file, "split.no", (uint16_t)no);
    put_u16_pair(file, "split.count", (uint16_t)count);
    for (size_t i = (size_t)no; i < n; i += N_PARTS) {
        const struct kvr_gguf_tensor *t = kvr__gguf_tensor(whole, i);
        gguf_put_entry(file, t, offset);
        offset += gguf_padded(t->size);
    }
    for (size_t i = (size_t)no; i < n; i += N_PARTS) {
        gguf_pad(file);
        gguf_put(file, kvr__gguf_tensor(whole, i)->data,
                 (size_t)kvr__gguf_tensor(whole, i)->size);
    }
    ck_assert_int_eq(fclose(file), 0);
}

static void setup(void)
{
    struct kvr_gguf *whole;
    struct kvr_error err = {0};

    snprintf(folder, sizeof folder, "/tmp/kvr-split-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    must(kvr__gguf_open(&whole, WHOLE, &err));
    for (int no = 0; no < N_PARTS; no++)
        write_part(whole, no, N_PARTS);
    kvr__gguf_close(whole);
}

static void teardown(void)
{
    for (int no = 0; no < N_PARTS; no++)
        unlink(part_path(no));
    rmdir(folder);
}

static void decode(struct golden_run *run, const char *path)
{
    static const int32_t ids[] = {1, 30, 200, 7, 7, 65, 99, 12};

    golden_run_init(run, path, 8, 8, 1);
    golden_feed(run, ids, 8, 3);
}

START_TEST(parts_are_the_whole)
{
    struct golden_run one, many;

    decode(&one, WHOLE);
    decode(&many, part_path(0));
    const size_t cells = (size_t)8 * 8 * one.model.config.n_head;
    ck_assert_mem_eq(one.attention, many.attention,
                     cells * sizeof *one.attention);
    ck_assert_str_eq(one.model.hash, many.model.hash);
    ck_assert_uint_eq(one.model.weight_bytes, many.model.weight_bytes);
    golden_run_fini(&one);
    golden_run_fini(&many);
}
END_TEST

START_TEST(missing_parts_are_named)
{
    struct kvr_gguf *gguf;
    struct kvr_error err = {0};

    unlink(part_path(1));
    must_fail(kvr__gguf_open(&gguf, part_path(0), &err), KVR_ERR_INPUT,
              "m-00002-of-00003.gguf");
    ck_assert_ptr_null(strstr(err.message, "m-00003-of"));
    unlink(part_path(2));
    err = (struct kvr_error){0};
    must_fail(kvr__gguf_open(&gguf, part_path(0), &err), KVR_ERR_INPUT,
              "m-00002-of-00003.gguf, m-00003-of-00003.gguf");
}
END_TEST

START_TEST(another_part_is_no_beginning)
{
    struct kvr_gguf *gguf;
    struct kvr_error err = {0};

    must_fail(kvr__gguf_open(&gguf, part_path(1), &err), KVR_ERR_INPUT,
              "give the first part");
}
END_TEST

/* A part of another set of files under this one's name. */
START_TEST(strange_part_is_refused)
{
    struct kvr_gguf *whole, *gguf;
    struct kvr_error err = {0};

    must(kvr__gguf_open(&whole, WHOLE, &err));
    write_part(whole, 1, N_PARTS + 2);
    must_fail(kvr__gguf_open(&gguf, part_path(0), &err), KVR_ERR_INPUT,
              "m-00002-of-00003.gguf");
    ck_assert_ptr_nonnull(strstr(err.message, "split.count"));
    kvr__gguf_close(whole);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_split");
    TCase *tc = tcase_create("gguf_split");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, parts_are_the_whole);
    tcase_add_test(tc, missing_parts_are_named);
    tcase_add_test(tc, another_part_is_no_beginning);
    tcase_add_test(tc, strange_part_is_refused);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
