/* hash.c -- the content hash: what the trace holds, not how it is stored.
 *
 * The order is FORMAT.md's; the reader's side (check.c) feeds the same calls.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "hash.h"

#include "kvr_memory.h"

#include <stdlib.h>

enum kvr_status kvr__hash_shape(struct kvr_hash *hash,
                                const struct kvr_trace_shape *shape,
                                struct kvr_error *err)
{
    struct bytes packed = {0};

    kvr__shape_pack(&packed, shape, false);
    if (packed.failed) {
        free(packed.data);
        return kvr_fail(err, KVR_ERR_MEMORY, "no memory for a hash");
    }
    kvr_hash_add(hash, packed.data, packed.n);
    free(packed.data);
    return KVR_OK;
}

void kvr__hash_array(struct kvr_hash *hash, uint32_t rows, uint32_t n_token,
                     const float *data, size_t stride)
{
    const uint32_t size[2] = {rows, n_token};

    kvr_hash_add(hash, size, sizeof size);
    for (uint32_t r = 0; r < rows; r++)
        kvr_hash_add(hash, data + r * stride, n_token * sizeof *data);
}

void kvr__hash_rows_head(struct kvr_hash *hash, uint32_t layer, uint32_t set,
                         uint32_t heads, uint32_t width, uint32_t item)
{
    const uint32_t head[5] = {layer, set, heads, width, item};

    kvr_hash_add(hash, head, sizeof head);
}

enum kvr_status kvr__hash_mlp(struct kvr_hash *hash, uint32_t layer,
                              uint32_t n_ff, const double *sums,
                              const float *mass, const uint32_t *active,
                              struct kvr_error *err)
{
    const uint32_t head[2] = {layer, n_ff};
    float *narrow = NULL;

    if (mass == NULL) {
        narrow = kvr_calloc(n_ff, sizeof *narrow);
        if (narrow == NULL)
            return kvr_no_memory(err, "a hash", n_ff * sizeof *narrow);
        for (uint32_t i = 0; i < n_ff; i++)
            narrow[i] = (float)sums[i];
        mass = narrow;
    }
    kvr_hash_add(hash, head, sizeof head);
    kvr_hash_add(hash, mass, n_ff * sizeof *mass);
    kvr_hash_add(hash, active, n_ff * sizeof *active);
    free(narrow);
    return KVR_OK;
}

void kvr__hash_tokens(struct kvr_hash *hash, uint32_t n,
                      const struct kvr_trace_tokens *tokens)
{
    if (tokens->id != NULL)
        kvr_hash_add(hash, tokens->id, n * sizeof *tokens->id);
    if (tokens->logprob != NULL)
        kvr_hash_add(hash, tokens->logprob, n * sizeof *tokens->logprob);
    if (tokens->class_of != NULL)
        kvr_hash_add(hash, tokens->class_of, n);
    if (tokens->text_offset == NULL)
        return;
    kvr_hash_add(hash, tokens->text_offset,
                 (n + (size_t)1) * sizeof *tokens->text_offset);
    if (tokens->text_offset[n] > 0)
        kvr_hash_add(hash, tokens->text, tokens->text_offset[n]);
}
