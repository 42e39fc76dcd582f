/* log.c -- the one global of the library: where log lines go.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static kvr_log_fn sink;
static void *sink_ud;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void kvr_log_set_sink(kvr_log_fn fn, void *ud)
{
    sink = fn;
    sink_ud = ud;
}

void kvr_log(enum kvr_log_level level, const char *format, ...)
{
    char line[KVR_ERROR_SIZE];
    va_list args;

    if (sink == NULL)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    sink(level, line, sink_ud);
    pthread_mutex_unlock(&lock);
}
