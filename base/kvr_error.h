/* kvr_error.h -- how a call fails: a status, and one message.
 *
 * A fallible function returns enum kvr_status and takes a struct kvr_error
 * last, which may be NULL. The first failure fills it; nothing is printed.
 * A message names the thing and the numbers, in lower case, without a full
 * stop: "trace.kvt.h5: layer 3 head 2 row 17: sum 0.4, expected 1".
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_ERROR_H
#define KVR_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#if defined(__GNUC__)
#define KVR_MUST_CHECK __attribute__((warn_unused_result))
#define KVR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define KVR_MUST_CHECK
#define KVR_PRINTF(fmt, args)
#endif

enum kvr_status {
    KVR_OK = 0,
#define KVR_ERROR(name, number, code, text) KVR_ERR_##name = (number),
#include "kvr_error.def"
#undef KVR_ERROR
};

enum { KVR_ERROR_SIZE = 1024 };

/* Plain data; the caller's storage. Zero-initialise it: {0}. */
struct kvr_error {
    enum kvr_status status;
    char message[KVR_ERROR_SIZE];
};

/* Stores the message and returns `status`, so that a caller can write
 * `return kvr_fail(err, KVR_ERR_INPUT, "...")`. A longer message is cut. */
enum kvr_status kvr_fail(struct kvr_error *err, enum kvr_status status,
                         const char *format, ...) KVR_PRINTF(3, 4);

/* Puts "prefix: " in front of the message that is there; err may be NULL. The
 * status is the caller's to pass on. */
void kvr_error_prefix(struct kvr_error *err, const char *format, ...)
    KVR_PRINTF(2, 3);

/* Short text of a status, static storage. */
const char *kvr_status_text(enum kvr_status status);

/* Exit code of a command that ends with this status (docs/manual.md). */
int kvr_status_exit_code(enum kvr_status status);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
