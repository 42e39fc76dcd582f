/* tokenizer_added.c -- see tokenizer_added.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "tokenizer_private.h"

#include "kvr_memory.h"
#include "nfc.h"

#include <stdlib.h>
#include <string.h>

static bool is_special(uint8_t type)
{
    return type == KVR_TYPE_CONTROL || type == KVR_TYPE_USER;
}

/* ---- what is looked for ---- */

static bool takes_part(const struct kvr_tokenizer *t, size_t i, bool normalized)
{
    return is_special(t->types[i]) && t->texts[i].size > 0 &&
           ((t->flags[i] & KVR_NORMALIZED) != 0) == normalized;
}

/* Text as the normalizer makes it, into out; returns its size. raw: where in
 * text each byte comes from, and the end; NULL: not asked for. */
static size_t normalise(uint8_t *out, size_t *raw,
                        const struct kvr_tokenizer *t, const uint8_t *text,
                        size_t size)
{
    size_t n = 0;

    if (t->prepends) {
        memcpy(out, KVR_BLANK, KVR_BLANK_SIZE);
        n = KVR_BLANK_SIZE;
        for (size_t k = 0; raw != NULL && k < n; k++)
            raw[k] = 0;
    }
    for (size_t i = 0; i < size; i++) {
        const bool blank = t->replaces && text[i] == ' ';
        const size_t step = blank ? KVR_BLANK_SIZE : 1;
        memcpy(out + n, blank ? (const uint8_t *)KVR_BLANK : text + i, step);
        for (size_t k = 0; raw != NULL && k < step; k++)
            raw[n + k] = i;
        n += step;
    }
    if (raw != NULL)
        raw[n] = size;
    return n;
}

static int longest_first(const void *a, const void *b)
{
    const size_t left = *(const size_t *)a, right = *(const size_t *)b;

    return (left < right) - (left > right);
}

static void keep_different(struct kvr_added *added, size_t n)
{
    qsort(added->sizes, n, sizeof *added->sizes, longest_first);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || added->sizes[i] != added->sizes[i - 1])
            added->sizes[added->n_sizes++] = added->sizes[i];
}

enum kvr_status kvr__added_init(struct kvr_added *added,
                                const struct kvr_tokenizer *t, bool normalized,
                                struct kvr_error *err)
{
    size_t n = 0, bytes = 1;
    enum kvr_status status;

    for (size_t i = 0; i < t->n; i++)
        if (takes_part(t, i, normalized)) {
            n++;
            bytes += (size_t)KVR_BLANK_SIZE * (1 + t->texts[i].size);
        }
    added->sizes = kvr_calloc(n, sizeof *added->sizes);
    added->arena = kvr_calloc(bytes, 1);
    if (added->sizes == NULL || added->arena == NULL)
        return kvr_no_memory(err, "special tokens", bytes);
    if ((status = kvr__text_map_init(&added->map, n, err)) != KVR_OK)
        return status;
    uint8_t *to = added->arena;
    n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const uint8_t *text = (const uint8_t *)t->texts[i].bytes;
        size_t size = t->texts[i].size;
        if (!takes_part(t, i, normalized))
            continue;
        if (normalized)
            size = normalise(to, NULL, t, text, size);
        else
            memcpy(to, text, size);
        /* the first of equal texts counts */
        (void)kvr__text_map_add(&added->map,
                                (struct kvr_slice){(const char *)to, size},
                                (int32_t)i);
        added->start[to[0]] = true;
        added->sizes[n++] = size;
        to += size;
    }
    keep_different(added, n);
    return KVR_OK;
}

void kvr__added_fini(struct kvr_added *added)
{
    kvr__text_map_fini(&added->map);
    free(added->arena);
    free(added->sizes);
}

/* ---- a pass ---- */

struct added_search {
    struct kvr_ids *out;
    struct kvr_tokenizer *t;
    const uint8_t *base; /* the whole text */
    bool control;        /* special tokens are looked for too */
};

/* Id of the longest token at text, and its size; -1: none. */
static int32_t find(size_t *size, const struct added_search *s,
                    const struct kvr_added *added, const uint8_t *text,
                    size_t left)
{
    if (!added->start[text[0]])
        return -1;
    for (size_t i = 0; i < added->n_sizes; i++) {
        *size = added->sizes[i];
        if (*size > left)
            continue;
        const struct kvr_slice view = {(const char *)text, *size};
        const int32_t id = kvr__text_map_find(&added->map, view);
        if (id >= 0 && (s->control || s->t->types[id] == KVR_TYPE_USER))
            return id;
    }
    return -1;
}

