/* optimum.h -- what the files of the optimum share (private to sim/).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef OPTIMUM_H
#define OPTIMUM_H

#include "kvr_optimum.h"

/* A cost that no sum of real ones reaches; adding real costs leaves it. */
#define KVR__FORBIDDEN 0x1p1000

enum {
    KVR__BLOCK = 64, /* columns for which one minimum is kept */
    KVR__WIDE = 6,   /* rows scanned in one pass over the columns */
};

/* L as (T - P) rows of `stride` costs; KVR__FORBIDDEN where token i may not
 * be absent at step t, and in the padding. */
struct kvr_optimum_costs {
    struct kvr_optimum_problem problem;
    size_t stride; /* T rounded up to whole blocks */
    double *cost;
    int64_t total;
};

static inline const double *
kvr__costs_row(const struct kvr_optimum_costs *costs, uint32_t step)
{
    return costs->cost +
           (size_t)(step - costs->problem.prompt_len) * costs->stride;
}

/* slots[t], t = P..T-1: increments of max over q <= t of (q+1-visible[q])^+. */
void kvr__count_slots(uint32_t *slots, const uint32_t *visible, uint32_t first,
                      uint32_t n_token);

/* ---- one pass over the matched columns (optimum_pass.c) ---- */

struct kvr__pass {
    const double *row[KVR__WIDE]; /* costs of the rows scanned */
    double base[KVR__WIDE];       /* distance of the row less its price */
    uint32_t n;                   /* rows, 1..KVR__WIDE; the rest repeats */
    double batch;                 /* written to via where a label falls */
    size_t n_block;
    const double *rent;   /* w of each column */
    const double *closed; /* label with which it was scanned last */
    double *label, *via;
    double *open; /* [n_block] least label of a column to be scanned */
};

typedef void (*kvr__pass_fn)(const struct kvr__pass *pass);

/* The pass for kvr_isa(). */
kvr__pass_fn kvr__optimum_pass(void);

/* ---- the solver (optimum_solver.c) ---- */

struct kvr__solver;

enum kvr_status kvr__solver_new(struct kvr__solver **out,
                                const struct kvr_optimum_costs *costs,
                                struct kvr_error *err) KVR_MUST_CHECK;
void kvr__solver_free(struct kvr__solver *solver);

/* Adds one slot at `step`, at or before all steps so far. *rise: by how much
 * the optimum grew. *placed false: no matching holds all these slots, and the
 * solver is left as it was. */
enum kvr_status kvr__solver_add(struct kvr__solver *solver, uint32_t step,
                                int64_t *rise, bool *placed,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* Copies schedule, prices and rents of the slots so far; [T] each. */
void kvr__solver_read(const struct kvr__solver *solver, uint32_t *evict,
                      int64_t *price, int64_t *rent);

#endif
