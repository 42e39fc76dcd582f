/* reporter.cu -- the ring of reporter.cuh: the caller's side.
 *
 * Positions in the ring only grow; a place lies at its position modulo the
 * capacity and never straddles the end. Items become visible to the thread by
 * a flush: one stretch is copied, one event recorded.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reporter_private.cuh"

#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

enum { ALIGN = 256, MANY_ITEMS = N_ITEMS / 4 };
static const uint64_t least_bytes = 1 << 20, most_bytes = 256 << 20;
static const uint64_t stretch_bytes = 4 << 20; /* worth a copy of its own */

uint64_t kvr_cuda_staging(const struct kvr_device_options *options)
{
    const char *given = getenv("KVREPLAY_CUDA_STAGING");
    const uint64_t item = options->rows == KVR_ROWS_F16 ? 2 : 4;
    const uint64_t row = options->heads * (options->max_keys + 8ull) * item;
    uint64_t want = 8 * row * options->max_rows;

    if (given != nullptr && given[0] != '\0') {
        const uint64_t bytes = strtoull(given, nullptr, 10);
        return bytes < 64 * ALIGN ? 64 * ALIGN : bytes / ALIGN * ALIGN;
    }
    if (want < least_bytes)
        want = least_bytes;
    if (want > most_bytes)
        want = most_bytes;
    if (want < 8 * row)
        want = 8 * row;
    return (want + ALIGN - 1) / ALIGN * ALIGN;
}

static enum kvr_status make_ring(struct kvr_cuda_reporter *r, uint64_t capacity,
                                 struct kvr_error *err)
{
    void *ring = nullptr, *twin = nullptr;
    enum kvr_status status =
        kvr_cuda_malloc(&ring, r->device, capacity, "results", err);

    r->ring = static_cast<char *>(ring);
    if (status == KVR_OK)
        status = kvr_cuda_pinned(&twin, capacity, "results", err);
    r->twin = static_cast<char *>(twin);
    r->capacity = capacity;
    r->head = r->copied = r->tail = 0;
    return status;
}

static void free_ring(struct kvr_cuda_reporter *r)
{
    cudaFree(r->ring);
    cudaFreeHost(r->twin);
    r->ring = r->twin = nullptr;
}

static enum kvr_status start(struct kvr_cuda_reporter *r, struct kvr_error *err)
{
    try {
        r->thread = std::thread(kvr_cuda_reporter_run, r);
    } catch (const std::system_error &) {
        return kvr_fail(err, KVR_ERR_INTERNAL,
                        "CUDA: no thread for the reports");
    }
    return KVR_OK;
}

enum kvr_status kvr_cuda_reporter_new(struct kvr_cuda_reporter **out,
                                      struct kvr_device *device,
                                      struct kvr_error *err)
{
    struct kvr_cuda_reporter *r = new (std::nothrow) kvr_cuda_reporter();
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    void *bad = nullptr;
    enum kvr_status status;

    *out = r; /* the device frees it, also after a failure */
    if (r == nullptr)
        return kvr_fail(err, KVR_ERR_MEMORY, "no memory for the reporter");
    r->device = device;
    status = make_ring(r, kvr_cuda_staging(&device->options), err);
    if (status == KVR_OK)
        status = kvr_cuda_pinned(&bad, N_FLUSH * sizeof *r->bad, "flags", err);
    r->bad = static_cast<kvr_cuda_bad *>(bad);
    if (status == KVR_OK)
        status = KVR_CUDA(err, cudaEventCreateWithFlags(&r->ready, flags));
    for (int i = 0; i < N_FLUSH && status == KVR_OK; i++)
        status = KVR_CUDA(err, cudaEventCreateWithFlags(&r->done[i], flags));
    return status != KVR_OK ? status : start(r, err);
}

