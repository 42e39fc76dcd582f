/* bytes.c -- fields in and out of memory.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "bytes.h"

#include "kvr_memory.h"

#include <string.h>

uint8_t *kvr__put_space(struct bytes *out, size_t n)
{
    if (out->failed || n > SIZE_MAX - out->n ||
        !kvr_grow((void **)&out->data, &out->capacity, out->n + n, 1)) {
        out->failed = true;
        return NULL;
    }
    uint8_t *at = out->data + out->n;
    out->n += n;
    return at;
}

void kvr__put(struct bytes *out, const void *data, size_t n)
{
    if (n == 0)
        return;
    uint8_t *at = kvr__put_space(out, n);
    if (at != NULL)
        memcpy(at, data, n);
}

void kvr__put_u32(struct bytes *out, uint32_t value)
{
    kvr__put(out, &value, sizeof value);
}

void kvr__put_u64(struct bytes *out, uint64_t value)
{
    kvr__put(out, &value, sizeof value);
}

void kvr__put_real(struct bytes *out, double value)
{
    kvr__put(out, &value, sizeof value);
}

void kvr__put_text(struct bytes *out, const char *text)
{
    if (text == NULL) {
        kvr__put_u32(out, UINT32_MAX);
        return;
    }
    const size_t n = strlen(text);
    if (n >= UINT32_MAX) {
        out->failed = true;
        return;
    }
    kvr__put_u32(out, (uint32_t)n);
    kvr__put(out, text, n);
}

const uint8_t *kvr__take(struct cursor *in, size_t n)
{
    if (in->bad || n > in->left) {
        in->bad = true;
        return NULL;
    }
    const uint8_t *at = in->at;
    in->at += n;
    in->left -= n;
    return at;
}

uint32_t kvr__take_u32(struct cursor *in)
{
    uint32_t value = 0;
    const uint8_t *at = kvr__take(in, sizeof value);

    if (at != NULL)
        memcpy(&value, at, sizeof value);
    return value;
}

uint64_t kvr__take_u64(struct cursor *in)
{
    uint64_t value = 0;
    const uint8_t *at = kvr__take(in, sizeof value);

    if (at != NULL)
        memcpy(&value, at, sizeof value);
    return value;
}

double kvr__take_real(struct cursor *in)
{
    double value = 0;
    const uint8_t *at = kvr__take(in, sizeof value);

    if (at != NULL)
        memcpy(&value, at, sizeof value);
    return value;
}

bool kvr__take_text(struct cursor *in, char **text)
{
    *text = NULL;
    const uint32_t n = kvr__take_u32(in);
    if (in->bad || n == UINT32_MAX)
        return true;
    const uint8_t *at = kvr__take(in, n);
    if (at == NULL)
        return true;
    *text = kvr_strndup((const char *)at, n);
    return *text != NULL;
}
