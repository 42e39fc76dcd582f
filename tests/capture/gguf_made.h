/* gguf_made.h -- GGUF files made of another one: with other metadata, without
 * a tensor, with bytes behind the last. Everything here ends the test on
 * failure.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef GGUF_MADE_H
#define GGUF_MADE_H

#include "gguf.h"

#include <stdio.h>

/* A pair that replaces the one of its name, or is added. */
struct made_key {
    const char *name;
    enum kvr_gguf_type type; /* KVR_GGUF_STRING: text, otherwise number */
    double number;
    const char *text;
};

struct made_gguf {
    const struct made_key *keys;
    size_t n_keys;
    const char *lost; /* out of the directory, its bytes stay; NULL: none */
    size_t tail;      /* zeros behind the last tensor and its padding */
};

void made_gguf_write(const char *path, const char *from,
                     const struct made_gguf *changes);

/* ---- the parts of a file ---- */

enum { GGUF_ALIGNMENT = 32 };

void gguf_put(FILE *file, const void *data, size_t size);
void gguf_put_u32(FILE *file, uint32_t value);
void gguf_put_u64(FILE *file, uint64_t value);
void gguf_put_text(FILE *file, struct kvr_slice text);
/* A pair as it was read. */
void gguf_put_value(FILE *file, const struct kvr_gguf_value *v);
/* A tensor's place in the directory; `offset` from the first one's. */
void gguf_put_entry(FILE *file, const struct kvr_gguf_tensor *t,
                    uint64_t offset);
/* Zeros up to the next multiple of the alignment; such a multiple. */
void gguf_pad(FILE *file);
uint64_t gguf_padded(uint64_t size);

#endif
