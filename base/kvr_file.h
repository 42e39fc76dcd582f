/* kvr_file.h -- outputs that appear under their name only when whole.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_FILE_H
#define KVR_FILE_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whole file into *data (free() it; a zero follows the last byte). Refuses
 * what is larger than `limit`. */
enum kvr_status kvr_file_read(uint8_t **data, size_t *size, const char *path,
                              size_t limit,
                              struct kvr_error *err) KVR_MUST_CHECK;

/* Writes `data` beside `path`, syncs and renames it into place. Without
 * `force` an existing file is refused (KVR_ERR_EXISTS) and left as it was. A
 * symbolic link is followed and stays; pipes and devices are written to. */
enum kvr_status kvr_file_write(const char *path, const void *data, size_t size,
                               bool force,
                               struct kvr_error *err) KVR_MUST_CHECK;

/* Writes all of `data` to fd; retries short writes. The message names `path`,
 * the system's text and the bytes written so far. */
enum kvr_status kvr_write_all(int fd, const void *data, size_t size,
                              const char *path,
                              struct kvr_error *err) KVR_MUST_CHECK;

/* pread of exactly n bytes; false with errno 0: the file ends before. */
bool kvr_read_at(int fd, void *data, size_t n, uint64_t offset);

/* Opens a new file for reading and writing under a temporary name. What a
 * process that was killed left there is removed first; a link is never
 * followed, and a file that somebody else makes at the same time is not shared
 * (EEXIST). -1 and errno: it cannot be made. */
int kvr_create_temporary(const char *path);

/* Syncs the directory that holds `path`, so that a rename in it lasts. */
enum kvr_status kvr_sync_folder(const char *path,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* Bytes that an unprivileged user may still write where `path` lies;
 * UINT64_MAX where the system does not say. */
uint64_t kvr_free_space(const char *path);

bool kvr_file_exists(const char *path);

/* Both exist and are one file, links followed. */
bool kvr_same_file(const char *a, const char *b);

/* Something is there that is no regular file: a folder, a device, a pipe, a
 * symbolic link (not followed). */
bool kvr_is_special(const char *path);

bool kvr_is_folder(const char *path);
/* Whether the name of an output, with the ending of the file that is written
 * first, fits its file system. */
bool kvr_name_fits(const char *path);
/* Whether the folder that holds `path` exists. */
bool kvr_folder_exists(const char *path);

#ifdef __cplusplus
}
#endif

#endif
