/* repair.c -- finished files out of unfinished ones.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5.h"
#include "h5_child.h"
#include "h5_open.h"
#include "assemble.h"
#include "journal_read.h"
#include "kvr_file.h"
#include "kvr_log.h"
#include "kvr_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* OUT's own journal goes when OUT is there; one that was named otherwise is the
 * user's. What an assembly that was killed left beside it goes too. */
static void remove_journal(const char *path, const char *to)
{
    const size_t n = strlen(path), m = strlen(JOURNAL_SUFFIX);
    char *own = kvr__path_with(to, JOURNAL_SUFFIX);
    char *temporary = kvr__path_with(path, ASSEMBLY_SUFFIX);

    if (temporary != NULL && n > m && strcmp(path + n - m, JOURNAL_SUFFIX) == 0)
        unlink(temporary);
    if (own != NULL && kvr_same_file(own, path))
        unlink(path);
    else
        kvr_log(KVR_LOG_NOTE, "%s: is kept", path);
    free(own);
    free(temporary);
}

static enum kvr_status repair_journal(const char *from, const char *to,
                                      bool force, struct kvr_error *err)
{
    struct kvr_journal *j = NULL;

    enum kvr_status status = kvr_journal_open(&j, from, err);
    if (status != KVR_OK)
        return status;
    if (j->facts.running)
        status = kvr_fail(err, KVR_ERR_EXISTS,
                          "%s: its capture is still running", from);
    else if (j->facts.n_step == 0)
        status =
            kvr_fail(err, KVR_ERR_NOTHING, "%s: no step was closed%s%s", from,
                     j->facts.problem[0] != '\0' ? ": " : "", j->facts.problem);
    else
        status = kvr__assemble(j->content, j->fd, to, force, true, err);
    if (status == KVR_OK && j->facts.problem[0] != '\0')
        kvr_log(KVR_LOG_WARNING, "%s: %s: %u steps before it are kept", from,
                j->facts.problem, j->facts.n_step);
    if (status == KVR_OK && !j->facts.damaged)
        remove_journal(from, to);
    kvr_journal_close(j);
    return status;
}

static enum kvr_status copy_file(int in, const char *to, struct kvr_error *err)
{
    enum { BLOCK = 1 << 16 };
    const int out = kvr_create_temporary(to);
    uint8_t *block = malloc(BLOCK);
    enum kvr_status status = KVR_OK;
    off_t at = 0;
    ssize_t n = 0;

    if (out < 0 || block == NULL) {
        status = out < 0
                     ? kvr_fail(err, KVR_ERR_IO, "%s: cannot be created: %s",
                                to, strerror(errno))
                     : kvr_no_memory(err, "a copy", BLOCK);
        goto out;
    }
    while (status == KVR_OK && (n = pread(in, block, BLOCK, at)) > 0) {
        status = kvr_write_all(out, block, (size_t)n, to, err);
        at += n;
    }
    if (status == KVR_OK && (n < 0 || fsync(out) != 0))
        status = kvr_fail(err, KVR_ERR_IO, "%s: cannot be copied: %s", to,
                          strerror(errno));
out:
    if (out >= 0)
        close(out);
    free(block);
    return status;
}

/* h5clear's own means: a property of the file access list. In a child, which
 * says nothing or why it could not. */
static void clear_in_child(const struct child *child, void *ud)
{
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    char reason[H5_REASON_TEXT + 1] = "?";
    hbool_t clear = 1;
    hid_t file = -1;

    kvr__h5_quiet();
    if (access >= 0 && H5Pset_file_locking(access, 0, 1) >= 0 &&
        H5Pset(access, "clear_status_flags", &clear) >= 0)
        file = H5Fopen(ud, H5F_ACC_RDWR, access);
    if (file >= 0 && H5Fclose(file) >= 0)
        return;
    (void)kvr__h5_reason(reason + 1);
    (void)!write(child->out, reason, strlen(reason));
}

static enum kvr_status clear_flag(char *path, struct kvr_error *err)
{
    enum { MOST = H5_REASON_TEXT };
    struct bytes said = {0};
    struct h5_index *file = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return kvr_fail(err, KVR_ERR_IO, "%s: the copy cannot be read: %s",
                        path, strerror(errno));
    enum kvr_status status =
        kvr__child_run(&said, path, MOST, clear_in_child, fd, path, err);
    if (status == KVR_OK && said.n > 0)
        status =
            kvr_fail(err, KVR_ERR_INPUT, "%s: the copy cannot be opened: %.*s",
                     path, (int)said.n - 1, (const char *)said.data + 1);
    free(said.data);
    close(fd);
    if (status == KVR_OK)
        status = kvr__h5_open(&file, path, err);
    kvr__h5_close(file);
    return status;
}

static enum kvr_status repair_copy(int in, const char *to, bool force,
                                   struct kvr_error *err)
{
    char *temporary = kvr__path_with(to, JOURNAL_SUFFIX ASSEMBLY_SUFFIX);

    if (temporary == NULL)
        return kvr_no_memory(err, "a path", strlen(to));
    enum kvr_status status = KVR_OK;
    if (!force && kvr_file_exists(to))
        status = kvr_fail(err, KVR_ERR_EXISTS,
                          "%s: exists; --force overwrites it", to);
    if (status == KVR_OK) {
        status = copy_file(in, temporary, err);
        if (status == KVR_OK)
            status = clear_flag(temporary, err);
        if (status == KVR_OK && rename(temporary, to) != 0)
            status = kvr_fail(err, KVR_ERR_IO,
                              "%s: cannot be renamed into place: %s", to,
                              strerror(errno));
        if (status != KVR_OK)
            unlink(temporary);
    }
    free(temporary);
    return status == KVR_OK ? kvr_sync_folder(to, err) : status;
}

static enum kvr_status repair_hdf5(const char *from, const char *to, bool force,
                                   struct kvr_error *err)
{
    struct h5_super super = {0};
    struct h5_index *file = NULL;
    uint64_t size;
    int fd;

    enum kvr_status status = kvr__open_regular(&fd, &size, from, err);
    if (status != KVR_OK)
        return status;
    if (!kvr__h5_super(&super, fd))
        status = kvr_fail(err, KVR_ERR_IO, "%s: cannot be read: %s", from,
                          errno != 0 ? strerror(errno) : "it ends before");
    else if (super.open_for_writing)
        status = repair_copy(fd, to, force, err);
    else
        status = kvr__h5_open(&file, from, err);
    if (file != NULL)
        status = kvr_fail(err, KVR_ERR_NOTHING,
                          "%s: was closed by its writer; there is nothing to "
                          "repair",
                          from);
    kvr__h5_close(file);
    close(fd);
    return status;
}

enum kvr_status kvr_trace_repair(const char *from, const char *to, bool force,
                                 struct kvr_error *err)
{
    if (kvr_journal_is(from))
        return repair_journal(from, to, force, err);
    return repair_hdf5(from, to, force, err);
}
