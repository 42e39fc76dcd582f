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

#include "kvr_cache.h"
#include "kvr_error.h"
#include "kvr_registry.h"
#include "kvr_rows.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- what is asked ---- */

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

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
