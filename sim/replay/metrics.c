/* metrics.c -- what one row cost one cache.
 *
 * Definitions: section 2 of the design, docs/metrics.md. Masses in units.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include <math.h>

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Overlap with the B heaviest past tokens, and the mass of those that are
 * gone. A resident token as heavy as the B-th takes its place (ties). */
static void count_wanted(struct unit *u, uint32_t c, struct layer_work *w,
                         const struct facts *f, uint32_t t, uint32_t r)
{
    const struct plan *plan = w->plan;
    const size_t nb = plan->options->n_budget, b = u->run->budget_index;
    const uint64_t *over = f->over + (r * nb + b) * plan->words;
    const uint64_t *at_least = f->at_least + (r * nb + b) * plan->words;
    const uint32_t words = t / 64 + 1;
    const uint32_t past = t - kvr__mask_from(w->shape, t);
    const uint32_t wanted = min_u32(u->run->budget->tokens, past);
    struct kvr_tally *tally = &u->tally[c];
    const struct overlap n = plan->kernels->overlap(
        over, at_least, f->accessed + (size_t)r * plan->words, u->bits, words);

    tally->hits += n.accessed;
    tally->wanted += wanted;
    tally->overlap += min_u32(wanted, n.at_least);
    /* Ties that no resident covers: the oldest that are gone stand for them. */
    const uint32_t missing =
        wanted > n.over + n.ties ? wanted - n.over - n.ties : 0;
    if (missing > 0)
        kvr__late_ties(u, c, w, r, t, missing);
    if (u->run->policy->mask != NULL)
        kvr__late_hidden(u, c, w, r, t);
}

/* What the row's own heaviest tokens would have kept: the bounds. */
static void count_bounds(struct unit *u, struct kvr_tally *tally,
                         struct layer_work *w, const struct facts *f,
                         uint32_t t, uint32_t r, double row_mass)
{
    const size_t nb = w->plan->options->n_budget, b = u->run->budget_index;
    const uint32_t visible = u->n_resident - 1;
    const double newest = f->newest[r];
    double *summed = f->summed + r * w->plan->stride;
    double top = f->top[r * nb + b];
    double head_top = f->head_top[r * nb + b];
    /* A window layer holds less than B: the bound is that of its places. */
    const uint32_t budget = u->setting.budget;

    if (budget != u->run->budget->tokens)
        top = kvr__heaviest(w->plan, summed, t, row_mass - newest, budget);
    tally->topk_b += row_mass - newest - top;
    tally->head_bound += row_mass - newest - head_top;
    if (visible >= t)
        return; /* everything is there: nothing need be lost */
    if (visible != budget)
        top = kvr__heaviest(w->plan, summed, t, row_mass - newest, visible);
    tally->topk += row_mass - newest - top;
}

/* -log(1 - m). A logarithm a row would take as long as all the rest here: what
 * rows kept is multiplied up in *share, and its logarithm taken before it
 * leaves the range of a double. Where m is small 1 - m would lose its last
 * digits; there five terms of the series are exact to rounding. */
static void count_divergence(double *kl, double *share, double m)
{
    if (m < 0x1p-10) {
        *kl += m * (1 + m * (1 / 2. + m * (1 / 3. + m * (1 / 4. + m / 5))));
        return;
    }
    *share *= 1 - m; /* at least 2^-53 */
    if (*share < 0x1p-900) {
        *kl -= log(*share);
        *share = 1;
    }
}

void kvr__unit_count_finish(struct unit *u)
{
    for (uint32_t c = 0; c < u->n_cache; c++) {
        u->tally[c].kl -= log(u->share[c]);
        u->share[c] = 1;
    }
}

/* A sink outside the tokens is always visible: it is recorded, not missed. */
static void count_head(struct kvr_tally *tally, struct cost *cost,
                       double *share, double *to, double row_mass, double sink,
                       double kept)
{
    const double recorded = row_mass + sink;
    double missed = row_mass - kept;

    if (missed < 0) /* rounding, in the double build only */
        missed = 0;
    const double m = recorded > 0 ? missed / recorded : 0;
    *to = m;
    tally->missed += missed;
    tally->recorded += recorded;
    cost->missed += missed;
    cost->recorded += recorded;
    if (kept <= 0)
        tally->blind_rows++;
    if (m < 1) {
        count_divergence(&tally->kl, share, m);
        tally->kl_rows++;
    } else {
        tally->infinite_rows++;
    }
}

static void count_recall(const struct unit *u, struct kvr_tally *tally,
                         const struct layer_work *w, const struct facts *f,
                         uint32_t r, double kept)
{
    const size_t nb = w->plan->options->n_budget, b = u->run->budget_index;
    const double best = f->top[r * nb + b] + f->newest[r];
    const double head_best = f->head_top[r * nb + b] + f->newest[r];

    tally->kept += kept < best ? kept : best;
    tally->best += best;
    tally->head_kept += kept < head_best ? kept : head_best;
    tally->head_best += head_best;
}

void kvr__unit_count(struct unit *u, struct layer_work *w, uint32_t c,
                     uint32_t t, uint32_t r, const double *kept)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[u->first_cache + c];
    struct kvr_tally *tally = &u->tally[c];
    const uint32_t head = f->first_head - u->first_head;
    double row_mass = 0, recorded = 0, sum = 0;

    for (uint32_t h = 0; h < f->n_head; h++) {
        row_mass += f->total[r * f->n_head + h];
        recorded += f->sink[r * f->n_head + h];
        sum += kept[h];
    }
    recorded += row_mass;
    if (t < plan->P) { /* --prefill stream: reported apart */
        tally->prompt_missed += row_mass - sum;
        tally->prompt_recorded += recorded;
        return;
    }
    if (t < plan->score_first || t > plan->score_last)
        return;
    const uint32_t at = t - plan->score_first;
    double *m = u->m + ((size_t)c * u->n_m + at) * f->n_head;
    for (uint32_t h = 0; h < f->n_head; h++)
        count_head(tally, &u->head_cost[head + h], &u->share[c], m + h,
                   f->total[r * f->n_head + h], f->sink[r * f->n_head + h],
                   kept[h]);
    /* A set that all caches share is replayed whole, also for a few heads. */
    if (kvr__cache_wanted(w, u->first_cache + c)) {
        u->row_cost[t].missed += row_mass - sum;
        u->row_cost[t].recorded += recorded;
    }
    count_recall(u, tally, w, f, r, sum);
    count_wanted(u, c, w, f, t, r);
    count_bounds(u, tally, w, f, t, r, row_mass);
    tally->accesses += f->n_accessed[r];
    tally->visible += u->n_resident;
    tally->rows++;
    if (u->n_resident > tally->peak)
        tally->peak = u->n_resident;
    if (u->steps != NULL)
        u->steps[(size_t)c * u->n_m + at] = (struct kvr_step_row){
            .step = t,
            .visible = u->n_resident,
            .miss = recorded > 0 ? (row_mass - sum) / recorded : 0};
}