void kvr_cuda_reporter_free(struct kvr_cuda_reporter *r)
{
    if (r == nullptr)
        return;
    {
        const std::lock_guard<std::mutex> hold(r->lock);
        r->stop = true;
    }
    r->changed.notify_all();
    if (r->thread.joinable())
        r->thread.join();
    if (r->device->copy != nullptr)
        cudaStreamSynchronize(r->device->copy);
    for (cudaEvent_t done : r->done)
        if (done != nullptr)
            cudaEventDestroy(done);
    if (r->ready != nullptr)
        cudaEventDestroy(r->ready);
    cudaFreeHost(r->bad);
    free_ring(r);
    delete r;
}

/* Called with the lock held. */
static enum kvr_status state(const struct kvr_cuda_reporter *r,
                             struct kvr_error *err)
{
    if (r->failure.status != KVR_OK && err != nullptr)
        *err = r->failure;
    return r->failure.status;
}

/* The stretch from `copied` to `head` on its way to its twin. */
static enum kvr_status copy_stretch(struct kvr_cuda_reporter *r,
                                    struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    while (r->copied < r->head && status == KVR_OK) {
        const uint64_t at = r->copied % r->capacity;
        uint64_t n = r->head - r->copied;
        if (n > r->capacity - at)
            n = r->capacity - at;
        status = KVR_CUDA(err, cudaMemcpyAsync(r->twin + at, r->ring + at, n,
                                               cudaMemcpyDeviceToHost,
                                               r->device->copy));
        r->copied += n;
    }
    return status;
}

/* All items so far become visible to the thread. */
static enum kvr_status flush(struct kvr_cuda_reporter *r, struct kvr_error *err)
{
    const uint32_t k = (uint32_t)(r->n_flush % N_FLUSH);
    cudaStream_t copy = r->device->copy;
    enum kvr_status status;

    if (r->published == r->added)
        return KVR_OK;
    {
        std::unique_lock<std::mutex> hold(r->lock);
        r->changed.wait(hold, [r] { return r->n_flush - r->synced < N_FLUSH; });
    }
    if ((status = KVR_CUDA(
             err, cudaEventRecord(r->ready, r->device->compute))) != KVR_OK ||
        (status = KVR_CUDA(err, cudaStreamWaitEvent(copy, r->ready, 0))) !=
            KVR_OK ||
        (status = copy_stretch(r, err)) != KVR_OK ||
        (status = KVR_CUDA(
             err, cudaMemcpyAsync(&r->bad[k], r->device->bad, sizeof *r->bad,
                                  cudaMemcpyDeviceToHost, copy))) != KVR_OK ||
        (status = KVR_CUDA(err, cudaEventRecord(r->done[k], copy))) != KVR_OK)
        return status;
    const std::lock_guard<std::mutex> hold(r->lock);
    for (uint64_t i = r->published; i < r->added; i++)
        r->items[i % N_ITEMS].flush = r->n_flush;
    r->published = r->added;
    r->n_flush++;
    r->changed.notify_all();
    return KVR_OK;
}

enum kvr_status kvr_cuda_drain(struct kvr_device *device, struct kvr_error *err)
{
    struct kvr_cuda_reporter *r = device->reporter;
    const enum kvr_status status = flush(r, err);

    if (status != KVR_OK)
        return status;
    std::unique_lock<std::mutex> hold(r->lock);
    r->changed.wait(hold, [r] { return r->finished == r->published; });
    return state(r, err);
}

/* A ring in which `bytes` are a quarter. */
static enum kvr_status enlarge(struct kvr_cuda_reporter *r, size_t bytes,
                               struct kvr_error *err)
{
    const enum kvr_status status = kvr_cuda_drain(r->device, err);

    if (status != KVR_OK)
        return status;
    free_ring(r);
    return make_ring(r, 4 * (uint64_t)bytes, err);
}

size_t kvr_cuda_reporter_share(const struct kvr_cuda_reporter *r)
{
    return (size_t)(r->capacity / 4);
}

