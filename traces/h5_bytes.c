/* h5_bytes.c -- walks over an object header's messages.
 *
 * HDF5 file format specification: IV.A.1 object headers (version 1) and their
 * continuation blocks. Our own files, and those of h5py by default, have these.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_bytes.h"

#include "journal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MESSAGE_CONTINUATION = 0x10, MAX_BLOCK = 64 << 20, MAX_BLOCKS = 64 };

/* Blocks of one header that are still to be read. */
struct blocks {
    uint64_t at[MAX_BLOCKS], length[MAX_BLOCKS];
    int n;
};

uint8_t *kvr__h5_load(const struct file_bytes *file, uint64_t at, uint64_t n)
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

uint32_t kvr__take_u16(struct cursor *in)
{
    const uint8_t *at = kvr__take(in, 2);

    return at != NULL ? at[0] | (uint32_t)at[1] << 8 : 0;
}

bool kvr__h5_bytes_of(struct file_bytes *file, hid_t object)
{
    const hid_t id = H5Iget_file_id(object);
    void *handle = NULL;
    struct stat st;
    bool ok = false;

    if (id < 0)
        return false;
    if (H5Fget_vfd_handle(id, H5P_DEFAULT, &handle) >= 0 && handle != NULL) {
        memcpy(&file->fd, handle, sizeof file->fd);
        ok = fstat(file->fd, &st) == 0;
        file->size = ok ? (uint64_t)st.st_size : 0;
    }
    H5Fclose(id);
    return ok;
}

static enum answer look_in_block(const struct file_bytes *file,
                                 struct blocks *blocks, int index,
                                 kvr__message_fn fn, void *ud)
{
    const uint64_t n = blocks->length[index];
    uint8_t *block = kvr__h5_load(file, blocks->at[index], n);
    struct cursor in = {.at = block, .left = block != NULL ? n : 0};
    enum answer answer = block != NULL ? UNKNOWN : UNSAFE;

    while (answer == UNKNOWN && in.left >= 8) {
        const uint32_t type = kvr__take_u16(&in), size = kvr__take_u16(&in);
        (void)kvr__take(&in, 4);
        const uint8_t *data = kvr__take(&in, size);
        if (data == NULL)
            break;
        struct cursor message = {.at = data, .left = size};
        answer = fn(file, type, message, ud);
        if (type == MESSAGE_CONTINUATION && blocks->n < MAX_BLOCKS) {
            blocks->at[blocks->n] = kvr__take_u64(&message);
            blocks->length[blocks->n++] = kvr__take_u64(&message);
        }
    }
    free(block);
    return answer;
}

enum answer kvr__h5_each_message_at(const struct file_bytes *file, uint64_t at,
                                    kvr__message_fn fn, void *ud)
{
    uint8_t *head = kvr__h5_load(file, at, 16);
    struct blocks blocks = {.at = {at + 16}, .n = 1};
    uint32_t size = 0;
    enum answer answer = UNKNOWN;

    if (head == NULL)
        return OTHER_KIND;
    const bool old = head[0] == 1;
    memcpy(&size, head + 8, sizeof size);
    free(head);
    if (!old)
        return OTHER_KIND;
    blocks.length[0] = size;
    for (int i = 0; answer == UNKNOWN && i < blocks.n; i++)
        answer = look_in_block(file, &blocks, i, fn, ud);
    return answer;
}

enum answer kvr__h5_each_message(hid_t object, kvr__message_fn fn, void *ud)
{
    struct file_bytes file;
    H5O_info_t info;

    if (!kvr__h5_bytes_of(&file, object) ||
        H5Oget_info2(object, &info, H5O_INFO_BASIC) < 0)
        return OTHER_KIND;
    return kvr__h5_each_message_at(&file, info.addr, fn, ud);
}
