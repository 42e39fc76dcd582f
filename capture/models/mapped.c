/* mapped.c -- see mapped.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum kvr_status map_fd(struct kvr_mapped *out, int fd, const char *path,
                              struct kvr_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return kvr_fail(err, KVR_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return kvr_fail(err, KVR_ERR_INPUT, "%s: not a regular file", path);
    if (st.st_size == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: empty file", path);
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be mapped: %s", path,
                        strerror(errno));
    out->bytes = bytes;
    out->size = (uint64_t)st.st_size;
    return KVR_OK;
}

enum kvr_status kvr__mapped_open(struct kvr_mapped *out, const char *path,
                                 struct kvr_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    *out = (struct kvr_mapped){0};
    if (fd < 0)
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be opened: %s", path,
                        strerror(errno));
    const enum kvr_status status = map_fd(out, fd, path, err);
    close(fd);
    return status;
}

void kvr__mapped_close(struct kvr_mapped *mapped)
{
    if (mapped->bytes != NULL)
        munmap((void *)(uintptr_t)mapped->bytes, (size_t)mapped->size);
    *mapped = (struct kvr_mapped){0};
}
