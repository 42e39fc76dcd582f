/* kvr_sim.h -- replay of eviction policies over recorded attention.
 *
 * One pass over the rows serves all policies and budgets. Semantics:
 * docs/manual.md. Open loop: rows are those of the full cache.
 *
 * Results are the same bits for any number of threads and any instruction
 * set. Sums of attention are exact in the float build (whole units of 2^-24
 * or 2^-30), so that bounds can be asserted without a tolerance.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_SIM_H
#define KVR_SIM_H

#include "kvr_error.h"
#include "kvr_registry.h"
#include "kvr_rows.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what is asked ---- */

/* A budget as asked for, and in tokens per cache. */
struct kvr_budget {
    char spec[32]; /* "20%", "64" */
    uint32_t tokens;
};

enum kvr_budget_of {
    KVR_BUDGET_OF_TOTAL,   /* of T */
    KVR_BUDGET_OF_PROMPT,  /* of P */
    KVR_BUDGET_OF_VISIBLE, /* of T, less the newest token */
};

/* "64", "20%", "5%..40%x2", "10..50+10", "drop:0.8" (kvpress's ratio removed,
 * of the prompt), and comma lists. Percentages round half up, at least 1.
 * KVR_ERR_USAGE names the item. Appends to *out (realloc; free() it). */
enum kvr_status kvr_budgets_parse(struct kvr_budget **out, size_t *n,
                                  const char *text, enum kvr_budget_of of,
                                  uint32_t n_token, uint32_t prompt_len,
                                  struct kvr_error *err) KVR_MUST_CHECK;

/* When a row's weight counts as an access. */
enum kvr_access_kind {
    KVR_ACCESS_ABOVE_UNIFORM, /* weight > 1/n */
    KVR_ACCESS_RELMAX,        /* weight >= x * largest */
    KVR_ACCESS_ABS,           /* weight >= x */
    KVR_ACCESS_TOPM,          /* among the x heaviest; equals all count */
    KVR_ACCESS_MASS,          /* in the smallest set that holds x */
};
struct kvr_access {
    enum kvr_access_kind kind;
    double x;
};
/* "above-uniform", "relmax:0.01", "abs:x", "topm:n", "mass:p". */
enum kvr_status kvr_access_parse(struct kvr_access *out, const char *text,
                                 struct kvr_error *err) KVR_MUST_CHECK;

enum kvr_when_kind {
    KVR_WHEN_STEP,       /* evict after every row */
    KVR_WHEN_EVERY,      /* after every n-th row from the prompt's end on */
    KVR_WHEN_OVERFLOW,   /* when the cap is passed, n at once */
    KVR_WHEN_PROMPT_END, /* once, after the prompt; then the cache grows */
};
struct kvr_when {
    enum kvr_when_kind kind;
    uint32_t n; /* at least 1; 1 for step */
};
/* "step", "every:8", "overflow:8", "prompt-end". */
enum kvr_status kvr_when_parse(struct kvr_when *out, const char *text,
                               struct kvr_error *err) KVR_MUST_CHECK;

/* A protected part: tokens, or a share of B ("4", "10%"). */
struct kvr_protect {
    uint32_t tokens;
    double share; /* used if > 0 */
};
enum kvr_status kvr_protect_parse(struct kvr_protect *out, const char *text,
                                  struct kvr_error *err) KVR_MUST_CHECK;
uint32_t kvr_protect_tokens(const struct kvr_protect *protect, uint32_t budget);

enum kvr_loss { KVR_LOSS_MASS, KVR_LOSS_VALUE };

struct kvr_sim_options {
    const struct kvr_policy_spec *specs;
    size_t n_spec;
    const struct kvr_budget *budgets;
    size_t n_budget;
    struct kvr_access access;
    int observe; /* -1: each policy's published one; else enum kvr_observe */
    int group;   /* -1: likewise; else enum kvr_group */
    enum kvr_ties ties;
    struct kvr_protect protect_first, protect_last;
    struct kvr_when when;
    bool budget_is_floor; /* shrink to B and grow beyond, not up to it */
    bool stream_prefill;  /* evict from the first row on */
    uint32_t score_first, score_last; /* counted rows; 0, 0: P..T-1 */
    enum kvr_loss loss;
    bool hit_prompt_only; /* hit ratio counts prompt tokens only (SnapKV) */
    bool bounds;          /* compute the optimum even if no policy asks */
    bool schedules;       /* keep evictions for kvr_sim_evictions */
    bool steps;           /* keep per-step rows for kvr_sim_steps */
    uint64_t seed;
    uint32_t n_seed; /* replicates of rules with randomness; 0: 1 */
    uint32_t threads;
    uint64_t memory;    /* bytes; 0: no limit. Over it: KVR_ERR_LIMIT */
    const bool *layers; /* [n_layer] which to replay; NULL: all */
    const bool *heads;  /* which caches, [KV heads] (query heads if each has
                           a set of its own); NULL: all */
    void (*progress)(void *ud, uint32_t done, uint32_t total);
    void *progress_ud;
};

/* ---- what is answered ---- */

enum { KVR_LAG_BINS = 24 }; /* bin b: 2^b .. 2^(b+1)-1 */

/* Sums over counted rows, of all replicates. Masses in units of attention
 * (1 = one row of one query head). */
