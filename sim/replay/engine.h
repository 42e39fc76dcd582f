/* engine.h -- what the files of the replay engine share.
 *
 * The way of one row: replay.c reads a tile of rows of one layer; facts.c
 * works out, once for all policies, what a row says about itself; unit.c moves
 * every (policy, budget) over the row; result.c adds up. Private to sim.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef ENGINE_H
#define ENGINE_H

#include "kernels.h"
#include "kvr_optimum.h"
#include "kvr_random.h"
#include "kvr_sim.h"

enum {
    TILE = KVR_TILE_ROWS, /* rows read at once */
    STRIP = 16,           /* rows that stay in the cache while units pass */
    BINS = 4096,          /* of the histogram of m */
    TIES = 64,            /* noted before they are counted */
};

/* One policy at one budget and replicate: what does not change in a run. */
struct run {
    const struct kvr_policy_spec *spec;
    const struct kvr_policy *policy; /* variant */
    const struct kvr_budget *budget;
    size_t budget_index;
    size_t result; /* of sim->runs; replicates share it */
    uint32_t replicate;
    struct kvr_arg arg[KVR_MAX_PARAM];
    bool clamped;
    bool foreign;             /* from a plug-in: see foreign.c */
    struct kvr_window window; /* the policy's own, at this budget */
    enum kvr_observe observe;
    enum kvr_group group;
};

/* What a thread takes at a time: caches first..first+n-1 of a layer. A layer is
 * in one part, unless there are fewer layers than threads; then in several, if
 * no rule has one set for all of its caches. */
struct work_item {
    uint32_t index; /* of the layer among those that are replayed */
    uint32_t first_cache, n_cache;
    uint32_t slot;    /* of its first result among the layer's */
    uint32_t n_parts; /* of the layer */
};

/* Plan of the whole call, constant while threads work. */
struct plan {
    const struct kvr_rows *rows;
    const struct kvr_sim_options *options;
    const struct kernels *kernels;
    enum kvr_isa isa;
    struct run *runs; /* by result, then replicate */
    size_t n_run, n_result;
    uint32_t T, P, words; /* words: T / 64 rounded up */
    size_t stride;        /* line_of(T) */
    uint32_t score_first, score_last;
    bool needs_top, needs_next, needs_future, needs_column, needs_optimum;
    bool looks_ahead; /* a rule asks for a first pass over each layer */
    bool per_query_head;
    double scale;        /* a loss row times it is whole units */
    double unit_mass;    /* one unit in attention mass; --loss value: see
                            layer_work */
    double row_grid;     /* row sums over layers are multiples of it */
    bool sums_are_exact; /* units of f16: a kvr_real holds a row's sum */
    bool whole_units;    /* sums of them are exact */
    enum kvr_array value_array;
    struct poison *poison; /* where a rule is foreign */
    size_t *rising;        /* [n_budget] budgets from the least up */
    uint32_t *layer;       /* [n_layer] stored layers that are replayed */
    uint32_t n_layer;
    uint32_t *first_cache; /* [n_layer + 1] index of its first result */
    struct work_item *items;
    uint32_t n_item;
};

/* What rows of one cache say about themselves, for one strip. Masses in
 * units. Index r: row of the strip. */
struct facts {
    uint32_t first_head, n_head; /* query heads in the layer */
    double *summed;   /* [STRIP][stride] loss rows summed over heads */
    double *total;    /* [STRIP][n_head] mass of the row */
    double *sink;     /* [STRIP][n_head] mass outside the tokens */
    kvr_real *sum;    /* [STRIP][n_head] the same as a rule sees it */
    double *newest;   /* [STRIP] summed[t] */
    double *top;      /* [STRIP][n_budget] mass of the B heaviest past */
    double *least;    /* [STRIP][n_budget] the B-th of them; -1: fewer */
    double *hint;     /* [1 + n_head][n_budget] of the last row: the summed one,
                         then each head's */
    double *head_top; /* [STRIP][n_budget] each head its own, summed */
    double *drawn;    /* [n_budget][stride] mass that counted rows had on a
                         token while it was over the B-th; see late.c */
    uint64_t *over, *at_least; /* [STRIP][n_budget][words] */
    uint64_t *accessed;        /* [STRIP][words] of the recorded mean row */
    uint32_t *n_accessed;      /* [STRIP] past tokens only, hit scope */
    uint32_t *next_access;     /* [STRIP][stride], or NULL */
    double *future;            /* [STRIP][stride], or NULL */
    double *column;            /* [stride], or NULL */
};

