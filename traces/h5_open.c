/* h5_open.c -- opening an HDF5 file, with a reason where that fails.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5.h"
#include "h5_tree.h"
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
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

/* Superblock fields, HDF5 file format specification, II.A: versions 0 and 1
 * have the end of file as third address, 2 and 3 as third after the flags. */
static void read_fields(struct h5_super *out, const uint8_t *at, uint64_t base)
{
    out->version = at[8];
    if (out->version <= 1) {
        const unsigned size = at[13];
        const unsigned first = out->version == 0 ? 24 : 28;
        if (size == 8 || size == 4)
            out->stored_end = base + field(at + first + 2 * size, size);
    } else if (out->version <= 3) {
        const unsigned size = at[9];
        out->open_for_writing = out->version == 3 && (at[11] & 5) != 0;
        if (size == 8 || size == 4)
            out->stored_end = base + field(at + 12 + 2 * size, size);
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
        if (!kvr__pread_all(fd, head, sizeof head, base))
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
    if (!kvr__pread_all(fd, first, n, 0))
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be read: %s", path,
                        strerror(errno));
    if (memcmp(first, "KVRJ", 4) == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the journal of a capture that did not finish; "
                        "'kvreplay trace repair %s -o OUT' makes a trace of "
                        "its closed steps",
                        path, path);
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

enum kvr_status kvr__h5_open(hid_t *out, const char *path,
                             struct kvr_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    kvr__h5_quiet();
    if (fd < 0 || fstat(fd, &st) != 0 || S_ISDIR(st.st_mode)) {
        const int code = fd >= 0 ? EISDIR : errno;
        if (fd >= 0)
            close(fd);
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be opened: %s", path,
                        strerror(code));
    }
    const enum kvr_status status = check_super(fd, path, err);
    close(fd);
    if (status != KVR_OK)
        return status;
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access < 0)
        return kvr__h5_fail(err, KVR_ERR_INTERNAL, path, "no access list");
    /* Finished files do not change: no lock, so that file systems without
     * locks and read-only media work. */
    H5Pset_file_locking(access, 0, 1);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    *out = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    if (*out < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, path,
                            "cannot be opened as HDF5 (if a lock failed, set "
                            "HDF5_USE_FILE_LOCKING=FALSE)");
    if (kvr__h5_tree_whole(*out))
        return KVR_OK;
    H5Fclose(*out);
    *out = -1;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: a name in its groups has no end, or the groups have "
                    "none: damaged",
                    path);
}
