/* reporter_thread.cu -- items handed to their callbacks, in order.
 *
 * What has arrived together is handed out together: first all rows, heads and
 * layers shared out over threads, then the rest one by one. A batch ends with
 * what was deferred, and before rows of a layer that it has already: a head's
 * rows come in order.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reporter_private.cuh"

#include "kvr_parallel.h"

/* Bytes of rows that are worth more threads. */
static const uint64_t shared_bytes = 256 << 10;

struct batch {
    struct kvr_cuda_reporter *reporter;
    const struct item *rows[N_ITEMS];
    uint32_t n_rows, n_head;
    uint64_t bytes;
};

static const struct item *item_at(const struct kvr_cuda_reporter *r, uint64_t i)
{
    return &r->items[i % N_ITEMS];
}

static bool follows(const struct batch *b, const struct item *item)
{
    if (b->n_rows > 0 && item->rows.n_head != b->n_head)
        return false;
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (b->rows[i]->rows.layer == item->rows.layer)
            return false;
    return true;
}

/* Collects the rows of items from.. and returns where the batch ends. */
static uint64_t collect(struct batch *b, uint64_t from, uint64_t published)
{
    const struct kvr_cuda_reporter *r = b->reporter;

    b->n_rows = 0;
    b->bytes = 0;
    for (uint64_t i = from; i < published; i++) {
        const struct item *item = item_at(r, i);
        if (item->kind == item::DEFERRED)
            return i + 1;
        if (item->kind != item::ROWS)
            continue;
        if (!follows(b, item))
            return i;
        b->n_head = item->rows.n_head;
        b->rows[b->n_rows++] = item;
        if (!item->rows.lse_only)
            b->bytes += (uint64_t)item->rows.n_head * item->rows.n *
                        item->rows.stride * kvr_cuda_type_size(item->rows.type);
    }
    return published;
}

static enum kvr_status report_head(uint32_t index, uint32_t worker, void *ud,
                                   struct kvr_error *err)
{
    const struct batch *b = static_cast<const struct batch *>(ud);
    const struct item *item = b->rows[index / b->n_head];
    const struct kvr_cuda_rows *rows = &item->rows;
    const uint32_t head = index % b->n_head;
    const char *at = b->reporter->twin + item->at;
    const size_t cells = (size_t)head * rows->n;
    const char *first =
        at + cells * rows->stride * kvr_cuda_type_size(rows->type);
    struct kvr_attention_rows out = {};

    (void)worker;
    out.layer = rows->layer;
    out.head = head;
    out.first = rows->first;
    out.n = rows->n;
    out.stride = rows->stride;
    out.lse = reinterpret_cast<const float *>(at + rows->lse) + cells;
    if (!rows->lse_only) {
        out.mass = reinterpret_cast<const float *>(at + rows->mass) + cells;
        if (rows->type == KVR_CUDA_F16)
            out.halves = reinterpret_cast<const uint16_t *>(first);
        else
            out.rows = reinterpret_cast<const float *>(first);
    }
    return rows->report(rows->ud, &out, err);
}

static enum kvr_status report_rest(const struct kvr_cuda_reporter *r,
                                   const struct item *item,
                                   struct kvr_error *err)
{
    const float *values[KVR_SEND_MAX] = {};

    if (item->kind == item::DEFERRED)
        return item->deferred.fn(item->deferred.ud, item->deferred.first,
                                 item->deferred.n, err);
    if (item->kind != item::SENT)
        return KVR_OK;
    for (int i = 0; i < KVR_SEND_MAX; i++)
        if (item->send.tensors[i] != nullptr)
            values[i] = reinterpret_cast<const float *>(r->twin + item->at +
                                                        item->offset[i]);
    return item->send.sent(item->send.ud, item->send.layer, item->send.first,
                           item->send.n, values, err);
}

/* Waits until the last flush of the batch is here. */
static enum kvr_status await(struct kvr_cuda_reporter *r, uint64_t flush,
                             kvr_cuda_bad *bad, struct kvr_error *err)
{
    const uint32_t k = (uint32_t)(flush % N_FLUSH);
    enum kvr_status status;

    {
        const std::lock_guard<std::mutex> hold(r->lock);
        if (flush < r->synced)
            return KVR_OK;
    }
    status = KVR_CUDA(err, cudaEventSynchronize(r->done[k]));
    *bad = r->bad[k];
    const std::lock_guard<std::mutex> hold(r->lock);
    r->synced = flush + 1;
    r->changed.notify_all();
    return status;
}

static enum kvr_status hand_out(struct batch *b, uint64_t from, uint64_t to,
                                kvr_cuda_bad *bad, struct kvr_error *err)
{
    struct kvr_cuda_reporter *r = b->reporter;
    const uint32_t threads =
        b->bytes < shared_bytes ? 1 : r->device->options.threads;
    enum kvr_status status = await(r, item_at(r, to - 1)->flush, bad, err);

    for (uint32_t i = 0; i < b->n_rows && *bad != 0; i++) {
        const struct kvr_cuda_rows *rows = &b->rows[i]->rows;
        if (kvr_cuda_bad_step(*bad) < rows->first + rows->n)
            return kvr_cuda_not_finite(*bad, err);
    }
    if (status == KVR_OK && b->n_rows > 0)
        status = kvr_parallel_for(b->n_rows * b->n_head, threads, report_head,
                                  b, err);
    for (uint64_t i = from; i < to && status == KVR_OK; i++)
        status = report_rest(r, item_at(r, i), err);
    return status;
}

void kvr_cuda_reporter_run(struct kvr_cuda_reporter *r)
{
    struct batch batch = {};
    kvr_cuda_bad bad = 0;
    struct kvr_error failure = {};
    enum kvr_status status = KVR_CUDA(&failure, cudaSetDevice(0));

    batch.reporter = r;
    std::unique_lock<std::mutex> hold(r->lock);
    for (;;) {
        r->changed.wait(hold,
                        [r] { return r->stop || r->published > r->finished; });
        if (r->stop)
            return;
        const uint64_t from = r->finished, published = r->published;
        hold.unlock();
        const uint64_t to = collect(&batch, from, published);
        if (status == KVR_OK)
            status = hand_out(&batch, from, to, &bad, &failure);
        hold.lock();
        if (status != KVR_OK) { /* what follows is dropped */
            r->failure = failure;
            r->failure.status = status;
            r->synced = item_at(r, to - 1)->flush + 1;
        }
        r->finished = to;
        r->tail = item_at(r, to - 1)->end;
        r->changed.notify_all();
    }
}