/* The future of one cache, from a first pass over the layer. */
struct future {
    double *column;           /* [stride] units in all rows */
    uint64_t *access;         /* [T][words] accesses by row */
    double *remaining, *rest; /* [stride] running: rows to come, their sum */
    uint32_t *next;           /* [stride] running: next access */
};

/* Optimum of one cache at every budget, and its schedules. See bounds.c. */
struct optimum {
    double *loss;     /* [n_budget] units; NaN: infeasible */
    double *replayed; /* [n_budget] what the schedule lost in the rows so far */
    uint32_t *leaves; /* [n_budget][T] last row that sees it; T: all */
};

/* A token that row `row` missed, as heavy as its B-th: units. See late.c. */
struct tie {
    uint32_t row, position;
    uint32_t cache; /* of the unit */
    double late;
};

/* Mass in units. */
struct cost {
    double missed, recorded;
};

/* What kvr_view.below needs to draw a random number for its unit. */
struct draw {
    struct unit *unit;
    uint32_t head; /* the unit's first, in the layer */
    uint64_t seed;
    enum kvr_purpose purpose;
};

/* One policy at one budget over the caches that share its set. */
struct unit {
    const struct run *run;
    struct kvr_view view; /* what the rule is shown in this step */
    struct draw draw;
    struct kvr_setting setting;
    struct kvr_window window;             /* the policy's own */
    uint32_t protect_first, protect_last; /* union with the simulator's */
    uint32_t target, cap; /* shrink to target when more than cap are held */
    uint32_t first_cache, n_cache;      /* in the layer */
    uint32_t layer_number, head_number; /* in the model, for messages */
    uint32_t first_head, n_head;
    void *state;
    size_t state_size;
    bool drew_unasked;    /* foreign rules */
    kvr_real *score;      /* [stride], update rules */
    int32_t *resident;    /* [stride] */
    uint64_t *bits;       /* [words] */
    uint32_t *left_at;    /* [T] row after which it left */
    uint32_t *gone_order; /* [T] tokens in the order in which they left */
    uint32_t *gone_from;  /* [T + 1] the first of them after each row */
    uint32_t n_gone;
    uint32_t n_resident, oldest; /* oldest: no resident below it */
    uint32_t evicted_now;        /* in the step in progress */
    double *m;                   /* [n_cache][counted rows][heads of one] */
    uint32_t n_m;
    struct kvr_tally *tally;  /* [n_cache], units */
    double *share;            /* [n_cache] see count_divergence */
    struct cost *head_cost;   /* [n_head] over all rows */
    struct cost *row_cost;    /* [T] in the layer's row_cost, of the run */
    struct kvr_eviction *log; /* [T], or NULL */
    size_t n_log;
    uint32_t *visible_at; /* [T] |C_t|, where the matched optimum needs it */
    struct kvr_step_row *steps; /* [n_cache][counted rows] */
    enum kvr_status status;
    char error[KVR_ERROR_SIZE];
};

/* Everything one worker holds while it replays a layer, or a part of it: heads
 * and caches are counted from the part's first. */
