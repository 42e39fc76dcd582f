/* tokenizer_json.c -- the vocabulary in a Hugging Face tokenizer.json.
 *
 * Truncation and padding of the file are left aside, as loaders of models do.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "tokenizer_json.h"
#include "tokenizer_private.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "nfc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 28, MAX_GAP = 1 << 16 };

struct kvr_slice kvr__json_text(const json_t *value)
{
    return json_is_string(value) ? (struct kvr_slice){json_string_value(value),
                                                      json_string_length(value)}
                                 : (struct kvr_slice){"", 0};
}

bool kvr__json_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);

    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

bool kvr__json_unset(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

enum kvr_status kvr__json_load(json_t **out, const char *path,
                               struct kvr_error *err)
{
    uint8_t *text;
    size_t size;
    json_error_t error;
    enum kvr_status status = kvr_file_read(&text, &size, path, MAX_BYTES, err);

    *out = NULL;
    if (status != KVR_OK)
        return status;
    *out = json_loadb((const char *)text, size,
                      JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    free(text);
    if (*out == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: line %d: %s", path, error.line,
                        error.text);
    if (json_is_object(*out))
        return KVR_OK;
    json_decref(*out);
    *out = NULL;
    return kvr_fail(err, KVR_ERR_INPUT, "%s: expected a JSON object", path);
}

/* Everything that a vocabulary points to while the tokenizer is made. */
struct reading {
    const json_t *model, *added;
    struct kvr_json_steps steps;
    struct kvr_slice *texts, *merges;
    uint8_t *types, *flags;
    char *joined; /* merges that the file has as pairs */
    struct kvr_vocabulary v;
};

/* Ids of a file are dense but for a few gaps; larger ones would only size
 * allocations. */
static enum kvr_status check_id(const json_t *id, size_t n_tokens,
                                struct kvr_slice text, struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];
    const json_int_t value = json_integer_value(id);

    if (json_is_integer(id) && value >= 0 &&
        (uint64_t)value < 2 * (uint64_t)n_tokens + MAX_GAP)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "token '%s' has the id %" JSON_INTEGER_FORMAT
                    ", expected 0 to about %zu",
                    kvr_slice_show(shown, text), value, n_tokens);
}

/* The largest id plus one, all ids checked. */
static enum kvr_status count_tokens(struct reading *r, struct kvr_error *err)
{
    const json_t *vocab = json_object_get(r->model, "vocab");
    const size_t total = json_object_size(vocab) + json_array_size(r->added);
    enum kvr_status status;

    if (!json_is_object(vocab))
        return kvr_fail(err, KVR_ERR_INPUT, "model.vocab is no JSON object");
    for (void *at = json_object_iter((json_t *)(uintptr_t)vocab); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)vocab, at)) {
        const struct kvr_slice text = kvr_slice_of(json_object_iter_key(at));
        const json_t *id = json_object_iter_value(at);
        if ((status = check_id(id, total, text, err)) != KVR_OK)
            return status;
        if ((size_t)json_integer_value(id) >= r->v.n)
            r->v.n = (size_t)json_integer_value(id) + 1;
    }
    for (size_t i = 0; i < json_array_size(r->added); i++) {
        const json_t *token = json_array_get(r->added, i);
        const json_t *id = json_object_get(token, "id");
        const struct kvr_slice text =
            kvr__json_text(json_object_get(token, "content"));
        if ((status = check_id(id, total, text, err)) != KVR_OK)
            return status;
        if ((size_t)json_integer_value(id) >= r->v.n)
            r->v.n = (size_t)json_integer_value(id) + 1;
    }
    return KVR_OK;
}

static bool is_byte_text(struct kvr_slice text)
{
    return text.size == 6 && memcmp(text.bytes, "<0x", 3) == 0 &&
           text.bytes[5] == '>';
}

static enum kvr_status read_vocab(struct reading *r, struct kvr_error *err)
{
    json_t *vocab = json_object_get(r->model, "vocab");
    char shown[KVR_SLICE_TEXT];

    for (void *at = json_object_iter(vocab); at != NULL;
         at = json_object_iter_next(vocab, at)) {
        const struct kvr_slice text = kvr_slice_of(json_object_iter_key(at));
        const size_t id =
            (size_t)json_integer_value(json_object_iter_value(at));
        if (r->types[id] != KVR_TYPE_UNUSED)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "token '%s' has the id %zu of another token",
                            kvr_slice_show(shown, text), id);
        r->texts[id] = text;
        r->types[id] = r->v.kind == KVR_TOKENIZER_SPM && is_byte_text(text)
                           ? KVR_TYPE_BYTE
                           : KVR_TYPE_NORMAL;
    }
    return KVR_OK;
}

