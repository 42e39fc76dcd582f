/* tokenizer.c -- a vocabulary: its tokens, their texts and classes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "tokenizer_private.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum kvr_status kvr__ids_add(struct kvr_ids *ids, int32_t id,
                             struct kvr_error *err)
{
    if (!kvr_grow((void **)&ids->ids, &ids->capacity, ids->n + 1,
                  sizeof *ids->ids))
        return kvr_no_memory(err, "token ids", ids->n * sizeof *ids->ids);
    ids->ids[ids->n++] = id;
    return KVR_OK;
}

enum kvr_status kvr__no_token(uint8_t byte, size_t offset,
                              struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_INPUT,
                    "the text's byte 0x%02X at offset %zu has no token in "
                    "this vocabulary",
                    byte, offset);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that "<0xNN>" stands for; -1: it is not such a text. */
static int byte_of(struct kvr_slice text)
{
    if (text.size != 6 || memcmp(text.bytes, "<0x", 3) != 0 ||
        text.bytes[5] != '>')
        return -1;
    const int high = hex(text.bytes[3]), low = hex(text.bytes[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Text with U+2581 as a blank; returns its size. */
static size_t unblank(uint8_t *out, struct kvr_slice text)
{
    size_t n = 0;

    for (size_t i = 0; i < text.size;) {
        if (text.size - i >= KVR_BLANK_SIZE &&
            memcmp(text.bytes + i, KVR_BLANK, KVR_BLANK_SIZE) == 0) {
            out[n++] = ' ';
            i += KVR_BLANK_SIZE;
        } else {
            out[n++] = (uint8_t)text.bytes[i++];
        }
    }
    return n;
}

static bool is_special(uint8_t type)
{
    return type == KVR_TYPE_CONTROL || type == KVR_TYPE_USER;
}

/* Sets text and piece of token i; *arena moves on. */
static void add_token(struct kvr_tokenizer *t, size_t i, struct kvr_slice text,
                      uint8_t **arena)
{
    uint8_t *copy = *arena, *piece = copy + text.size;
    size_t size = text.size;

    memcpy(copy, text.bytes, text.size);
    t->texts[i] = (struct kvr_slice){(const char *)copy, text.size};
    *arena = piece + text.size;
    if (t->kind == KVR_TOKENIZER_BPE) {
        if (t->types[i] == KVR_TYPE_NORMAL &&
            kvr__bpe_decode(piece, &size, text))
            t->texts[i] = (struct kvr_slice){(const char *)piece, size};
        else
            memcpy(piece, text.bytes, text.size);
    } else if (t->types[i] == KVR_TYPE_BYTE && byte_of(text) >= 0) {
        piece[0] = (uint8_t)byte_of(text);
        size = 1;
    } else if (t->types[i] == KVR_TYPE_CONTROL) {
        memcpy(piece, text.bytes, text.size);
    } else {
        size = unblank(piece, text);
    }
    t->pieces[i] = (struct kvr_slice){(const char *)piece, size};
}

static enum kvr_status add_tokens(struct kvr_tokenizer *t,
                                  const struct kvr_vocabulary *v,
                                  struct kvr_error *err)
{
    size_t total = 1;

    for (size_t i = 0; i < v->n; i++)
        total += 2 * v->texts[i].size;
    t->arena = kvr_calloc(total, 1);
    t->texts = kvr_calloc(v->n, sizeof *t->texts);
    t->pieces = kvr_calloc(v->n, sizeof *t->pieces);
    t->types = kvr_calloc(v->n, 1);
    t->flags = kvr_calloc(v->n, 1);
    t->scores = kvr_calloc(v->n, sizeof *t->scores);
    if (t->arena == NULL || t->texts == NULL || t->pieces == NULL ||
        t->types == NULL || t->flags == NULL || t->scores == NULL)
        return kvr_no_memory(err, "the vocabulary", total);
    uint8_t *arena = t->arena;
    for (size_t i = 0; i < v->n; i++) {
        t->types[i] =
            v->types != NULL ? v->types[i]
            : byte_of(v->texts[i]) >= 0 && v->kind == KVR_TOKENIZER_SPM
                ? KVR_TYPE_BYTE
                : KVR_TYPE_NORMAL;
        t->flags[i] = v->flags != NULL ? v->flags[i] : 0;
        t->scores[i] = v->scores != NULL ? v->scores[i] : 0;
        add_token(t, i, v->texts[i], &arena);
    }
    return KVR_OK;
}

/* User-defined tokens may be in the merges too, spelt as they are. */
static bool may_be_merged(const struct kvr_tokenizer *t, size_t i)
{
    const struct kvr_slice text = t->texts[i];

    if ((t->flags[i] & KVR_NOT_MERGED) != 0)
        return false;
    if (t->kind == KVR_TOKENIZER_SPM)
        return t->by_rank;
    for (size_t k = 0; k < text.size; k++)
        if (text.bytes[k] <= ' ' || text.bytes[k] > '~')
            return false;
    return true;
}

/* Maps from texts; the first of equal texts counts. */
static enum kvr_status index_tokens(struct kvr_tokenizer *t,
                                    struct kvr_error *err)
{
    enum kvr_status status;

    if ((status = kvr__text_map_init(&t->map, t->n, err)) != KVR_OK ||
        (status = kvr__text_map_init(&t->special, t->n, err)) != KVR_OK)
        return status;
    for (size_t i = 0; i < t->n; i++) {
        const struct kvr_slice piece = t->pieces[i];
        if (t->texts[i].size == 0)
            continue;
        if (is_special(t->types[i])) {
            (void)kvr__text_map_add(&t->special, t->texts[i], (int32_t)i);
            if (t->types[i] == KVR_TYPE_USER && may_be_merged(t, i))
                (void)kvr__text_map_add(&t->map, t->texts[i], (int32_t)i);
        } else if (t->types[i] == KVR_TYPE_NORMAL) {
            (void)kvr__text_map_add(&t->map, t->texts[i], (int32_t)i);
        }
        /* a byte: "<0x0A>", or in byte-level BPE any token of one byte */
        const bool is_byte = t->kind == KVR_TOKENIZER_BPE
                                 ? t->types[i] == KVR_TYPE_NORMAL
                                 : t->types[i] == KVR_TYPE_BYTE;
        if (is_byte && piece.size == 1 &&
            t->byte_ids[(uint8_t)piece.bytes[0]] < 0)
            t->byte_ids[(uint8_t)piece.bytes[0]] = (int32_t)i;
    }
    return KVR_OK;
}

static enum kvr_status check(const struct kvr_vocabulary *v,
                             struct kvr_error *err)
{
    if (v->n == 0 || v->n > INT32_MAX)
        return kvr_fail(err, KVR_ERR_INPUT, "a vocabulary of %zu tokens", v->n);
    if (v->bos >= (int64_t)v->n)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "BOS id %" PRId32 " in a vocabulary of %zu tokens",
                        v->bos, v->n);
    if (v->add_bos && v->bos < 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "a BOS token is asked for, but none is named");
    return KVR_OK;
}

static enum kvr_status keep_template(struct kvr_tokenizer *t,
                                     struct kvr_slice text,
                                     struct kvr_error *err)
{
    if (text.bytes == NULL)
        return KVR_OK;
    t->chat_template = kvr_strndup(text.bytes, text.size);
    if (t->chat_template == NULL)
        return kvr_no_memory(err, "the chat template", text.size);
    return KVR_OK;
}

/* What cuts text into words, and what merges. */
static enum kvr_status read_rules(struct kvr_tokenizer *t,
                                  const struct kvr_vocabulary *v,
                                  struct kvr_error *err)
{
    struct kvr_cutter_traits traits = {v->whole_words, v->nfc};
    enum kvr_status status = KVR_OK;

    if (t->by_rank)
        status = kvr__bpe_merges(t, v, err);
    if (status == KVR_OK && t->kind == KVR_TOKENIZER_BPE)
        status =
            v->pre.bytes != NULL
                ? kvr__cutter_new(&t->cutter, &traits, v->pre, err)
                : kvr__cutter_from(&t->cutter, v->patterns, v->n_patterns, err);
    t->whole_words = traits.whole_words;
    t->nfc = traits.nfc;
    return status;
}

enum kvr_status kvr__tokenizer_new(struct kvr_tokenizer **out,
                                   const struct kvr_vocabulary *v,
                                   struct kvr_error *err)
{
    enum kvr_status status = check(v, err);
    struct kvr_tokenizer *t;

    *out = NULL;
    if (status != KVR_OK)
        return status;
    t = kvr_calloc(1, sizeof *t);
    if (t == NULL)
        return kvr_no_memory(err, "the tokenizer", sizeof *t);
    t->kind = v->kind;
    t->n = v->n;
    t->bos = v->bos;
    memcpy(t->end, v->end, sizeof t->end);
    t->n_end = v->n_end;
    t->add_bos = v->add_bos;
    t->add_space = v->add_space;
    t->add_once = v->add_once;
    t->split_blanks = v->split_blanks;
    t->prepends = v->prepends;
    t->replaces = v->replaces;
    t->by_rank = t->kind == KVR_TOKENIZER_BPE || v->merges != NULL;
    memset(t->byte_ids, 0xff, sizeof t->byte_ids);
    if ((status = add_tokens(t, v, err)) == KVR_OK &&
        (status = index_tokens(t, err)) == KVR_OK &&
        (status = kvr__added_init(&t->added, t, false, err)) == KVR_OK &&
        (status = kvr__added_init(&t->late_added, t, true, err)) == KVR_OK &&
        (status = keep_template(t, v->chat_template, err)) == KVR_OK &&
        (status = kvr__classifier_new(&t->classifier, err)) == KVR_OK)
        status = read_rules(t, v, err);
    if (status != KVR_OK)
        kvr__tokenizer_free(t);
    else
        *out = t;
    return status;
}

void kvr__tokenizer_free(struct kvr_tokenizer *t)
{
    if (t == NULL)
        return;
    free(t->arena);
    free(t->texts);
    free(t->pieces);
    free(t->types);
    free(t->flags);
    free(t->chat_template);
    free(t->scores);
    kvr__added_fini(&t->added);
    kvr__added_fini(&t->late_added);
    kvr__text_map_fini(&t->map);
    kvr__text_map_fini(&t->special);
    kvr__pair_map_fini(&t->pairs);
    kvr__cutter_free(t->cutter);
    kvr__classifier_free(t->classifier);
    kvr__merger_fini(&t->merger);
    free(t);
}

/* Length of the white-space character (Unicode's White_Space) at text. */
static size_t space_at(const uint8_t *text, size_t size)
{
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
    };

    if (size > 0 && (text[0] == ' ' || (text[0] >= 9 && text[0] <= 13)))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        const size_t n = strlen(wide[i]);
        if (size >= n && memcmp(text, wide[i], n) == 0)
            return n;
    }
    return size >= 3 && text[0] == 0xe2 && text[1] == 0x80 && text[2] >= 0x80 &&
                   text[2] <= 0x8a
               ? 3
               : 0;
}

