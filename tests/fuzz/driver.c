/* driver.c -- mutates a corpus with a fixed seed and runs the target on each.
 *
 * Each mutation runs in this process: a crash is the test's failure, and the
 * number printed before it names the case. FUZZ_ROUNDS sets how many.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "fuzz.h"

#include "kvr_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CORPUS = 64, ROUNDS = 300 };

static char folder[256];

/* HDF5 itself leaks, and asks for absurd sizes, on damaged files: that is not
 * what is tested here. Only the sanitizers call these. */
const char *__lsan_default_suppressions(void);
const char *__asan_default_options(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *fuzz_path(const char *name)
{
    static char paths[4][400];
    static int next;

    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

void fuzz_save(const char *path, const uint8_t *data, size_t size)
{
    FILE *out = fopen(path, "wb");

    if (out == NULL || fwrite(data, 1, size, out) != size || fclose(out) != 0)
        abort();
}

static uint8_t *load(const char *path, size_t *n)
{
    FILE *in = fopen(path, "rb");
    const size_t room = 1 << 20;
    uint8_t *data = malloc(2 * room);

    if (in == NULL || data == NULL) {
        fprintf(stderr, "fuzz: %s cannot be read\n", path);
        exit(1);
    }
    *n = fread(data, 1, room, in);
    fclose(in);
    return data;
}

/* A few changes: bits, bytes, 32-bit extremes, cuts, repeated pieces. */
static size_t mutate(uint8_t *data, size_t n, const struct kvr_random *stream,
                     uint32_t round)
{
    static const uint32_t extreme[] = {
        0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x10000, 0xfffffff0};
    const uint32_t changes = 1 + kvr_random_below(stream, round, 0, 0, 4);

    for (uint32_t c = 1; c <= changes && n > 8; c++) {
        /* headers matter most: half of the changes go to the first KiB */
        const size_t reach =
            kvr_random_below(stream, round, c, 0, 2) == 0 && n > 1024 ? 1024
                                                                      : n;
        const size_t at =
            kvr_random_below(stream, round, c, 1, (uint32_t)reach - 4);
        const uint32_t pick = kvr_random_below(stream, round, c, 2, 7);
        switch (kvr_random_below(stream, round, c, 3, 5)) {
        case 0:
            data[at] ^= (uint8_t)(1u << pick);
            break;
        case 1:
            data[at] = (uint8_t)kvr_random_below(stream, round, c, 4, 256);
            break;
        case 2:
            memcpy(data + at, &extreme[pick], 4);
            break;
        case 3:
            if (pick == 0)
                n = at + 1;
            break;
        default:
            memmove(data + at, data + at / 2, (n - at) / 2);
        }
    }
    return n;
}

int main(void)
{
    const char *names[MAX_CORPUS], *root = getenv("TMPDIR");
    const char *wanted = getenv("FUZZ_ROUNDS");
    const struct kvr_random stream = {.seed = 99, .purpose = KVR_RANDOM_TEST};
    const long rounds = wanted != NULL ? strtol(wanted, NULL, 10) : ROUNDS;
    char command[300];

    snprintf(folder, sizeof folder, "%s/kvr-fuzz-XXXXXX",
             root != NULL ? root : "/tmp");
    if (mkdtemp(folder) == NULL)
        return 1;
    const size_t n_corpus = fuzz_corpus(names, MAX_CORPUS);
    for (size_t i = 0; i < n_corpus; i++) {
        size_t n;
        uint8_t *data = load(names[i], &n);
        uint8_t *copy = malloc(n + 16);
        if (copy == NULL)
            return 1;
        fuzz_one(data, n);
        for (long r = 0; r < rounds; r++) {
            memcpy(copy, data, n);
            const size_t size =
                mutate(copy, n, &stream, (uint32_t)(i * 1000003 + (size_t)r));
            printf("%zu %ld\r", i, r);
            fuzz_one(copy, size);
        }
        free(copy);
        free(data);
    }
    printf("%zu files, %ld mutations of each\n", n_corpus, rounds);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
