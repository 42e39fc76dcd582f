/* view.h -- bytes that belong to somebody else.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef VIEW_H
#define VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Not terminated; may hold any byte. */
struct kvr_view {
    const char *bytes;
    size_t size;
};

static inline struct kvr_view kvr_view_of(const char *text)
{
    return (struct kvr_view){.bytes = text, .size = strlen(text)};
}

static inline bool kvr_view_is(struct kvr_view view, const char *text)
{
    return view.size == strlen(text) &&
           memcmp(view.bytes, text, view.size) == 0;
}

/* Order by bytes, a shorter one first. */
static inline int kvr_view_compare(struct kvr_view a, struct kvr_view b)
{
    const size_t n = a.size < b.size ? a.size : b.size;
    const int order = n > 0 ? memcmp(a.bytes, b.bytes, n) : 0;

    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

enum { KVR_VIEW_TEXT = 80 };

/* For a message: printable, cut where long, always terminated. */
static inline const char *kvr_view_show(char out[KVR_VIEW_TEXT],
                                        struct kvr_view view)
{
    size_t n = 0;

    for (; n < view.size && n < KVR_VIEW_TEXT - 4; n++) {
        const unsigned char c = (unsigned char)view.bytes[n];
        out[n] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
    }
    const char *tail = n < view.size ? "..." : "";
    for (; *tail != '\0'; tail++)
        out[n++] = *tail;
    out[n] = '\0';
    return out;
}

#endif
