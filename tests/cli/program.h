/* program.h -- runs kvreplay as a user would, and keeps what it said.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "suite.h"

#include <jansson.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLE_TRACE KVR_TEST_DATA "/../traces/samples/smollm2-harbour.kvt.h5"

/* A name in the temporary folder that no other test uses. */
static inline void scratch_name(char out[256], const char *ending)
{
    static int n;
    const char *folder = getenv("TMPDIR");

    snprintf(out, 256, "%s/kvr-cli-%ld-%d%s", folder != NULL ? folder : "/tmp",
             (long)getpid(), n++, ending);
}

/* Runs "PREFIX kvreplay ARGUMENTS"; *out (free it) has standard output and
 * standard error together. Returns the exit status. */
static inline int run_program(char **out, const char *format, ...)
{
    char arguments[4096], command[8192];
    size_t n = 0, capacity = 1 << 16;
    va_list args;

    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(command, sizeof command, "%s 2>&1", arguments);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    *out = malloc(capacity);
    for (int c; (c = fgetc(pipe)) != EOF;) {
        if (n + 2 > capacity)
            *out = realloc(*out, capacity *= 2);
        (*out)[n++] = (char)c;
    }
    (*out)[n] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The run must end with `code` and say `text`. */
#define must_say(code, text, ...) \
    do { \
        char *said; \
        const int got = run_program(&said, __VA_ARGS__); \
        ck_assert_msg(got == (code) && strstr(said, (text)) != NULL, \
                      "exit %d, expected %d with '%s'; said: %.600s", got, \
                      (code), (text), said); \
        free(said); \
    } while (0)

/* JSON of a run with -q that must succeed. */
static inline json_t *json_of(const char *out)
{
    json_error_t why;
    json_t *root = json_loads(out, JSON_REJECT_DUPLICATES, &why);

    ck_assert_msg(root != NULL, "%s in: %.300s", why.text, out);
    return root;
}

#endif
