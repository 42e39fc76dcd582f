/* reference_rules.c -- what each rule observes, and whom it lets go.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Positions mod 32 in lanes; lanes 8 apart in pairs, then eight in a row: the
 * order that the design fixes for every machine. */
static ref_real mass_of(const struct ref_walk *w, uint32_t head)
{
    ref_real lane[32] = {0}, eight[8], sum = 0;

    for (uint32_t i = 0; i <= w->step; i++)
        if (w->seen[i])
            lane[i % 32] += (ref_real)ref_cell(w, head, w->step, i);
    for (uint32_t l = 0; l < 8; l++)
        eight[l] = (lane[l] + lane[l + 8]) + (lane[l + 16] + lane[l + 24]);
    for (uint32_t l = 0; l < 8; l++)
        sum += eight[l];
    return sum;
}

/* Heads of the set as one row. */
static void reduce(const struct ref_walk *w, ref_real *out)
{
    const struct ref_question *q = w->q;
    const uint32_t t = w->step;
    ref_real *by = calloc(w->n_head, sizeof *by);

    for (uint32_t h = 0; h < w->n_head; h++) {
        const ref_real mass = q->raw ? 1 : mass_of(w, w->first_head + h);
        by[h] = mass > 0 ? (ref_real)1 / mass : 0;
    }
    for (uint32_t i = 0; i <= t; i++) {
        ref_real sum = 0, most = 0;
        for (uint32_t h = 0; h < w->n_head; h++) {
            const ref_real a =
                (ref_real)ref_cell(w, w->first_head + h, t, i) * by[h];
            sum = h == 0 ? a : sum + a;
            most = h == 0 || a > most ? a : most;
        }
        out[i] = q->group == REF_MAX ? most
                 : q->group == REF_MEAN
                     ? sum * ((ref_real)1 / (ref_real)w->n_head)
                     : sum;
    }
    free(by);
}

/* Weight that the rules with an order need: x of the largest, the x-th, or
 * the last that fills a share x. The values fall. */
static ref_real ordered_least(const struct ref_question *q, const double *value,
                              uint32_t n)
{
    double total = 0, held = 0;

    if (q->access == REF_RELMAX)
        return (ref_real)(q->access_x * value[0]);
    if (q->access == REF_TOPM)
        return (ref_real)
            value[q->access_x >= n ? n - 1 : (uint32_t)q->access_x - 1];
    for (uint32_t i = 0; i < n; i++)
        total += value[i];
    for (uint32_t i = 0; i < n; i++) {
        held += value[i];
        if (held >= q->access_x * total)
            return (ref_real)value[i];
    }
    return (ref_real)value[n - 1];
}

void ref_accessed(bool *out, const struct ref_question *q,
                  const ref_real *weight, const bool *of, uint32_t n)
{
    double *value = calloc(n, sizeof *value);
    uint32_t count = 0;
    ref_real least = 0;
    bool any = true;

    for (uint32_t i = 0; i < n; i++)
        if (of[i])
            value[count++] = (double)weight[i];
    double *sorted = ref_sorted(value, count);
    if (q->access == REF_ABOVE_UNIFORM)
        least = (ref_real)1 / (ref_real)count;
    else if (q->access == REF_ABS)
        least = (ref_real)q->access_x;
    else if (count == 0 || sorted[0] <= 0)
        any = false; /* a row without mass accesses nothing */
    else
        least = ordered_least(q, sorted, count);
    for (uint32_t i = 0; i < n; i++)
        out[i] = any && of[i] &&
                 (q->access == REF_ABOVE_UNIFORM ? weight[i] > least
                                                 : weight[i] >= least);
    free(sorted);
    free(value);
}

