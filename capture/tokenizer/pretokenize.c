/* pretokenize.c -- pre-tokenizers through PCRE2, by UTF-8 characters and
 * Unicode properties.
 *
 * Quantifiers of the patterns here are possessive where nothing after them
 * could match what they give back.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pretokenize.h"

#include "kvr_memory.h"
#include "pattern.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_NAMED = 2 };

#define WHITE KVR_WHITE
#define NUMBER "\\p{N}"
#define GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d" \
    "| ?\\p{L}++| ?\\p{N}++| ?[^" WHITE "\\p{L}\\p{N}]++" \
    "|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]++"
/* digits: how many numbers stay together */
#define CL100K(digits) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)" \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|\\p{N}" digits "| ?[^" WHITE \
    "\\p{L}\\p{N}]++[\\r\\n]*+|[" WHITE "]*[\\r\\n]+" \
    "|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]++"

struct row {
    const char *name;
    const char *patterns[MAX_NAMED]; /* NULL ends */
    struct kvr_cutter_traits traits;
};

static const struct row table[] = {
    {"gpt-2", {GPT2}, {.nfc = false}},
    {"smollm", {NUMBER, GPT2}, {.nfc = false}},
    {"llama-bpe", {CL100K("{1,3}")}, {.whole_words = true}},
    {"qwen2", {CL100K("")}, {.nfc = true}},
};

struct kvr_cutter {
    pcre2_code *codes[KVR_MAX_PATTERNS];
    pcre2_match_data *matches[KVR_MAX_PATTERNS];
    bool only[KVR_MAX_PATTERNS];
    size_t n;
    const uint8_t *base; /* of the text being cut, for messages */
};

static enum kvr_status compile(pcre2_code **out, const char *pattern,
                               struct kvr_error *err)
{
    int code;
    PCRE2_SIZE offset;

    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    if (*out == NULL) {
        PCRE2_UCHAR text[128];
        if (pcre2_get_error_message(code, text, sizeof text) < 0)
            text[0] = '\0';
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "pattern '%s' is not understood: %s (byte %zu)",
                        pattern, (const char *)text, offset);
    }
    return KVR_OK;
}

static enum kvr_status unknown(struct kvr_slice name, struct kvr_error *err)
{
    char list[256] = "", shown[KVR_SLICE_TEXT];
    size_t used = 0;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i > 0 ? " " : "", table[i].name);
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "tokenizer.ggml.pre '%s' is not supported (supported: "
                    "%s); --ids takes token ids instead of text",
                    kvr_slice_show(shown, name), list);
}

/* Appends a pattern in PCRE2's language. */
static enum kvr_status add(struct kvr_cutter *cutter, const char *pattern,
                           struct kvr_error *err)
{
    const size_t i = cutter->n;
    enum kvr_status status;
    uint32_t empty = 0;

    if (i == KVR_MAX_PATTERNS)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "more than %d patterns in a pre-tokenizer",
                        (int)KVR_MAX_PATTERNS);
    if ((status = compile(&cutter->codes[i], pattern, err)) != KVR_OK)
        return status;
    cutter->n++;
    (void)pcre2_pattern_info(cutter->codes[i], PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty != 0)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "pattern '%s' can match nothing", pattern);
    /* where there is no compiler for this processor, it is interpreted */
    (void)pcre2_jit_compile(cutter->codes[i], PCRE2_JIT_COMPLETE);
    cutter->matches[i] =
        pcre2_match_data_create_from_pattern(cutter->codes[i], NULL);
    if (cutter->matches[i] == NULL)
        return kvr_no_memory(err, "the pre-tokenizer", 0);
    return KVR_OK;
}

static enum kvr_status finish(struct kvr_cutter **out,
                              struct kvr_cutter *cutter, enum kvr_status status)
{
    *out = status == KVR_OK ? cutter : NULL;
    if (status != KVR_OK)
        kvr__cutter_free(cutter);
    return status;
}

enum kvr_status kvr__cutter_new(struct kvr_cutter **out,
                                struct kvr_cutter_traits *traits,
                                struct kvr_slice name, struct kvr_error *err)
{
    const struct row *row = NULL;
    enum kvr_status status = KVR_OK;

    *out = NULL;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (kvr_slice_is(name, table[i].name))
            row = &table[i];
    if (row == NULL)
        return unknown(name, err);
    struct kvr_cutter *cutter = kvr_calloc(1, sizeof *cutter);
    if (cutter == NULL)
        return kvr_no_memory(err, "the pre-tokenizer", sizeof *cutter);
    *traits = row->traits;
    for (size_t i = 0;
         i < MAX_NAMED && row->patterns[i] != NULL && status == KVR_OK; i++)
        status = add(cutter, row->patterns[i], err);
    return finish(out, cutter, status);
}

enum kvr_status kvr__cutter_from(struct kvr_cutter **out,
                                 const struct kvr_pattern *patterns, size_t n,
                                 struct kvr_error *err)
{
    struct kvr_cutter *cutter = kvr_calloc(1, sizeof *cutter);
    enum kvr_status status = KVR_OK;

