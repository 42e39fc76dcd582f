/* check_st_stated.c -- what a folder of safetensors states about its files is
 * compared with them, and where two models may be meant none is taken.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define FROM KVR_TEST_DATA "/capture/field/index-and-single/model/"

static char folder[64];

static const char *const names[] = {
    "config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors",
    "model.safetensors.index.json",
};

enum { N_NAMES = 5, SINGLE = 3, INDEX = 4 };

static const char *in_folder(int which)
{
    static char path[160];

    snprintf(path, sizeof path, "%s/%s", folder, names[which]);
    return path;
}

static void setup(void)
{
    char from[512];

    snprintf(folder, sizeof folder, "/tmp/kvr-stated-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < N_NAMES; i++) {
        snprintf(from, sizeof from, "%s%s", FROM, names[i]);
        ck_assert_int_eq(symlink(from, in_folder(i)), 0);
    }
}

static void teardown(void)
{
    for (int i = 0; i < N_NAMES; i++)
        unlink(in_folder(i));
    rmdir(folder);
}

static void refuse(const char *path, const char *says)
{
    struct kvr_model model;
    struct kvr_error err = {0};

    must_fail(kvr__model_init(&model, path, &err), KVR_ERR_INPUT, says);
    kvr__model_fini(&model);
}

static void hash_of(char out[KVR_HASH_TEXT], const char *path)
{
    struct kvr_model model;
    struct kvr_error err = {0};

    must(kvr__model_init(&model, path, &err));
    memcpy(out, model.hash, KVR_HASH_TEXT);
    kvr__model_fini(&model);
}

START_TEST(index_beside_a_single_file_is_a_question)
{
    char single[KVR_HASH_TEXT], indexed[KVR_HASH_TEXT], alone[KVR_HASH_TEXT];

    refuse(folder, "both model.safetensors and model.safetensors.index.json");
    /* the answer that the message asks for */
    hash_of(single, in_folder(SINGLE));
    hash_of(indexed, in_folder(INDEX));
    ck_assert_str_ne(single, indexed);
    hash_of(alone, in_folder(1)); /* a shard brings its index */
    ck_assert_str_eq(alone, indexed);
    unlink(in_folder(SINGLE));
    hash_of(alone, folder);
    ck_assert_str_eq(alone, indexed);
}
END_TEST

/* The index with another total_size, or naming one file only. */
static void write_index(json_t *total, const char *left_out)
{
    json_error_t why;
    const char *name;
    json_t *value, *kept = json_object();
    json_t *root = json_load_file(in_folder(INDEX), 0, &why);

    ck_assert_msg(root != NULL, "%s", why.text);
    json_object_foreach(json_object_get(root, "weight_map"), name,
                        value) if (left_out == NULL ||
                                   strcmp(json_string_value(value), left_out))
        json_object_set(kept, name, value);
    json_object_set_new(root, "weight_map", kept);
    if (total != NULL)
        json_object_set_new(json_object_get(root, "metadata"), "total_size",
                            total);
    unlink(in_folder(INDEX));
    ck_assert_int_eq(json_dump_file(root, in_folder(INDEX), 0), 0);
    json_decref(root);
}

START_TEST(index_is_held_to_its_numbers)
{
    char before[KVR_HASH_TEXT], after[KVR_HASH_TEXT];

    hash_of(before, in_folder(INDEX));
    write_index(json_integer(12345), NULL);
    refuse(in_folder(INDEX), "total_size is 12345");
    write_index(json_null(), NULL);
    refuse(in_folder(INDEX), "total_size");
    write_index(json_integer(0), NULL);
    refuse(in_folder(INDEX), "total_size is 0");
    unlink(in_folder(INDEX));
    ck_assert_int_eq(
        symlink(FROM "model.safetensors.index.json", in_folder(INDEX)), 0);
    write_index(NULL, NULL);
    hash_of(after, in_folder(INDEX));
    ck_assert_str_eq(before, after);
    write_index(NULL, names[2]);
    refuse(in_folder(INDEX), "names 1 files, but model-00001-of-00002");
}
END_TEST

KVR_SUITE_WITH("st_stated", setup, teardown,
               index_beside_a_single_file_is_a_question,
               index_is_held_to_its_numbers)