/* Bytes from..to of the piece are no token of the pass. */
typedef enum kvr_status (*rest_fn)(struct added_search *s, const void *piece,
                                   size_t from, size_t to,
                                   struct kvr_error *err);

/* Adds the tokens in text, with the white space that they strip, and hands
 * what lies between them to `rest`. */
static enum kvr_status run_pass(struct added_search *s,
                                const struct kvr_added *added,
                                const uint8_t *text, size_t size, rest_fn rest,
                                const void *piece, struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;
    size_t from = 0, at = 0;

    while (at < size && status == KVR_OK) {
        size_t found = 0;
        const int32_t id = find(&found, s, added, text + at, size - at);
        if (id < 0) {
            at++;
            continue;
        }
        size_t start = at, stop = at + found;
        if ((s->t->flags[id] & KVR_STRIP_LEFT) != 0)
            start = at > from ? at - kvr__space_after(text + from, at - from)
                              : from;
        if ((s->t->flags[id] & KVR_STRIP_RIGHT) != 0)
            stop += kvr__space_before(text + stop, size - stop);
        if (start > from)
            status = rest(s, piece, from, start, err);
        /* all of it may be the white space of the token before */
        if (status == KVR_OK && start < stop)
            status = kvr__ids_add(s->out, id, err);
        at += found;
        from = stop;
    }
    if (status == KVR_OK && from < size)
        status = rest(s, piece, from, size, err);
    return status;
}

/* ---- the second pass, and what is left ---- */

static enum kvr_status encode_plain(struct added_search *s, const uint8_t *text,
                                    size_t size, struct kvr_error *err)
{
    const bool first = text == s->base;

    if (s->t->kind == KVR_TOKENIZER_BPE)
        return kvr__bpe_encode(s->out, s->t, s->base, text, size, first, err);
    return kvr__spm_encode(s->out, s->t, s->base, text, size, first, err);
}

/* Text that the second pass looks at, and its bytes' places in the raw one. */
struct piece {
    const uint8_t *raw_text;
    const size_t *raw; /* NULL: as it is */
};

static enum kvr_status encode_rest(struct added_search *s, const void *piece,
                                   size_t from, size_t to,
                                   struct kvr_error *err)
{
    const struct piece *p = piece;
    const size_t begin = p->raw != NULL ? p->raw[from] : from;
    const size_t end = p->raw != NULL ? p->raw[to] : to;

    /* the blank that was put in front, alone: at the text's start only */
    if (begin == end && p->raw_text + begin != s->base)
        return KVR_OK;
    return encode_plain(s, p->raw_text + begin, end - begin, err);
}

static enum kvr_status look_in_normalised(struct added_search *s,
                                          const uint8_t *text, size_t size,
                                          struct kvr_error *err)
{
    size_t room, places;

    if (!kvr_mul_size(&room, size + 1, KVR_BLANK_SIZE) ||
        !kvr_mul_size(&places, room + 1, sizeof(size_t)))
        return kvr_no_memory(err, "a text", size);
    uint8_t *made = malloc(room);
    size_t *raw = malloc(places);
    enum kvr_status status;
    if (made == NULL || raw == NULL) {
        status = kvr_no_memory(err, "a text", places);
    } else {
        const struct piece piece = {text, raw};
        const size_t n = normalise(made, raw, s->t, text, size);
        status =
            run_pass(s, &s->t->late_added, made, n, encode_rest, &piece, err);
    }
    free(made);
    free(raw);
    return status;
}

static enum kvr_status second_pass(struct added_search *s, const void *text,
                                   size_t from, size_t to,
                                   struct kvr_error *err)
{
    const uint8_t *at = (const uint8_t *)text + from;
    const struct piece piece = {at, NULL};

    if (s->t->late_added.n_sizes == 0)
        return encode_plain(s, at, to - from, err);
    if (s->t->prepends || s->t->replaces)
        return look_in_normalised(s, at, to - from, err);
    return run_pass(s, &s->t->late_added, at, to - from, encode_rest, &piece,
                    err);
}

enum kvr_status kvr__tokenizer_encode(struct kvr_ids *out,
                                      struct kvr_tokenizer *t,
                                      const uint8_t *text, size_t size,
                                      bool special, struct kvr_error *err)
{
    struct added_search s = {
        .out = out, .t = t, .base = text, .control = special};
    const enum kvr_status status =
        t->nfc ? kvr__nfc_check(text, size, err) : KVR_OK;

    if (status != KVR_OK)
        return status;
    return run_pass(&s, &t->added, text, size, second_pass, text, err);
}
