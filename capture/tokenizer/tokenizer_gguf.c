/* tokenizer_gguf.c -- the vocabulary in a GGUF file's metadata.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "tokenizer.h"

#include "kvr_memory.h"

#include <inttypes.h>
#include <stdlib.h>

#define KEY "tokenizer.ggml."

/* What the vocabulary points to while the tokenizer is made. */
struct parts {
    struct kvr_slice *texts, *merges;
    uint8_t *types;
    float *scores;
};

/* Array of n numbers; KVR_ERR_INPUT for another length. */
static enum kvr_status find_numbers(const struct kvr_gguf_value **out,
                                    const struct kvr_gguf *gguf,
                                    const char *key, size_t n,
                                    struct kvr_error *err)
{
    const struct kvr_gguf_value *value = kvr__gguf_find(gguf, key);
    double number;

    *out = value;
    if (value == NULL)
        return KVR_OK;
    if (value->type != KVR_GGUF_ARRAY || value->n != n ||
        !kvr__gguf_number(&number, value, 0))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: expected an array of %zu numbers, one per "
                        "token",
                        kvr__gguf_path(gguf), key, n);
    return KVR_OK;
}

static enum kvr_status read_types(struct parts *parts,
                                  const struct kvr_gguf *gguf, size_t n,
                                  struct kvr_error *err)
{
    const struct kvr_gguf_value *value;
    const enum kvr_status status =
        find_numbers(&value, gguf, KEY "token_type", n, err);
    double number = 0;

    if (status != KVR_OK || value == NULL)
        return status;
    parts->types = kvr_calloc(n, 1);
    if (parts->types == NULL)
        return kvr_no_memory(err, "token types", n);
    for (size_t i = 0; i < n; i++) {
        (void)kvr__gguf_number(&number, value, i);
        if (!(number >= KVR_TYPE_NORMAL && number <= KVR_TYPE_BYTE) ||
            number != (double)(uint8_t)number)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: " KEY "token_type: token %zu has type %g, "
                            "expected 1 to 6",
                            kvr__gguf_path(gguf), i, number);
        parts->types[i] = (uint8_t)number;
    }
    return KVR_OK;
}

static enum kvr_status read_scores(struct parts *parts,
                                   const struct kvr_gguf *gguf, size_t n,
                                   struct kvr_error *err)
{
    const struct kvr_gguf_value *value;
    const enum kvr_status status =
        find_numbers(&value, gguf, KEY "scores", n, err);
    double number = 0;

    if (status != KVR_OK)
        return status;
    if (value == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no " KEY "scores",
                        kvr__gguf_path(gguf));
    parts->scores = kvr_calloc(n, sizeof *parts->scores);
    if (parts->scores == NULL)
        return kvr_no_memory(err, "token scores", n);
    for (size_t i = 0; i < n; i++) {
        (void)kvr__gguf_number(&number, value, i);
        if (number != number)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: " KEY "scores: token %zu has no number",
                            kvr__gguf_path(gguf), i);
        parts->scores[i] = (float)number;
    }
    return KVR_OK;
}

static enum kvr_status read_id(int32_t *out, const struct kvr_gguf *gguf,
                               const char *key, size_t n, struct kvr_error *err)
{
    uint32_t id = 0;
    bool found;
    const enum kvr_status status = kvr__gguf_u32(&id, &found, gguf, key, err);

    *out = -1;
    if (status != KVR_OK || !found)
        return status;
    if (id >= n)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s is %" PRIu32 " in a vocabulary of %zu tokens",
                        kvr__gguf_path(gguf), key, id, n);
    *out = (int32_t)id;
    return KVR_OK;
}

static enum kvr_status read_ids(struct kvr_vocabulary *v,
                                const struct kvr_gguf *gguf,
                                struct kvr_error *err)
{
    static const char *const ends[] = {KEY "eos_token_id", KEY "eot_token_id",
                                       KEY "eom_token_id"};
    const size_t n_ends = sizeof ends / sizeof ends[0];
    enum kvr_status status =
        read_id(&v->bos, gguf, KEY "bos_token_id", v->n, err);

    for (size_t i = 0; i < n_ends && status == KVR_OK; i++) {
        status = read_id(&v->end[v->n_end], gguf, ends[i], v->n, err);
        v->n_end += v->end[v->n_end] >= 0;
    }
    return status;
}

