/* kvr_policy.h -- all that an eviction rule sees of the simulator.
 *
 * A rule is one const table (struct kvr_policy) at the bottom of one file. It
 * says how large its state is; the simulator allocates, zeroes and frees it,
 * holds the cache, protects first and last tokens, reduces query heads to one
 * row, ranks, breaks ties and counts. A rule does not allocate, print or keep
 * globals, so the same file builds as built-in or as a plug-in
 * (docs/policies.md).
 *
 * Words (docs/manual.md): T tokens, the first P are the prompt. The cache
 * holds at most B tokens between steps. At step t token t is inserted, row t
 * is scored against C_t, the rule observes it, then evicts. Positions are
 * absolute, 0..T-1. Arrays over positions are 64-byte aligned
 * and readable up to n rounded up to a multiple of 64.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_POLICY_H
#define KVR_POLICY_H

#include "kvr_param.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Changes whenever a struct below does; may change until version 1.0. */
enum { KVR_POLICY_ABI = 1 };

/* Scores and weights: float; double in a test build (KVR_REAL_DOUBLE). */
#ifdef KVR_REAL_DOUBLE
typedef double kvr_real;
#else
typedef float kvr_real;
#endif

/* What a result may be compared with; printed in every table. */
enum kvr_class {
    KVR_CLASS_ONLINE,        /* decides from rows seen so far */
    KVR_CLASS_PROMPT_WINDOW, /* decides once, from the last prompt rows */
    KVR_CLASS_LOOK_AHEAD,    /* uses statistics of rows to come */
    KVR_CLASS_OFFLINE,       /* knows the whole future */
    KVR_CLASS_MASK,          /* hides tokens but keeps them */
    KVR_CLASS_SAMPLE,        /* keeps by chance, with weights */
    KVR_CLASS_BOUND,         /* no rule: a bound on all rules */
};

/* How a query head's row is divided before the rule sees it. */
enum kvr_observe {
    KVR_OBSERVE_NONE,   /* the rule looks at positions only */
    KVR_OBSERVE_RENORM, /* by its mass over C_t: what the kernel computes */
    KVR_OBSERVE_RAW,    /* not at all: needs the full cache's normaliser */
};

/* How the rows of the query heads that share a cache become one. */
enum kvr_group {
    KVR_GROUP_MEAN,
    KVR_GROUP_MAX,
    KVR_GROUP_SUM,
    KVR_GROUP_PER_QUERY_HEAD, /* a set of its own for each query head */
};

/* Which caches share one resident set. */
enum kvr_scope {
    KVR_SCOPE_CACHE, /* each KV head decides for itself */
    KVR_SCOPE_LAYER, /* one set for all heads of the layer, all rows reduced */
};

/* What a rule needs beside the observed row; checked by the simulator. */
enum kvr_need {
    KVR_NEEDS_ACCESS = 1 << 0,      /* view.accessed, by --access */
    KVR_NEEDS_RANDOM = 1 << 1,      /* view.below */
    KVR_NEEDS_NEXT_ACCESS = 1 << 2, /* view.next_access: the future */
    KVR_NEEDS_FUTURE_MASS = 1 << 3, /* view.future_mass: the future */
    KVR_NEEDS_COLUMN_MASS = 1 << 4, /* view.column_mass: the future */
    KVR_NEEDS_TOP = 1 << 5,         /* view.recorded, view.top_least */
    KVR_NEEDS_SCHEDULE = 1 << 6,    /* supplied by the engine: built-in only */
    KVR_KEEPS_ALL = 1 << 7,         /* never evicts, whatever B is */
};

enum kvr_ties { KVR_TIES_OLDEST, KVR_TIES_NEWEST, KVR_TIES_RANDOM };

/* Fixed for one cache of one run. */
struct kvr_setting {
    uint32_t n_token, prompt_len; /* T, P */
    uint32_t budget;              /* B of this cache */
    uint32_t capacity;            /* most tokens that a row may see: more
                                     than B + 1 in a prompt, or when rows
                                     pass between evictions */
    uint32_t layer, n_layer;      /* index among the stored layers */
    uint32_t kv_head, n_kv_head;  /* first cache of the set, in the layer */
    uint32_t group_size;          /* query heads reduced into the row */
    const struct kvr_arg *arg;    /* [n] in the order of the params */
};

