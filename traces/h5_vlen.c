/* h5_vlen.c -- finds an attribute's bytes and follows them to the heap.
 *
 * HDF5 file format specification: IV.A.1 object headers (version 1), IV.A.2.m
 * attribute messages (versions 1 to 3), III.E global heap. Our own files, and
 * those of h5py by default, have these.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_vlen.h"

#include "bytes.h"
#include "journal.h"
#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MESSAGE_ATTRIBUTE = 0x0c,
    MESSAGE_CONTINUATION = 0x10,
    MAX_BLOCK = 1 << 20,
    MAX_BLOCKS = 64,
    CLASS_FIXED = 0, /* HDF5 writes characters as 8-bit integers */
    CLASS_STRING = 3,
    CLASS_VLEN = 9,
};

enum answer { UNKNOWN, SAFE, UNSAFE };

struct file_bytes {
    int fd;
    uint64_t size;
    const char *name; /* of the attribute; NULL: all are weighed */
    uint64_t next[MAX_BLOCKS], length[MAX_BLOCKS];
    int n_block;
};

/* malloc'ed bytes of the file; NULL: not there, or too many. */
static uint8_t *load(const struct file_bytes *file, uint64_t at, uint64_t n)
{
    if (n > MAX_BLOCK || at > file->size || n > file->size - at)
        return NULL;
    uint8_t *data = malloc(n + 1);
    if (data != NULL && !kvr__pread_all(file->fd, data, n, at)) {
        free(data);
        return NULL;
    }
    return data;
}

static uint32_t take_u16(struct cursor *in)
{
    const uint8_t *at = kvr__take(in, 2);

    return at != NULL ? at[0] | (uint32_t)at[1] << 8 : 0;
}

/* The collection's objects follow each other; 0 is the free rest. */
static enum answer look_in_heap(const struct file_bytes *file, uint64_t at,
                                uint32_t index, uint32_t length)
{
    enum answer answer = UNSAFE;
    uint64_t size = 0;
    uint8_t *head = load(file, at, 16), *whole = NULL;

    if (head != NULL && memcmp(head, "GCOL", 4) == 0 && head[4] == 1)
        memcpy(&size, head + 8, sizeof size);
    free(head);
    if (size < 32 || (whole = load(file, at, size)) == NULL)
        return UNSAFE;
    struct cursor in = {.at = whole + 16, .left = size - 16};
    while (in.left >= 16) {
        const uint32_t found = take_u16(&in);
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
    const uint32_t n_name = take_u16(&in), n_type = take_u16(&in);
    const uint32_t n_space = take_u16(&in);
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
                                     struct cursor in)
{
    const uint8_t *lead = kvr__take(&in, 2);
    const unsigned version = lead != NULL ? lead[0] : 0;
    const uint32_t n_name = take_u16(&in), n_type = take_u16(&in);
    const uint32_t n_space = take_u16(&in);

    if (version < 1 || version > 3)
        return UNKNOWN;
    if (version == 3)
        (void)kvr__take(&in, 1);
    const uint8_t *name = kvr__take(&in, padded(n_name, version));
    if (name == NULL || n_name != strlen(file->name) + 1 ||
        memcmp(name, file->name, n_name) != 0)
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

/* The messages of one block of a header. */
static enum answer look_in_block(struct file_bytes *file, uint64_t at,
                                 uint64_t n)
{
    uint8_t *block = load(file, at, n);
    struct cursor in = {.at = block, .left = block != NULL ? n : 0};
    enum answer answer = block != NULL ? UNKNOWN : UNSAFE;

    while (answer == UNKNOWN && in.left >= 8) {
        const uint32_t type = take_u16(&in), size = take_u16(&in);
        (void)kvr__take(&in, 4);
        const uint8_t *data = kvr__take(&in, size);
        if (data == NULL)
            break;
        struct cursor message = {.at = data, .left = size};
        if (type == MESSAGE_ATTRIBUTE)
            answer = file->name == NULL ? weigh_attribute(message)
                                        : look_at_attribute(file, message);
        if (type == MESSAGE_CONTINUATION && file->n_block < MAX_BLOCKS) {
            file->next[file->n_block] = kvr__take_u64(&message);
            file->length[file->n_block++] = kvr__take_u64(&message);
        }
    }
    free(block);
    return answer;
}

static enum answer look_in_header(struct file_bytes *file, uint64_t at)
{
    uint8_t *head = load(file, at, 16);
    uint32_t size = 0;
    enum answer answer = UNKNOWN;

    if (head == NULL)
        return UNKNOWN;
    const bool old = head[0] == 1;
    memcpy(&size, head + 8, sizeof size);
    free(head);
    if (!old)
        return UNKNOWN;
    file->next[0] = at + 16;
    file->length[0] = size;
    file->n_block = 1;
    for (int i = 0; answer == UNKNOWN && i < file->n_block; i++)
        answer = look_in_block(file, file->next[i], file->length[i]);
    /* HDF5 found the attribute: a header of this kind that lacks it is not
     * what HDF5 thinks it is */
    return answer == UNKNOWN && file->name != NULL ? UNSAFE : answer;
}

bool kvr__h5_attributes_whole(hid_t object)
{
    return kvr__h5_vlen_safe(object, NULL);
}

bool kvr__h5_vlen_safe(hid_t object, const char *name)
{
    const hid_t id = H5Iget_file_id(object);
    struct file_bytes file = {.name = name};
    enum answer answer = UNKNOWN;
    void *handle = NULL;
    H5O_info_t info;
    struct stat st;

    if (id < 0)
        return false;
    if (H5Fget_vfd_handle(id, H5P_DEFAULT, &handle) >= 0 && handle != NULL &&
        H5Oget_info(object, &info) >= 0) {
        memcpy(&file.fd, handle, sizeof file.fd);
        if (fstat(file.fd, &st) == 0) {
            file.size = (uint64_t)st.st_size;
            answer = look_in_header(&file, info.addr);
        }
    }
    H5Fclose(id);
    return answer != UNSAFE;
}
