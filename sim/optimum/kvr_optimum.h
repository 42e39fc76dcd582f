/* kvr_optimum.h -- the exact offline optimum of evicting for good.
 *
 * The problem: tokens 0..T-1, of which 0..P-1 (the prompt) are there before
 * step P; token t arrives at step t = P..T-1. The cache S_t that step t uses
 * holds at most k tokens of 0..t, and no token comes back. Step t loses
 * a_t(i) >= 0, an integer, for every token i <= t that is not in S_t. Wanted:
 * the least total loss OPT(k), for every k.
 *
 * The method: evicting as late as the budget allows loses nothing, so a
 * schedule is a matching of eviction slots to tokens with costs
 *     L[i][t] = sum over q >= t of a_q(i),
 * token i being absent from step t on. Slots of budget k are one at each step
 * t >= max(k, P + 1), and max(0, P + 1 - k) at P; the slots of k - 1 are those
 * of k and one more. So one run of successive shortest augmenting paths, from
 * k = T downwards, passes through the optimum of every budget (Kuhn 1955;
 * Jonker and Volgenant 1987, doi 10.1007/BF02278710). It leaves prices u of
 * slots and rents w of tokens that prove each optimum:
 *     u_t - w_i <= L[i][t],   w >= 0,   sum of u over slots - sum of w = OPT.
 *
 * Time here is "decide before the step, newest token inside k". In the words
 * of the replay (budget B held between steps, row t sees B + 1, the last R
 * tokens protected) that is
 *     k = B + 1,   protect_recent = R + 1,
 * and a token that is first absent at step t was evicted after row t - 1: the
 * shrink at the end of the prompt is first absent P, evicted after row P - 1.
 *
 * Costs are doubles that hold integers. All of it is exact while the sum of
 * all weights is below KVR_OPTIMUM_MASS_LIMIT: more is refused. In units of
 * 2^-24 (f16 attention) that is heads x steps below 2^27.
 *
 * Nothing here has a state of its own: different problems may be solved in
 * different threads. Results do not depend on the instruction set.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_OPTIMUM_H
#define KVR_OPTIMUM_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Labels reach about four times the total mass, and doubles count exactly to
 * 2^53. */
#define KVR_OPTIMUM_MASS_LIMIT 2251799813685248.0 /* 2^51 */

enum {
    KVR_OPTIMUM_INFEASIBLE = -1,   /* k is below the protected tokens */
    KVR_OPTIMUM_NOT_COMPUTED = -2, /* below the least budget asked for */
};

struct kvr_optimum_problem {
    uint32_t n_token;        /* T */
    uint32_t prompt_len;     /* P, 1 <= P < T */
    uint32_t protect_recent; /* r: tokens i > t - r stay. 1: the newest, as
                              * everywhere in the replay; 0: none */
    uint32_t protect_first;  /* s: tokens i < s stay */
};

/* Puts the weights of step `step` into row[0..step]: integers >= 0 (sums over
 * query heads, value norms and the like are the caller's). row has T places;
 * those after `step` are ignored. Called once for each step, from T-1 down to
 * P. A failure ends the call that asked. */
typedef enum kvr_status (*kvr_optimum_row_fn)(double *row, uint32_t step,
                                              void *ud, struct kvr_error *err);

/* Rows that lie in memory: step t is first[(t - P) * stride ..], t + 1 long.
 * kvr_optimum_matrix_row with such a struct as ud is a kvr_optimum_row_fn. */
struct kvr_optimum_matrix {
    const double *first;
    size_t stride;
    uint32_t prompt_len;
};
enum kvr_status kvr_optimum_matrix_row(double *row, uint32_t step, void *ud,
                                       struct kvr_error *err) KVR_MUST_CHECK;

/* ---- costs ---- */

/* Bytes that the costs (`costs`) and one solution in progress (`solver`)
 * take: each about 8 T (T - P). False when a product does not fit. */
bool kvr_optimum_bytes(uint64_t *costs, uint64_t *solver,
                       const struct kvr_optimum_problem *problem);

/* The matrix L of a problem. Read-only once made, so threads may share it. */
struct kvr_optimum_costs;

/* KVR_ERR_NOTHING: P = T. KVR_ERR_INPUT: a weight that is negative or no
 * integer, by step and token. KVR_ERR_LIMIT: the mass limit. */
enum kvr_status kvr_optimum_costs_new(struct kvr_optimum_costs **out,
                                      const struct kvr_optimum_problem *problem,
                                      kvr_optimum_row_fn fn, void *ud,
                                      struct kvr_error *err) KVR_MUST_CHECK;
void kvr_optimum_costs_free(struct kvr_optimum_costs *costs);

/* Compares every cost with the rows that it was made from, asked for once
 * more, and the total with their sum. So a certificate covers the way from the
 * rows to the costs too. Exact. KVR_ERR_INTERNAL names step and token. */
