/* made_rows.h -- random attention from a seed, and one call of the engine.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MADE_ROWS_H
#define MADE_ROWS_H

#include "kvr_isa.h"
#include "kvr_sim.h"

#include "matrix_rows.h"

struct dice {
    uint64_t state;
};
uint32_t dice_below(struct dice *dice, uint32_t n);
double dice_real(struct dice *dice); /* in [0, 1) */

enum made_kind {
    MADE_SMOOTH,  /* all weights differ */
    MADE_SINK,    /* token 0 draws most, far ones fall to f16's zero */
    MADE_TIES,    /* a few levels: ties and zeros everywhere */
    MADE_PEAKED,  /* most of the mass on one token */
    MADE_FINE,    /* thirds and the like, multiples of 2^-30: rounding in a
                     float decides between what would be ties */
    MADE_OFFGRID, /* plain doubles: for unit 0 */
    MADE_N,
};

/* Weights of f16 (multiples of 2^-24, 11 bits), rows that sum to about 1 at
 * most; the layout of struct matrix_rows. mask and span: what a row may see,
 * by layer; NULL: everything. free() it. */
double *made_cells(struct dice *dice, enum made_kind kind, uint32_t n_layer,
                   uint32_t n_head, uint32_t T, const enum kvr_mask *mask,
                   const uint32_t *span);

/* One replay and what it needs. */
struct replay {
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs;
    size_t n_spec;
    struct kvr_sim *sim;
    struct kvr_error err;
};

/* Options with the defaults of the command; budgets stay the caller's. */
struct kvr_sim_options plain_options(const struct kvr_budget *budgets,
                                     size_t n_budget);
struct kvr_budget budget_of(uint32_t tokens);

/* Parses `policies` and runs; the status is the engine's. */
enum kvr_status replay_try(struct replay *replay,
                           const struct matrix_rows *rows, const char *policies,
                           const struct kvr_sim_options *options);
/* The same, and it must succeed with every policy. */
void replay_run(struct replay *replay, const struct matrix_rows *rows,
                const char *policies, const struct kvr_sim_options *options);
void replay_free(struct replay *replay);

/* Fails the test unless two sims hold the same bits, evictions included.
 * `what` is said. */
void assert_same_sim(const struct kvr_sim *a, const struct kvr_sim *b,
                     const char *what);
/* The same for one run of each. */
void assert_same_run(const struct kvr_sim *a, size_t run_a,
                     const struct kvr_sim *b, size_t run_b, const char *what);
/* The same, in whatever order a shrink lets its tokens go. */
void assert_same_sets(const struct kvr_sim *a, size_t run_a,
                      const struct kvr_sim *b, size_t run_b, const char *what);

#endif
