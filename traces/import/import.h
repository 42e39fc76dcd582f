/* import.h -- a dump of attention rows, whatever its file.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef IMPORT_H
#define IMPORT_H

#include "kvr_import.h"

#include <stddef.h>

struct dump {
    const char *path; /* borrowed */
    uint32_t n_layer, n_head;
    uint32_t *spans; /* windows that its shapes show, 0: none; NULL: none do */
    const uint32_t *layers; /* their numbers; NULL: 0, 1, .. */
    uint32_t n_row;         /* queries = keys, padding included */
    unsigned item;          /* bytes of a source value: 2, 4, 8 */
    uint32_t prompt_len;    /* as the file says; 0: it does not */
    uint32_t n_kv_head;     /* likewise */
    char *model;            /* likewise; NULL */
    /* Rows first..first+n-1 of a head, n_row keys each. */
    enum kvr_status (*read)(struct dump *dump, uint32_t layer, uint32_t head,
                            uint32_t first, uint32_t n, double *out,
                            struct kvr_error *err);
    void (*close)(struct dump *dump);
    void *own;
};

/* Number of a layer that read() knows as `layer`. */
static inline uint32_t kvr__dump_layer(const struct dump *dump, uint32_t layer)
{
    return dump->layers != NULL ? dump->layers[layer] : layer;
}

enum kvr_status kvr__dump_open_npy(struct dump *dump,
                                   const struct kvr_import_options *options,
                                   struct kvr_error *err);
enum kvr_status kvr__dump_open_h5(struct dump *dump,
                                  const struct kvr_import_options *options,
                                  struct kvr_error *err);

/* ---- axes of one array ---- */

enum axis { AXIS_B, AXIS_L, AXIS_H, AXIS_Q, AXIS_K, N_AXIS };

struct view {
    int at[N_AXIS];          /* position of an axis, -1: absent */
    uint64_t extent[N_AXIS]; /* 1 where absent */
    uint64_t batch;          /* item of axis b */
};

/* Which axis is which, from the options or the shape. KVR_ERR_USAGE where the
 * shape is ambiguous. `what` names the array. */
enum kvr_status kvr__view(struct view *view, int rank, const uint64_t *dims,
                          const struct kvr_import_options *options,
                          const char *what, struct kvr_error *err);

/* ---- layers and heads ---- */

struct pick {
    uint32_t n_layer, *layer; /* ascending, as dump->read knows them */
    uint32_t n_head, *head;   /* whole groups */
};

/* As the options' lists say; all without. KVR_ERR_USAGE: a layer or a head
 * that is not there, a part of a group, heads that groups do not divide. */
enum kvr_status kvr__pick(struct pick *pick, const struct dump *dump,
                          const struct kvr_import_options *options,
                          uint32_t n_kv_head, struct kvr_error *err);
void kvr__pick_free(struct pick *pick);

/* ---- windows ---- */

struct windows {
    uint32_t n_token;
    uint32_t *span;   /* [pick.n_layer] as stated or as the dump's shapes
                         show; 0: causal */
    uint32_t *looks;  /* [pick.n_layer] as its rows look; 0: causal */
    uint32_t *oldest; /* [n_token] oldest key that a row of the layer sees */
};

enum kvr_status kvr__windows_init(struct windows *w, const struct pick *pick,
                                  const struct dump *dump, uint32_t n_token,
                                  const struct kvr_import_options *options,
                                  struct kvr_error *err);
void kvr__windows_free(struct windows *w);
/* A layer begins; one of its rows, as n_token weights; it ends. */
void kvr__windows_begin(struct windows *w);
void kvr__windows_row(struct windows *w, uint32_t row, const float *weight);
void kvr__windows_end(struct windows *w, uint32_t layer);
/* Warns of layers that look like a window where none is stated. */
void kvr__windows_say(struct windows *w, const struct pick *pick,
                      const struct dump *dump);

/* ---- rows ---- */

/* What the sums of some rows say of their numbers: these are rounded to fewer
 * bits than the file's type has. */
enum {
    ROUNDED_HALF = 1,   /* float16 */
    ROUNDED_BRAIN = 2,  /* bfloat16 */
    ROUNDED_EITHER = 4, /* both explain a row */
};

struct row_check {
    struct dump *dump;
    const struct kvr_import_options *options;
    uint32_t layer, head;
    uint32_t span;     /* keys that a row sees; 0: all up to its own */
    unsigned *rounded; /* ROUNDED_* that a row needed are added */
};

/* Row `row` of the dump (padding counted), n_row keys. *sum: of its weights. */
enum kvr_status kvr__check_row(const struct row_check *check, uint32_t row,
                               const double *weight, double *sum,
                               struct kvr_error *err);

/* How far a row of n keys may sum from 1, from a source of `item` bytes. */
double kvr__row_tolerance(unsigned item, uint32_t n);
/* The same for numbers rounded to fewer bits. */
double kvr__rounded_tolerance(unsigned item, uint32_t n, unsigned rounded);

#endif
