/* kvr_cache.h -- what a cache under a rule is told: its budget, when it evicts,
 * what it protects, which weights count as accesses.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CACHE_H
#define KVR_CACHE_H

#include "kvr_error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

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

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