struct layer_work {
    const struct plan *plan;
    const struct work_item *item;
    const struct kvr_layer_shape *shape; /* of the part */
    uint32_t layer;                      /* stored index */
    uint32_t worker;
    uint32_t n_cache, group; /* caches (or query heads) and heads in each */
    uint32_t n_cache_whole;  /* of the layer */
    uint32_t first_head;     /* in the layer */
    double unit_mass;        /* one unit in attention mass */
    double value_scale;      /* --loss value: the layer's largest value norm,
                                rounded up to a power of two */
    kvr_real scale;          /* loss row to units */
    size_t line;             /* line_of(keys of the tile's last row) */
    kvr_real *rows;          /* see row_at */
    kvr_real *loss;          /* likewise, or equal to rows */
    const float *sink;       /* [n_head][T] or NULL */
    const float *value;      /* [value_rows][T] weights of --loss value */
    uint32_t value_heads;    /* query heads that have a row of it together */
    struct facts *facts;     /* [n_cache] */
    struct future *future;   /* [n_cache], or NULL */
    struct optimum *optimum; /* [n_cache], or NULL */
    struct unit *units;      /* [n_unit], runs outer, sets inner */
    struct cost *row_cost;   /* [n_run][T] over the layer's caches */
    uint32_t n_unit;
    /* scratch of a step */
    kvr_real *weight, *key, *second; /* [stride] */
    int32_t *accessed;               /* [stride] */
    int32_t *ones;                   /* [stride] -1 throughout */
    uint64_t *all;                   /* [words] the same as a set */
    kvr_real *sorted;                /* [stride] */
    double *wide;                    /* [stride] */
    struct unit **alike;             /* [n_unit] */
    double *tops;                    /* [n_budget] */
    const kvr_real **row;            /* [n_head] rows that are being reduced */
    const kvr_real **losses;         /* [n_head] and what is lost with them */
    kvr_real *by;  /* [n_head] and what each is multiplied with */
    double *kept;  /* [n_head] units of C_t in the row */
    uint32_t tied; /* candidates as good as the victim, and it */
    struct tie tie[TIES];
    uint32_t n_tie;
};

/* How far apart rows of n numbers lie: whole words of a set, an odd number of
 * them, so that rows do not meet in the same lines of the cache. */
static inline size_t line_of(uint32_t n)
{
    return (((size_t)n + 63) / 64 | 1) * 64;
}

/* Padding between heads, in numbers: about a third of 4096 bytes. Addresses
 * that are equal modulo 4096 share the sets of the processor's cache, so equal
 * rows of neighbouring heads would push each other out. */
enum { ASIDE = 336 };

/* Where row `row` of the tile is, of query head `head`: line numbers, 0 behind
 * the row's own key. */
static inline size_t row_at(const struct layer_work *w, uint32_t head,
                            uint32_t row)
{
    return ((size_t)head * TILE + row) * w->line + (size_t)head * ASIDE;
}

static inline const kvr_real *row_of(const struct layer_work *w, uint32_t head,
                                     uint32_t row)
{
    return w->rows + row_at(w, head, row);
}

static inline const kvr_real *loss_of(const struct layer_work *w, uint32_t head,
                                      uint32_t row)
{
    return w->loss + row_at(w, head, row);
}

/* Tokens that leave at once. */
static inline uint32_t batch_of(const struct kvr_sim_options *options)
{
    return options->when.n > 0 ? options->when.n : 1;
}

/* facts.c */
/* First position that the layer's mask shows to row t. */
uint32_t kvr__mask_from(const struct kvr_layer_shape *shape, uint32_t t);
enum kvr_status kvr__facts_init(struct facts *f, const struct plan *plan,
                                uint32_t first_head, uint32_t n_head,
                                struct kvr_error *err);
void kvr__facts_fini(struct facts *f);
size_t kvr__facts_bytes(const struct plan *plan, uint32_t n_head);
/* Fills the strip of rows step, step+1, .. (n of them; row k of the tile). */
enum kvr_status kvr__facts_fill(struct layer_work *w, uint32_t cache,
                                uint32_t step, uint32_t k, uint32_t n,
                                struct kvr_error *err);
/* Threshold of an access rule on a row of n weights, of which those with
 * resident != 0 count (NULL: all); inclusive: weight >= least. */
kvr_real kvr__access_least(const struct kvr_access *access,
                           const kvr_real *weight, const int32_t *resident,
                           uint32_t n, uint32_t n_visible, kvr_real *sorted,
                           int *inclusive);