void ref_recorded_accesses(struct ref_walk *w)
{
    const uint32_t g = w->n_head / w->n_cache, T = w->q->trace->T;
    ref_real *mean = calloc(T, sizeof *mean);
    bool *all = calloc(T, sizeof *all);

    for (uint32_t i = 0; i < T; i++)
        all[i] = true;
    for (uint32_t at = 0; at < w->n_cache * T; at++) {
        const uint32_t c = at / T, row = at % T, h = w->first_head + c * g;
        for (uint32_t i = 0; i <= row; i++) {
            ref_real sum = (ref_real)ref_cell(w, h, row, i);
            for (uint32_t k = 1; k < g; k++)
                sum += (ref_real)ref_cell(w, h + k, row, i);
            mean[i] = sum * ((ref_real)1 / (ref_real)g);
        }
        ref_accessed(w->access + (size_t)at * T, w->q, mean, all, row + 1);
        for (uint32_t i = 0; i < ref_mask_from(w, row); i++)
            w->access[(size_t)at * T + i] = false; /* hidden */
    }
    free(mean);
    free(all);
}

bool ref_access(const struct ref_walk *w, uint32_t c, uint32_t row,
                uint32_t key)
{
    const size_t T = w->q->trace->T;

    return w->access[(c * T + row) * T + key];
}

static void count_accesses(struct ref_walk *w, const ref_real *weight)
{
    const struct ref_question *q = w->q;
    const uint32_t t = w->step;
    bool *hit = calloc(t + 1, sizeof *hit);

    ref_accessed(hit, q, weight, w->here, t + 1);
    for (uint32_t i = 0; i <= t; i++) {
        if (hit[i])
            w->used[i] = (ref_real)t;
        if (hit[i] && i < t) /* its own first row does not count again */
            w->count[i] += 1;
    }
    if (q->rule == REF_LFU && q->aging > 0 && (t + 1) % q->aging == 0)
        for (uint32_t i = 0; i <= t; i++)
            w->count[i] /= 2;
    free(hit);
}

void ref_observe(struct ref_walk *w)
{
    const struct ref_question *q = w->q;
    const uint32_t t = w->step;
    ref_real *weight = w->weight + (size_t)t * q->trace->T;

    reduce(w, weight);
    if (q->rule == REF_LRU || q->rule == REF_LFU)
        count_accesses(w, weight);
    if (q->rule == REF_H2O)
        for (uint32_t i = 0; i <= t; i++)
            w->score[i] = w->score[i] * (ref_real)q->decay + weight[i];
}

/* ---- whom to let go: every rule as keys, the lowest leaves ---- */

static double future_mass(const struct ref_walk *w, uint32_t i)
{
    double sum = 0;

    for (uint32_t q = w->step + 1; q < w->q->trace->T; q++)
        sum += ref_summed(w, w->n_cache, q, i);
    return sum;
}

static double column_mass(const struct ref_walk *w, uint32_t i)
{
    const uint32_t T = w->q->trace->T;
    double sum = 0;

    for (uint32_t q = i; q < T; q++)
        for (uint32_t h = 0; h < w->n_head; h++)
            sum += ref_cell(w, w->first_head + h, q, i);
    return w->q->average ? sum / (double)(T - i) : sum;
}

/* Next row whose recorded weights access token i. */
static double next_access(const struct ref_walk *w, uint32_t i)
{
    for (uint32_t q = w->step + 1; q < w->q->trace->T; q++)
        if (ref_access(w, 0, q, i))
            return q;
    return INFINITY;
}

static double h_of(const struct ref_question *q, double mass)
{
    if (q->h == REF_LOG)
        return log(1 + mass / q->eps);
    if (q->h == REF_CAP)
        return mass < q->tau ? mass : q->tau;
    return sqrt(mass > 0 ? mass : 0);
}

/* Mass of a set in every row, as it was observed then; free() it. */
static double *set_mass(const struct ref_walk *w, const bool *set)
{
    const uint32_t T = w->q->trace->T;
    double *mass = calloc(T, sizeof *mass);

    for (uint32_t r = 0; r <= w->step; r++)
        for (uint32_t i = 0; i <= r; i++)
            if (set[i])
                mass[r] += (double)w->weight[(size_t)r * T + i];
    return mass;
}

