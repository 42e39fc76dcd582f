/* h5_open.c -- opening an HDF5 file, with a reason where that fails.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_open.h"

#include "h5_child.h"
#include "h5_walk.h"
#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t signature[8] = {0x89, 'H',  'D',  'F',
                                     '\r', '\n', 0x1a, '\n'};

static uint64_t field(const uint8_t *at, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < size && i < 8; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* The end of the file as its writer left it. The superblock counts from the
 * base address that it states; where a user block was put before the file
 * afterwards, that is not where it lies. */
static uint64_t end_of(const uint8_t *at, unsigned size, uint64_t base)
{
    const uint64_t stated = field(at, size);
    const uint64_t end = field(at + 2 * size, size);

    return end >= stated && end - stated <= UINT64_MAX - base
               ? end - stated + base
               : UINT64_MAX;
}

/* Superblock fields, HDF5 file format specification, II.A: versions 0 and 1
 * have the base address, another and the end of file after the flags; 2 and 3
 * too. */
static void read_fields(struct h5_super *out, const uint8_t *at, uint64_t base)
{
    out->version = at[8];
    if (out->version <= 1) {
        const unsigned size = at[13];
        const unsigned first = out->version == 0 ? 24 : 28;
        if (size == 8 || size == 4)
            out->stored_end = end_of(at + first, size, base);
    } else if (out->version <= 3) {
        const unsigned size = at[9];
        out->open_for_writing = out->version == 3 && (at[11] & 5) != 0;
        if (size == 8 || size == 4)
            out->stored_end = end_of(at + 12, size, base);
    }
}

bool kvr__h5_super(struct h5_super *out, int fd)
{
    uint8_t head[96];
    struct stat st;

    *out = (struct h5_super){0};
    if (fstat(fd, &st) != 0)
        return false;
    out->size = (uint64_t)st.st_size;
    /* A user block may come first: 0, 512, 1024, .. */
    for (uint64_t base = 0; base + sizeof head <= out->size;
         base = base == 0 ? 512 : 2 * base) {
        if (!kvr_read_at(fd, head, sizeof head, base))
            return false;
        if (memcmp(head, signature, sizeof signature) == 0) {
            out->is_hdf5 = true;
            read_fields(out, head, base);
            return true;
        }
        if (base > (uint64_t)1 << 24)
            break;
    }
    return true;
}

static enum kvr_status explain_foreign(int fd, const char *path, uint64_t size,
                                       struct kvr_error *err)
{
    uint8_t first[8] = {0};
    char text[9];

    if (size == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: empty file", path);
    const size_t n = size < sizeof first ? (size_t)size : sizeof first;
    if (!kvr_read_at(fd, first, n, 0))
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be read: %s", path,
                        strerror(errno));
    if (memcmp(first, "KVRJ", 4) == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the journal of a capture that did not finish; "
                        "'kvreplay trace repair %s -o OUT' makes a trace of "
                        "its closed steps",
                        path, path);
    if (memcmp(first, "PK\3\4", 4) == 0)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: a zip archive, such as an .npz file of NumPy: "
                        "unpack it and import one of the .npy files in it",
                        path);
    if (n == sizeof first && memcmp(first, signature, n) == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: truncated: %llu bytes do not hold HDF5's first "
                        "block",
                        path, (unsigned long long)size);
    for (size_t i = 0; i < n; i++)
        text[i] = first[i] >= 32 && first[i] < 127 ? (char)first[i] : '.';
    text[n] = '\0';
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: not an HDF5 file (it begins with '%s')", path, text);
}

static enum kvr_status check_super(int fd, const char *path,
                                   struct kvr_error *err)
{
    struct h5_super super;

    if (!kvr__h5_super(&super, fd))
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be read: %s", path,
                        strerror(errno));
    if (!super.is_hdf5)
        return explain_foreign(fd, path, super.size, err);
    if (super.open_for_writing)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: a writer did not close this file (its superblock "
                        "says 'open for writing'); 'kvreplay trace repair %s "
                        "-o OUT' or 'h5clear -s' on a copy clears it",
                        path, path);
    if (super.stored_end > super.size)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: truncated: %llu of %llu bytes; copy or download "
                        "it again",
                        path, (unsigned long long)super.size,
                        (unsigned long long)super.stored_end);
    return KVR_OK;
}

enum kvr_status kvr__open_regular(int *fd, uint64_t *size, const char *path,
                                  struct kvr_error *err)
{
    struct stat st = {0};

    /* a pipe without a writer would be waited for */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd >= 0 && fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *size = (uint64_t)st.st_size;
        return KVR_OK;
    }
    const int code = *fd >= 0 && S_ISDIR(st.st_mode) ? EISDIR : errno;
    const bool special = *fd >= 0 && !S_ISDIR(st.st_mode);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    if (special)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: not a regular file", path);
    return kvr_fail(err, KVR_ERR_IO, "%s: cannot be opened: %s", path,
                    strerror(code));
}

/* More than this is told only of a file whose trees run in circles. */
static uint64_t most_said(uint64_t size)
{
    enum { LEAST = 64 << 20, RATIO = 8 };

    return size <= (UINT64_MAX - LEAST) / RATIO ? LEAST + RATIO * size
                                                : UINT64_MAX;
}

static enum kvr_status load_index(struct h5_index *file, struct kvr_error *err)
{
    struct bytes said = {0};

    enum kvr_status status = check_super(file->fd, file->path, err);
    if (status == KVR_OK)
        status = kvr__child_run(&said, file->path, most_said(file->size),
                                kvr__h5_walk, file->fd, file->path, err);
    file->said = said.data;
    file->n_said = said.n;
    return status == KVR_OK ? kvr__h5_take(file, err) : status;
}

enum kvr_status kvr__h5_open(struct h5_index **out, const char *path,
                             struct kvr_error *err)
{
    struct h5_index *file = kvr_calloc(1, sizeof *file);

    *out = NULL;
    if (file == NULL)
        return kvr_no_memory(err, "a file", sizeof *file);
    file->fd = -1;
    file->path = kvr_strdup(path);
    enum kvr_status status =
        file->path != NULL
            ? kvr__open_regular(&file->fd, &file->size, path, err)
            : kvr_no_memory(err, "a path", strlen(path));
    if (status == KVR_OK)
        status = load_index(file, err);
    if (status != KVR_OK) {
        kvr__h5_close(file);
        return status;
    }
    *out = file;
    return KVR_OK;
}
