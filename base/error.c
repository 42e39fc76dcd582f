/* error.c -- statuses, their texts and exit codes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    enum kvr_status status;
    int exit_code;
    const char *text;
} table[] = {
    {KVR_OK, 0, "done"},
#define KVR_ERROR(name, number, code, text) {KVR_ERR_##name, code, text},
#include "kvr_error.def"
#undef KVR_ERROR
};

enum kvr_status kvr_fail(struct kvr_error *err, enum kvr_status status,
                         const char *format, ...)
{
    if (err != NULL) {
        va_list args;

        err->status = status;
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
    }
    return status;
}

void kvr_error_prefix(struct kvr_error *err, const char *format, ...)
{
    char old[KVR_ERROR_SIZE];
    va_list args;

    if (err == NULL)
        return;
    memcpy(old, err->message, sizeof old);
    va_start(args, format);
    int used = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (used < 0)
        used = 0;
    if ((size_t)used < sizeof err->message - 2)
        snprintf(err->message + used, sizeof err->message - (size_t)used,
                 ": %.900s", old);
}

const char *kvr_status_text(enum kvr_status status)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status)
            return table[i].text;
    return "unknown status";
}

int kvr_status_exit_code(enum kvr_status status)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status)
            return table[i].exit_code;
    return 4;
}
