/* blas.c -- OpenBLAS, opened at run time.
 *
 * A call takes one of the library's buffers, a mapping of 128 MiB of which a
 * product touches about one, and gives it back. Where there is none it maps
 * another, and where that fails it tries for ever. So before anybody calls,
 * as many mappings as there will be callers are tried here, and then as many
 * buffers are taken at one time and given back: none is mapped later.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "kvr_blas.h"

#include "kvr_memory.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* MOST: buffers that every build of the library has room for. */
enum { BUFFER = 128 << 20, TOUCHED = 4 << 20, MOST = 64 };

static const char threads_wish[] = "OPENBLAS_NUM_THREADS";

static struct {
    pthread_mutex_t lock;
    void *library;
    uint32_t held, taken; /* threads; buffers */
    void (*set_threads)(int);
    void *(*take)(int);
    void (*give)(void *);
    void (*sgemm)(enum CBLAS_ORDER, enum CBLAS_TRANSPOSE, enum CBLAS_TRANSPOSE,
                  blasint, blasint, blasint, float, const float *, blasint,
                  const float *, blasint, float, float *, blasint);
    void (*sgemv)(enum CBLAS_ORDER, enum CBLAS_TRANSPOSE, blasint, blasint,
                  float, const float *, blasint, const float *, blasint, float,
                  float *, blasint);
} blas = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* dlsym's object pointer as the function that it is. */
static bool find(void *function, size_t size, const char *name)
{
    void *symbol = dlsym(blas.library, name);

    memcpy(function, &symbol, size);
    return symbol != NULL;
}

/* Without threads of its own, whatever the user's environment says. */
static void *load(void)
{
    static const char *const names[] = {"libopenblas.so.0", KVR_BLAS_LIBRARY};
    const char *old = getenv(threads_wish);
    char *keep = old != NULL ? kvr_strdup(old) : NULL;
    void *library = NULL;

    if ((old != NULL && keep == NULL) || setenv(threads_wish, "1", 1) != 0) {
        free(keep);
        return NULL;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0] && library == NULL;
         i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (keep == NULL)
        unsetenv(threads_wish);
    else
        (void)setenv(threads_wish, keep, 1);
    free(keep);
    return library;
}

static enum kvr_status no_buffers(uint32_t n, struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_MEMORY,
                    "no address space for OpenBLAS: it needs %u x %d MiB "
                    "(ulimit -v allows less? fewer --threads need less)",
                    n, (int)BUFFER >> 20);
}

/* Can n more be mapped? */
static bool try_buffers(uint32_t n)
{
    void *maps[MOST];
    uint32_t got = 0;

    while (got < n) {
        maps[got] = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (maps[got] == MAP_FAILED)
            break;
        got++;
    }
    for (uint32_t i = 0; i < got; i++)
        munmap(maps[i], BUFFER);
    return got == n;
}

static enum kvr_status open_library(struct kvr_error *err)
{
    if (blas.library != NULL)
        return KVR_OK;
    if (!try_buffers(1))
        return no_buffers(1, err);
    blas.library = load();
    if (blas.library == NULL) {
        const char *why = dlerror();
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "OpenBLAS cannot be opened: %s",
                        why != NULL ? why : "no memory");
    }
    if (find(&blas.set_threads, sizeof blas.set_threads,
             "openblas_set_num_threads") &&
        find(&blas.take, sizeof blas.take, "blas_memory_alloc") &&
        find(&blas.give, sizeof blas.give, "blas_memory_free") &&
        find(&blas.sgemm, sizeof blas.sgemm, "cblas_sgemm") &&
        find(&blas.sgemv, sizeof blas.sgemv, "cblas_sgemv")) {
        blas.set_threads(1); /* it may have been there already */
        return KVR_OK;
    }
    blas.library = NULL;
    return kvr_fail(err, KVR_ERR_UNSUPPORTED, "OpenBLAS lacks a function: %s",
                    dlerror());
}

static enum kvr_status take_buffers(uint32_t n, struct kvr_error *err)
{
    void *buffers[MOST];

    if (n <= blas.taken)
        return KVR_OK;
    if (!try_buffers(n - blas.taken))
        return no_buffers(n - blas.taken, err);
    for (uint32_t i = 0; i < n; i++)
        buffers[i] = blas.take(0);
    for (uint32_t i = 0; i < n; i++)
        blas.give(buffers[i]);
    blas.taken = n;
    return KVR_OK;
}

enum kvr_status kvr_blas_hold(uint32_t threads, struct kvr_error *err)
{
    pthread_mutex_lock(&blas.lock);
    const uint32_t wanted = blas.held + threads;
    enum kvr_status status = open_library(err);
    if (status == KVR_OK)
        status = take_buffers(wanted < MOST ? wanted : MOST, err);
    if (status == KVR_OK)
        blas.held = wanted;
    pthread_mutex_unlock(&blas.lock);
    return status;
}

void kvr_blas_release(uint32_t threads)
{
    pthread_mutex_lock(&blas.lock);
    blas.held -= threads;
    pthread_mutex_unlock(&blas.lock);
}

uint64_t kvr_blas_bytes(uint32_t threads)
{
    return (uint64_t)threads * TOUCHED;
}

void kvr_blas_matrix(const struct kvr_product *p)
{
    blas.sgemm(CblasRowMajor, CblasNoTrans,
               p->b_turned ? CblasTrans : CblasNoTrans, (blasint)p->m,
               (blasint)p->n, (blasint)p->k, p->alpha, p->a, (blasint)p->a_step,
               p->b, (blasint)p->b_step, p->beta, p->c, (blasint)p->c_step);
}

void kvr_blas_vector(const struct kvr_vector_product *p)
{
    blas.sgemv(CblasRowMajor, p->turned ? CblasTrans : CblasNoTrans,
               (blasint)p->rows, (blasint)p->cols, p->alpha, p->a,
               (blasint)p->cols, p->x, 1, 0.0f, p->y, 1);
}
