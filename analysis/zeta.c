/* zeta.c -- Hurwitz zeta by Euler-Maclaurin summation, with both derivatives
 * in s (DLMF 25.11.5 and its derivatives term by term).
 *
 * Everything is scaled by a^s, so that nothing underflows: with l = ln(x/a)
 * the sums are of e^(-s l), l e^(-s l) and l^2 e^(-s l).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "zeta.h"

#include <math.h>

enum { N_BERNOULLI = 10 };

/* B_2j / (2j)! */
static const double bernoulli[N_BERNOULLI] = {
    1.0 / 12,
    -1.0 / 720,
    1.0 / 30240,
    -1.0 / 1209600,
    1.0 / 47900160,
    -691.0 / 1307674368000.0,
    1.0 / 74724249600.0,
    -3617.0 / 10670622842880000.0,
    43867.0 / 5109094217170944000.0,
    -174611.0 / 802857662698291200000.0,
};

/* Sums of w, w l, w l^2. */
struct moments {
    double m0, m1, m2;
};

static void add(struct moments *m, double weight, double l)
{
    m->m0 += weight;
    m->m1 += weight * l;
    m->m2 += weight * l * l;
}

/* The sum over x = end, end + 1, .. : integral, half of the first term, and
 * the Bernoulli terms c_j s (s+1) .. (s+2j-2) / end^(2j-1). */
static void add_rest(struct moments *m, double s, double end, double l)
{
    const double weight = exp(-s * l), d = s - 1;
    double q = s, h1 = 1 / s, h2 = 1 / (s * s), power = 1 / end;

    m->m0 += weight * end / d;
    m->m1 += weight * end * (l + 1 / d) / d;
    m->m2 += weight * end * (l * l + 2 * l / d + 2 / (d * d)) / d;
    add(m, weight / 2, l);
    for (int j = 0; j < N_BERNOULLI; j++) {
        /* q'/q = h1, q''/q = h1^2 - h2. */
        const double term = weight * bernoulli[j] * q * power;
        m->m0 += term;
        m->m1 += term * (l - h1);
        m->m2 += term * ((l - h1) * (l - h1) - h2);
        for (int k = 2 * j + 1; k <= 2 * j + 2; k++) {
            q *= s + k;
            h1 += 1 / (s + k);
            h2 += 1 / ((s + k) * (s + k));
        }
        power /= end * end;
    }
}

struct kvr__zeta kvr__zeta(double s, double a)
{
    /* From here on ten Bernoulli terms reach the last bit. */
    const double enough = fmax(12, 2 * s);
    const double log_a = log(a);
    struct moments m = {0}, rest = {0};
    double x = a;

    while (x < enough) {
        const double l = log1p((x - a) / a), weight = exp(-s * l);
        /* Later terms are below the rounding of all three sums. */
        if (s * l > 60 && weight * x * (1 + l * l) < 1e-20 * m.m2)
            break;
        add(&m, weight, l);
        x += 1;
    }
    if (x >= enough)
        add_rest(&rest, s, x, log1p((x - a) / a));
    m.m0 += rest.m0;
    m.m1 += rest.m1;
    m.m2 += rest.m2;
    const double mean = m.m1 / m.m0;
    return (struct kvr__zeta){
        .log_zeta = log(m.m0) - s * log_a,
        .mean_log = log_a + mean,
        .var_log = m.m2 / m.m0 - mean * mean,
    };
}
