/* text.c -- strict numbers, lists, UTF-8.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_text.h"

#include "kvr_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool kvr_parse_u64(uint64_t *value, const char *text, size_t n)
{
    uint64_t v = 0;

    if (n == 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        const uint64_t digit = (uint64_t)(text[i] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *value = v;
    return true;
}

bool kvr_parse_u32(uint32_t *value, const char *text, size_t n)
{
    uint64_t v;

    if (!kvr_parse_u64(&v, text, n) || v > UINT32_MAX)
        return false;
    *value = (uint32_t)v;
    return true;
}

bool kvr_parse_real(double *value, const char *text, size_t n)
{
    char copy[64], *end;

    if (n == 0 || n >= sizeof copy)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strchr("0123456789+-.eE", text[i]) == NULL || text[i] == '\0')
            return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    const double v = strtod(copy, &end);
    if (*end != '\0' || !isfinite(v))
        return false;
    *value = v;
    return true;
}

bool kvr_parse_bytes(uint64_t *bytes, const char *text)
{
    static const char units[] = "KMGT";
    size_t n = strlen(text);
    double value, factor = 1;

    if (n > 0 && (text[n - 1] == 'B' || text[n - 1] == 'b'))
        n--;
    if (n > 0) {
        const char *unit = strchr(units, text[n - 1] & ~0x20);
        if (unit != NULL && *unit != '\0') {
            factor = exp2(10.0 * (double)(unit - units + 1));
            n--;
        }
    }
    if (!kvr_parse_real(&value, text, n) || value < 0 ||
        value * factor >= 0x1p63)
        return false;
    *bytes = (uint64_t)(value * factor);
    return true;
}

void kvr_format_bytes(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t u = 0;

    while (value >= 999.5 && u + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        u++;
    }
    if (u == 0)
        snprintf(out, 32, "%" PRIu64 " B", bytes);
    else
        snprintf(out, 32, "%.*f %s", value < 9.95 ? 1 : 0, value, units[u]);
}

/* One item, "7" or "4-7". */
static bool mark(bool *marks, uint32_t limit, const char *item, size_t n)
{
    const char *dash = memchr(item, '-', n);
    uint32_t first, last;

    if (dash == NULL) {
        if (!kvr_parse_u32(&first, item, n))
            return false;
        last = first;
    } else if (!kvr_parse_u32(&first, item, (size_t)(dash - item)) ||
               !kvr_parse_u32(&last, dash + 1, n - (size_t)(dash - item) - 1)) {
        return false;
    }
    if (first > last || last >= limit)
        return false;
    for (uint32_t i = first; i <= last; i++)
        marks[i] = true;
    return true;
}

enum kvr_status kvr_parse_list(bool *marks, uint32_t limit, const char *text,
                               const char *what, struct kvr_error *err)
{
    memset(marks, 0, limit * sizeof *marks);
    for (const char *item = text;;) {
        const size_t n = strcspn(item, ",");
        if (!mark(marks, limit, item, n))
            return kvr_fail(err, KVR_ERR_USAGE,
                            "%s list '%s': '%.*s' is not a %s or a range "
                            "below %" PRIu32,
                            what, text, (int)(n < 40 ? n : 40), item, what,
                            limit);
        if (item[n] == '\0')
            return KVR_OK;
        item += n + 1;
    }
}

enum kvr_status kvr_list_marks(bool **marks, uint32_t limit, const char *text,
                               const char *what, struct kvr_error *err)
{
    *marks = kvr_calloc(limit, sizeof **marks);
    if (*marks == NULL)
        return kvr_no_memory(err, what, limit);
    if (text != NULL)
        return kvr_parse_list(*marks, limit, text, what, err);
    memset(*marks, true, limit * sizeof **marks);
    return KVR_OK;
}

/* Length of the sequence that starts at s, 0 if it is not valid UTF-8. */
static size_t sequence(const uint8_t *s, size_t n)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = 1;
    uint32_t c = s[0];

    if (c < 0x80)
        return 1;
    if (c >= 0xf0 && c < 0xf8)
        length = 4;
    else if (c >= 0xe0 && c < 0xf0)
        length = 3;
    else if (c >= 0xc0 && c < 0xe0)
        length = 2;
    else
        return 0;
    if (length > n)
        return 0;
    c &= 0x7fu >> length;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    return length;
}

bool kvr_utf8_valid(const uint8_t *bytes, size_t n, size_t *bad)
{
    for (size_t i = 0; i < n;) {
        const size_t length = sequence(bytes + i, n - i);
        if (length == 0) {
            *bad = i;
            return false;
        }
        i += length;
    }
    return true;
}
