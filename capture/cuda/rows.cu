/* rows.cu -- attention, its rows on their way to the reporter.
 *
 * Rows of a large block are made a part at a time, so that no part takes more
 * than its share of the ring.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "attention.cuh"
#include "reporter.cuh"

enum { ALIGN = 16 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static struct kvr_cuda_attention call_of(const struct kvr_device *device,
                                         const struct kvr_attention *a,
                                         uint32_t row, uint32_t n)
{
    struct kvr_cuda_attention call = {};

    call.out = static_cast<float *>(a->out->data) +
               (size_t)row * a->n_head * a->value_dim;
    call.query = static_cast<const float *>(a->query->data) +
                 (size_t)row * a->n_head * a->key_dim;
    call.keys = static_cast<const float *>(a->keys->data);
    call.values = static_cast<const float *>(a->values->data);
    call.layer = a->layer;
    call.n_head = a->n_head;
    call.n_kv_head = a->n_kv_head;
    call.key_dim = a->key_dim;
    call.value_dim = a->value_dim;
    call.max_keys = device->options.max_keys;
    call.first = a->first + row;
    call.n = n;
    call.scale = a->scale;
    call.softcap = a->softcap;
    call.span = a->span;
    call.bad = device->bad;
    return call;
}

static enum kvr_status launch(struct kvr_device *device,
                              struct kvr_cuda_attention *call,
                              struct kvr_error *err)
{
    const size_t floats = kvr_cuda_attention_scratch(call);
    const enum kvr_status status = kvr_cuda_grow(
        device, &device->attention, floats * sizeof(float), "attention", err);

    if (status != KVR_OK)
        return status;
    call->scratch = static_cast<float *>(device->attention.data);
    return KVR_CUDA(err, kvr_cuda_attention(call, device->compute));
}

/* Bytes of rows, lse and mass of n queries whose last key is `keys` - 1. */
static size_t rows_bytes(const struct kvr_attention *a, enum kvr_cuda_type type,
                         size_t stride, uint32_t n)
{
    const size_t cells = (size_t)a->n_head * n;
    const size_t rows =
        a->lse_only ? 0 : cells * stride * kvr_cuda_type_size(type);

    return aligned(rows) + 2 * aligned(cells * sizeof(float));
}

/* Keys of a row as they lie: whole groups of 16 bytes. */
static size_t stride_of(uint32_t keys)
{
    return ((size_t)keys + 7) / 8 * 8;
}

static enum kvr_status attend_part(struct kvr_device *device,
                                   const struct kvr_attention *a, uint32_t row,
                                   uint32_t n, enum kvr_cuda_type type,
                                   struct kvr_error *err)
{
    struct kvr_cuda_attention call = call_of(device, a, row, n);
    struct kvr_cuda_rows rows = {};
    const size_t cells = (size_t)a->n_head * n;
    void *place = nullptr;
    enum kvr_status status;

    rows.layer = a->layer;
    rows.n_head = a->n_head;
    rows.first = call.first;
    rows.n = n;
    rows.stride = stride_of(call.first + n);
    rows.type = type;
    rows.lse_only = a->lse_only;
    rows.report = a->report;
    rows.ud = a->ud;
    const size_t bytes = rows_bytes(a, type, rows.stride, n);
    rows.mass = bytes - aligned(cells * sizeof(float));
    rows.lse = rows.mass - aligned(cells * sizeof(float));
    status = kvr_cuda_reporter_place(&place, device->reporter, bytes, err);
    if (status != KVR_OK)
        return status;
    char *at = static_cast<char *>(place);
    call.lse = reinterpret_cast<float *>(at + rows.lse);
    if (!a->lse_only) {
        call.rows = at;
        call.row_type = type;
        call.stride = rows.stride;
        call.mass = reinterpret_cast<float *>(at + rows.mass);
    }
    if ((status = launch(device, &call, err)) != KVR_OK)
        return status;
    return kvr_cuda_reporter_rows(device->reporter, &rows, err);
}

enum kvr_status kvr_cuda_attend(struct kvr_device *device,
                                const struct kvr_attention *a,
                                struct kvr_error *err)
{
    const enum kvr_cuda_type type =
        device->options.rows == KVR_ROWS_F16 ? KVR_CUDA_F16 : KVR_CUDA_F32;
    enum kvr_status status = KVR_OK;

    kvr_cuda_touch(device, a->out);
    if (a->report == nullptr) {
        struct kvr_cuda_attention call = call_of(device, a, 0, a->n);
        return launch(device, &call, err);
    }
    const size_t one = rows_bytes(a, type, stride_of(a->first + a->n), 1);
    const size_t fit = kvr_cuda_reporter_share(device->reporter) / one;
    const uint32_t most = fit == 0 ? 1 : fit < a->n ? (uint32_t)fit : a->n;
    for (uint32_t row = 0; row < a->n && status == KVR_OK; row += most)
        status = attend_part(device, a, row,
                             a->n - row < most ? a->n - row : most, type, err);
    return status;
}
