/* instances.c -- see instances.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "instances.h"

#include "kvr_random.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static double weight(enum kind kind, const struct kvr_random *stream,
                     uint32_t step, uint32_t token)
{
    const double u = kvr_random_real(stream, step, token, 0);

    switch (kind) {
    case MANY_TIES:
        return floor(4 * u);
    case ONE_HOT:
        return token == kvr_random_below(stream, step, 0, 1, step + 1) ? 1 : 0;
    case SPARSE:
        return u < 0.8 ? 0 : floor(1000 * (u - 0.8));
    case WIDE_RANGE:
        return floor(ldexp(u, 30));
    default:
        return floor(exp(8 * u));
    }
}

void instance_make(struct instance *in, uint32_t number, enum kind kind,
                   const struct kvr_optimum_problem *problem)
{
    const struct kvr_random stream = {
        .seed = number, .purpose = KVR_RANDOM_TEST, .layer = 1};
    const size_t n = problem->n_token, p = problem->prompt_len;

    in->problem = *problem;
    in->weights = calloc((n - p) * n, sizeof *in->weights);
    in->matrix = (struct kvr_optimum_matrix){
        .first = in->weights, .stride = n, .prompt_len = problem->prompt_len};
    for (uint32_t t = problem->prompt_len; t < n; t++)
        for (uint32_t i = 0; i <= t; i++)
            in->weights[(t - p) * n + i] = weight(kind, &stream, t, i);
}

void instance_random(struct instance *in, uint32_t number, uint32_t most)
{
    const struct kvr_random draw = {.seed = number, .purpose = KVR_RANDOM_TEST};
    struct kvr_optimum_problem problem;

    problem.n_token = 2 + kvr_random_below(&draw, 0, 0, 0, most - 1);
    problem.prompt_len =
        1 + kvr_random_below(&draw, 1, 0, 0, problem.n_token - 1);
    problem.protect_recent = kvr_random_below(&draw, 2, 0, 0, 4);
    problem.protect_first = kvr_random_below(&draw, 3, 0, 0, 3);
    instance_make(in, number,
                  (enum kind)kvr_random_below(&draw, 4, 0, 0, N_KIND),
                  &problem);
}

void instance_free(struct instance *in)
{
    free(in->weights);
}

/* ---- all subsets ---- */

enum { MOST = 10, SETS = 1 << MOST };

static bool may_be(const struct instance *in, uint32_t set, uint32_t step,
                   uint32_t budget)
{
    uint32_t size = 0;

    for (uint32_t i = 0; i <= step; i++) {
        const bool here = (set >> i & 1u) != 0;
        const bool must_be = i < in->problem.protect_first ||
                             i + in->problem.protect_recent > step;
        if (must_be && !here)
            return false;
        size += here;
    }
    return size <= budget && set >> (step + 1) == 0;
}

static int64_t missed(const struct instance *in, uint32_t set, uint32_t step)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i <= step; i++)
        if ((set >> i & 1u) == 0)
            sum += (int64_t)instance_weight(in, step, i);
    return sum;
}

int64_t brute_force(const struct instance *in, const uint32_t *visible)
{
    const uint32_t n = in->problem.n_token, p = in->problem.prompt_len;
    int64_t best[SETS], next[SETS];

    for (uint32_t set = 0; set < SETS; set++)
        best[set] =
            may_be(in, set, p, visible[p]) ? missed(in, set, p) : INT64_MAX;
    for (uint32_t t = p + 1; t < n; t++) {
        for (uint32_t set = 0; set < SETS; set++) {
            next[set] = INT64_MAX;
            if (!may_be(in, set, t, visible[t]))
                continue;
            const uint32_t old = set & ~(1u << t);
            for (uint32_t from = 0; from < 1u << t; from++)
                if ((from & old) == old && best[from] < next[set])
                    next[set] = best[from];
            if (next[set] != INT64_MAX)
                next[set] += missed(in, set, t);
        }
        memcpy(best, next, sizeof best);
    }
    int64_t least = INT64_MAX;
    for (uint32_t set = 0; set < SETS; set++)
        least = best[set] < least ? best[set] : least;
    return least == INT64_MAX ? -1 : least;
}

