/* quant.h -- how tensors are stored, and expanding them to float.
 *
 * A stored row is a sequence of blocks; a block holds `block` values in
 * `bytes` bytes. The numbers of the types are those of GGUF files.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef QUANT_H
#define QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Those that code asks for; the table has the others. */
enum kvr_quant {
    KVR_QUANT_F32 = 0,
    KVR_QUANT_F16 = 1,
    KVR_QUANT_Q4_1 = 3,
    KVR_QUANT_Q8_0 = 8,
    KVR_QUANT_BF16 = 30,
};

/* Expands n values (whole blocks). The bits are those of the reference
 * implementations on every machine: one rounding decides each value. */
typedef void (*kvr_expand_fn)(float *out, const uint8_t *in, size_t n);

struct kvr_quant_row {
    uint32_t type;
    const char *name;
    uint32_t block, bytes;
    kvr_expand_fn expand; /* NULL: known, not supported */
};

/* NULL: no such type. */
const struct kvr_quant_row *kvr__quant_find(uint32_t type);

/* "F32 F16 ..." of those that can be expanded. */
void kvr__quant_list(char *out, size_t size);

#endif