/* One step as the rule may see it; valid during the call only. */
struct kvr_view {
    const struct kvr_setting *setting;
    uint32_t step;        /* t: the row that was just scored */
    uint32_t n;           /* t + 1 positions exist */
    uint32_t n_resident;  /* |C_t|, less what this step evicted already */
    uint32_t n_evict;     /* evictions still to come in this step, this one
                             included; 0 outside victim */
    uint32_t first, last; /* candidates: resident positions in [first, last);
                             in mask: first is the layer's mask's first */
    enum kvr_ties ties;
    const kvr_real *weight;      /* [n] observed, reduced row; see kvr_observe.
                                    Meaningless where a position is absent */
    const int32_t *resident;     /* [n] -1 where resident, else 0 */
    const uint64_t *bits;        /* the same as a bit set */
    const int32_t *accessed;     /* [n] -1 where row t accessed it, else 0 */
    const uint32_t *next_access; /* [n] next row after t that accesses it;
                                    UINT32_MAX: never */
    /* Sums over the query heads, in units of the trace's weights: fit to be
     * compared with each other. The first two are of what --loss counts. */
    const double *future_mass; /* [n] recorded loss in rows after t */
    const double *recorded;    /* [n] recorded loss in row t */
    const double *column_mass; /* [n] recorded attention in all rows */
    double top_least; /* the B-th largest of recorded[0..n-2]; -1 if n-1 <= B */
    /* Uniform in 0..m-1, keyed by (seed, layer, head, step, index). */
    uint32_t (*below)(const struct kvr_view *view, uint32_t index, uint32_t m);
    const void *ud; /* the simulator's */
    uint32_t *tied; /* set by a victim rule: candidates as good as the
                       victim, itself included; preset to 1 */
};

/* A rule's own protected tokens, within B: the first and the newest. */
struct kvr_window {
    uint32_t first, last;
};

enum kvr_isa_slot { KVR_ISA_SLOTS = 3 }; /* base, AVX2, AVX-512: same bits */

typedef void (*kvr_update_fn)(kvr_real *score, const kvr_real *weight,
                              uint32_t n, uint32_t step,
                              const kvr_real *constant);
typedef void (*kvr_rank_fn)(kvr_real *key, const kvr_real *score, uint32_t n,
                            uint32_t step);
typedef void (*kvr_observe_fn)(void *state, const struct kvr_view *view);
typedef void (*kvr_score_fn)(const void *state, const struct kvr_view *view,
                             kvr_real *score, kvr_real *second);
typedef uint32_t (*kvr_victim_fn)(void *state, const struct kvr_view *view);
typedef void (*kvr_mask_fn)(void *state, const struct kvr_view *view,
                            int32_t *visible);

struct kvr_policy {
    uint32_t abi;                   /* KVR_POLICY_ABI */
    const char *name;               /* lower-case, with hyphens */
    const char *summary;            /* the rule in one sentence */
    const char *cite;               /* the paper, or "baseline" */
    const char *budget_note;        /* how B converts to the paper's number */
    const struct kvr_param *params; /* ends with name NULL; may be NULL */
    enum kvr_class class_of;        /* printed, unless needs say otherwise */
    enum kvr_observe observe;       /* published defaults */
    enum kvr_group group;
    enum kvr_scope scope;
    uint32_t needs; /* enum kvr_need */

    /* Another table for these parameters (a fork of the rule, with a class and
     * needs of its own), or NULL to stay. Optional. Called once per run. */
    const struct kvr_policy *(*variant)(const struct kvr_setting *setting);
    /* A message when the parameters do not go together, else NULL. */
    const char *(*check)(const struct kvr_setting *setting);
    /* Bytes of state for this setting; NULL: none. */
    size_t (*state_size)(const struct kvr_setting *setting);
    /* Fills the zeroed state; NULL: zero is right. */
    void (*begin)(void *state, const struct kvr_setting *setting);
    /* Own window; NULL: none. Preset to 0, 0. */
    void (*window)(const struct kvr_setting *setting, struct kvr_window *out);
    /* Token view->step was inserted, before its row is seen. Optional. */
    void (*insert)(void *state, const struct kvr_view *view);
    /* Position left the cache (evicted, or out of the layer's mask).
     * Optional. */
    void (*leave)(void *state, const struct kvr_view *view, uint32_t position);
    /* Row t was scored; sees every row, prompt rows too. Optional. Tables of
     * KVR_ISA_SLOTS functions: KVR_OBSERVED (kvr_elementwise.h). */
    const kvr_observe_fn *observed;

