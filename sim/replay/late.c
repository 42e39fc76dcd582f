/* late.c -- late importance: mass that rows wanted of tokens already gone.
 *
 * A row wants its B heaviest past tokens. What a token has drawn so far is the
 * same for all rules of one budget, so it is added up once, after the strip:
 * row by row, for all units of the budget together. A token that left was
 * missed by the difference to what it had drawn then. Only ties at the B-th
 * weight depend on what is resident, and are counted one by one.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

/* floor(log2(x)), x >= 1. */
static uint32_t bin_of(uint32_t x)
{
    const uint32_t b = 31 - (uint32_t)__builtin_clz(x);

    return b < KVR_LAG_BINS ? b : KVR_LAG_BINS - 1;
}

/* drawn[i] is the mass that token i has drawn from the first row to row t: a
 * running sum. The mass of an absence from row a to row b is drawn[i] at b less
 * drawn[i] at a. A bin subtracts the sum when the token enters it and adds the
 * sum when the token leaves it.
 *
 * Tokens that were evicted 2^b rows before row t move from bin b - 1 to b. */
static void age(struct unit *u, uint32_t c, const double *drawn, uint32_t t)
{
    double *bin = u->tally[c].late_by_lag;

    for (uint32_t b = 1; b < KVR_LAG_BINS && (uint32_t)1 << b <= t; b++) {
        const uint32_t *gone = u->gone_from + t - ((uint32_t)1 << b);
        for (uint32_t i = gone[0]; i < gone[1]; i++) {
            const double now = drawn[u->gone_order[i]];
            bin[b - 1] += now;
            bin[b] -= now;
        }
    }
}

/* Those that left after row t begin. */
static void begin(struct unit *u, uint32_t c, const double *drawn, uint32_t t)
{
    struct kvr_tally *tally = &u->tally[c];

    for (uint32_t i = u->gone_from[t]; i < u->gone_from[t + 1]; i++) {
        const uint32_t position = u->gone_order[i];
        const double now = drawn[position];
        tally->late -= now;
        tally->late_by_age[bin_of(t - position + 1)] -= now;
        tally->late_by_lag[0] -= now;
    }
}

/* What row t drew from each past token that was over the B-th weight. */
static void draw_row(const struct layer_work *w, struct facts *f, size_t budget,
                     uint32_t r, uint32_t t)
{
    const struct plan *plan = w->plan;
    double *summed = f->summed + r * plan->stride;

    if (t < plan->score_first || t > plan->score_last)
        return;
    summed[t] = 0; /* the newest is no past token */
    plan->kernels->add_above(f->drawn + budget * plan->stride, summed,
                             f->least[r * plan->options->n_budget + budget],
                             (t + 64) / 64 * 64);
    summed[t] = f->newest[r];
}

/* The units of one budget that hold a cache, and evict for good. */
static uint32_t gather(const struct layer_work *w, uint32_t cache,
                       size_t budget)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n_unit; i++) {
        struct unit *u = &w->units[i];
        if (u->run->budget_index == budget && u->run->policy->mask == NULL &&
            cache - u->first_cache < u->n_cache)
            w->alike[n++] = u;
    }
    return n;
}

void kvr__late_advance(struct layer_work *w, uint32_t cache, uint32_t first,
                       uint32_t n)
{
    const struct plan *plan = w->plan;
    struct facts *f = &w->facts[cache];

    for (size_t b = 0; b < plan->options->n_budget; b++) {
        const double *drawn = f->drawn + b * plan->stride;
        const uint32_t n_unit = gather(w, cache, b);
        for (uint32_t r = 0; r < n && n_unit > 0; r++) {
            const uint32_t t = first + r;
            for (uint32_t i = 0; i < n_unit; i++)
                if (w->alike[i]->n_gone > 0)
                    age(w->alike[i], cache - w->alike[i]->first_cache, drawn,
                        t);
            draw_row(w, f, b, r, t);
            for (uint32_t i = 0; i < n_unit; i++)
                begin(w->alike[i], cache - w->alike[i]->first_cache, drawn, t);
        }
    }
}

/* What ties cost is noted first and counted later, when the rows after which
 * their tokens left have come from memory. */
void kvr__late_settle(struct unit *u, struct layer_work *w)
{
    for (uint32_t i = 0; i < w->n_tie; i++) {
        const struct tie *tie = &w->tie[i];
        struct kvr_tally *tally = &u->tally[tie->cache];
        const uint32_t left = u->left_at[tie->position];
        tally->late_by_lag[bin_of(tie->row - left)] += tie->late;
        tally->late_by_age[bin_of(left - tie->position + 1)] += tie->late;
    }
    w->n_tie = 0;
}

static void add_tie(struct unit *u, struct layer_work *w, struct tie tie)
{
    u->tally[tie.cache].late += tie.late;
    if (u->run->policy->mask != NULL)
        return;
    if (w->n_tie == TIES)
        kvr__late_settle(u, w);
    __builtin_prefetch(&u->left_at[tie.position]);
    w->tie[w->n_tie++] = tie;
}

/* The oldest ties that are not resident, `missing` of them. */
void kvr__late_ties(struct unit *u, uint32_t c, struct layer_work *w,
                    uint32_t r, uint32_t t, uint32_t missing)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[u->first_cache + c];
    const size_t at = r * plan->options->n_budget + u->run->budget_index;
    const uint64_t *over = f->over + at * plan->words;
    const uint64_t *at_least = f->at_least + at * plan->words;

    /* The words of past tokens end the walk: no row, whatever its numbers,
     * leads beyond them. */
    for (uint32_t i = 0; missing > 0 && i <= t / 64; i++) {
        uint64_t ties = at_least[i] & ~over[i] & ~u->bits[i];
        for (; ties != 0 && missing > 0; ties &= ties - 1, missing--)
            add_tie(u, w,
                    (struct tie){t, i * 64 + (uint32_t)__builtin_ctzll(ties), c,
                                 f->least[at]});
    }
}

/* What is over the B-th weight and a mask hides. */
void kvr__late_hidden(struct unit *u, uint32_t c, const struct layer_work *w,
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

/* Evicted tokens have an age and a lag, and are counted by both. Tokens that
 * only the mask hides have neither. */
void kvr__late_finish(struct unit *u, const struct layer_work *w)
{
    const struct plan *plan = w->plan;

    if (u->run->policy->mask != NULL)
        return;
    for (uint32_t c = 0; c < u->n_cache; c++) {
        const double *drawn = w->facts[u->first_cache + c].drawn +
                              u->run->budget_index * plan->stride;
        struct kvr_tally *tally = &u->tally[c];
        for (uint32_t k = 0; k < u->n_gone; k++) {
            const uint32_t i = u->gone_order[k], left = u->left_at[i];
            const uint32_t lag = left + 1 < plan->T ? plan->T - 1 - left : 1;
            tally->late += drawn[i];
            tally->late_by_age[bin_of(left - i + 1)] += drawn[i];
            tally->late_by_lag[bin_of(lag)] += drawn[i];
        }
    }
}