    if (cutter == NULL)
        return kvr_no_memory(err, "the pre-tokenizer", sizeof *cutter);
    for (size_t i = 0; i < n && status == KVR_OK; i++) {
        char *pattern;
        status = kvr__pattern_translate(&pattern, patterns[i].text,
                                        patterns[i].literal, err);
        if (status != KVR_OK)
            break;
        cutter->only[cutter->n] = patterns[i].only;
        status = add(cutter, pattern, err);
        free(pattern);
    }
    return finish(out, cutter, status);
}

void kvr__cutter_free(struct kvr_cutter *cutter)
{
    if (cutter == NULL)
        return;
    for (size_t i = 0; i < KVR_MAX_PATTERNS; i++) {
        pcre2_match_data_free(cutter->matches[i]);
        pcre2_code_free(cutter->codes[i]);
    }
    free(cutter);
}

/* pcre2_match; a text too long for the compiled matcher's stack is
 * interpreted. */
static int match(const pcre2_code *code, const uint8_t *text, size_t size,
                 size_t at, pcre2_match_data *data)
{
    int found =
        pcre2_match(code, text, size, at, PCRE2_NO_UTF_CHECK, data, NULL);

    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(code, text, size, at,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, NULL);
    return found;
}

static enum kvr_status failed(const struct kvr_cutter *cutter,
                              const uint8_t *at, int code,
                              struct kvr_error *err)
{
    const size_t offset = (size_t)(at - cutter->base);

    if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT ||
        code == PCRE2_ERROR_HEAPLIMIT)
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "the pre-tokenizer's pattern takes too many steps at "
                        "byte %zu of a piece of the text",
                        offset);
    return kvr_fail(err, KVR_ERR_INTERNAL,
                    "the pre-tokenizer failed: PCRE2 error %d", code);
}

static enum kvr_status dropped(const struct kvr_cutter *cutter,
                               const uint8_t *at, struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_INPUT,
                    "byte %zu of a piece of the text is matched by none of "
                    "the pre-tokenizer's patterns and would be dropped",
                    (size_t)(at - cutter->base));
}

/* Cuts one piece with pattern `level`, its parts with the next ones. */
static enum kvr_status cut(struct kvr_cutter *cutter, size_t level,
                           const uint8_t *text, size_t size, kvr_word_fn fn,
                           void *ud, struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;
    size_t at = 0;

    if (size == 0)
        return KVR_OK;
    if (level >= KVR_MAX_PATTERNS || level == cutter->n)
        return fn(ud, text, size, err);
    while (at < size && status == KVR_OK) {
        const int found =
            match(cutter->codes[level], text, size, at, cutter->matches[level]);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            return failed(cutter, text + at, found, err);
        const PCRE2_SIZE *span =
            pcre2_get_ovector_pointer(cutter->matches[level]);
        const size_t from = found < 0 ? size : span[0];
        const size_t to = found < 0 ? size : span[1];
        if (cutter->only[level] && from > at)
            return dropped(cutter, text + at, err);
        status = cut(cutter, level + 1, text + at, from - at, fn, ud, err);
        if (status == KVR_OK)
            status =
                cut(cutter, level + 1, text + from, to - from, fn, ud, err);
        at = to > at ? to : size; /* no pattern matches nothing (add) */
    }
    return status;
}

enum kvr_status kvr__cutter_run(struct kvr_cutter *cutter, const uint8_t *text,
                                size_t size, kvr_word_fn fn, void *ud,
                                struct kvr_error *err)
{
    cutter->base = text;
    return cut(cutter, 0, text, size, fn, ud, err);
}

/* ---- kinds of text ---- */

struct kvr_classifier {
    pcre2_code *codes[KVR_TEXT_OTHER];
    pcre2_match_data *data;
};

enum kvr_status kvr__classifier_new(struct kvr_classifier **out,
                                    struct kvr_error *err)
{
    static const char *const patterns[KVR_TEXT_OTHER] = {
        [KVR_TEXT_SPACE] = "\\A[" WHITE "]++\\z",
        [KVR_TEXT_DIGIT] = "\\A[" WHITE "\\p{N}]++\\z",
        [KVR_TEXT_PUNCTUATION] = "\\A[" WHITE "\\p{P}\\p{S}]++\\z",
    };
    struct kvr_classifier *c = kvr_calloc(1, sizeof *c);
    enum kvr_status status = KVR_OK;

    *out = NULL;
    if (c == NULL)
        return kvr_no_memory(err, "token classes", sizeof *c);
    for (int i = 0; i < KVR_TEXT_OTHER && status == KVR_OK; i++)
        status = compile(&c->codes[i], patterns[i], err);
    c->data = pcre2_match_data_create(1, NULL);
    if (status == KVR_OK && c->data == NULL)
        status = kvr_no_memory(err, "token classes", 0);
    if (status != KVR_OK)
        kvr__classifier_free(c);
    else
        *out = c;
    return status;
}

void kvr__classifier_free(struct kvr_classifier *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < KVR_TEXT_OTHER; i++)
        pcre2_code_free(c->codes[i]);
    pcre2_match_data_free(c->data);
    free(c);
}

enum kvr_text_kind kvr__classifier_run(struct kvr_classifier *c,
                                       const uint8_t *text, size_t size)
{
    for (int i = 0; i < KVR_TEXT_OTHER; i++)
        if (match(c->codes[i], text, size, 0, c->data) >= 0)
            return (enum kvr_text_kind)i;
    return KVR_TEXT_OTHER;
}
