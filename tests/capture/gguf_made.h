/* gguf_made.h -- GGUF files made of another one: with other metadata, without
 * a tensor, with bytes behind the last. Everything here ends the test on
 * failure.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef GGUF_MADE_H
#define GGUF_MADE_H

#include "gguf.h"

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

#endif
