/* parallel.c -- items handed out in order to a few pthreads.
 *
 * Which worker takes an item is not fixed, what an item computes is: it may
 * use the worker index for scratch only.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_parallel.h"

#include "kvr_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct parallel_job {
    pthread_mutex_t lock;
    uint32_t next, n;
    uint32_t failed_item; /* n: none */
    kvr_item_fn fn;
    void *ud;
    struct kvr_error error;
};

struct pool_worker {
    struct parallel_job *job;
    uint32_t index;
    pthread_t thread;
};

uint32_t kvr_processors(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n > 0 ? (uint32_t)n : 1;
}

uint32_t kvr_parallel_workers(uint32_t n, uint32_t threads)
{
    if (threads == 0)
        threads = kvr_processors();
    if (threads > n)
        threads = n;
    return threads > 0 ? threads : 1;
}

static uint32_t take(struct parallel_job *job)
{
    pthread_mutex_lock(&job->lock);
    uint32_t item = job->n;
    if (job->failed_item == job->n && job->next < job->n)
        item = job->next++;
    pthread_mutex_unlock(&job->lock);
    return item;
}

static void fail(struct parallel_job *job, uint32_t item,
                 enum kvr_status status, const struct kvr_error *err)
{
    pthread_mutex_lock(&job->lock);
    if (item < job->failed_item) {
        job->failed_item = item;
        job->error = *err;
        job->error.status = status;
    }
    pthread_mutex_unlock(&job->lock);
}

static void *work(void *arg)
{
    struct pool_worker *w = arg;
    struct parallel_job *job = w->job;

    for (uint32_t i = take(job); i < job->n; i = take(job)) {
        struct kvr_error err = {0};
        const enum kvr_status status = job->fn(i, w->index, job->ud, &err);
        if (status != KVR_OK)
            fail(job, i, status, &err);
    }
    return NULL;
}

enum kvr_status kvr_parallel_for(uint32_t n, uint32_t threads, kvr_item_fn fn,
                                 void *ud, struct kvr_error *err)
{
    const uint32_t n_workers = kvr_parallel_workers(n, threads);
    struct parallel_job job = {.n = n, .failed_item = n, .fn = fn, .ud = ud};
    struct pool_worker *workers = kvr_calloc(n_workers, sizeof *workers);
    uint32_t started = 1;

    if (workers == NULL)
        return kvr_no_memory(err, "threads", n_workers * sizeof *workers);
    pthread_mutex_init(&job.lock, NULL);
    workers[0] = (struct pool_worker){.job = &job};
    for (; started < n_workers; started++) {
        workers[started] = (struct pool_worker){.job = &job, .index = started};
        if (pthread_create(&workers[started].thread, NULL, work,
                           &workers[started]) != 0)
            break; /* fewer threads: slower, the same result */
    }
    work(&workers[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_mutex_destroy(&job.lock);
    free(workers);
    if (job.failed_item < n) {
        if (err != NULL)
            *err = job.error;
        return job.error.status;
    }
    return KVR_OK;
}
