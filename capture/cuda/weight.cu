/* weight.cu -- a weight from the model file onto the device, expanded there.
 *
 * Pieces pass through pinned memory: one is copied by the host while the one
 * before is on its way. Matrices take the device's type, vectors stay f32.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "expand.cuh"
#include "host.cuh"

enum { PIECE_BYTES = 8 << 20 };

/* Values and bytes of the largest piece of whole blocks. */
struct pieces {
    uint64_t values, bytes;
};

static struct pieces pieces_of(const struct kvr_weight *weight)
{
    const uint64_t blocks = PIECE_BYTES / weight->block_bytes;

    return {blocks * weight->block, blocks * weight->block_bytes};
}

static enum kvr_status send_piece(struct kvr_device *device, char *out,
                                  enum kvr_cuda_type type, const uint8_t *in,
                                  uint32_t stored, uint64_t n, uint64_t bytes,
                                  struct kvr_error *err)
{
    const enum kvr_status status =
        kvr_cuda_send_up(device, device->chunk.data, in, bytes, err);

    if (status != KVR_OK)
        return status;
    return KVR_CUDA(
        err, kvr_cuda_expand(out, type,
                             static_cast<const uint8_t *>(device->chunk.data),
                             stored, n, device->compute));
}

enum kvr_status kvr_cuda_weight(struct kvr_tensor **out,
                                struct kvr_device *device,
                                const struct kvr_weight *weight,
                                struct kvr_error *err)
{
    const enum kvr_cuda_type type =
        weight->rows == 1 ? KVR_CUDA_F32 : device->type;
    const struct pieces most = pieces_of(weight);
    const uint64_t total = weight->rows * weight->cols;
    enum kvr_status status;

    if (!kvr_cuda_expands(weight->type))
        return kvr_fail(err, KVR_ERR_INTERNAL,
                        "CUDA: weights of type %u are not expanded",
                        weight->type);
    struct kvr_tensor *tensor =
        kvr_cuda_new_tensor(device, weight->rows, weight->cols, type, err);
    if (tensor == nullptr)
        return KVR_ERR_MEMORY;
    status = kvr_cuda_grow(device, &device->chunk, most.bytes,
                           "weights on their way", err);
    for (uint64_t at = 0; at < total && status == KVR_OK; at += most.values) {
        const uint64_t n = total - at < most.values ? total - at : most.values;
        status = send_piece(
            device,
            static_cast<char *>(tensor->data) + at * kvr_cuda_type_size(type),
            type, weight->data + at / weight->block * weight->block_bytes,
            weight->type, n, n / weight->block * weight->block_bytes, err);
    }
    if (status == KVR_OK)
        *out = tensor;
    return status;
}