/* What F gains when token i joins (sign 1) or leaves (sign -1) the set. */
static double coverage_gain(const struct ref_walk *w, const double *mass,
                            uint32_t i, double sign)
{
    const struct ref_question *q = w->q;
    const uint32_t from =
        w->step + 1 > q->history ? w->step + 1 - q->history : 0;
    double gain = 0;

    for (uint32_t r = from > i ? from : i; r <= w->step; r++) {
        const double own = (double)w->weight[(size_t)r * q->trace->T + i];
        gain += h_of(q, mass[r] + sign * own) - h_of(q, mass[r]);
    }
    return gain;
}

/* The candidate that adds most to the kept ones; the newest of equals. */
static uint32_t best_addition(const struct ref_walk *w, const bool *kept,
                              const bool *candidate)
{
    double *mass = set_mass(w, kept), most = 0;
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i <= w->step; i++) {
        if (!candidate[i])
            continue;
        const double gain = coverage_gain(w, mass, i, 1);
        if (best == UINT32_MAX || gain >= most - 1e-12) {
            most = best == UINT32_MAX || gain > most ? gain : most;
            best = i;
        }
    }
    free(mass);
    return best;
}

void ref_forward(struct ref_walk *w, bool *leave, uint32_t n)
{
    bool *kept = calloc(w->q->trace->T, sizeof *kept);
    uint32_t candidates = 0;

    for (uint32_t i = 0; i <= w->step; i++) {
        leave[i] = w->here[i] && i >= w->first && i + w->last <= w->step;
        kept[i] = w->here[i] && !leave[i];
        candidates += leave[i];
    }
    for (; candidates > n; candidates--) {
        const uint32_t best = best_addition(w, kept, leave);
        leave[best] = false;
        kept[best] = true;
    }
    free(kept);
}

/* The lowest leaves; *second decides between equals, then the age. */
static double key_of(const struct ref_walk *w, uint32_t i, const double *mass,
                     double *second)
{
    const struct ref_question *q = w->q;
    const size_t row = (size_t)w->step * q->trace->T;

    *second = q->rule == REF_LFU ? (double)w->used[i] : 0;
    switch (q->rule) {
    case REF_H2O:
        if (q->global)
            return column_mass(w, i);
        return q->average ? (double)(w->score[i] / (ref_real)(w->step - i + 1))
                          : (double)w->score[i];
    case REF_LRU:
        return (double)w->used[i];
    case REF_LFU:
        return (double)w->count[i];
    case REF_TOVA:
        return (double)w->weight[row + i];
    case REF_SUBMODULAR:
        return -coverage_gain(w, mass, i, -1);
    case REF_GREEDY_FUTURE:
        return future_mass(w, i);
    case REF_BELADY:
        return -next_access(w, i);
    default: /* by age */
        return (double)i;
    }
}

uint32_t ref_victim(struct ref_walk *w, uint32_t *tied)
{
    const double slack = w->q->rule == REF_SUBMODULAR ? 1e-12 : 0;
    const uint32_t end = w->step + 1 - w->last;
    double *key = calloc(w->q->trace->T, sizeof *key);
    double *second = calloc(w->q->trace->T, sizeof *second);
    double *mass = w->q->rule == REF_SUBMODULAR ? set_mass(w, w->here) : NULL;
    double low = INFINITY, low2 = INFINITY;
    uint32_t victim = UINT32_MAX;

    for (uint32_t i = w->first; i < end; i++)
        if (w->here[i]) {
            key[i] = key_of(w, i, mass, &second[i]);
            if (key[i] < low || (key[i] == low && second[i] < low2))
                low2 = second[i];
            low = key[i] < low ? key[i] : low;
        }
    *tied = 0;
    for (uint32_t i = w->first; i < end; i++)
        if (w->here[i] && key[i] <= low + slack && second[i] <= low2) {
            if (victim == UINT32_MAX || w->q->newest_leaves)
                victim = i;
            ++*tied;
        }
    free(key);
    free(second);
    free(mass);
    return victim;
}
