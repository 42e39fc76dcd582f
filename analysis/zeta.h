/* zeta.h -- the Hurwitz zeta function and the zeta distribution's moments
 * (private to analysis/).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef ZETA_H
#define ZETA_H

/* X >= a has P(X = x) = x^-s / zeta(s, a). */
struct kvr__zeta {
    double log_zeta; /* ln zeta(s, a); cannot underflow */
    double mean_log; /* E[ln X] = -zeta'/zeta */
    double var_log;  /* Var[ln X] = zeta''/zeta - (zeta'/zeta)^2 */
};

/* s > 1, a > 0. Relative errors of a few 1e-16. */
struct kvr__zeta kvr__zeta(double s, double a);

#endif
