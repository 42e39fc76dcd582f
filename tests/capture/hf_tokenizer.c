/* hf_tokenizer.c -- see hf_tokenizer.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "hf_tokenizer.h"

#include <string.h>

/* The vocabulary of a file, copied. */
struct words {
    struct kvr_slice *texts, *merges;
    size_t n, n_merges;
    const struct kvr_gguf_value *types, *scores;
};

static struct words read_words(const struct kvr_gguf *gguf)
{
    struct words w = {0};
    struct kvr_error err = {0};

    must(
        kvr__gguf_strings(&w.texts, &w.n, gguf, "tokenizer.ggml.tokens", &err));
    must(kvr__gguf_strings(&w.merges, &w.n_merges, gguf,
                           "tokenizer.ggml.merges", &err));
    w.types = kvr__gguf_find(gguf, "tokenizer.ggml.token_type");
    w.scores = kvr__gguf_find(gguf, "tokenizer.ggml.scores");
    ck_assert_uint_gt(w.n, 0);
    ck_assert_ptr_nonnull(w.types);
    return w;
}

static void free_words(struct words *w)
{
    free(w->texts);
    free(w->merges);
}

static double number(const struct kvr_gguf_value *value, size_t i)
{
    double x = 0;

    ck_assert(kvr__gguf_number(&x, value, i));
    return x;
}

static json_t *string(struct kvr_slice text)
{
    json_t *value = json_stringn(text.bytes, text.size);

    ck_assert_ptr_nonnull(value);
    return value;
}

static json_t *vocabulary(const struct words *w)
{
    json_t *vocab = json_object();
    char text[256];

    for (size_t i = 0; i < w->n; i++) {
        ck_assert_uint_lt(w->texts[i].size, sizeof text);
        memcpy(text, w->texts[i].bytes, w->texts[i].size);
        text[w->texts[i].size] = '\0';
        json_object_set_new(vocab, text, json_integer((json_int_t)i));
    }
    return vocab;
}

/* Control tokens (3) and the unknown one (2). */
static json_t *added_tokens(const struct words *w)
{
    json_t *list = json_array();

    for (size_t i = 0; i < w->n; i++) {
        const double type = number(w->types, i);
        if (type != 2 && type != 3)
            continue;
        json_t *token = json_pack("{s:i, s:b, s:b, s:b, s:b, s:b}", "id",
                                  (int)i, "single_word", 0, "lstrip", 0,
                                  "rstrip", 0, "normalized", 0, "special", 1);
        json_object_set_new(token, "content", string(w->texts[i]));
        json_array_append_new(list, token);
    }
    return list;
}

static json_t *assemble(json_t *root, const struct words *w, json_t *merges)
{
    json_t *model = json_object_get(root, "model");

    json_object_set_new(model, "vocab", vocabulary(w));
    json_object_set_new(model, "merges", merges);
    json_object_set_new(root, "added_tokens", added_tokens(w));
    return root;
}

json_t *hf_byte_level(const struct kvr_gguf *gguf, bool pairs)
{
    struct words w = read_words(gguf);
    json_t *merges = json_array();

    for (size_t i = 0; i < w.n_merges; i++) {
        const struct kvr_slice m = w.merges[i];
        const char *blank = memchr(m.bytes, ' ', m.size);
        const size_t left = (size_t)(blank - m.bytes);
        json_t *pair = json_array();
        json_array_append_new(pair, string((struct kvr_slice){m.bytes, left}));
        json_array_append_new(
            pair, string((struct kvr_slice){blank + 1, m.size - left - 1}));
        json_array_append_new(merges, pairs ? json_incref(pair) : string(m));
        json_decref(pair);
    }
    json_t *root = assemble(
        hf_json("{'version': '1.0', 'truncation': null, 'padding': null,"
                "'normalizer': null, 'pre_tokenizer': {'type': 'Sequence',"
                "'pretokenizers': [{'type': 'Digits', 'individual_digits':"
                "true}, {'type': 'ByteLevel', 'add_prefix_space': false,"
                "'trim_offsets': true, 'use_regex': true}]},"
                "'post_processor': null, 'decoder': {'type': 'ByteLevel'},"
                "'model': {'type': 'BPE', 'dropout': null}}"),
        &w, merges);
    free_words(&w);
    return root;
}

struct merge {
    size_t at, split; /* token, and bytes of its left part */
    double score;
};

static int best_first(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static bool is_piece(const struct words *w, const char *bytes, size_t size)
{
    for (size_t i = 0; i < w->n; i++)
        if (number(w->types, i) == 1 && w->texts[i].size == size &&
            memcmp(w->texts[i].bytes, bytes, size) == 0)
            return true;
    return false;
}

json_t *hf_byte_fallback(const struct kvr_gguf *gguf)
{
    struct words w = read_words(gguf);
    struct merge *found = NULL;
    size_t n = 0;
    json_t *merges = json_array();

    for (size_t i = 0; i < w.n; i++)
        for (size_t k = 1; k < w.texts[i].size; k++) {
            const struct kvr_slice t = w.texts[i];
            if (number(w.types, i) != 1 || !is_piece(&w, t.bytes, k) ||
                !is_piece(&w, t.bytes + k, t.size - k))
                continue;
            found = realloc(found, (n + 1) * sizeof *found);
            ck_assert_ptr_nonnull(found);
            found[n++] = (struct merge){i, k, number(w.scores, i)};
        }
    ck_assert_uint_gt(n, 0);
    qsort(found, n, sizeof *found, best_first);
    for (size_t i = 0; i < n; i++) {
        const struct kvr_slice t = w.texts[found[i].at];
        json_t *pair = json_array();
        json_array_append_new(
            pair, string((struct kvr_slice){t.bytes, found[i].split}));
        json_array_append_new(
            pair, string((struct kvr_slice){t.bytes + found[i].split,
                                            t.size - found[i].split}));
        json_array_append_new(merges, pair);
    }
    json_t *root = assemble(
        hf_json("{'normalizer': {'type': 'Sequence', 'normalizers': ["
                "{'type': 'Prepend', 'prepend': '\xe2\x96\x81'},"
                "{'type': 'Replace', 'pattern': {'String': ' '},"
                "'content': '\xe2\x96\x81'}]}, 'pre_tokenizer': null,"
                "'post_processor': {'type': 'TemplateProcessing', 'single': ["
                "{'SpecialToken': {'id': '<s>', 'type_id': 0}},"
                "{'Sequence': {'id': 'A', 'type_id': 0}}], 'pair': [],"
                "'special_tokens': {'<s>': {'id': '<s>', 'ids': [1],"
                "'tokens': ['<s>']}}},"
                "'model': {'type': 'BPE', 'unk_token': '<unk>',"
                "'fuse_unk': true, 'byte_fallback': true}}"),
        &w, merges);
    free(found);
    free_words(&w);
    return root;
}

json_t *hf_json(const char *text)
{
    char *copy = strdup(text);
    json_error_t error;

    ck_assert_ptr_nonnull(copy);
    for (char *c = copy; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';
    json_t *value = json_loads(copy, JSON_DECODE_ANY, &error);
    ck_assert_msg(value != NULL, "%s: %s", copy, error.text);
    free(copy);
    return value;
}

void hf_write(const char *path, json_t *value)
{
    ck_assert_int_eq(json_dump_file(value, path, JSON_COMPACT), 0);
    json_decref(value);
}