struct kvr_tally {
    double missed, recorded;               /* miss mass = missed / recorded */
    double prompt_missed, prompt_recorded; /* --prefill stream, rows < P */
    double kl; /* sum of -log(1 - m) over rows with m < 1 */
    uint64_t kl_rows, infinite_rows, blind_rows;
    uint64_t hits, accesses;
    double kept, best;                /* recall = kept / best */
    uint64_t overlap, wanted;         /* overlap = overlap / wanted */
    double head_kept, head_best;      /* recall_head */
    double late;                      /* late importance = late / recorded */
    double late_by_age[KVR_LAG_BINS]; /* by age at eviction */
    double late_by_lag[KVR_LAG_BINS]; /* by rows since the eviction */
    uint64_t visible, rows;           /* occupancy mean = visible / rows */
    uint64_t peak;
    uint64_t evictions, tied, tied_at_zero;
    double topk;           /* least loss with |C_t| tokens that may come back */
    double topk_b;         /* the same with B + 1 */
    double head_bound;     /* each query head its own B, and the newest */
    double oracle;         /* exact optimum at B; NaN: see oracle_reason */
    double oracle_matched; /* exact optimum for k_t = |C_t|, which is the plain
                              one while resized is 0; NaN: see
                              matched_reason */
    uint32_t resized;      /* caches where |C_t| was not min(t + 1, B + 1), in a
                              window layer min(B + 1, what its mask shows) */
};

/* Percentiles of m over rows and query heads, nearest rank. */
struct kvr_percentiles {
    double p50, p95, p99, max;
};

struct kvr_cache_result {
    uint32_t layer, kv_head; /* numbers in the model */
    struct kvr_tally tally;
    struct kvr_percentiles miss;
    uint32_t n_query_head;
    double *missed, *recorded; /* [n_query_head] */
};

/* One policy at one budget. Replicates are pooled: tallies are sums over the
 * rows of all of them, quantiles are over the same rows. Evictions and steps
 * are the first replicate's. specs, budgets and policies are borrowed from the
 * options: they must outlive the result. */
struct kvr_run_result {
    const struct kvr_policy_spec *spec;
    const struct kvr_policy *policy; /* the variant that ran */
    const struct kvr_budget *budget;
    uint32_t n_replicate;
    double *replicate_missed; /* [n_replicate] model.missed of each */
    struct kvr_arg arg[KVR_MAX_PARAM];
    bool clamped;
    enum kvr_observe observe;
    enum kvr_group group;
    uint32_t protect_first, protect_last; /* the simulator's, in tokens */
    struct kvr_window window;             /* the policy's own */
    enum kvr_status status;               /* of the policy; the others go on */
    char error[KVR_ERROR_SIZE];
    struct kvr_tally model, global; /* all layers; global-attention ones */
    struct kvr_percentiles model_miss, global_miss;
    struct kvr_tally *layers; /* [n_layer replayed] */
    struct kvr_percentiles *layer_miss;
    struct kvr_cache_result *caches;   /* [n_cache], by layer, then head */
    double *row_missed, *row_recorded; /* [T] over all caches and replicates,
                                          per row */
    const char *oracle_reason;         /* why an oracle is NaN */
    const char *matched_reason;        /* why an oracle_matched is NaN, or not
                                          to be told apart from oracle */
};

struct kvr_sim {
    uint32_t n_token, prompt_len, score_first, score_last;
    uint32_t n_layer, n_cache;    /* replayed */
    const uint32_t *layer_number; /* [n_layer] in the model */
    bool has_local;               /* window or chunk layers are there */
    size_t n_run;
    struct kvr_run_result *runs; /* by policy, then budget */
    uint64_t peak_bytes;         /* estimate that was held against the limit */
    void *own;                   /* private: evictions and steps */
};

/* Replays. On success *out is the caller's (kvr_sim_free). Fails with
 * KVR_ERR_USAGE for impossible budgets or settings, KVR_ERR_LIMIT over memory,
 * KVR_ERR_INPUT for bad rows, KVR_ERR_INTERNAL if a bound is violated. A
 * failing policy alone does not fail the call: see kvr_run_result.status. */
enum kvr_status kvr_sim_run(struct kvr_sim **out, const struct kvr_rows *rows,
                            const struct kvr_sim_options *options,
                            struct kvr_error *err) KVR_MUST_CHECK;
void kvr_sim_free(struct kvr_sim *sim);

/* Evictions of one cache in order. *n pairs (step, position); step: the row
 * after which the token left. Borrowed. options.schedules only. */
struct kvr_eviction {
    uint32_t step, position;
};
const struct kvr_eviction *kvr_sim_evictions(const struct kvr_sim *sim,
                                             size_t run, uint32_t cache,
                                             size_t *n);
/* Per counted row of one cache. Borrowed. options.steps only. */
struct kvr_step_row {
    uint32_t step, visible, evicted;
    double miss; /* share of the row's recorded mass */
};
const struct kvr_step_row *kvr_sim_steps(const struct kvr_sim *sim, size_t run,
                                         uint32_t cache, size_t *n);

/* a += b, in the order of the calls; peak is the larger. */
void kvr_tally_add(struct kvr_tally *a, const struct kvr_tally *b);

#ifdef __cplusplus
}
#endif

#endif