static uint8_t added_flags(const json_t *token, bool in_vocabulary)
{
    static const struct {
        const char *name;
        uint8_t flag;
    } rows[] = {{"lstrip", KVR_STRIP_LEFT},
                {"rstrip", KVR_STRIP_RIGHT},
                {"normalized", KVR_NORMALIZED}};
    uint8_t flags = in_vocabulary ? 0 : KVR_NOT_MERGED;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (kvr__json_flag(token, rows[i].name, false))
            flags |= rows[i].flag;
    return flags;
}

static enum kvr_status read_added_token(struct reading *r, const json_t *token,
                                        struct kvr_error *err)
{
    const struct kvr_slice text =
        kvr__json_text(json_object_get(token, "content"));
    const size_t id = (size_t)json_integer_value(json_object_get(token, "id"));
    const bool special = kvr__json_flag(token, "special", false);
    const json_t *known =
        json_object_get(json_object_get(r->model, "vocab"), text.bytes);
    char shown[KVR_SLICE_TEXT];

    if (text.size == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "added token %zu has no content",
                        id);
    if (known != NULL && (size_t)json_integer_value(known) != id)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "added token '%s' has the id %zu, but the vocabulary "
                        "has it as %" JSON_INTEGER_FORMAT,
                        kvr_slice_show(shown, text), id,
                        json_integer_value(known));
    if (r->types[id] != KVR_TYPE_UNUSED &&
        kvr_slice_compare(r->texts[id], text) != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "added token '%s' has the id %zu of another token",
                        kvr_slice_show(shown, text), id);
    if (kvr__json_flag(token, "single_word", false))
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "added token '%s' with single_word is not supported",
                        kvr_slice_show(shown, text));
    r->texts[id] = text;
    r->flags[id] = added_flags(token, known != NULL);
    if ((r->flags[id] & KVR_NORMALIZED) != 0 && r->v.nfc) {
        const enum kvr_status status =
            kvr__nfc_check((const uint8_t *)text.bytes, text.size, err);
        if (status != KVR_OK) {
            kvr_error_prefix(err, "added token '%s'",
                             kvr_slice_show(shown, text));
            return status;
        }
    }
    /* runs of U+2581 are for blanks, which merges make of them */
    if (!special && (r->flags[id] & KVR_NORMALIZED) == 0 &&
        r->v.kind == KVR_TOKENIZER_SPM && text.size >= KVR_BLANK_SIZE &&
        memcmp(text.bytes, KVR_BLANK, KVR_BLANK_SIZE) == 0)
        r->types[id] = KVR_TYPE_NORMAL;
    else
        r->types[id] = special ? KVR_TYPE_CONTROL : KVR_TYPE_USER;
    return KVR_OK;
}

static enum kvr_status read_tokens(struct reading *r, struct kvr_error *err)
{
    enum kvr_status status = count_tokens(r, err);

    if (status != KVR_OK)
        return status;
    r->texts = kvr_calloc(r->v.n, sizeof *r->texts);
    r->types = kvr_calloc(r->v.n, 1);
    r->flags = kvr_calloc(r->v.n, 1);
    if (r->texts == NULL || r->types == NULL || r->flags == NULL)
        return kvr_no_memory(err, "the vocabulary", r->v.n);
    for (size_t i = 0; i < r->v.n; i++)
        r->texts[i] = (struct kvr_slice){"", 0};
    memset(r->types, KVR_TYPE_UNUSED, r->v.n);
    status = read_vocab(r, err);
    for (size_t i = 0; i < json_array_size(r->added) && status == KVR_OK; i++)
        status = read_added_token(r, json_array_get(r->added, i), err);
    r->v.texts = r->texts;
    r->v.types = r->types;
    r->v.flags = r->flags;
    return status;
}

/* ["left", "right"] as "left right" at *to, which moves on. */
static bool join_pair(struct kvr_slice *out, const json_t *pair, char **to)
{
    const struct kvr_slice left = kvr__json_text(json_array_get(pair, 0));
    const struct kvr_slice right = kvr__json_text(json_array_get(pair, 1));

    if (json_array_size(pair) != 2 || left.size == 0 || right.size == 0 ||
        memchr(left.bytes, ' ', left.size) != NULL)
        return false;
    memcpy(*to, left.bytes, left.size);
    (*to)[left.size] = ' ';
    memcpy(*to + left.size + 1, right.bytes, right.size);
    *out = (struct kvr_slice){*to, left.size + 1 + right.size};
    *to += out->size;
    return true;
}

static enum kvr_status read_merges(struct reading *r, struct kvr_error *err)
{
    const json_t *list = json_object_get(r->model, "merges");
    const size_t n = json_array_size(list);
    size_t bytes = 1;