/* heaviest.c: mass and last of the heaviest tokens at every budget among the n
 * of a row: weights, or (row NULL) units summed over heads; `total` units in
 * all. Where a budget holds them all the last is -1; of one head's row it is
 * near enough only. Positions from n up to a multiple of 64 are 0. *least:
 * before the call, where to look first. */
void kvr__heaviest_at_budgets(const struct plan *plan, const kvr_real *row,
                              const double *summed, uint32_t n, double total,
                              double *mass, double *least);
/* Mass of the `count` heaviest of summed[0..t), which hold `total`; summed[t]
 * is put aside meanwhile. */
double kvr__heaviest(const struct plan *plan, double *summed, uint32_t t,
                     double total, uint32_t count);

/* layer.c: whether results of a cache are asked for. */
bool kvr__cache_wanted(const struct layer_work *w, uint32_t cache);
/* The largest of n value norms, rounded up to a power of two: 2^-30 of
 * it is the grid of a layer's products under --loss value. */
double kvr__value_scale(const float *value, size_t n);
/* Rows first..first+n-1 of all heads into rows and loss. */
enum kvr_status kvr__layer_read_tile(struct layer_work *w, uint32_t first,
                                     uint32_t n, struct kvr_error *err);
/* The same of n_head heads from first_head on. */
enum kvr_status kvr__layer_read_heads(struct layer_work *w, uint32_t first_head,
                                      uint32_t n_head, uint32_t first,
                                      uint32_t n, struct kvr_error *err);

/* future.c: the pass that looks ahead. */
void kvr__future_add(struct future *u, uint32_t i, double mass);
enum kvr_status kvr__future_run(struct layer_work *w, struct kvr_error *err);
void kvr__future_free(struct layer_work *w);
size_t kvr__future_bytes(const struct plan *plan, uint32_t n_cache);

/* bounds.c: the exact optimum of every cache, where the plan needs it. */
/* Before the rows are replayed: solves for all budgets of all caches. */
enum kvr_status kvr__bounds_solve(struct layer_work *w, struct kvr_error *err);
/* Row t, row r of the strip: what the schedules of a cache lose in it. */
void kvr__bounds_count(struct layer_work *w, uint32_t cache, uint32_t t,
                       uint32_t r);
/* After the last row: oracle and oracle_matched of all tallies, in units.
 * KVR_ERR_INTERNAL where the way from rows to schedule is not proved, or
 * where topk <= oracle <= rule does not hold. */
enum kvr_status kvr__bounds_finish(struct layer_work *w, struct kvr_error *err);
void kvr__bounds_free(struct layer_work *w);
size_t kvr__bounds_bytes(const struct plan *plan, uint32_t n_cache);

/* unit.c, limits.c */
enum kvr_status kvr__unit_init(struct unit *u, const struct layer_work *w,
                               const struct run *run, uint32_t first_cache,
                               uint32_t n_cache, struct kvr_error *err);
void kvr__unit_fini(struct unit *u);
/* Most tokens that a row may see under the options, at budget `budget`. */
uint32_t kvr__unit_capacity(const struct plan *plan,
                            const struct kvr_policy *policy, uint32_t budget);
size_t kvr__unit_bytes(const struct plan *plan, const struct run *run,
                       uint32_t n_head);
/* Target, cap and protection, from the setting and the rule's own window. */
void kvr__unit_set_limits(struct unit *u, const struct layer_work *w);
/* Moves the unit over rows [from, end) of the strip that begins with row
 * `first` of the layer and row k of the tile. Its own failures stay in
 * u->status. */
void kvr__unit_advance(struct unit *u, struct layer_work *w, uint32_t first,
                       uint32_t k, uint32_t from, uint32_t end);

/* foreign.c: rules from plug-ins. */
enum kvr_status kvr__poison_new(struct poison **out, size_t stride,
                                struct kvr_error *err);
void kvr__poison_free(struct poison *poison);
/* Shows poison in place of what the rule did not ask for. */
void kvr__foreign_hide(const struct unit *u, const struct plan *plan,
                       struct kvr_view *view);
