/* hash.h -- the parts of a trace's content hash, in FORMAT.md's order.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef HASH_H
#define HASH_H

#include "shape.h"

/* Shape without provenance; n_token and prompt_len as in the file. Then each
 * head's tile hashes (u64, by layer and head), each layer's arrays in the
 * order of enum kvr_array, then the tokens. */
enum kvr_status kvr__hash_shape(struct kvr_hash *hash,
                                const struct kvr_trace_shape *shape,
                                struct kvr_error *err);
void kvr__hash_array(struct kvr_hash *hash, uint32_t rows, uint32_t n_token,
                     const float *data, size_t stride);
/* Item 5: what comes before the tile hashes of a dataset of rows (`set` as in
 * JOURNAL.md), and item 6: an MLP's sums, given as doubles or as floats. */
void kvr__hash_rows_head(struct kvr_hash *hash, uint32_t layer, uint32_t set,
                         uint32_t heads, uint32_t width, uint32_t item);
enum kvr_status kvr__hash_mlp(struct kvr_hash *hash, uint32_t layer,
                              uint32_t n_ff, const double *sums,
                              const float *mass, const uint32_t *active,
                              struct kvr_error *err);
/* Members that are NULL are left out. */
void kvr__hash_tokens(struct kvr_hash *hash, uint32_t n,
                      const struct kvr_trace_tokens *tokens);

#endif