    if (!json_is_array(list))
        return kvr_fail(err, KVR_ERR_INPUT, "model.merges is no JSON array");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++)
            bytes += kvr__json_text(json_array_get(json_array_get(list, i), k))
                         .size +
                     1;
    r->merges = kvr_calloc(n, sizeof *r->merges);
    r->joined = malloc(bytes);
    if (r->merges == NULL || r->joined == NULL)
        return kvr_no_memory(err, "the merges", bytes);
    char *to = r->joined;
    for (size_t i = 0; i < n; i++) {
        const json_t *merge = json_array_get(list, i);
        if (json_is_string(merge))
            r->merges[i] = kvr__json_text(merge);
        else if (!join_pair(&r->merges[i], merge, &to))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "merge %zu is neither \"left right\" nor a pair of "
                            "texts without blanks",
                            i);
    }
    r->v.merges = r->merges;
    r->v.n_merges = n;
    return KVR_OK;
}

static enum kvr_status check_model(const struct reading *r,
                                   struct kvr_error *err)
{
    static const char *const options[] = {
        "dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *type = json_object_get(r->model, "type");
    char shown[KVR_SLICE_TEXT];

    if (!json_is_object(r->model))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "has no model: not a tokenizer.json");
    /* older files do not say the type of theirs */
    if (type != NULL && !kvr_slice_is(kvr__json_text(type), "BPE"))
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "model type '%s' is not supported (supported: BPE)",
                        kvr_slice_show(shown, kvr__json_text(type)));
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (!kvr__json_unset(r->model, options[i]))
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "model.%s is not supported", options[i]);
    return KVR_OK;
}

/* Byte-level, or characters with byte tokens for the others. */
static enum kvr_status choose_kind(struct reading *r, struct kvr_error *err)
{
    const struct kvr_json_steps *s = &r->steps;
    struct kvr_vocabulary *v = &r->v;

    v->bos = s->bos;
    v->add_bos = s->bos >= 0;
    v->nfc = s->nfc;
    v->whole_words = kvr__json_flag(r->model, "ignore_merges", false);
    v->patterns = s->patterns;
    v->n_patterns = s->n_patterns;
    if (s->byte_level) {
        v->kind = KVR_TOKENIZER_BPE;
        v->add_space = v->add_once = s->add_space;
        if (s->replaces || s->prepends)
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "blanks replaced by U+2581 before ByteLevel");
        return KVR_OK;
    }
    v->kind = KVR_TOKENIZER_SPM;
    v->add_space = s->prepends || s->add_space;
    v->add_once = !s->prepends;
    v->split_blanks = s->split_blanks;
    v->prepends = s->prepends;
    v->replaces = s->normalizer_replaces;
    if (!kvr__json_flag(r->model, "byte_fallback", false))
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "a BPE model that is neither byte-level nor has "
                        "byte_fallback would lose text");
    if (!s->replaces)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "byte_fallback without blanks as U+2581 (a Replace "
                        "normalizer or Metaspace) is not supported");
    if (s->n_patterns > 0 || v->whole_words)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s together with byte_fallback is not supported",
                        v->whole_words ? "ignore_merges"
                                       : "a splitting pre-tokenizer");
    return KVR_OK;
}

static enum kvr_status read_all(struct kvr_tokenizer **out, const char *path,
                                const json_t *root, struct kvr_error *err)
{
    struct reading r = {
        .model = json_object_get(root, "model"),
        .added = json_object_get(root, "added_tokens"),
    };
    char *chat = NULL;
    enum kvr_status status = check_model(&r, err);

    if (status == KVR_OK &&
        (status = kvr__json_read_steps(&r.steps, root, err)) == KVR_OK &&
        (status = choose_kind(&r, err)) == KVR_OK &&
        (status = read_tokens(&r, err)) == KVR_OK &&
        (status = read_merges(&r, err)) == KVR_OK &&
        (status = kvr__json_read_beside(&r.v, &chat, path, err)) == KVR_OK) {
        if (chat != NULL)
            r.v.chat_template = kvr_slice_of(chat);
        status = kvr__tokenizer_new(out, &r.v, err);
    }
    free(chat);
    free(r.texts);
    free(r.types);
    free(r.flags);
    free(r.merges);
    free(r.joined);
    return status;
}

enum kvr_status kvr__tokenizer_from_json(struct kvr_tokenizer **out,
                                         const char *path,
                                         struct kvr_error *err)
{
    json_t *root;
    enum kvr_status status = kvr__json_load(&root, path, err);

    *out = NULL;
    if (status != KVR_OK)
        return status;
    status = read_all(out, path, root, err);
    json_decref(root);
    if (status != KVR_OK && err != NULL && strstr(err->message, path) == NULL)
        (void)kvr_error_prefix(err, "%s", path);
    return status;
}
