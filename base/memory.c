/* memory.c -- checked sizes and aligned arrays.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 64 };

bool kvr_mul_size(size_t *product, size_t a, size_t b)
{
    if (a != 0 && b > SIZE_MAX / a)
        return false;
    *product = a * b;
    return true;
}

bool kvr_mul_u64(uint64_t *product, uint64_t a, uint64_t b)
{
    if (a != 0 && b > UINT64_MAX / a)
        return false;
    *product = a * b;
    return true;
}

bool kvr_add_u64(uint64_t *sum, uint64_t a, uint64_t b)
{
    if (b > UINT64_MAX - a)
        return false;
    *sum = a + b;
    return true;
}

void *kvr_calloc(size_t count, size_t size)
{
    return calloc(count != 0 ? count : 1, size != 0 ? size : 1);
}

void *kvr_aligned_calloc(size_t count, size_t size)
{
    size_t bytes;
    void *p = NULL;

    if (!kvr_mul_size(&bytes, count, size) || bytes > SIZE_MAX - LINE)
        return NULL;
    bytes = (bytes / LINE + 1) * LINE;
    if (posix_memalign(&p, LINE, bytes) != 0)
        return NULL;
    memset(p, 0, bytes);
    return p;
}

bool kvr_grow(void **items, size_t *capacity, size_t need, size_t size)
{
    size_t wanted = *capacity != 0 ? *capacity : 16, bytes;

    if (need <= *capacity)
        return true;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2)
            return false;
        wanted *= 2;
    }
    if (!kvr_mul_size(&bytes, wanted, size))
        return false;
    void *grown = realloc(*items, bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

char *kvr_strndup(const char *text, size_t n)
{
    char *copy = malloc(n + 1);

    if (copy != NULL) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

char *kvr_strdup(const char *text)
{
    return kvr_strndup(text, strlen(text));
}

enum kvr_status kvr_no_memory(struct kvr_error *err, const char *what,
                              size_t bytes)
{
    return kvr_fail(err, KVR_ERR_MEMORY, "no memory for %s (%zu bytes)", what,
                    bytes);
}

uint64_t kvr_physical_memory(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    if (pages <= 0 || size <= 0)
        return 0;
    return (uint64_t)pages * (uint64_t)size;
}