/* Zeroed state between two guards; NULL: no memory. */
uint8_t *kvr__foreign_state(size_t size);
void kvr__foreign_state_free(void *state);
/* What the rule did wrong so far, or NULL. */
const char *kvr__foreign_slip(const struct unit *u);
/* A candidate whose key is no number; UINT32_MAX: there is none. */
uint32_t kvr__foreign_no_number(const struct unit *u,
                                const struct kvr_view *view,
                                const kvr_real *key, const kvr_real *second);
/* The rule's constant; false: it sets more than out[0]. */
bool kvr__foreign_constant(kvr_real out[4], const struct kvr_policy *policy,
                           const struct kvr_setting *setting);

/* metrics.c: what row t cost cache c of the unit; kept[h]: units of C_t in
 * the row of its query head h. */
void kvr__unit_count(struct unit *u, struct layer_work *w, uint32_t c,
                     uint32_t t, uint32_t r, const double *kept);
/* After the last row: takes the logarithms that are still to be taken. */
void kvr__unit_count_finish(struct unit *u);
/* late.c. Row t of the layer is row r of the strip. */
/* After the strip of n rows that begins with row `first`: what all units of a
 * cache were missing. */
void kvr__late_advance(struct layer_work *w, uint32_t cache, uint32_t first,
                       uint32_t n);
/* Notes `missing` ties at the B-th weight that nothing resident covers;
 * late_settle counts those noted, before another unit comes. */
void kvr__late_ties(struct unit *u, uint32_t c, struct layer_work *w,
                    uint32_t r, uint32_t t, uint32_t missing);
void kvr__late_settle(struct unit *u, struct layer_work *w);
/* Counts what is over the B-th weight and a mask hides. */
void kvr__late_hidden(struct unit *u, uint32_t c, const struct layer_work *w,
                      uint32_t r, uint32_t t);
/* After the last row. */
void kvr__late_finish(struct unit *u, const struct layer_work *w);

/* result.c */
struct percentile_work {
    double *sorted;
    size_t capacity;
};
enum kvr_status kvr__percentiles(struct kvr_percentiles *out, const double *m,
                                 size_t n, struct percentile_work *work,
                                 struct kvr_error *err);
void kvr__percentiles_of_histogram(struct kvr_percentiles *out,
                                   const uint32_t histogram[BINS], double max);
void kvr__histogram_add(uint32_t histogram[BINS], const double *m, size_t n);

/* plan.c: runs, refusals, sizes. */
enum kvr_status kvr__plan_init(struct plan *plan, const struct kvr_rows *rows,
                               const struct kvr_sim_options *options,
                               struct kvr_error *err);
void kvr__plan_fini(struct plan *plan);
uint64_t kvr__plan_bytes(const struct plan *plan);
/* Threads that may work at once. */
uint32_t kvr__plan_threads(const struct plan *plan);

/* replay.c: results as layers bring them. */
struct collected { /* what collecting one layer needs */
    struct kvr_sim *sim;
    uint32_t *slot;      /* [n_cache] place among the layer's results */
    uint32_t *histogram; /* [n_result][BINS] of the part */
    double *m;           /* rows of all replicates of a cache */
    size_t capacity;
    struct percentile_work sorted;
};
enum kvr_status kvr__sim_keep_lists(struct kvr_sim *sim, struct unit *u,
                                    uint32_t c, size_t run, uint32_t slot,
                                    struct kvr_error *err);
/* A part that is done; the last one of a layer closes the layer. */
enum kvr_status kvr__sim_add_part(struct kvr_sim *sim,
                                  const struct layer_work *w,
                                  const uint32_t *histogram,
                                  struct kvr_error *err);

/* layer.c: a part of a layer from its first tile to its results. */
enum kvr_status kvr__layer_replay(const struct plan *plan,
                                  const struct work_item *item, uint32_t worker,
                                  struct kvr_sim *sim, struct kvr_error *err);

#endif
