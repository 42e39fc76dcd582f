/* file.c -- read whole, write whole or not at all.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _XOPEN_SOURCE 700 /* realpath */
#include "kvr_file.h"

#include "kvr_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static enum kvr_status fail_system(struct kvr_error *err, const char *path,
                                   const char *what)
{
    return kvr_fail(err, KVR_ERR_IO, "%s: %s: %s", path, what, strerror(errno));
}

static enum kvr_status read_fd(uint8_t **data, size_t *size, int fd,
                               const char *path, size_t limit,
                               struct kvr_error *err)
{
    uint8_t *bytes = NULL;
    size_t used = 0, capacity = 0;

    for (;;) {
        if (!kvr_grow((void **)&bytes, &capacity, used + 65537, 1)) {
            free(bytes);
            return kvr_no_memory(err, path, used + 65537);
        }
        const ssize_t n = read(fd, bytes + used, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || used + (size_t)n > limit) {
            free(bytes);
            if (n < 0)
                return fail_system(err, path, "cannot be read");
            return kvr_fail(err, KVR_ERR_LIMIT, "%s: more than %zu bytes", path,
                            limit);
        }
        if (n == 0)
            break;
        used += (size_t)n;
    }
    bytes[used] = 0;
    *data = bytes;
    *size = used;
    return KVR_OK;
}

enum kvr_status kvr_file_read(uint8_t **data, size_t *size, const char *path,
                              size_t limit, struct kvr_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return fail_system(err, path, "cannot be opened");
    const enum kvr_status status = read_fd(data, size, fd, path, limit, err);
    close(fd);
    return status;
}

bool kvr_read_at(int fd, void *data, size_t n, uint64_t offset)
{
    size_t done = 0;

    while (done < n) {
        const ssize_t got =
            pread(fd, (uint8_t *)data + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            if (got == 0)
                errno = 0;
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

enum kvr_status kvr_write_all(int fd, const void *data, size_t size,
                              const char *path, struct kvr_error *err)
{
    size_t done = 0;

    while (done < size) {
        const ssize_t n = write(fd, (const uint8_t *)data + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            const int code = errno;
            struct stat st = {0};
            const long long so_far =
                fstat(fd, &st) == 0 ? (long long)st.st_size : 0;
            return kvr_fail(err, KVR_ERR_IO,
                            "%s: write failed: %s (%lld bytes written)", path,
                            strerror(code), so_far);
        }
        done += (size_t)n;
    }
    return KVR_OK;
}

/* "DIR" of path, in a new string. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        return kvr_strdup(".");
    return kvr_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

enum kvr_status kvr_sync_folder(const char *path, struct kvr_error *err)
{
    /* What it syncs is there already: it may not fail for want of memory. */
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t n = slash != NULL ? (size_t)(slash - path) : 0;

    if (n >= sizeof folder)
        return kvr_fail(err, KVR_ERR_IO, "%s: its name is too long", path);
    memcpy(folder, path, n);
    folder[n] = '\0';
    const int fd = open(slash == NULL ? "."
                        : n == 0      ? "/"
                                      : folder,
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd); /* some file systems cannot sync folders */
        close(fd);
    }
    return KVR_OK;
}

int kvr_create_temporary(const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return -1;
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

static enum kvr_status write_beside(const char *temporary, const char *path,
                                    const void *data, size_t size,
                                    struct kvr_error *err)
{
    const int fd = kvr_create_temporary(temporary);

    if (fd < 0)
        return fail_system(err, path, "cannot be created");
    enum kvr_status status = kvr_write_all(fd, data, size, path, err);
    if (status == KVR_OK && fsync(fd) != 0 && errno != EINVAL)
        status = fail_system(err, path, "cannot be synced");
    if (close(fd) != 0 && status == KVR_OK)
        status = fail_system(err, path, "cannot be closed");
    if (status == KVR_OK && rename(temporary, path) != 0)
        status = fail_system(err, path, "cannot be renamed into place");
    if (status != KVR_OK)
        unlink(temporary);
    return status;
}

/* A pipe, a terminal, /dev/null: nothing to rename, write straight to it. */
static bool is_stream(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static enum kvr_status write_stream(const char *path, const void *data,
                                    size_t size, struct kvr_error *err)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return fail_system(err, path, "cannot be opened");
    const enum kvr_status status = kvr_write_all(fd, data, size, path, err);
    close(fd);
    return status;
}

/* path, which is no stream; a link's target where it is one. */
static enum kvr_status write_regular(const char *path, const void *data,
                                     size_t size, bool force,
                                     struct kvr_error *err)
{
    if (!force && kvr_file_exists(path))
        return kvr_fail(err, KVR_ERR_EXISTS,
                        "%s: exists; --force overwrites it", path);
    const size_t room = strlen(path) + 32;
    char *temporary = malloc(room);
    if (temporary == NULL)
        return kvr_no_memory(err, "a path", room);
    snprintf(temporary, room, "%s.tmp-%ld", path, (long)getpid());
    const enum kvr_status status =
        write_beside(temporary, path, data, size, err);
    free(temporary);
    if (status != KVR_OK)
        return status;
    return kvr_sync_folder(path, err);
}

enum kvr_status kvr_file_write(const char *path, const void *data, size_t size,
                               bool force, struct kvr_error *err)
{
    struct stat st;

    if (is_stream(path))
        return write_stream(path, data, size, err);
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode))
        return write_regular(path, data, size, force, err);
    char *target = realpath(path, NULL);
    if (target == NULL)
        return fail_system(err, path, "is a link that leads nowhere");
    const enum kvr_status status =
        write_regular(target, data, size, force, err);
    free(target);
    return status;
}

bool kvr_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

bool kvr_is_special(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

bool kvr_is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Of the endings of files written first ".part.tmp" and ".tmp-PID" the longest
 * has 15 bytes. */
bool kvr_name_fits(const char *path)
{
    enum { ENDING = 15 };
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char *folder = folder_of(path);
    const long most = folder != NULL ? pathconf(folder, _PC_NAME_MAX) : -1;

    free(folder);
    return (most < 0 || strlen(name) + ENDING <= (size_t)most) &&
           strlen(path) + ENDING < PATH_MAX;
}

bool kvr_folder_exists(const char *path)
{
    struct stat st;
    char *folder = folder_of(path);
    const bool there =
        folder != NULL && stat(folder, &st) == 0 && S_ISDIR(st.st_mode);

    free(folder);
    return there;
}

uint64_t kvr_free_space(const char *path)
{
    struct statvfs vfs;
    uint64_t bytes = UINT64_MAX, product;
    char *folder = folder_of(path);

    if (folder == NULL)
        return bytes;
    if (statvfs(folder, &vfs) == 0 &&
        kvr_mul_u64(&product, vfs.f_bavail, vfs.f_frsize))
        bytes = product;
    free(folder);
    return bytes;
}

bool kvr_file_exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}
