/* bpe.c -- byte-level byte-pair encoding (GPT-2's).
 *
 * Vocabulary texts spell bytes as printable characters: those that print in
 * Latin-1 as themselves, the other 68 as U+0100 onwards in order. Inside, a
 * token is its bytes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "tokenizer_private.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <stdlib.h>
#include <string.h>

enum { N_SPELT = 256 + 68 };

static bool prints(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           byte >= 0xae;
}

/* The byte that a character stands for; -1: none. */
static int byte_for(uint32_t character)
{
    uint32_t next = 256;

    if (character < 256)
        return prints(character) ? (int)character : -1;
    for (unsigned byte = 0; byte < 256; byte++)
        if (!prints(byte) && next++ == character)
            return (int)byte;
    return -1;
}

bool kvr__bpe_decode(uint8_t *out, size_t *size, struct kvr_slice text)
{
    const uint8_t *in = (const uint8_t *)text.bytes;
    size_t n = 0;

    for (int pass = 0; pass < 2; pass++) { /* look first, then write */
        n = 0;
        for (size_t i = 0; i < text.size; n++) {
            uint32_t character = in[i++];
            if (character >= 0xc2 && character <= 0xc5 && i < text.size &&
                (in[i] & 0xc0) == 0x80)
                character = (character & 0x1f) << 6 | (in[i++] & 0x3fu);
            else if (character >= 0x80)
                return false;
            const int byte = byte_for(character);
            if (byte < 0)
                return false;
            if (pass == 1)
                out[n] = (uint8_t)byte;
        }
    }
    *size = n;
    return true;
}

static enum kvr_status bad_merge(size_t i, struct kvr_slice merge,
                                 const char *why, struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];

    return kvr_fail(err, KVR_ERR_INPUT, "merge %zu ('%s') %s", i,
                    kvr_slice_show(shown, merge), why);
}

/* scratch: room for twice the merge's bytes. */
static enum kvr_status add_merge(struct kvr_tokenizer *t, size_t i,
                                 struct kvr_slice merge, uint8_t *scratch,
                                 struct kvr_error *err)
{
    const char *blank =
        merge.size > 0 ? memchr(merge.bytes, ' ', merge.size) : NULL;
    struct kvr_slice whole = {(const char *)scratch, 0};
    size_t left_size, right_size;

    if (blank == NULL)
        return bad_merge(i, merge, "has no blank", err);
    const struct kvr_slice left = {merge.bytes, (size_t)(blank - merge.bytes)};
    const struct kvr_slice right = {blank + 1, merge.size - left.size - 1};
    if (t->kind == KVR_TOKENIZER_SPM) {
        memcpy(scratch, left.bytes, left_size = left.size);
        memcpy(scratch + left_size, right.bytes, right_size = right.size);
    } else if (!kvr__bpe_decode(scratch, &left_size, left) ||
               !kvr__bpe_decode(scratch + left_size, &right_size, right)) {
        return bad_merge(i, merge, "is not in byte-level spelling", err);
    }
    whole.size = left_size + right_size;
    const struct kvr_slice a = {whole.bytes, left_size};
    const struct kvr_slice b = {whole.bytes + left_size, right_size};
    const int32_t left_id = kvr__text_map_find(&t->map, a);
    const int32_t right_id = kvr__text_map_find(&t->map, b);
    const int32_t id = kvr__text_map_find(&t->map, whole);
    if (left_id < 0 || right_id < 0 || id < 0)
        return bad_merge(i, merge, "has parts that are no tokens", err);
    (void)kvr__pair_map_add(&t->pairs, left_id, right_id, id, (uint32_t)i);
    return KVR_OK;
}

enum kvr_status kvr__bpe_merges(struct kvr_tokenizer *t,
                                const struct kvr_vocabulary *v,
                                struct kvr_error *err)
{
    size_t longest = 0;
    enum kvr_status status = kvr__pair_map_init(&t->pairs, v->n_merges, err);

    if (status != KVR_OK)
        return status;
    for (size_t i = 0; i < v->n_merges; i++)
        if (v->merges[i].size > longest)
            longest = v->merges[i].size;
    uint8_t *scratch = kvr_calloc(longest + 1, 2);
    if (scratch == NULL)
        return kvr_no_memory(err, "the merges", longest);
    for (size_t i = 0; i < v->n_merges && status == KVR_OK; i++)
        status = add_merge(t, i, v->merges[i], scratch, err);
    free(scratch);
    return status;
}

bool kvr__bpe_merge(void *ud, const struct kvr_symbol *left,
                    const struct kvr_symbol *right, int32_t *id, double *cost)
{
    const struct kvr_tokenizer *t = ud;
    const struct kvr_pair_slot *pair =
        kvr__pair_map_find(&t->pairs, left->id, right->id);

    if (pair == NULL)
        return false;
    *id = pair->id;
    *cost = pair->rank;
    return true;
}

struct bpe_run {
    struct kvr_ids *out;
    struct kvr_tokenizer *t;
    const uint8_t *base;
};

static enum kvr_status encode_word(void *ud, const uint8_t *word, size_t size,
                                   struct kvr_error *err)
{
    struct bpe_run *run = ud;
    struct kvr_merger *m = &run->t->merger;
    enum kvr_status status = KVR_OK;

    m->n = 0;
    if (run->t->whole_words) {
        const struct kvr_slice whole = {(const char *)word, size};
        const int32_t id = kvr__text_map_find(&run->t->map, whole);
        if (id >= 0)
            return kvr__ids_add(run->out, id, err);
    }
    for (size_t i = 0; i < size && status == KVR_OK; i++) {
        const int32_t id = run->t->byte_ids[word[i]];
        if (id < 0)
            return kvr__no_token(word[i], (size_t)(word + i - run->base), err);
        status = kvr__merger_add(m, i, 1, id, err);
    }
    if (status == KVR_OK)
        status = kvr__merger_run(m, kvr__bpe_merge, run->t, err);
    for (size_t i = 0; status == KVR_OK && m->n > 0 && i != SIZE_MAX;
         i = m->symbols[i].next)
        status = kvr__ids_add(run->out, m->symbols[i].id, err);
    return status;
}

static enum kvr_status encode_words(struct bpe_run *run, const uint8_t *text,
                                    size_t size, struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    /* bytes that are not UTF-8 are words of their own */
    while (size > 0 && status == KVR_OK) {
        size_t good = size;
        if (kvr_utf8_valid(text, size, &good))
            good = size;
        status =
            kvr__cutter_run(run->t->cutter, text, good, encode_word, run, err);
        if (status == KVR_OK && good < size)
            status = encode_word(run, text + good, 1, err);
        good += good < size;
        text += good;
        size -= good;
    }
    return status;
}

enum kvr_status kvr__bpe_encode(struct kvr_ids *out, struct kvr_tokenizer *t,
                                const uint8_t *base, const uint8_t *text,
                                size_t size, bool first, struct kvr_error *err)
{
    struct bpe_run run = {.out = out, .t = t, .base = base};

    if (!first || !t->add_space || (t->add_once && text[0] == ' '))
        return encode_words(&run, text, size, err);
    uint8_t *spaced = malloc(size + 1);
    if (spaced == NULL)
        return kvr_no_memory(err, "a text", size);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, size);
    run.base = spaced + 1; /* of the text's first byte */
    out->spaced = true;
    const enum kvr_status status = encode_words(&run, spaced, size + 1, err);
    free(spaced);
    return status;
}
