/* slice.h -- bytes that belong to somebody else.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SLICE_H
#define SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Not terminated; may hold any byte. */
struct kvr_slice {
    const char *bytes;
    size_t size;
};

static inline struct kvr_slice kvr_slice_of(const char *text)
{
    return (struct kvr_slice){.bytes = text, .size = strlen(text)};
}

static inline bool kvr_slice_is(struct kvr_slice slice, const char *text)
{
    return slice.size == strlen(text) &&
           memcmp(slice.bytes, text, slice.size) == 0;
}

/* Order by bytes, a shorter one first. */
static inline int kvr_slice_compare(struct kvr_slice a, struct kvr_slice b)
{
    const size_t n = a.size < b.size ? a.size : b.size;
    const int order = n > 0 ? memcmp(a.bytes, b.bytes, n) : 0;

    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

enum { KVR_SLICE_TEXT = 80 };

/* For a message: printable, cut where long, always terminated. */
static inline const char *kvr_slice_show(char out[KVR_SLICE_TEXT],
                                         struct kvr_slice slice)
{
    size_t n = 0;

    for (; n < slice.size && n < KVR_SLICE_TEXT - 4; n++) {
        const unsigned char c = (unsigned char)slice.bytes[n];
        out[n] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
    }
    const char *tail = n < slice.size ? "..." : "";
    for (; *tail != '\0'; tail++)
        out[n++] = *tail;
    out[n] = '\0';
    return out;
}

#endif
