/* kvr_log.h -- notes and warnings on their way to the user.
 *
 * The library never prints: it hands lines to the sink, which the program
 * sets once at start. Without a sink they are dropped.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_LOG_H
#define KVR_LOG_H

#include "kvr_error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum kvr_log_level {
    KVR_LOG_WARNING, /* the result may not be what the user expects */
    KVR_LOG_NOTE,    /* worth one line; silenced by -q */
    KVR_LOG_DETAIL,  /* shown with -v */
};

typedef void (*kvr_log_fn)(enum kvr_log_level level, const char *line,
                           void *ud);

/* Not thread-safe: call once, before any thread is started. */
void kvr_log_set_sink(kvr_log_fn fn, void *ud);

/* One line, without a newline at its end. Callable from any thread; the sink
 * is called under a lock. */
void kvr_log(enum kvr_log_level level, const char *format, ...)
    KVR_PRINTF(2, 3);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
