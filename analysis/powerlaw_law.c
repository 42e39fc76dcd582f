/* powerlaw_law.c -- one law on one tail: likelihood and distance.
 *
 * Logarithms are taken before differences: x/xmin overflows for small xmin.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "powerlaw.h"
#include "zeta.h"

#include <math.h>

static double count(const struct kvr__law *law)
{
    return (double)(law->sample->n - law->sample->before[law->from]);
}

double kvr__law_log_sum(const struct kvr__law *law)
{
    const struct kvr__sample *s = law->sample;
    double sum = 0;

    /* The smallest terms first. */
    for (size_t j = law->from; j < s->n_distinct; j++)
        sum += (double)(s->before[j + 1] - s->before[j]) *
               (s->log_value[j] - law->log_xmin);
    return sum;
}

/* Root of E[ln X] = mean over alpha: Newton's steps, halving the bracket
 * where they leave it. E falls with alpha, from infinity at 1. */
static double solve_alpha(double xmin, double mean, double start)
{
    double low = 1, high = INFINITY, alpha = start;

    for (int i = 0; i < 200; i++) {
        const struct kvr__zeta z = kvr__zeta(alpha, xmin);
        const double over = z.mean_log - mean;
        if (over > 0)
            low = alpha;
        else
            high = alpha;
        double next = alpha + over / z.var_log;
        if (!(next > low && next < high))
            next = isinf(high) ? 2 * alpha : low + (high - low) / 2;
        if (fabs(next - alpha) <= 4e-16 * alpha)
            return next;
        alpha = next;
    }
    return alpha;
}

void kvr__law_fit(struct kvr__law *law, double log_sum)
{
    const double n = count(law);

    if (!law->discrete) {
        law->alpha = 1 + n / log_sum;
        return;
    }
    /* CSN (3.7) as a start. */
    const double shift = log(law->xmin) - log(law->xmin - 0.5);
    law->alpha = solve_alpha(law->xmin, law->log_xmin + log_sum / n,
                             1 + n / (log_sum + n * shift));
    law->log_zeta = kvr__zeta(law->alpha, law->xmin).log_zeta;
}

/* P(X < value j), and in *upto P(X <= value j). */
static double below(const struct kvr__law *law, size_t j, double *upto)
{
    const struct kvr__sample *s = law->sample;

    if (!law->discrete) {
        const double l = s->log_value[j] - law->log_xmin;
        return *upto = -expm1(-(law->alpha - 1) * l);
    }
    const double log_rest =
        kvr__zeta(law->alpha, s->value[j]).log_zeta - law->log_zeta;
    const double here = exp(-law->alpha * s->log_value[j] - law->log_zeta);
    const double less = -expm1(log_rest);
    *upto = less + here;
    return less;
}

double kvr__law_distance_at(const struct kvr__law *law, size_t j)
{
    const struct kvr__sample *s = law->sample;
    const double n = count(law);
    const size_t start = s->before[law->from];
    const double left = (double)(s->before[j] - start) / n;
    double upto;
    const double less = below(law, j, &upto), lower = fabs(less - left);

    if (law->ks == KVR_KS_LEFT_UNIQUE)
        return lower;
    /* Up to the last sample of this value: all of it, or all but itself. */
    const size_t last = s->before[j + 1] - start;
    const double right =
        law->ks == KVR_KS_SUP ? (double)last / n : (double)(last - 1) / n;
    return fmax(lower, fabs(upto - right));
}

double kvr__law_distance(const struct kvr__law *law, double bound,
                         size_t *worst)
{
    const size_t n = law->sample->n_distinct, length = n - law->from;
    /* A coarse look first, as most candidates fail it. */
    const size_t steps[2] = {length > 64 ? length / 16 : 0, 1};
    double greatest = 0;

    *worst = law->from;
    for (int pass = 0; pass < 2; pass++) {
        if (steps[pass] == 0)
            continue;
        for (size_t j = law->from; j < n; j += steps[pass]) {
            const double distance = kvr__law_distance_at(law, j);
            if (distance <= greatest)
                continue;
            greatest = distance;
            *worst = j;
            if (distance >= bound)
                return distance;
        }
    }
    return greatest;
}
