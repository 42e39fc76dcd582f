/* golden.h -- reading the golden HDF5 files, and the model of the tests.
 * Everything here ends the test on failure.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef GOLDEN_H
#define GOLDEN_H

#include "decoder.h"
#include "suite.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct golden;

struct golden *golden_open(const char *path);
void golden_close(struct golden *golden);

/* Whole dataset, converted; *n values; free() it. */
float *golden_f32(struct golden *golden, const char *name, size_t *n);
double *golden_f64(struct golden *golden, const char *name, size_t *n);
int32_t *golden_i32(struct golden *golden, const char *name, size_t *n);
/* Attributes of an object ("/" for the file). */
double golden_number(struct golden *golden, const char *object,
                     const char *attribute);
void golden_text(struct golden *golden, const char *object,
                 const char *attribute, char *out, size_t size);
/* Calls fn with the name of each member of a group. */
void golden_members(struct golden *golden, const char *group,
                    void (*fn)(const char *name, void *ud), void *ud);

/* Path of SmolLM2's GGUF: KVREPLAY_MODEL, or the cache of get_model.sh.
 * NULL where it is not to be had. Static storage. */
const char *golden_model(void);

/* The CPU back end, or the one that KVR_TEST_BACKEND=cuda loads. */
const struct kvr_backend *golden_backend(void);

/* Everything that a run of the decoder showed. */
struct golden_run {
    struct kvr_model model;
    struct kvr_decoder *decoder;
    struct kvr_observer observer;
    uint32_t n_token;   /* room: T */
    float *attention;   /* [layer][head][T][T] */
    float *lse, *mass;  /* [layer][head][T] */
    float *hidden;      /* [n_layer + 2][T][hidden] */
    float *query, *key; /* [layer][T][width] */
    double *mlp;        /* [layer][n_ff]: sums of |activation| */
};

void golden_run_init(struct golden_run *run, const char *path, uint32_t n_token,
                     uint32_t max_rows, uint32_t threads);
void golden_run_fini(struct golden_run *run);
/* Feeds ids from the decoder's position on, `chunk` at a time. */
void golden_feed(struct golden_run *run, const int32_t *ids, uint32_t n,
                 uint32_t chunk);

double golden_max_diff(const float *a, const float *b, size_t n);

/* Attention of the run against dataset [layer, head, T, T] within `bound`,
 * zero above the diagonal and rows summing to 1 within 1e-5. Returns the
 * largest difference. */
double golden_check_attention(const struct golden_run *run,
                              const float *expected, double bound);

#endif
