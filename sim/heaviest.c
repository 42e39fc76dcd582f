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
    uint32_t n;         /* padded */
};

/* The count-th heaviest is above low, at most high. */
struct bracket {
    double low, high; /* units */
    uint32_t count, above_low, above_high;
    bool found;  /* exactly `count` are above low */
    bool closed; /* no number that the row could hold lies between them */
};

/* The bits of a double: a logarithm good enough to steer by. */
static int64_t log_of(double x)
{
    int64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double power_of(int64_t log)
{
    double x;

    memcpy(&x, &log, sizeof x);
    return x;
}

/* The number next to `at` that the row could hold. */
static double settle_on(const struct search *s, const struct bracket *b,
                        double at)
{
    if (!s->whole)
        return at;
    at = (double)(int64_t)at;
    if (at <= b->low)
        at = b->low + 1;
    else if (at >= b->high)
        at = b->high - 1;
    return s->row == NULL ? at : (double)(kvr_real)(at * s->unit) * s->scale;
}

/* `part` of `parts` of the way from low to high, by logarithm. */
static double between(const struct search *s, const struct bracket *b,
                      int64_t part, int64_t parts)
{
    const double shift = s->whole ? 1 : 0;
    const double first = b->low > 0 ? b->low : 0;
    const int64_t low = log_of(first + shift), high = log_of(b->high + shift);

    return settle_on(s, b, power_of(low + (high - low) / parts * part) - shift);
}

static bool inside(const struct bracket *b, double at)
{
    return (at > b->low) & (at < b->high);
}

/* Weights fall about as counts rise: a guess from the bound that a count is
 * known of. */
static double guess(const struct search *s, const struct bracket *b)
{
    if (b->low > 0)
        return settle_on(s, b, b->low * b->above_low / b->count);
    return settle_on(s, b, b->high * (b->above_high + 0.5) / (b->count + 0.5));
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

/* Where to look in the next pass: KVR_CUTS places, shared out among the
 * brackets that are open. None: false. */
static bool places(const struct search *s, struct bracket *b, uint32_t m,
                   uint32_t pass, double at[KVR_CUTS])
{
    struct bracket *open[KVR_CUTS];
    uint32_t n = 0, used = 0;

    for (uint32_t j = 0; j < m; j++)
        if (!b[j].found && !b[j].closed)
            open[n++] = &b[j];
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t share = (KVR_CUTS - used) / (n - k);
        for (uint32_t i = 1; i <= share; i++) {
            double x = share == 1 && pass < 3
                           ? guess(s, open[k])
                           : between(s, open[k], i, share + 1);
            if (!inside(open[k], x))
                x = between(s, open[k], 1, 2);
            if (!inside(open[k], x))
                open[k]->closed = true;
            at[used++] = x;
        }
    }
    return n > 0;
}

/* Without branches: nobody could predict them. */
static void learn(struct bracket *b, const double at[KVR_CUTS],
                  const uint32_t count[KVR_CUTS])
{
    for (uint32_t i = 0; i < KVR_CUTS; i++) {
        const bool in = inside(b, at[i]);
        const bool lower = in & (count[i] >= b->count);
        const bool upper = in & (count[i] < b->count);
        b->low = lower ? at[i] : b->low;
        b->above_low = lower ? count[i] : b->above_low;
        b->high = upper ? at[i] : b->high;
        b->above_high = upper ? count[i] : b->above_high;
    }
    b->found = b->above_low == b->count;
}

/* Narrows all brackets until each is found or holds one value. */
static void narrow(const struct search *s, struct bracket *b, uint32_t m,
                   double at[KVR_CUTS])
{
    uint32_t count[KVR_CUTS];

    for (uint32_t pass = 0; pass == 0 || places(s, b, m, pass, at); pass++) {
        count_above(s, at, count);
        for (uint32_t j = 0; j < m; j++)
            learn(&b[j], at, count);
    }
}

/* m budgets of at least 1 and below n tokens. hint: about where. */
static void find(const struct search *s, const uint32_t *count, uint32_t m,
                 uint32_t n, double total, const double *hint, double *mass,
                 double *least)
{
    struct bracket b[KVR_CUTS];
    double at[KVR_CUTS], sum[KVR_CUTS], low[KVR_CUTS];

    for (uint32_t j = 0; j < KVR_CUTS; j++)
        at[j] = HUGE_VAL;
    for (uint32_t j = 0; j < m; j++) {
        /* fewer than `count` are above total / count */
        const double high = total / count[j];
        b[j] = (struct bracket){.low = -1,
                                .high = s->whole ? (double)(int64_t)high + 1
                                                 : high * 2,
                                .count = count[j],
                                .above_low = n};
        at[j] = hint[j];
    }
    narrow(s, b, m, at);
    for (uint32_t j = 0; j < KVR_CUTS; j++)
        at[j] = j >= m ? HUGE_VAL : b[j].found ? b[j].low : b[j].high;
    sum_above(s, at, sum, low);
    for (uint32_t j = 0; j < m; j++) {
        const uint32_t ties = b[j].found ? 0 : count[j] - b[j].above_high;
        mass[j] = sum[j] + ties * at[j];
        least[j] = b[j].found ? low[j] : at[j];
    }
}

static struct search search_of(const struct plan *plan, const kvr_real *row,
                               const double *summed, uint32_t n)
{
    return (struct search){
        .kernels = plan->kernels,
        .row = row,
        .wide = summed,
        .scale = plan->scale,
        .unit = 1 / plan->scale,
        .whole = plan->whole_units,
        .n = (n + 63) / 64 * 64,
    };
}

void heaviest_at_budgets(const struct plan *plan, const kvr_real *row,
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

double heaviest(const struct plan *plan, double *summed, uint32_t t,
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
