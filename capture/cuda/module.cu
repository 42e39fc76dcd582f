/* module.cu -- the table, and the calls that are one launch each.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "elementwise.cuh"
#include "embed.cuh"
#include "norm.cuh"
#include "reporter.cuh"
#include "value_out.cuh"

static float *floats(const struct kvr_tensor *t)
{
    return static_cast<float *>(t->data);
}

static enum kvr_status buffer(struct kvr_tensor **out,
                              struct kvr_device *device, uint64_t rows,
                              uint64_t cols, struct kvr_error *err)
{
    struct kvr_tensor *tensor =
        kvr_cuda_new_tensor(device, rows, cols, KVR_CUDA_F32, err);

    if (tensor == nullptr)
        return KVR_ERR_MEMORY;
    *out = tensor;
    return KVR_CUDA(err, cudaMemsetAsync(tensor->data, 0,
                                         rows * cols * sizeof(float),
                                         device->compute));
}

static enum kvr_status write_tensor(struct kvr_device *device,
                                    struct kvr_tensor *tensor, const float *in,
                                    uint32_t n, struct kvr_error *err)
{
    kvr_cuda_touch(device, tensor);
    return kvr_cuda_send_up(device, tensor->data, in,
                            n * tensor->cols * sizeof *in, err);
}

static enum kvr_status read_tensor(struct kvr_device *device, float *out,
                                   const struct kvr_tensor *tensor,
                                   uint32_t first, uint32_t n,
                                   struct kvr_error *err)
{
    return kvr_cuda_fetch(device, out, floats(tensor) + first * tensor->cols,
                          n * tensor->cols * sizeof *out, err);
}

static enum kvr_status embed(struct kvr_device *device, struct kvr_tensor *out,
                             const struct kvr_tensor *weight, float scale,
                             const int32_t *ids, uint32_t n,
                             struct kvr_error *err)
{
    enum kvr_status status =
        kvr_cuda_grow(device, &device->ids,
                      device->options.max_rows * sizeof *ids, "ids", err);

    kvr_cuda_touch(device, out);
    if (status == KVR_OK)
        status = kvr_cuda_send_up(device, device->ids.data, ids,
                                  n * sizeof *ids, err);
    if (status != KVR_OK)
        return status;
    return KVR_CUDA(
        err, kvr_cuda_embed(floats(out), weight->data, weight->type, scale,
                            static_cast<const int32_t *>(device->ids.data),
                            (uint32_t)weight->cols, n, device->compute));
}

static enum kvr_status norm(struct kvr_device *device, struct kvr_tensor *out,
                            const struct kvr_tensor *in,
                            const struct kvr_norm *norm, uint32_t n,
                            struct kvr_error *err)
{
    kvr_cuda_touch(device, out);
    return KVR_CUDA(
        err,
        kvr_cuda_norm(floats(out), floats(in), norm->kind, floats(norm->weight),
                      norm->bias != nullptr ? floats(norm->bias) : nullptr,
                      norm->eps, (uint32_t)(in->cols / norm->parts),
                      n * norm->parts, device->compute));
}

static enum kvr_status add(struct kvr_device *device, struct kvr_tensor *x,
                           const struct kvr_tensor *y, uint32_t n,
                           struct kvr_error *err)
{
    kvr_cuda_touch(device, x);
    return KVR_CUDA(
        err, kvr_cuda_add(floats(x), floats(y), n * x->cols, device->compute));
}

static enum kvr_status rope(struct kvr_device *device, struct kvr_tensor *x,
                            const struct kvr_tensor *angles, uint32_t heads,
                            uint32_t rope_dim, uint32_t n,
                            struct kvr_error *err)
{
    kvr_cuda_touch(device, x);
    return KVR_CUDA(err, kvr_cuda_rope(floats(x), floats(angles), heads,
                                       (uint32_t)(x->cols / heads), rope_dim, n,
                                       device->compute));
}

static enum kvr_status store(struct kvr_device *device,
                             struct kvr_tensor *cache,
                             const struct kvr_tensor *in, uint32_t heads,
                             uint32_t first, uint32_t n, struct kvr_error *err)
{
    return KVR_CUDA(err, kvr_cuda_store(floats(cache), floats(in), heads,
                                        (uint32_t)cache->cols,
                                        device->options.max_keys, first, n,
                                        device->compute));
}

static enum kvr_status activate(struct kvr_device *device,
                                struct kvr_tensor *gate,
                                const struct kvr_tensor *up,
                                enum kvr_activation activation, uint32_t n,
                                struct kvr_error *err)
{
    kvr_cuda_touch(device, gate);
    return KVR_CUDA(err, kvr_cuda_activate(
                             floats(gate), up != nullptr ? floats(up) : nullptr,
                             activation, n * gate->cols, device->compute));
}

static enum kvr_status value_out(struct kvr_device *device,
                                 struct kvr_tensor *out,
                                 const struct kvr_tensor *value,
                                 const struct kvr_tensor *weight,
                                 uint32_t n_head, uint32_t n_kv_head,
                                 uint32_t n, struct kvr_error *err)
{
    return KVR_CUDA(err,
                    kvr_cuda_value_out(floats(out), floats(value), weight->data,
                                       weight->type, (uint32_t)weight->rows,
                                       (uint32_t)(value->cols / n_kv_head),
                                       n_head, n_kv_head, n, device->compute));
}

extern "C" __attribute__((visibility("default"))) const struct kvr_backend *
kvr_backend_module(void)
{
    static const struct kvr_backend table = [] {
        struct kvr_backend t = {};
        t.abi = KVR_BACKEND_ABI;
        t.name = "cuda";
        t.probe = kvr_cuda_probe;
        t.plan = kvr_cuda_plan;
        t.open = kvr_cuda_open;
        t.close = kvr_cuda_close;
        t.weight = kvr_cuda_weight;
        t.buffer = buffer;
        t.write = write_tensor;
        t.read = read_tensor;
        t.embed = embed;
        t.norm = norm;
        t.add = add;
        t.matmul = kvr_cuda_matmul;
        t.rope = rope;
        t.store = store;
        t.attention = kvr_cuda_attend;
        t.activate = activate;
        t.value_out = value_out;
        t.log_prob = kvr_cuda_log_prob_of;
        t.send = kvr_cuda_send;
        t.defer = kvr_cuda_defer;
        t.drain = kvr_cuda_drain;
        return t;
    }();

    return &table;
}