    /* Exactly one of the following. */
    /* Elementwise: the engine keeps one score per position (0 when inserted),
     * lets the rule update it, and evicts the lowest. KVR_ELEMENTWISE. */
    const kvr_update_fn *update;
    /* Fills score[0..n) (and second[0..n), which decides between equal scores,
     * if two_keys); the engine evicts the lowest. */
    const kvr_score_fn *score;
    /* Names a candidate that leaves; called once per eviction. */
    const kvr_victim_fn *victim;
    /* Marks what row t may see (-1 or 0), before it is scored. */
    const kvr_mask_fn *mask;

    int two_keys;
    /* With update: the key that is ranked, from the score. Optional. */
    const kvr_rank_fn *rank;
    /* With update: out[0] is handed to the rule as its constant; it is the only
     * one. NULL: 0. */
    void (*constants)(const struct kvr_setting *setting, kvr_real out[4]);
};

/* A plug-in defines this one symbol. */
typedef const struct kvr_policy *(*kvr_plugin_fn)(void);
#define KVR_PLUGIN_SYMBOL "kvr_plugin_policy"
/* Defines it, for a table of this file. */
#define KVR_PLUGIN(table) \
    const struct kvr_policy *kvr_plugin_policy(void); \
    const struct kvr_policy *kvr_plugin_policy(void) \
    { \
        return &(table); \
    }

/* ---- helpers for victim rules ---- */

/* The oldest candidate; UINT32_MAX if there is none. */
static inline uint32_t kvr_oldest(const struct kvr_view *view)
{
    for (uint32_t i = view->first; i < view->last; i++) {
        const uint64_t word = view->bits[i / 64] >> (i % 64);
        if (word == 0) {
            i |= 63;
            continue;
        }
        while ((view->bits[i / 64] >> (i % 64) & 1) == 0)
            i++;
        return i < view->last ? i : UINT32_MAX;
    }
    return UINT32_MAX;
}

/* Bits of a word that are set. */
static inline uint32_t kvr_count_bits(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (uint32_t)(x * 0x0101010101010101u >> 56);
}

/* Word `i` of the candidates' bit set. */
static inline uint64_t kvr_candidate_word(const struct kvr_view *view,
                                          uint32_t i)
{
    uint64_t word = view->bits[i];

    if (i == view->first / 64)
        word &= ~(uint64_t)0 << (view->first % 64);
    if (i == view->last / 64)
        word &= ((uint64_t)1 << (view->last % 64)) - 1;
    return i < view->first / 64 || i > view->last / 64 ? 0 : word;
}

/* Number of candidates. */
static inline uint32_t kvr_n_candidate(const struct kvr_view *view)
{
    uint32_t n = 0;

    for (uint32_t i = view->first / 64; i * 64 < view->last; i++)
        n += kvr_count_bits(kvr_candidate_word(view, i));
    return n;
}

/* Candidate number k (0: the oldest); UINT32_MAX if there are not as many. */
static inline uint32_t kvr_candidate(const struct kvr_view *view, uint32_t k)
{
    for (uint32_t i = view->first / 64; i * 64 < view->last; i++) {
        uint64_t word = kvr_candidate_word(view, i);
        const uint32_t n = kvr_count_bits(word);
        if (k >= n) {
            k -= n;
            continue;
        }
        for (; k > 0; k--)
            word &= word - 1;
        return i * 64 + kvr_count_bits((word & (~word + 1)) - 1);
    }
    return UINT32_MAX;
}

/* The candidate with the lowest key[position]; keys within `slack` of the
 * lowest tie, and view->ties decides. */
static inline uint32_t kvr_lowest(const struct kvr_view *view,
                                  const double *key, double slack)
{
    uint32_t at = UINT32_MAX, n = 0, k;
    double low = 0;

    for (uint32_t i = view->first; i < view->last; i++)
        if (view->resident[i] != 0 && (at == UINT32_MAX || key[i] < low)) {
            low = key[i];
            at = i;
        }
    if (at == UINT32_MAX)
        return at;
    for (uint32_t i = view->first; i < view->last; i++)
        n += view->resident[i] != 0 && key[i] <= low + slack;
    *view->tied = n;
    k = view->ties == KVR_TIES_OLDEST ? 0
        : view->ties == KVR_TIES_NEWEST
            ? n - 1
            : view->below(view, view->n_resident, n);
    for (uint32_t i = view->first; i < view->last; i++)
        if (view->resident[i] != 0 && key[i] <= low + slack && k-- == 0)
            return i;
    return at;
}

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
