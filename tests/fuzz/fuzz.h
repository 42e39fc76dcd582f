/* fuzz.h -- targets that take bytes, and a driver that mutates small valid
 * files with a fixed seed: an ordinary test, under the sanitizers too.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One input. Whatever the bytes are, it returns. */
void fuzz_one(const uint8_t *data, size_t size);

/* Where a target may write; removed at the end. Static storage. */
const char *fuzz_path(const char *name);
/* Writes the bytes there. */
void fuzz_save(const char *path, const uint8_t *data, size_t size);

/* The target's own starting files: fills name[0..most) with paths and returns
 * how many. */
size_t fuzz_corpus(const char **names, size_t most);

/* An invariant of what comes out. */
#define MUST_HOLD(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "fuzz: %s:%d: " #what " does not hold\n", \
                    __FILE__, __LINE__); \
            abort(); \
        } \
    } while (0)

#endif
