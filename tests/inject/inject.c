/* inject.c -- makes one call of the program fail: preload it.
 *   cc -O1 -shared -fPIC -o inject.so inject.c -ldl
 *   INJECT=pread:46 LD_PRELOAD=./inject.so kvreplay ..
 * INJECT=CALL:N[:e]: the N-th call of CALL (pread, read, write, fsync, malloc)
 * from the program's own code fails, with EIO, ENOSPC or ENOMEM; `:e` counts
 * calls of libraries too. INJECT_COUNT=FILE: how many calls there were.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static uintptr_t low, high;
static int live, every;
static long count, wanted = -1;
static char call[16];

static int first(struct dl_phdr_info *info, size_t size, void *ud)
{
    (void)size, (void)ud;
    for (int k = 0; k < info->dlpi_phnum; k++)
        if (info->dlpi_phdr[k].p_type == PT_LOAD) {
            const uintptr_t a = info->dlpi_addr + info->dlpi_phdr[k].p_vaddr;
            const uintptr_t b = a + info->dlpi_phdr[k].p_memsz;
            low = low == 0 || a < low ? a : low;
            high = b > high ? b : high;
        }
    return 1;
}

static int hit(const char *name, void *from)
{
    const uintptr_t at = (uintptr_t)from;

    if (!live || strcmp(call, name) != 0 ||
        (!every && (at < low || at >= high)))
        return 0;
    return __sync_add_and_fetch(&count, 1) == wanted;
}

static int (*program)(int, char **, char **);

static int begin(int argc, char **argv, char **env)
{
    const char *text = getenv("INJECT");
    char how = 0;

    if (text != NULL) { /* CALL:N or CALL:N:e */
        const size_t n = strcspn(text, ":");
        char *end;
        if (n < sizeof call)
            memcpy(call, text, n);
        wanted = strtol(text + n + (text[n] == ':'), &end, 10);
        how = *end == ':' ? end[1] : 0;
    }
    every = how == 'e';
    dl_iterate_phdr(first, NULL);
    live = 1;
    return program(argc, argv, env);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("INJECT_COUNT");
    live = 0;
    FILE *out = path != NULL ? fopen(path, "w") : NULL;
    if (out != NULL) {
        fprintf(out, "%ld\n", count);
        fclose(out);
    }
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                      void (*a)(void), void (*b)(void), void (*c)(void),
                      void *stack)
{
    int (*next)(int (*)(int, char **, char **), int, char **, void (*)(void),
                void (*)(void), void (*)(void), void *) =
        dlsym(RTLD_NEXT, "__libc_start_main");

    program = main;
    return next(begin, argc, argv, a, b, c, stack);
}

#define FROM __builtin_return_address(0)
#define NONE(name) \
    if (hit(name, FROM)) { \
        errno = ENOMEM; \
        return NULL; \
    }

void *malloc(size_t n)
{
    NONE("malloc") return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
    NONE("malloc") return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
    NONE("malloc") return __libc_realloc(p, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    if (hit("malloc", FROM))
        return ENOMEM;
    *p = __libc_memalign(align, n);
    return *p != NULL ? 0 : ENOMEM;
}

ssize_t pread64(int fd, void *data, size_t n, off64_t at)
{
    static ssize_t (*next)(int, void *, size_t, off64_t);

    if (next == NULL)
        next = dlsym(RTLD_NEXT, "pread64");
    if (hit("pread", FROM)) {
        errno = EIO;
        return -1;
    }
    return next(fd, data, n, at);
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    if (hit("pread", FROM)) {
        errno = EIO;
        return -1;
    }
    static ssize_t (*next)(int, void *, size_t, off64_t);
    if (next == NULL)
        next = dlsym(RTLD_NEXT, "pread64");
    return next(fd, data, n, at);
}

#define NEXT(result, name, parameters) \
    static result(*next) parameters; \
    if (next == NULL) \
        next = (result(*) parameters)dlsym(RTLD_NEXT, name);

ssize_t read(int fd, void *data, size_t n)
{
    NEXT(ssize_t, "read", (int, void *, size_t))
    if (fd > 2 && hit("read", FROM)) {
        errno = EIO;
        return -1;
    }
    return next(fd, data, n);
}

ssize_t write(int fd, const void *data, size_t n)
{
    NEXT(ssize_t, "write", (int, const void *, size_t))
    if (fd > 2 && hit("write", FROM)) {
        errno = ENOSPC;
        return -1;
    }
    return next(fd, data, n);
}

int fsync(int fd)
{
    NEXT(int, "fsync", (int))
    if (hit("fsync", FROM)) {
        errno = EIO;
        return -1;
    }
    return next(fd);
}
