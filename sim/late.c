/* late.c -- late importance: mass that rows wanted of tokens already gone.
 *
 * A row wants its B heaviest past tokens. What a token has drawn so far is the
 * same for all rules of one budget, so facts.c adds it up once; one that left
 * was missed by the difference to what it had drawn then. Only ties at the
 * B-th weight depend on what is resident, and are counted one by one.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

/* floor(log2(x)), x >= 1. */
static uint32_t bin_of(uint32_t x)
{
    const uint32_t b = 31 - (uint32_t)__builtin_clz(x);

    return b < KVR_LAG_BINS ? b : KVR_LAG_BINS - 1;
}

/* What rows before row r of the strip wanted of each token. */
static const double *drawn_before(const struct unit *u,
                                  const struct layer_work *w, uint32_t c,
                                  uint32_t r)
{
    const struct plan *plan = w->plan;
    const size_t nb = plan->options->n_budget, b = u->run->budget_index;

    return w->facts[u->first_cache + c].drawn + (r * nb + b) * plan->stride;
}

void late_left(struct unit *u, const struct layer_work *w, uint32_t position)
{
    for (uint32_t c = 0; c < u->n_cache; c++) {
        struct late *late = &u->late[c * w->plan->T + position];
        late->left = late->settled =
            drawn_before(u, w, c, u->strip_row + 1)[position];
    }
}

/* What tokens [from, to) of those gone were missed by since they were settled
 * last. */
static double settle(const struct unit *u, struct late *late, const double *now,
                     uint32_t from, uint32_t to)
{
    double sum = 0;

    for (uint32_t i = from; i < to; i++) {
        const uint32_t position = u->gone_order[i];
        sum += now[position] - late[position].settled;
        late[position].settled = now[position];
    }
    return sum;
}

/* Tokens whose eviction is 2^b rows ago by row t move on to bin b. A set that
 * several caches share has its bins in the first. */
void late_age(struct unit *u, const struct layer_work *w, uint32_t t)
{
    if (u->n_gone == 0 || u->run->policy->mask != NULL)
        return;
    for (uint32_t c = 0; c < u->n_cache; c++) {
        const double *now = drawn_before(u, w, c, u->strip_row);
        struct late *late = u->late + c * w->plan->T;
        for (uint32_t b = 1; b < KVR_LAG_BINS && (uint32_t)1 << b <= t; b++) {
            const uint32_t *gone = u->gone_from + t - ((uint32_t)1 << b);
            u->tally[0].late_by_lag[b - 1] +=
                settle(u, late, now, gone[0], gone[1]);
        }
    }
}

static void add_tie(struct unit *u, uint32_t c, uint32_t t, uint32_t position,
                    double late)
{
    const uint32_t left = u->left_at[position];

    u->tally[c].late += late;
    if (u->run->policy->mask != NULL)
        return;
    u->tally[0].late_by_lag[bin_of(t - left)] += late;
    u->tally[0].late_by_age[bin_of(left - position + 1)] += late;
}

/* The oldest ties that are not resident, `missing` of them. */
void late_ties(struct unit *u, uint32_t c, const struct layer_work *w,
               uint32_t r, uint32_t t, uint32_t missing)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[u->first_cache + c];
    const size_t at = r * plan->options->n_budget + u->run->budget_index;
    const uint64_t *over = f->over + at * plan->words;
    const uint64_t *at_least = f->at_least + at * plan->words;

    for (uint32_t i = 0; missing > 0; i++) {
        uint64_t ties = at_least[i] & ~over[i] & ~u->bits[i];
        for (; ties != 0 && missing > 0; ties &= ties - 1, missing--)
            add_tie(u, c, t, i * 64 + (uint32_t)__builtin_ctzll(ties),
                    f->least[at]);
    }
}

/* What is over the B-th weight and a mask hides. */
void late_hidden(struct unit *u, uint32_t c, const struct layer_work *w,
                 uint32_t r, uint32_t t)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[u->first_cache + c];
    const size_t at = r * plan->options->n_budget + u->run->budget_index;

    for (uint32_t i = 0; i < t / 64 + 1; i++) {
        uint64_t rest = f->over[at * plan->words + i] & ~u->bits[i];
        for (; rest != 0; rest &= rest - 1)
            u->tally[c].late += f->summed[r * plan->stride + i * 64 +
                                          (uint32_t)__builtin_ctzll(rest)];
    }
}

/* What left is by age and lag; what a mask hides has neither. */
void late_finish(struct unit *u, const struct layer_work *w)
{
    const uint32_t T = w->plan->T;

    if (u->run->policy->mask != NULL)
        return;
    for (uint32_t c = 0; c < u->n_cache; c++) {
        const double *now =
            drawn_before(u, w, c, w->facts[u->first_cache + c].n_row);
        struct late *late = u->late + c * T;
        for (uint32_t k = 0; k < u->n_gone; k++) {
            const uint32_t i = u->gone_order[k], left = u->left_at[i];
            const double all = now[i] - late[i].left;
            u->tally[c].late += all;
            u->tally[0].late_by_age[bin_of(left - i + 1)] += all;
            if (left + 1 < T)
                u->tally[0].late_by_lag[bin_of(T - 1 - left)] +=
                    settle(u, late, now, k, k + 1);
        }
    }
}
