/* json.c -- building results: what fails is remembered, what is no text is
 * made one.
 *
 * jansson answers a failure, of memory or of UTF-8, by leaving a field out. A
 * report from which something is missing must not be printed, so every step
 * goes through here, and cli_report asks at the end.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cli.h"

#include "kvr_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool failed;

bool kvr__cli_json_failed(void)
{
    return failed;
}

void kvr__cli_set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        failed = true;
}

void kvr__cli_add(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        failed = true;
}

void kvr__cli_copy(json_t *to, const json_t *from, const char *key)
{
    json_t *value = json_object_get(from, key);

    if (value != NULL)
        kvr__cli_set(to, key, json_incref(value));
}

json_t *kvr__cli_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void kvr__cli_null(json_t *object, const char *key, const char *reason)
{
    char name[128];

    snprintf(name, sizeof name, "%s_reason", key);
    kvr__cli_set(object, key, json_null());
    kvr__cli_set(object, name, kvr__cli_text(reason));
}

/* U+FFFD in place of each byte that begins no character. */
static char *repaired(const char *text, size_t n, size_t *out_n)
{
    static const char replacement[] = {'\xef', '\xbf', '\xbd'};
    char *out = malloc(sizeof replacement * n + 1);
    size_t used = 0, bad;

    while (out != NULL && n > 0) {
        if (kvr_utf8_valid((const uint8_t *)text, n, &bad))
            bad = n;
        memcpy(out + used, text, bad);
        used += bad;
        text += bad;
        n -= bad;
        if (n > 0) {
            memcpy(out + used, replacement, sizeof replacement);
            used += sizeof replacement;
            text++;
            n--;
        }
    }
    *out_n = used;
    return out;
}

json_t *kvr__cli_text_of(const char *text, size_t n)
{
    json_t *value = json_stringn(text, n);
    size_t fixed_n;

    if (value != NULL)
        return value;
    char *fixed = repaired(text, n, &fixed_n);
    if (fixed != NULL)
        value = json_stringn(fixed, fixed_n);
    free(fixed);
    if (value == NULL)
        failed = true;
    return value;
}

json_t *kvr__cli_text(const char *text)
{
    return text != NULL ? kvr__cli_text_of(text, strlen(text)) : json_null();
}
