/* spm.c -- SentencePiece-style byte-pair encoding with scores.
 *
 * Blanks become U+2581, then the neighbouring pair whose joint text is the
 * piece of the highest score (or the earliest merge, where the vocabulary has
 * merges) is joined, again and again, over the whole text or within words. What
 * is in no piece is spelt in byte tokens.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "tokenizer_private.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <stdlib.h>
#include <string.h>

struct spm_run {
    struct kvr_ids *out;
    struct kvr_tokenizer *t;
    const uint8_t *base, *from; /* the text, and where this word starts */
    uint8_t *word;              /* with U+2581 for blanks */
    size_t size;
    bool spaced; /* the word begins with a blank that is not in the text */
};

static bool merges(void *ud, const struct kvr_symbol *left,
                   const struct kvr_symbol *right, int32_t *id, double *cost)
{
    const struct spm_run *run = ud;
    const struct kvr_slice both = {(const char *)run->word + left->at,
                                   left->size + right->size};

    if (run->t->by_rank)
        return kvr__bpe_merge(run->t, left, right, id, cost);
    *id = kvr__text_map_find(&run->t->map, both);
    if (*id < 0)
        return false;
    *cost = -(double)run->t->scores[*id];
    return true;
}

/* Length of the UTF-8 character that begins with this byte. */
static size_t char_size(uint8_t first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Offset in the text of byte `at` of the word. */
static size_t offset_of(const struct spm_run *run, size_t at)
{
    size_t offset = (size_t)(run->from - run->base);

    for (size_t i = run->spaced ? KVR_BLANK_SIZE : 0; i < at;) {
        const bool blank =
            memcmp(run->word + i, KVR_BLANK, KVR_BLANK_SIZE) == 0;
        i += blank ? KVR_BLANK_SIZE : 1;
        offset++;
    }
    return offset;
}

/* Byte tokens for a symbol; a blank is the byte 0x20. */
static enum kvr_status spell(struct spm_run *run, const struct kvr_symbol *s,
                             struct kvr_error *err)
{
    const uint8_t *text = run->word + s->at;
    size_t size = s->size;
    enum kvr_status status = KVR_OK;

    if (size == KVR_BLANK_SIZE && memcmp(text, KVR_BLANK, size) == 0) {
        text = (const uint8_t *)" ";
        size = 1;
    }
    for (size_t i = 0; i < size && status == KVR_OK; i++) {
        const int32_t id = run->t->byte_ids[text[i]];
        if (id < 0)
            return kvr__no_token(text[i], offset_of(run, s->at) + i, err);
        status = kvr__ids_add(run->out, id, err);
    }
    return status;
}

/* Bytes from..to of the word. */
static enum kvr_status encode_part(struct spm_run *run, size_t from, size_t to,
                                   struct kvr_error *err)
{
    struct kvr_merger *m = &run->t->merger;
    enum kvr_status status = KVR_OK;

    m->n = 0;
    for (size_t at = from; at < to && status == KVR_OK;) {
        const size_t size = char_size(run->word[at]);
        const struct kvr_slice text = {(const char *)run->word + at, size};
        status = kvr__merger_add(m, at, size,
                                 kvr__text_map_find(&run->t->map, text), err);
        at += size;
    }
    if (status == KVR_OK)
        status = kvr__merger_run(m, merges, run, err);
    for (size_t i = 0; status == KVR_OK && m->n > 0 && i != SIZE_MAX;
         i = m->symbols[i].next) {
        const struct kvr_symbol *s = &m->symbols[i];
        status = s->id >= 0 ? kvr__ids_add(run->out, s->id, err)
                            : spell(run, s, err);
    }
    return status;
}

/* All at once, or each blank with what follows it up to the next. */
static enum kvr_status encode_word(struct spm_run *run, struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;
    size_t from = 0;

    for (size_t at = 1;
         run->t->split_blanks && at < run->size && status == KVR_OK; at++)
        if (run->size - at >= KVR_BLANK_SIZE &&
            memcmp(run->word + at, KVR_BLANK, KVR_BLANK_SIZE) == 0) {
            status = encode_part(run, from, at, err);
            from = at;
        }
    if (status == KVR_OK)
        status = encode_part(run, from, run->size, err);
    return status;
}

/* Bytes at text that cannot be in a word: what is not UTF-8 (1), and a
 * literal U+2581 (3); 0: none. size > 0. */
static size_t foreign(const uint8_t *text, size_t size)
{
    const size_t n = char_size(text[0]);
    size_t bad;

    if (n > size || !kvr_utf8_valid(text, n, &bad))
        return 1;
    return n == KVR_BLANK_SIZE && memcmp(text, KVR_BLANK, n) == 0 ? n : 0;
}

static enum kvr_status spell_bytes(struct spm_run *run, const uint8_t *text,
                                   size_t n, struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < n && status == KVR_OK; i++) {
        const int32_t id = run->t->byte_ids[text[i]];
        if (id < 0)
            return kvr__no_token(text[i], (size_t)(text + i - run->base), err);
        status = kvr__ids_add(run->out, id, err);
    }
    return status;
}

/* Takes the longest word from text into run->word; returns the bytes of text
 * it covers. */
static size_t take_word(struct spm_run *run, const uint8_t *text, size_t size)
{
    size_t at = 0;

    while (at < size && foreign(text + at, size - at) == 0) {
        const size_t n = char_size(text[at]);
        if (text[at] == ' ') {
            memcpy(run->word + run->size, KVR_BLANK, KVR_BLANK_SIZE);
            run->size += KVR_BLANK_SIZE;
        } else {
            memcpy(run->word + run->size, text + at, n);
            run->size += n;
        }
        at += n;
    }
    return at;
}

enum kvr_status kvr__spm_encode(struct kvr_ids *out, struct kvr_tokenizer *t,
                                const uint8_t *base, const uint8_t *text,
                                size_t size, bool first, struct kvr_error *err)
{
    struct spm_run run = {.out = out, .t = t, .base = base};
    enum kvr_status status = KVR_OK;
    size_t room;

    if (!kvr_mul_size(&room, size + 1, KVR_BLANK_SIZE) ||
        (run.word = malloc(room)) == NULL)
        return kvr_no_memory(err, "a text", size);
    if (size == 0 && first && t->add_space) {
        memcpy(run.word, KVR_BLANK, KVR_BLANK_SIZE);
        run.size = KVR_BLANK_SIZE;
        run.from = text;
        out->spaced = run.spaced = true;
        status = encode_word(&run, err);
    }
    while (size > 0 && status == KVR_OK) {
        run.size = 0;
        run.from = text;
        run.spaced = first && t->add_space && !(t->add_once && text[0] == ' ');
        if (run.spaced) {
            memcpy(run.word, KVR_BLANK, KVR_BLANK_SIZE);
            run.size = KVR_BLANK_SIZE;
            out->spaced = true;
        }
        first = false;
        const size_t taken = take_word(&run, text, size);
        status = encode_word(&run, err);
        text += taken;
        size -= taken;
        if (status != KVR_OK || size == 0)
            break;
        const size_t odd = foreign(text, size);
        status = spell_bytes(&run, text, odd, err);
        text += odd;
        size -= odd;
    }
    free(run.word);
    return status;
}
