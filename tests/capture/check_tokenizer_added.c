/* check_tokenizer_added.c -- added tokens are found as Hugging Face's
 * tokenizers finds them (version 0.23.3 made the ids): raw ones in the raw
 * text, normalized ones in what is left, normalised.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "suite.h"

#include "kvr_file.h"
#include "tokenizer.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define FIELD KVR_TEST_DATA "/capture/field/added-token-normalized/"

static char path[64];

static void setup(void)
{
    snprintf(path, sizeof path, "/tmp/kvr-added-XXXXXX");
    suite_make_file(path);
}

static void teardown(void)
{
    unlink(path);
}

static json_t *load(const char *name)
{
    json_error_t why;
    json_t *root = json_load_file(name, 0, &why);

    ck_assert_msg(root != NULL, "%s: %s", name, why.text);
    return root;
}

static void check(struct kvr_tokenizer *t, const char *text, size_t size,
                  const json_t *expected)
{
    struct kvr_ids ids = {0};
    struct kvr_error err = {0};
    char *shown = json_dumps(expected, 0);

    must(kvr__tokenizer_encode(&ids, t, (const uint8_t *)text, size, true,
                               &err));
    ck_assert_msg(ids.n == json_array_size(expected),
                  "'%s': %zu ids, expected %s", text, ids.n, shown);
    for (size_t i = 0; i < ids.n; i++)
        ck_assert_msg(
            ids.ids[i] == json_integer_value(json_array_get(expected, i)),
            "'%s': id %zu is %d, expected %s", text, i, ids.ids[i], shown);
    free(shown);
    free(ids.ids);
}

START_TEST(texts_of_the_report)
{
    json_t *expected = load(FIELD "expected.json");
    const char *name;
    json_t *item;
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    must(kvr__tokenizer_from_json(&t, FIELD "tokenizer.json", &err));
    ck_assert_uint_eq(json_object_size(json_object_get(expected, "cases")), 4);
    json_object_foreach(json_object_get(expected, "cases"), name, item)
    {
        char from[512];
        uint8_t *text;
        size_t size;
        snprintf(from, sizeof from, FIELD "%s", name);
        must(kvr_file_read(&text, &size, from, 100, &err));
        check(t, (const char *)text, size, json_object_get(item, "ids"));
        free(text);
    }
    kvr__tokenizer_free(t);
    json_decref(expected);
}
END_TEST

/* The file with the case's tokens, with Prepend and Replace or Replace only. */
static struct kvr_tokenizer *make(const json_t *item)
{
    json_t *root = load(FIELD "tokenizer.json");
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    json_object_set(root, "added_tokens", json_object_get(item, "tokens"));
    if (!json_is_true(json_object_get(item, "prepend"))) {
        json_t *steps =
            json_object_get(json_object_get(root, "normalizer"), "normalizers");
        json_object_set(root, "normalizer", json_array_get(steps, 1));
    }
    ck_assert_int_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
    must(kvr__tokenizer_from_json(&t, path, &err));
    return t;
}

START_TEST(strips_overlaps_and_orders)
{
    json_t *root = load(FIELD "siblings.json");
    const json_t *cases = json_object_get(root, "cases");
    size_t i;
    json_t *item;

    ck_assert_uint_ge(json_array_size(cases), 28);
    json_array_foreach(cases, i, item)
    {
        const json_t *text = json_object_get(item, "text");
        struct kvr_tokenizer *t = make(item);
        check(t, json_string_value(text), json_string_length(text),
              json_object_get(item, "ids"));
        kvr__tokenizer_free(t);
    }
    json_decref(root);
}
END_TEST

KVR_SUITE_WITH("tokenizer_added", setup, teardown, texts_of_the_report,
               strips_overlaps_and_orders)