/* ---- dense assignment ---- */

/* Far above any cost, far below overflow. */
#define NEVER (INT64_MAX / 8)

static int64_t pair_cost(const struct instance *in, uint32_t token,
                         uint32_t step)
{
    int64_t sum = 0;

    if (token < in->problem.protect_first ||
        token + in->problem.protect_recent > step)
        return NEVER;
    for (uint32_t t = step; t < in->problem.n_token; t++)
        sum += (int64_t)instance_weight(in, t, token);
    return sum;
}

struct matching {
    uint32_t n;          /* columns; column n is a dummy that starts a path */
    const int64_t *cost; /* [rows][n] */
    int64_t *u, *v;
    int64_t *distance;
    uint32_t *row_at, *before; /* row_at n + 1: none */
    bool *done;
};

static bool match_row(struct matching *m, uint32_t row)
{
    const uint32_t n = m->n, none = UINT32_MAX;
    uint32_t at = n;

    for (uint32_t j = 0; j <= n; j++) {
        m->distance[j] = INT64_MAX;
        m->done[j] = false;
    }
    m->row_at[n] = row;
    while (m->row_at[at] != none) {
        const uint32_t i = m->row_at[at];
        int64_t delta = INT64_MAX;
        uint32_t nearest = n;
        m->done[at] = true;
        for (uint32_t j = 0; j < n; j++) {
            if (m->done[j])
                continue;
            const int64_t c = m->cost[(size_t)i * n + j] - m->u[i] - m->v[j];
            if (c < m->distance[j]) {
                m->distance[j] = c;
                m->before[j] = at;
            }
            if (m->distance[j] < delta) {
                delta = m->distance[j];
                nearest = j;
            }
        }
        if (delta > NEVER / 2)
            return false;
        for (uint32_t j = 0; j <= n; j++)
            if (m->done[j]) {
                m->u[m->row_at[j]] += delta;
                m->v[j] -= delta;
            } else {
                m->distance[j] -= delta;
            }
        at = nearest;
    }
    for (; at != n; at = m->before[at])
        m->row_at[at] = m->row_at[m->before[at]];
    return true;
}

static int64_t solve_matching(const int64_t *cost, uint32_t rows, uint32_t n)
{
    struct matching m = {.n = n, .cost = cost};
    int64_t sum = 0;
    bool fits = true;

    m.u = calloc(rows + 1, sizeof *m.u);
    m.v = calloc(n + 1, sizeof *m.v);
    m.distance = calloc(n + 1, sizeof *m.distance);
    m.row_at = calloc(n + 1, sizeof *m.row_at);
    m.before = calloc(n + 1, sizeof *m.before);
    m.done = calloc(n + 1, sizeof *m.done);
    for (uint32_t j = 0; j <= n; j++)
        m.row_at[j] = UINT32_MAX;
    for (uint32_t i = 0; i < rows && fits; i++)
        fits = match_row(&m, i);
    for (uint32_t j = 0; j < n && fits; j++)
        if (m.row_at[j] != UINT32_MAX)
            sum += cost[(size_t)m.row_at[j] * n + j];
    free(m.u);
    free(m.v);
    free(m.distance);
    free(m.row_at);
    free(m.before);
    free(m.done);
    return fits ? sum : -1;
}

int64_t assignment(const struct instance *in, uint32_t k)
{
    const uint32_t n = in->problem.n_token, p = in->problem.prompt_len;
    const uint32_t rows = n - k;
    int64_t *cost = calloc((size_t)rows * n + 1, sizeof *cost);
    uint32_t row = 0;

    for (uint32_t t = p; t < n; t++) {
        const uint32_t copies = t > p ? t >= k : p + 1 > k ? p + 1 - k : 0;
        for (uint32_t c = 0; c < copies; c++, row++)
            for (uint32_t i = 0; i < n; i++)
                cost[(size_t)row * n + i] = pair_cost(in, i, t);
    }
    const int64_t least = solve_matching(cost, rows, n);
    free(cost);
    return least;
}