enum kvr_status kvr_cuda_reporter_place(void **out, struct kvr_cuda_reporter *r,
                                        size_t bytes, struct kvr_error *err)
{
    const size_t size = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    enum kvr_status status = KVR_OK;

    if (size > r->capacity / 2)
        status = enlarge(r, size, err);
    if (status != KVR_OK)
        return status;
    uint64_t at = r->head % r->capacity, from = r->head;
    if (at + size > r->capacity) {
        from += r->capacity - at;
        at = 0;
    }
    std::unique_lock<std::mutex> hold(r->lock);
    const auto fits = [&] { return from + size - r->tail <= r->capacity; };
    if (!fits()) { /* the thread frees only what it can see */
        hold.unlock();
        if ((status = flush(r, err)) != KVR_OK)
            return status;
        hold.lock();
        r->changed.wait(hold,
                        [&] { return fits() || r->failure.status != KVR_OK; });
    }
    status = state(r, err);
    r->head = from + size;
    r->place = (size_t)at;
    *out = r->ring + at;
    return status;
}

/* Room in the list of items; NULL: status says why not. */
static struct item *new_item(struct kvr_cuda_reporter *r,
                             enum kvr_status *status, struct kvr_error *err)
{
    std::unique_lock<std::mutex> hold(r->lock);
    if (r->added - r->finished == N_ITEMS) {
        hold.unlock();
        if ((*status = flush(r, err)) != KVR_OK)
            return nullptr;
        hold.lock();
        r->changed.wait(hold, [r] { return r->added - r->finished < N_ITEMS; });
    }
    *status = state(r, err);
    if (*status != KVR_OK)
        return nullptr;
    struct item *item = &r->items[r->added % N_ITEMS];
    *item = {};
    item->end = r->head;
    item->at = r->place;
    return item;
}

static enum kvr_status add_item(struct kvr_cuda_reporter *r,
                                struct kvr_error *err)
{
    r->added++;
    if (r->head - r->copied >= stretch_bytes ||
        r->head - r->copied >= r->capacity / 4 ||
        r->added - r->published >= MANY_ITEMS)
        return flush(r, err);
    return KVR_OK;
}

enum kvr_status kvr_cuda_reporter_rows(struct kvr_cuda_reporter *r,
                                       const struct kvr_cuda_rows *rows,
                                       struct kvr_error *err)
{
    enum kvr_status status;
    struct item *item = new_item(r, &status, err);

    if (item == nullptr)
        return status;
    item->kind = item::ROWS;
    item->rows = *rows;
    return add_item(r, err);
}

enum kvr_status kvr_cuda_send(struct kvr_device *device,
                              const struct kvr_send *what,
                              struct kvr_error *err)
{
    struct kvr_cuda_reporter *r = device->reporter;
    size_t offset[KVR_SEND_MAX] = {}, bytes = 0;
    void *place = nullptr;
    enum kvr_status status;

    for (int i = 0; i < KVR_SEND_MAX; i++)
        if (what->tensors[i] != nullptr) {
            offset[i] = bytes;
            bytes += what->n * what->tensors[i]->cols * sizeof(float);
        }
    status = kvr_cuda_reporter_place(&place, r, bytes, err);
    for (int i = 0; i < KVR_SEND_MAX && status == KVR_OK; i++)
        if (what->tensors[i] != nullptr)
            status = KVR_CUDA(
                err, cudaMemcpyAsync(
                         static_cast<char *>(place) + offset[i],
                         what->tensors[i]->data,
                         what->n * what->tensors[i]->cols * sizeof(float),
                         cudaMemcpyDeviceToDevice, device->compute));
    struct item *item = status == KVR_OK ? new_item(r, &status, err) : nullptr;
    if (item == nullptr)
        return status;
    item->kind = item::SENT;
    item->send = *what;
    memcpy(item->offset, offset, sizeof offset);
    return add_item(r, err);
}

enum kvr_status kvr_cuda_defer(struct kvr_device *device, kvr_deferred_fn fn,
                               void *ud, uint32_t first, uint32_t n,
                               struct kvr_error *err)
{
    struct kvr_cuda_reporter *r = device->reporter;
    enum kvr_status status;
    struct item *item = new_item(r, &status, err);

    if (item == nullptr)
        return status;
    item->kind = item::DEFERRED;
    item->deferred = {fn, ud, first, n};
    if ((status = add_item(r, err)) != KVR_OK)
        return status;
    return flush(r, err); /* a step is whole: its turn can come */
}