static enum kvr_status read_bpe(struct kvr_vocabulary *v, struct parts *parts,
                                const struct kvr_gguf *gguf,
                                struct kvr_error *err)
{
    bool found;
    enum kvr_status status =
        kvr__gguf_string(&v->pre, &found, gguf, KEY "pre", err);

    if (status == KVR_OK && !found)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: has no " KEY "pre: how text is cut into words "
                        "is not stated, and the ids would be a guess; --ids "
                        "takes token ids instead",
                        kvr__gguf_path(gguf));
    if (status != KVR_OK ||
        (status = kvr__gguf_strings(&parts->merges, &v->n_merges, gguf,
                                    KEY "merges", err)) != KVR_OK)
        return status;
    v->merges = parts->merges;
    if (v->merges == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no " KEY "merges",
                        kvr__gguf_path(gguf));
    return KVR_OK;
}

/* Tokens behind the text: none are added here. */
static enum kvr_status refuse_ends(const struct kvr_gguf *gguf,
                                   struct kvr_error *err)
{
    static const char *const keys[] = {KEY "add_eos_token",
                                       KEY "add_sep_token"};
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < 2 && status == KVR_OK; i++) {
        bool adds = false;
        status = kvr__gguf_bool(&adds, NULL, gguf, keys[i], err);
        if (status == KVR_OK && adds)
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "%s: %s is supported as false only; --ids takes "
                            "token ids instead of text",
                            kvr__gguf_path(gguf), keys[i]);
    }
    return status;
}

static enum kvr_status read_kind(struct kvr_vocabulary *v, struct parts *parts,
                                 const struct kvr_gguf *gguf,
                                 struct kvr_slice model, struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];
    enum kvr_status status;

    if (kvr_slice_is(model, "gpt2")) {
        v->kind = KVR_TOKENIZER_BPE;
        status = read_bpe(v, parts, gguf, err);
    } else if (kvr_slice_is(model, "llama")) {
        v->kind = KVR_TOKENIZER_SPM;
        v->add_space = true; /* unless the file says otherwise */
        status = read_scores(parts, gguf, v->n, err);
        v->scores = parts->scores;
    } else {
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: " KEY "model '%s' is not supported (supported: "
                        "gpt2 llama); --ids takes token ids instead of text",
                        kvr__gguf_path(gguf), kvr_slice_show(shown, model));
    }
    if (status != KVR_OK ||
        (status = kvr__gguf_bool(&v->add_space, NULL, gguf,
                                 KEY "add_space_prefix", err)) != KVR_OK ||
        (status = kvr__gguf_bool(&v->add_bos, NULL, gguf, KEY "add_bos_token",
                                 err)) != KVR_OK)
        return status;
    return refuse_ends(gguf, err);
}

static enum kvr_status read_vocabulary(struct kvr_vocabulary *v,
                                       struct parts *parts,
                                       const struct kvr_gguf *gguf,
                                       struct kvr_slice model,
                                       struct kvr_error *err)
{
    enum kvr_status status =
        kvr__gguf_strings(&parts->texts, &v->n, gguf, KEY "tokens", err);

    if (status != KVR_OK)
        return status;
    if (v->n == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no " KEY "tokens",
                        kvr__gguf_path(gguf));
    v->texts = parts->texts;
    if ((status = read_types(parts, gguf, v->n, err)) != KVR_OK ||
        (status = read_ids(v, gguf, err)) != KVR_OK)
        return status;
    v->types = parts->types;
    if ((status = kvr__gguf_string(&v->chat_template, NULL, gguf,
                                   "tokenizer.chat_template", err)) != KVR_OK)
        return status;
    return read_kind(v, parts, gguf, model, err);
}

enum kvr_status kvr__tokenizer_from_gguf(struct kvr_tokenizer **out,
                                         const struct kvr_gguf *gguf,
                                         struct kvr_error *err)
{
    struct kvr_vocabulary v = {0};
    struct kvr_slice model = {0};
    struct parts parts = {0};
    bool found;
    enum kvr_status status =
        kvr__gguf_string(&model, &found, gguf, KEY "model", err);

    *out = NULL;
    if (status != KVR_OK || !found)
        return status;
    status = read_vocabulary(&v, &parts, gguf, model, err);
    if (status == KVR_OK)
        status = kvr__tokenizer_new(out, &v, err);
    free(parts.texts);
    free(parts.merges);
    free(parts.types);
    free(parts.scores);
    return status;
}