enum kvr_status kvr_optimum_costs_check(const struct kvr_optimum_costs *costs,
                                        kvr_optimum_row_fn fn, void *ud,
                                        struct kvr_error *err) KVR_MUST_CHECK;

/* Sum of all weights: what an empty cache would lose. */
int64_t kvr_optimum_total(const struct kvr_optimum_costs *costs);

/* ---- plans ---- */

/* The optimum of one budget, with its proof. Arrays are [T]. */
struct kvr_optimum_plan {
    uint32_t n_token, prompt_len;
    bool feasible;     /* false: cost is -1 and evict, prices, .. are NULL */
    int64_t cost;      /* OPT */
    uint32_t *visible; /* k_t: most tokens that step t may see; k throughout
                        * for a plain budget. Unused below P */
    uint32_t *evict;   /* step at which the token is first absent; T: never */
    int64_t *price;    /* u_t, never rising with t; 0 below P. A step without
                        * a slot has the price of the next one */
    int64_t *rent;     /* w_i */
    int64_t *mu;       /* u_t - u_(t+1): rent of one place during step t */
};
void kvr_optimum_plan_free(struct kvr_optimum_plan *plan);

/* Which budgets. Those above T count as T (nothing is ever evicted). */
struct kvr_optimum_request {
    const uint32_t *budgets; /* k, in any order; a plan is kept for each */
    size_t n_budget;
    bool whole_curve; /* down to k = 0; else to the least of budgets */
};

struct kvr_optimum;

/* Solves, and checks the certificate of every budget asked for
 * (kvr_optimum_verify; a failure is KVR_ERR_INTERNAL). An infeasible budget
 * is no error: see the curve. */
enum kvr_status kvr_optimum_solve(struct kvr_optimum **out,
                                  const struct kvr_optimum_costs *costs,
                                  const struct kvr_optimum_request *request,
                                  struct kvr_error *err) KVR_MUST_CHECK;
void kvr_optimum_free(struct kvr_optimum *optimum);

/* OPT(k) for k = 0..T, or one of the two marks above. Convex and falling.
 * Borrowed. */
const int64_t *kvr_optimum_curve(const struct kvr_optimum *optimum);

/* The plan of budget k; NULL if it was not asked for. Borrowed. */
const struct kvr_optimum_plan *
kvr_optimum_plan(const struct kvr_optimum *optimum, uint32_t k);

/* The optimum under budgets that change: visible[t] tokens at most at step
 * t = P..T-1 (visible has T places). Its slots are the increments of
 * max over q <= t of (q + 1 - visible[q])^+. Verified as above. Free the plan
 * with kvr_optimum_plan_free. */
enum kvr_status kvr_optimum_matched(struct kvr_optimum_plan **out,
                                    const struct kvr_optimum_costs *costs,
                                    const uint32_t *visible,
                                    struct kvr_error *err) KVR_MUST_CHECK;

/* Checks in integers that the plan is feasible, that its prices are a dual
 * solution, and that both have the plan's cost; so no schedule is cheaper.
 * Uses nothing of the run that made it. KVR_ERR_INTERNAL names what fails. */
enum kvr_status kvr_optimum_verify(const struct kvr_optimum_costs *costs,
                                   const struct kvr_optimum_plan *plan,
                                   struct kvr_error *err) KVR_MUST_CHECK;

/* ---- other schedules ---- */

/* Loss of any schedule (evict[T] as in a plan). KVR_ERR_INPUT names the token
 * or step where it breaks the protection or visible[] (NULL: not checked). */
enum kvr_status kvr_optimum_cost(int64_t *cost,
                                 const struct kvr_optimum_costs *costs,
                                 const uint32_t *evict, const uint32_t *visible,
                                 struct kvr_error *err) KVR_MUST_CHECK;

/* Where a feasible schedule loses more than the plan. rho[T] >= 0: for a token
 * evicted at step e, L[i][e] - u_e + w_i, what it cost to evict it then; for
 * one kept, w_i, what it cost to keep it. *idle: rent of the places that
 * stood empty. Exactly:
 *     cost of the schedule - cost of the plan = sum of rho + idle.
 * Single terms depend on which optimal prices the run found; the sum cannot.
 * Errors as kvr_optimum_cost. */
enum kvr_status kvr_optimum_regret(int64_t *rho, int64_t *idle,
                                   const struct kvr_optimum_costs *costs,
                                   const struct kvr_optimum_plan *plan,
                                   const uint32_t *evict,
                                   struct kvr_error *err) KVR_MUST_CHECK;

/* curve[k], k = 0..T: the loss when every step keeps the newest token and the
 * k - 1 heaviest others, tokens coming back at will: a bound of OPT(k) for
 * protect_recent >= 1. curve[0] is -1. Ignores protection. */
enum kvr_status kvr_optimum_topk(int64_t *curve,
                                 const struct kvr_optimum_problem *problem,
                                 kvr_optimum_row_fn fn, void *ud,
                                 struct kvr_error *err) KVR_MUST_CHECK;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
