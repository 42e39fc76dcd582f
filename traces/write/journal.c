/* journal.c -- creating, locking and appending to a journal.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _DEFAULT_SOURCE /* flock */
#include "journal.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(struct journal_record) == JOURNAL_RECORD,
               "a record header has no padding");

/* True where the file that fd has open is still the one under `path`: a
 * writer that finished in between has removed it. */
static bool still_there(int fd, const char *path)
{
    struct stat open_one, named;

    return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 &&
           open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

static enum kvr_status lock(int fd, const char *path, struct kvr_error *err)
{
    /* Some file systems have no locks: go on without. */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_EXISTS,
                    "%s: another capture is writing this journal now; choose "
                    "another output or wait for it",
                    path);
}

static enum kvr_status open_locked(int *out, const char *path,
                                   struct kvr_error *err)
{
    for (int tries = 0; tries < 16; tries++) {
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return kvr_fail(err, KVR_ERR_IO, "%s: cannot be created: %s", path,
                            strerror(errno));
        const enum kvr_status status = lock(fd, path, err);
        if (status == KVR_OK && still_there(fd, path)) {
            *out = fd;
            return KVR_OK;
        }
        close(fd);
        if (status != KVR_OK)
            return status;
    }
    return kvr_fail(err, KVR_ERR_IO, "%s: is replaced again and again", path);
}

static enum kvr_status claim(int fd, const char *path, bool force,
                             struct kvr_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return kvr_fail(err, KVR_ERR_IO, "%s: not a regular file", path);
    if (st.st_size > 0 && !force)
        return kvr_fail(err, KVR_ERR_EXISTS,
                        "%s: left by a capture that did not finish; "
                        "'kvreplay trace repair' makes a trace of it, --force "
                        "overwrites it",
                        path);
    if (ftruncate(fd, 0) != 0)
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be emptied: %s", path,
                        strerror(errno));
    return KVR_OK;
}

enum kvr_status kvr__journal_create(struct journal **out, const char *target,
                                    bool force, struct kvr_error *err)
{
    struct journal *journal = kvr_calloc(1, sizeof *journal);
    char *path = kvr__path_with(target, JOURNAL_SUFFIX);
    char *left = kvr__path_with(target, JOURNAL_SUFFIX ASSEMBLY_SUFFIX);
    int fd = -1;

    if (journal == NULL || path == NULL || left == NULL) {
        free(journal);
        free(path);
        free(left);
        return kvr_no_memory(err, "a journal", sizeof *journal);
    }
    enum kvr_status status = open_locked(&fd, path, err);
    if (status == KVR_OK)
        status = claim(fd, path, force, err);
    if (status == KVR_OK)
        unlink(left); /* by an assembly that was killed */
    free(left);
    if (status != KVR_OK) {
        if (fd >= 0)
            close(fd);
        free(journal);
        free(path);
        return status;
    }
    *journal = (struct journal){.path = path, .fd = fd};
    pthread_mutex_init(&journal->lock, NULL);
    *out = journal;
    return KVR_OK;
}

void kvr__journal_close(struct journal *journal, bool remove)
{
    if (journal == NULL)
        return;
    if (remove)
        unlink(journal->path);
    close(journal->fd);
    pthread_mutex_destroy(&journal->lock);
    free(journal->path);
    free(journal);
}

static enum kvr_status append_locked(struct journal *journal,
                                     struct journal_record record,
                                     const void *payload, uint64_t *offset,
                                     struct kvr_error *err)
{
    record.sequence = journal->sequence;
    record.hash = kvr_hash64(&record, offsetof(struct journal_record, hash));
    enum kvr_status status =
        kvr_write_all(journal->fd, &record, sizeof record, journal->path, err);
    if (status == KVR_OK && record.size > 0)
        status = kvr_write_all(journal->fd, payload, record.size, journal->path,
                               err);
    if (status != KVR_OK)
        return status;
    if (offset != NULL)
        *offset = journal->end + sizeof record;
    journal->end += sizeof record + record.size;
    journal->sequence++;
    return KVR_OK;
}

enum kvr_status kvr__journal_append(struct journal *journal,
                                    const struct journal_record *given,
                                    const void *payload, uint64_t *offset,
                                    struct kvr_error *err)
{
    struct journal_record record = *given;

    record.magic = JOURNAL_MAGIC;
    record.payload_hash = kvr_hash64(payload, record.size);
    pthread_mutex_lock(&journal->lock);
    const enum kvr_status status =
        append_locked(journal, record, payload, offset, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}

enum kvr_status kvr__journal_sync(struct journal *journal,
                                  struct kvr_error *err)
{
    if (fsync(journal->fd) != 0 && errno != EINVAL)
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be synced: %s",
                        journal->path, strerror(errno));
    return KVR_OK;
}
