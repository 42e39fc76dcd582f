/* pattern.c -- reads a regular expression once, copying what is understood.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "pattern.h"

#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

/* An escape grows to at most this many bytes. */
enum { GROWTH = 32 };

struct reader {
    const char *in;
    size_t size, at, used;
    char *out;
    bool in_class, quantified; /* the last thing was {n,m} */
};

static void put(struct reader *r, const char *text, size_t n)
{
    memcpy(r->out + r->used, text, n);
    r->used += n;
}

/* Copies n bytes of the pattern. */
static void copy(struct reader *r, size_t n)
{
    put(r, r->in + r->at, n);
    r->at += n;
}

static enum kvr_status refuse(const struct reader *r, const char *what,
                              struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];

    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "%s at byte %zu of pattern '%s' is not supported", what,
                    r->at,
                    kvr_slice_show(shown, (struct kvr_slice){r->in, r->size}));
}

static bool at_text(const struct reader *r, const char *text)
{
    const size_t n = strlen(text);

    return r->size - r->at >= n && memcmp(r->in + r->at, text, n) == 0;
}

static bool is_punctuation(char c)
{
    return c > 0x20 && c < 0x7f && !(c >= '0' && c <= '9') &&
           !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
}

/* \p{..} and \P{..}, copied up to the brace. */
static enum kvr_status property(struct reader *r, struct kvr_error *err)
{
    const char *end = memchr(r->in + r->at, '}', r->size - r->at);

    if (r->size - r->at < 4 || r->in[r->at + 2] != '{' || end == NULL)
        return refuse(r, "a property without braces", err);
    copy(r, (size_t)(end - (r->in + r->at)) + 1);
    return KVR_OK;
}

static enum kvr_status escape(struct reader *r, struct kvr_error *err)
{
    char what[] = "'\\?'";

    if (r->at + 1 >= r->size)
        return refuse(r, "a lone '\\'", err);
    const char c = r->in[r->at + 1];
    if (c == 's' || (c == 'S' && !r->in_class)) {
        const char *white = r->in_class ? KVR_WHITE
                            : c == 's'  ? "[" KVR_WHITE "]"
                                        : "[^" KVR_WHITE "]";
        put(r, white, strlen(white));
        r->at += 2;
        return KVR_OK;
    }
    if (c == 'p' || c == 'P')
        return property(r, err);
    if (strchr("rntfd", c) != NULL || is_punctuation(c)) {
        copy(r, 2);
        return KVR_OK;
    }
    what[2] = c;
    return refuse(r, what, err);
}

static enum kvr_status in_class(struct reader *r, struct kvr_error *err)
{
    if (r->in[r->at] == '[')
        return refuse(r, "a class within a class", err);
    if (at_text(r, "&&"))
        return refuse(r, "'&&'", err);
    if (r->in[r->at] == ']')
        r->in_class = false;
    copy(r, 1);
    return KVR_OK;
}

static enum kvr_status group(struct reader *r, struct kvr_error *err)
{
    static const char *const known[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?>"};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (at_text(r, known[i])) {
            copy(r, strlen(known[i]));
            return KVR_OK;
        }
    if (at_text(r, "(?") || at_text(r, "(*"))
        return refuse(r, "this kind of group", err);
    copy(r, 1);
    return KVR_OK;
}

/* {n}, {n,} and {n,m}; a possessive one means another thing to each. */
static enum kvr_status repeat(struct reader *r, struct kvr_error *err)
{
    size_t n = 1;

    while (r->at + n < r->size &&
           ((r->in[r->at + n] >= '0' && r->in[r->at + n] <= '9') ||
            (n > 1 && r->in[r->at + n] == ',')))
        n++;
    if (n == 1 || r->at + n >= r->size || r->in[r->at + n] != '}')
        return refuse(r, "'{'", err);
    copy(r, n + 1);
    r->quantified = true;
    return KVR_OK;
}

static enum kvr_status step(struct reader *r, struct kvr_error *err)
{
    const bool quantified = r->quantified;
    const char c = r->in[r->at];

    r->quantified = false;
    if (c == '\\')
        return escape(r, err);
    if (r->in_class)
        return in_class(r, err);
    if (c == '(')
        return group(r, err);
    if (c == '{')
        return repeat(r, err);
    if (c == '^' || c == '$')
        return refuse(r, c == '^' ? "'^'" : "'$'", err);
    if (c == '+' && quantified)
        return refuse(r, "'}+'", err);
    if (c != '[') {
        copy(r, 1);
        return KVR_OK;
    }
    r->in_class = true;
    copy(r, at_text(r, "[^") ? 2 : 1);
    if (r->at < r->size && r->in[r->at] == ']') /* one that ends nothing */
        return refuse(r, "']'", err);
    return KVR_OK;
}

enum kvr_status kvr__pattern_translate(char **out, struct kvr_slice text,
                                       bool literal, struct kvr_error *err)
{
    struct reader r = {.in = text.bytes, .size = text.size};
    enum kvr_status status = KVR_OK;

    *out = NULL;
    if (text.size == 0 || text.size > KVR_MAX_PATTERN)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "a pattern of %zu bytes, expected 1 to %d", text.size,
                        (int)KVR_MAX_PATTERN);
    if (memchr(text.bytes, '\0', text.size) != NULL)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED, "a pattern with a NUL");
    r.out = kvr_calloc(text.size + 1, GROWTH);
    if (r.out == NULL)
        return kvr_no_memory(err, "a pattern", text.size * GROWTH);
    while (r.at < r.size && status == KVR_OK) {
        if (literal) {
            if (is_punctuation(r.in[r.at]))
                put(&r, "\\", 1);
            copy(&r, 1);
        } else {
            status = step(&r, err);
        }
    }
    if (status == KVR_OK)
        *out = r.out;
    else
        free(r.out);
    return status;
}
