/* h5_vlen.c -- finds an attribute's bytes and follows them to the heap.
 *
 * HDF5 file format specification: IV.A.1 object headers (version 1), IV.A.2.m
 * attribute messages (versions 1 to 3), III.E global heap. Our own files, and
 * those of h5py by default, have these.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_vlen.h"

#include "h5_bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    MESSAGE_ATTRIBUTE = 0x0c,
    CLASS_FIXED = 0, /* HDF5 writes characters as 8-bit integers */
    CLASS_STRING = 3,
    CLASS_VLEN = 9,
};

/* The collection's objects follow each other; 0 is the free rest. */
static enum answer look_in_heap(const struct file_bytes *file, uint64_t at,
                                uint32_t index, uint32_t length)
{
    enum answer answer = UNSAFE;
    uint64_t size = 0;
    uint8_t *head = kvr__h5_load(file, at, 16), *whole = NULL;

    if (head != NULL && memcmp(head, "GCOL", 4) == 0 && head[4] == 1)
        memcpy(&size, head + 8, sizeof size);
    free(head);
    if (size < 32 || (whole = kvr__h5_load(file, at, size)) == NULL)
        return UNSAFE;
    struct cursor in = {.at = whole + 16, .left = size - 16};
    while (in.left >= 16) {
        const uint32_t found = kvr__take_u16(&in);
        (void)kvr__take(&in, 6);
        const uint64_t bytes = kvr__take_u64(&in);
        if (found == 0) {
            /* HDF5 takes the rest as free, header included */
            if (bytes < 16 || bytes - 16 > in.left)
                answer = UNSAFE;
            break;
        }
        if (bytes > in.left || in.left - bytes < (8 - bytes % 8) % 8) {
            answer = UNSAFE;
            break;
        }
        if (found == index && bytes >= length)
            answer = SAFE;
        (void)kvr__take(&in, bytes + (8 - bytes % 8) % 8);
    }
    free(whole);
    return answer;
}

static size_t padded(size_t n, unsigned version)
{
    return version == 1 ? (n + 7) / 8 * 8 : n;
}

/* A variable-length string: places of 16 bytes that lead to characters. */
static bool is_text_type(const uint8_t *type, size_t n)
{
    uint32_t place = 0, item = 0;

    if (n < 16 || (type[0] & 0x0f) != CLASS_VLEN ||
        ((type[8] & 0x0f) != CLASS_STRING && (type[8] & 0x0f) != CLASS_FIXED))
        return false;
    memcpy(&place, type + 4, sizeof place);
    memcpy(&item, type + 12, sizeof item);
    return place == 16 && item == 1;
}

/* Elements that a dataspace message of n bytes describes; false: it does not
 * hold its own dimensions. */
static bool count_elements(uint64_t *count, const uint8_t *space, size_t n)
{
    enum { NO_DATA = 2 };
    const size_t head = n > 0 && space[0] == 1 ? 8 : 4;

    if (n < head || space[0] < 1 || space[0] > 2 ||
        n < head + 8 * (size_t)space[1])
        return false;
    *count = space[0] == 2 && space[3] == NO_DATA ? 0 : 1;
    for (unsigned i = 0; i < space[1]; i++) {
        uint64_t dim;
        memcpy(&dim, space + head + 8 * i, sizeof dim);
        if (__builtin_mul_overflow(*count, dim, count))
            return false;
    }
    return true;
}

/* HDF5 copies as many bytes as type and space say, whatever the message holds:
 * UNSAFE where that is more. */
static enum answer weigh_attribute(struct cursor in)
{
    const uint8_t *lead = kvr__take(&in, 2);
    const unsigned version = lead != NULL ? lead[0] : 0;
    const uint32_t n_name = kvr__take_u16(&in), n_type = kvr__take_u16(&in);
    const uint32_t n_space = kvr__take_u16(&in);
    uint32_t item = 0;
    uint64_t count, bytes;

    if (version < 1 || version > 3)
        return UNKNOWN; /* HDF5 refuses it */
    if (version > 1 && lead[1] != 0)
        return UNSAFE; /* shared types and spaces: neither we nor h5py */
    if (version == 3)
        (void)kvr__take(&in, 1);
    const uint8_t *name = kvr__take(&in, padded(n_name, version));
    const uint8_t *type = kvr__take(&in, padded(n_type, version));
    const uint8_t *space = kvr__take(&in, padded(n_space, version));
    if (name == NULL || type == NULL || space == NULL || n_type < 8 ||
        memchr(name, 0, n_name) == NULL ||
        !count_elements(&count, space, n_space))
        return UNSAFE;
    memcpy(&item, type + 4, sizeof item);
    return __builtin_mul_overflow(count, (uint64_t)item, &bytes) ||
                   bytes > in.left
               ? UNSAFE
               : UNKNOWN;
}

/* An attribute message: sizes, name, type, space, data. */
static enum answer look_at_attribute(const struct file_bytes *file,
                                     struct cursor in, const char *wanted)
{
    const uint8_t *lead = kvr__take(&in, 2);
    const unsigned version = lead != NULL ? lead[0] : 0;
    const uint32_t n_name = kvr__take_u16(&in), n_type = kvr__take_u16(&in);
    const uint32_t n_space = kvr__take_u16(&in);

    if (version < 1 || version > 3)
        return UNKNOWN;
    if (version == 3)
        (void)kvr__take(&in, 1);
    const uint8_t *name = kvr__take(&in, padded(n_name, version));
    if (name == NULL || n_name != strlen(wanted) + 1 ||
        memcmp(name, wanted, n_name) != 0)
        return UNKNOWN;
    const uint8_t *type = kvr__take(&in, padded(n_type, version));
    (void)kvr__take(&in, padded(n_space, version));
    if (type == NULL || !is_text_type(type, n_type))
        return UNSAFE;
    const uint32_t length = kvr__take_u32(&in);
    const uint64_t heap = kvr__take_u64(&in);
    const uint32_t index = kvr__take_u32(&in);
    if (in.bad)
        return UNSAFE;
    if (length == 0)
        return heap == 0 || heap == UINT64_MAX ? SAFE : UNSAFE;
    return look_in_heap(file, heap, index, length);
}

static enum answer weigh_message(const struct file_bytes *file, uint32_t type,
                                 struct cursor message, void *ud)
{
    (void)file, (void)ud;
    return type == MESSAGE_ATTRIBUTE ? weigh_attribute(message) : UNKNOWN;
}

bool kvr__h5_attributes_whole(hid_t object)
{
    return kvr__h5_each_message(object, weigh_message, NULL) != UNSAFE;
}

struct wanted {
    const char *name;
};

static enum answer look_at_message(const struct file_bytes *file, uint32_t type,
                                   struct cursor message, void *ud)
{
    const struct wanted *wanted = ud;

    return type == MESSAGE_ATTRIBUTE
               ? look_at_attribute(file, message, wanted->name)
               : UNKNOWN;
}

bool kvr__h5_vlen_safe(hid_t object, const char *name)
{
    struct wanted wanted = {name};
    const enum answer answer =
        kvr__h5_each_message(object, look_at_message, &wanted);

    /* HDF5 found the attribute: a header of this kind that lacks it is not
     * what HDF5 thinks it is */
    return answer == SAFE || answer == OTHER_KIND;
}
