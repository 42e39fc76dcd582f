/* reference.h -- a slow replay, to hold the engine against.
 *
 * Written from the design and the policy cards alone: it includes no header of
 * the simulator and no code of a policy, works on whole matrices and does
 * everything in the plainest way. What it shares with the engine is what the
 * design fixes: scores and weights are ref_real, sums of a row run over 32
 * lanes, heads are added in order, ties leave by age.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef KVR_REAL_DOUBLE
typedef double ref_real;
#else
typedef float ref_real;
#endif

enum ref_rule {
    REF_FULL,
    REF_WINDOW,
    REF_STREAMING,
    REF_H2O,
    REF_LRU,
    REF_LFU,
    REF_TOVA,
    REF_SUBMODULAR,
    REF_GREEDY_FUTURE,
    REF_BELADY,
    REF_TOPK,
};

enum ref_group { REF_MEAN, REF_MAX, REF_SUM };
enum ref_access {
    REF_ABOVE_UNIFORM,
    REF_RELMAX,
    REF_ABS,
    REF_TOPM,
    REF_MASS,
};
enum ref_when { REF_STEP, REF_EVERY, REF_OVERFLOW, REF_PROMPT_END };
enum ref_mask { REF_CAUSAL, REF_LOCAL, REF_CHUNK };
enum ref_h { REF_SQRT, REF_LOG, REF_CAP };
enum { REF_LAYERS = 4 };

/* The recording. cell[((layer * n_head + head) * T + row) * T + key]. */
struct ref_trace {
    uint32_t n_layer, n_head, n_kv_head, T, P;
    const double *cell;
    const double *loss; /* what a row loses with a key; NULL: its weight */
    const float *sink;  /* [layer][head][row], or NULL */
    enum ref_mask mask[REF_LAYERS];
    uint32_t span[REF_LAYERS];
};

struct ref_question {
    const struct ref_trace *trace;
    enum ref_rule rule;
    /* parameters of the rules */
    uint32_t recent, sinks, aging, history;
    bool average, global, forced, per_head, forward;
    double decay, eps, tau;
    enum ref_h h;
    /* what is asked of all */
    uint32_t budget;
    bool raw;             /* rows as recorded, not divided by their mass */
    enum ref_group group; /* how heads become one row */
    bool apart;           /* a set for each query head */
    enum ref_access access;
    double access_x;
    bool newest_leaves; /* of equals; else the oldest */
    uint32_t protect_first, protect_last;
    enum ref_when when;
    uint32_t n;
    bool floor, stream, hit_prompt_only;
    uint32_t score_first, score_last;
};

struct ref_eviction {
    uint32_t step, position;
};

/* What one cache came to. Names as in the design, section 2. */
struct ref_cache {
    struct ref_eviction *evicted;
    size_t n_evicted;
    double missed, recorded, prompt_missed, prompt_recorded, kl;
    uint64_t kl_rows, infinite_rows, blind_rows;
    uint64_t hits, accesses, overlap, wanted;
    double kept, best, head_kept, head_best, late;
    uint64_t visible, rows, peak, evictions, tied, tied_at_zero;
    double topk, topk_b, head_bound;
    double p50, p95, p99, max;
    double *m; /* of all counted rows and query heads */
    size_t n_m;
};

/* One cache for each KV head of each layer (each query head, if apart). */
struct ref_answer {
    struct ref_cache *cache;
    uint32_t n_cache;
};

void ref_replay(struct ref_answer *out, const struct ref_question *question);
void ref_free(struct ref_answer *answer);

/* ---- between the files of the reference ---- */

/* One resident set on its way through the rows. */
struct ref_walk {
    const struct ref_question *q;
    struct ref_cache *cache; /* [n_cache] that share the set */
    uint32_t layer, first_head, n_head, n_cache;
    uint32_t budget, target, cap, first, last;
    bool *here;                     /* [T] resident */
    bool *seen;                     /* [T] what the row may use */
    ref_real *weight;               /* [T][T] the observed row of each step */
    ref_real *score, *used, *count; /* [T] */
    bool *access;                   /* [n_cache][T][T] of the recorded rows */
    uint32_t step, n_here;
};

/* First position that the layer's mask lets row t see. */
uint32_t ref_mask_from(const struct ref_walk *w, uint32_t t);
double ref_cell(const struct ref_walk *w, uint32_t head, uint32_t row,
                uint32_t key);
double ref_loss(const struct ref_walk *w, uint32_t head, uint32_t row,
                uint32_t key);
/* Loss summed over the heads of cache c; c == n_cache: of all. */
double ref_summed(const struct ref_walk *w, uint32_t c, uint32_t row,
                  uint32_t key);
/* Marks which of the weights are accesses, of those in `of`. */
void ref_accessed(bool *out, const struct ref_question *q,
                  const ref_real *weight, const bool *of, uint32_t n);
/* Accesses of the recorded mean rows: fills w->access. */
void ref_recorded_accesses(struct ref_walk *w);
bool ref_access(const struct ref_walk *w, uint32_t c, uint32_t row,
                uint32_t key);
/* The n values from the largest down; free() it. */
double *ref_sorted(const double *value, uint32_t n);
/* Sum of the `count` largest. */
double ref_top(const double *value, uint32_t n, uint32_t count);

/* reference_rules.c */
void ref_observe(struct ref_walk *w);
/* The token to evict among candidates; *tied: as good, itself included. */
uint32_t ref_victim(struct ref_walk *w, uint32_t *tied);
/* Marks in leave[] the n that a forward submodular shrink gives up. */
void ref_forward(struct ref_walk *w, bool *leave, uint32_t n);

/* reference_measure.c: row w->step of every cache. */
void ref_measure(struct ref_walk *w);
void ref_percentiles(struct ref_cache *cache);

#endif
