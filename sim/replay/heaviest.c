/* heaviest.c -- mass and least of a row's B heaviest tokens.
 *
 * The least is searched for between bounds: one pass over the row counts what
 * lies above KVR_CUTS numbers, shared out among the budgets, and every budget
 * learns from all of them. A handful of passes of a few hundred cycles take
 * the place of a sort. Rows of a head resemble each other, so the search
 * begins where the last one ended. In units all weights are whole: the search
 * ends, and sums are exact in any order.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include <math.h>
#include <string.h>

/* One row, as weights or (summed over heads) in units. */
struct search {
    const struct kernels *kernels;
    const kvr_real *row;
    const double *wide; /* where row is NULL */
    double scale, unit; /* weights to units, and back */
    bool whole;         /* units are whole */
    double shift;       /* see struct bracket */
    int64_t zero;       /* bits of 0 units */
    uint32_t n;         /* padded */
};

/* The count-th heaviest is above low, at most high. Both as the bits of a
 * double: whole numbers in the order of the numbers, and a logarithm good
 * enough to steer by. Where units are whole, of one unit more, as 0 has no
 * logarithm. */
struct bracket {
    int64_t low, high;
    uint32_t count, above_low, above_high;
    bool closed; /* no number that the row could hold lies between them */
};

static int64_t bits_of(const struct search *s, double units)
{
    const double x = units + s->shift;
    int64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double units_of(const struct search *s, int64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x - s->shift;
}

static double bits_as_log(uint32_t count)
{
    const double x = count + 0.5;
    int64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (double)bits;
}

/* The number next to `units` that the row could hold. */
static int64_t settle_on(const struct search *s, double units)
{
    if (!s->whole)
        return bits_of(s, units);
    units = (double)(int64_t)units;
    if (s->row != NULL)
        units = (double)(kvr_real)(units * s->unit) * s->scale;
    return bits_of(s, units);
}

/* part / 64 of the way from low to high, by logarithm. */
static int64_t between(const struct search *s, const struct bracket *b,
                       int64_t part)
{
    const int64_t low = b->low > s->zero ? b->low : s->zero;
    const int64_t wide = b->high - low;

    return settle_on(
        s, units_of(s, low + wide / 64 * part + wide % 64 * part / 64));
}

/* The next number above low that the row could hold. */
static int64_t next_above(const struct search *s, const struct bracket *b)
{
    if (b->low < s->zero)
        return s->zero;
    if (!s->whole)
        return b->low + 1;
    const double low = units_of(s, b->low);
    double next = low + 1;
    if (s->row != NULL && sizeof(kvr_real) == sizeof(float)) {
        const double held =
            (double)nextafterf((float)(low * s->unit), 2) * s->scale;
        next = held > next ? held : next;
    }
    return bits_of(s, next);
}

/* Where between the bounds, of 64: weights fall about like a power of the
 * count. Not too near either end, as that would learn little. */
static int64_t likely(const struct bracket *b, int64_t margin)
{
    const double low = bits_as_log(b->above_low);
    const double high = bits_as_log(b->above_high);
    const double part = 64 * (low - bits_as_log(b->count)) / (low - high);

    if (part < (double)margin)
        return margin;
    return part > (double)(64 - margin) ? 64 - margin : (int64_t)part;
}

static bool inside(const struct bracket *b, int64_t at)
{
    return (at > b->low) & (at < b->high);
}

static bool is_open(const struct bracket *b)
{
    return (b->above_low != b->count) & !b->closed;
}

static void count_above(const struct search *s, const double at[KVR_CUTS],
                        uint32_t count[KVR_CUTS])
{
    kvr_real narrow[KVR_CUTS];

    if (s->row == NULL) {
        s->kernels->count_wide(count, s->wide, at, s->n);
        return;
    }
    for (uint32_t j = 0; j < KVR_CUTS; j++)
        narrow[j] = (kvr_real)(at[j] * s->unit);
    s->kernels->count_row(count, s->row, narrow, s->n);
}

/* least: not of a row of one head, where nobody asks for it. */
static void sum_above(const struct search *s, const double at[KVR_CUTS],
                      double sum[KVR_CUTS], double least[KVR_CUTS])
{
    kvr_real narrow[KVR_CUTS];

    if (s->row == NULL) {
        s->kernels->sum_wide(sum, least, s->wide, at, s->n);
        return;
    }
    for (uint32_t j = 0; j < KVR_CUTS; j++)
        narrow[j] = (kvr_real)(at[j] * s->unit);
    s->kernels->sum_row(sum, s->row, narrow, (kvr_real)s->scale, s->n);
    memcpy(least, at, KVR_CUTS * sizeof *least);
}

/* With many equal weights, interpolation between counts does not converge.
 * After so many passes a bracket is bisected, which ends for certain. */
enum { MISLED = 12 };

/* A pass probes KVR_CUTS thresholds. Row n - 1 of these tables is for n open
 * brackets: `owner` says which bracket a probe belongs to, `aside` its offset
 * from the likely threshold, `margin` how near to an end of the bracket the
 * likely one may come. Offsets and margins are in 1/64 of the bracket's width.
 */
static const uint8_t owner[KVR_CUTS][KVR_CUTS] = {
    {0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}};
static const int8_t aside[KVR_CUTS][KVR_CUTS] = {
    {-18, -6, 6, 18}, {-7, 7, -7, 7}, {0, 0, -7, 7}, {0, 0, 0, 0}};

static const uint8_t margin[KVR_CUTS] = {20, 11, 11, 5};

/* Where to look in the next pass; none: false. */
static bool places(const struct search *s, struct bracket *b, uint32_t m,
                   uint32_t pass, int64_t at[KVR_CUTS],
                   struct bracket *whose[KVR_CUTS])
{
    uint32_t open[KVR_CUTS + 1], n = 0;

    for (uint32_t j = 0; j < m; j++) { /* without a branch to mispredict */
        open[n] = j;
        n += is_open(&b[j]);
    }
    if (n == 0)
        return false;
    for (uint32_t i = 0; i < KVR_CUTS; i++) {
        struct bracket *in = whose[i] = &b[open[owner[n - 1][i]]];
        const int64_t part = pass < MISLED ? likely(in, margin[n - 1]) : 32;
        at[i] = between(s, in, part + aside[n - 1][i]);
        if (inside(in, at[i]))
            continue;
        at[i] = between(s, in, 32);
        if (!inside(in, at[i]))
            at[i] = next_above(s, in);
        in->closed = !inside(in, at[i]);
    }
    return true;
}

/* Without branches: nobody could predict them. */
static void learn(struct bracket *b, int64_t at, uint32_t count)
{
    const bool in = inside(b, at);
    const bool lower = in & (count >= b->count);
    const bool upper = in & (count < b->count);

    b->low = lower ? at : b->low;
    b->above_low = lower ? count : b->above_low;
    b->high = upper ? at : b->high;
    b->above_high = upper ? count : b->above_high;
}

static void count_at(const struct search *s, const int64_t at[KVR_CUTS],
                     uint32_t count[KVR_CUTS])
{
    double units[KVR_CUTS];

    for (uint32_t i = 0; i < KVR_CUTS; i++)
        units[i] = units_of(s, at[i]);
    count_above(s, units, count);
}

/* Narrows all brackets until each is found or holds one value. The first
 * counts tell all of them something, later ones the bracket they are in. */
static void narrow(const struct search *s, struct bracket *b, uint32_t m,
                   int64_t at[KVR_CUTS])
{
    uint32_t count[KVR_CUTS], pass = 0;
    struct bracket *whose[KVR_CUTS];

    count_at(s, at, count);
    for (uint32_t i = 0; i < KVR_CUTS; i++)
        for (uint32_t j = 0; j < m; j++)
            learn(&b[j], at[i], count[i]);
    while (places(s, b, m, pass++, at, whose)) {
        count_at(s, at, count);
        for (uint32_t i = 0; i < KVR_CUTS; i++)
            learn(whose[i], at[i], count[i]);
    }
}

/* m budgets of at least 1 and below n tokens. hint: about where. */
static void find(const struct search *s, const uint32_t *count, uint32_t m,
                 uint32_t n, double total, const double *hint, double *mass,
                 double *least)
{
    struct bracket b[KVR_CUTS];
    int64_t first[KVR_CUTS];
    double at[KVR_CUTS], sum[KVR_CUTS], low[KVR_CUTS];

    for (uint32_t j = 0; j < KVR_CUTS; j++) {
        first[j] = bits_of(s, HUGE_VAL);
        at[j] = HUGE_VAL;
    }
    for (uint32_t j = 0; j < m; j++) {
        /* fewer than `count` are above total / count */
        const double high = total / count[j];
        b[j] = (struct bracket){
            .low = s->zero - 1,
            .high = bits_of(s, s->whole ? (double)(int64_t)high + 1 : high * 2),
            .count = count[j],
            .above_low = n};
        first[j] = settle_on(s, hint[j] > 0 ? hint[j] : 0);
    }
    narrow(s, b, m, first);
    for (uint32_t j = 0; j < m; j++)
        at[j] = units_of(s, b[j].above_low == count[j] ? b[j].low : b[j].high);
    sum_above(s, at, sum, low);
    for (uint32_t j = 0; j < m; j++) {
        const bool found = b[j].above_low == count[j];
        mass[j] = sum[j] + (found ? 0 : count[j] - b[j].above_high) * at[j];
        least[j] = found ? low[j] : at[j];
    }
}

static struct search search_of(const struct plan *plan, const kvr_real *row,
                               const double *summed, uint32_t n)
{
    struct search s = {
        .kernels = plan->kernels,
        .row = row,
        .wide = summed,
        .scale = plan->scale,
        .unit = 1 / plan->scale,
        .whole = plan->whole_units,
        .shift = plan->whole_units ? 1 : 0,
        .n = (n + 63) / 64 * 64,
    };

    s.zero = bits_of(&s, 0);
    return s;
}

void kvr__heaviest_at_budgets(const struct plan *plan, const kvr_real *row,
                              const double *summed, uint32_t n, double total,
                              double *mass, double *least)
{
    const struct search s = search_of(plan, row, summed, n);
    uint32_t count[KVR_CUTS];
    size_t place[KVR_CUTS];
    double hint[KVR_CUTS], found[KVR_CUTS], low[KVR_CUTS];

    for (size_t i = 0; i < plan->options->n_budget;) {
        uint32_t m = 0;
        for (; i < plan->options->n_budget && m < KVR_CUTS; i++) {
            const size_t b = plan->rising[i];
            const uint32_t tokens = plan->options->budgets[b].tokens;
            if (tokens > 0 && tokens < n) {
                place[m] = b;
                hint[m] = least[b];
                count[m++] = tokens;
                continue;
            }
            mass[b] = tokens == 0 ? 0 : total;
            least[b] = tokens == 0 ? HUGE_VAL : -1;
        }
        if (m > 0)
            find(&s, count, m, n, total, hint, found, low);
        for (uint32_t j = 0; j < m; j++) {
            mass[place[j]] = found[j];
            least[place[j]] = low[j];
        }
    }
}

double kvr__heaviest(const struct plan *plan, double *summed, uint32_t t,
                     double total, uint32_t count)
{
    const struct search s = search_of(plan, NULL, summed, t);
    const double newest = summed[t], hint = 0;
    double mass, least;

    if (count == 0 || count >= t)
        return count == 0 ? 0 : total;
    summed[t] = 0;
    find(&s, &count, 1, t, total, &hint, &mass, &least);
    summed[t] = newest;
    return mass;
}
