/* made.h -- small traces made from a seed, for the suites of traces/.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MADE_H
#define MADE_H

#include "kvr_trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to make. Zero means a default. */
struct made {
    uint32_t n_layer, n_head, n_kv_head, t, t_max, prompt_len;
    enum kvr_dtype dtype;
    enum kvr_mask mask;
    uint32_t span, round_bits;
    bool tokens, text, norms;
    bool raw; /* neither shuffled nor deflated */
    /* Vectors: KVR_STORES_*, 0: attention alone. With queries the rows are
     * the softmax of their products with the keys, in doubles. */
    uint32_t stores, dim;
    enum kvr_dtype vector_dtype;
    double softcap;
    uint32_t big_from;      /* keys go over f16's limit from this token on */
    uint32_t n_ff, n_vocab; /* MLP sums, logits */
};

enum { MADE_MOST_DIM = 64 };

/* Vector of a token: `dim` numbers. */
void made_vector(const struct made *m, uint32_t layer, enum kvr_vector kind,
                 uint32_t head, uint32_t token, float *out);
/* Input of the down projection; logits. */
float made_activation(const struct made *m, uint32_t layer, uint32_t token,
                      uint32_t neuron);
float made_logit(const struct made *m, uint32_t token, uint32_t id);

/* Row `row` of a head: keys 0..row, sums to 1, rounded to nothing. */
void made_row(const struct made *m, uint32_t layer, uint32_t head, uint32_t row,
              float *out);

/* Opens a writer for it. */
enum kvr_status made_open(struct kvr_writer **out, const struct made *m,
                          const char *path, bool force, struct kvr_error *err);
/* Rows, arrays and tokens of steps first..end-1, and a commit. */
enum kvr_status made_steps(struct kvr_writer *writer, const struct made *m,
                           uint32_t first, uint32_t end, struct kvr_error *err);
/* The prompt as one block, then step by step, then finish. */
enum kvr_status made_write(const struct made *m, const char *path, bool force,
                           struct kvr_error *err);
/* True where rows 0..n-1 of the file are those of `m` as stored. */
bool made_equal(const struct made *m, const char *path, uint32_t n, char *why,
                size_t room);

/* A folder for this process, emptied and removed at exit; and a path in it
 * (static storage, four at a time). */
const char *made_path(const char *name);
/* The same for one file, whose path lasts. */
const char *made_kept(const char *name);
/* A path below tests/. */
const char *made_data(const char *name);

size_t made_size(const char *path);
bool made_copy(const char *to, const char *from, size_t n);
bool made_same(const char *a, const char *b);
/* Flips the bits of `mask` in byte `at`. */
bool made_flip(const char *path, size_t at, uint8_t mask);

#endif