size_t kvr__space_before(const uint8_t *text, size_t size)
{
    size_t at = 0;

    for (size_t n; (n = space_at(text + at, size - at)) > 0;)
        at += n;
    return at;
}

size_t kvr__space_after(const uint8_t *text, size_t size)
{
    size_t end = size;

    for (size_t n = 1; n <= 3 && n <= end;)
        if (space_at(text + end - n, n) == n) {
            end -= n;
            n = 1;
        } else {
            n++;
        }
    return size - end;
}

struct kvr_slice kvr__tokenizer_piece(const struct kvr_tokenizer *t, int32_t id)
{
    if (id < 0 || (size_t)id >= t->n)
        return (struct kvr_slice){"", 0};
    return t->pieces[id];
}

enum kvr_token_class kvr__tokenizer_class(struct kvr_tokenizer *t, int32_t id)
{
    const struct kvr_slice piece = kvr__tokenizer_piece(t, id);
    const uint8_t *bytes = (const uint8_t *)piece.bytes;
    size_t bad;

    if (id >= 0 && (size_t)id < t->n &&
        (t->types[id] == KVR_TYPE_CONTROL || t->types[id] == KVR_TYPE_UNKNOWN))
        return KVR_TOKEN_SPECIAL;
    if (piece.size == 0 || !kvr_utf8_valid(bytes, piece.size, &bad))
        return KVR_TOKEN_TEXT;
    switch (kvr__classifier_run(t->classifier, bytes, piece.size)) {
    case KVR_TEXT_SPACE:
        return KVR_TOKEN_SPACE;
    case KVR_TEXT_DIGIT:
        return KVR_TOKEN_DIGIT;
    case KVR_TEXT_PUNCTUATION:
        return KVR_TOKEN_PUNCTUATION;
    case KVR_TEXT_OTHER:
        break;
    }
    return KVR_TOKEN_TEXT;
}

size_t kvr__tokenizer_size(const struct kvr_tokenizer *t)
{
    return t->n;
}

int32_t kvr__tokenizer_bos(const struct kvr_tokenizer *t)
{
    return t->bos;
}

bool kvr__tokenizer_adds_bos(const struct kvr_tokenizer *t)
{
    return t->add_bos;
}

bool kvr__tokenizer_is_end(const struct kvr_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_end; i++)
        if (t->end[i] == id)
            return true;
    return false;
}

bool kvr__tokenizer_add_end(struct kvr_tokenizer *t, int32_t id)
{
    if (kvr__tokenizer_is_end(t, id))
        return true;
    if (t->n_end == KVR_MAX_END)
        return false;
    t->end[t->n_end++] = id;
    return true;
}

int32_t kvr__tokenizer_special(const struct kvr_tokenizer *t, const char *text)
{
    return kvr__text_map_find(&t->special, kvr_slice_of(text));
}

struct kvr_slice kvr__tokenizer_chat_template(const struct kvr_tokenizer *t)
{
    return t->chat_template != NULL ? kvr_slice_of(t->chat_template)
                                    : (struct kvr_slice){0};
}
