/* kvr_interval.h -- how far a share may be off, from one text.
 *
 * Rows of one text resemble their neighbours, so n rows say less than n
 * independent ones. What they say follows from the data:
 *
 * 1. z_t = (missed_t - R recorded_t) / mean recorded, R the share: to first
 *    order R's error is the mean of z (the linear term of a ratio).
 * 2. m is the first lag from which on max(5, sqrt(log10 n)) autocorrelations
 *    lie within 2 sqrt(log10 n / n) of 0; blocks are 2 m rows long (Politis
 *    and White 2004, Econometric Reviews 23(1), section 3; corrected by Patton,
 *    Politis and White 2009, Econometric Reviews 28(4)).
 * 3. The variance of the mean is that of the flat-top lag window of Politis
 *    and Romano 1995 over that length, divided by 1 - (sum of the window) / n,
 *    which makes good that the mean was taken off.
 * 4. The interval is R -+ t(0.975, d) times its root, with d = 3/4 n / length,
 *    the window's equivalent degrees of freedom.
 *
 * Correlations that die out slowly hide behind a mean that moves with them, so
 * where m > 2 lengths of n / 6 and n / 3 are tried too and the widest interval
 * is given. Where even that is under d = 1.3 the data cannot tell.
 * tests/analysis/check_interval.c measures the coverage by simulation.
 *
 * Heads are fixed, not sampled; the interval speaks of this text only.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_INTERVAL_H
#define KVR_INTERVAL_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define KVR_INTERVAL_LEVEL 0.95

struct kvr_interval {
    double estimate;  /* sum of missed / sum of recorded */
    double low, high; /* NaN: cannot tell, see reason */
    uint32_t block;   /* rows that one block holds */
    double freedom;   /* d, degrees of freedom */
    const char *reason;
};

/* missed[n], recorded[n]: sums of counted rows, in their order. With
 * `other`[n], what another rule missed in the same rows: the interval of the
 * difference of the two shares, paired. KVR_ERR_MEMORY only. */
enum kvr_status kvr_interval_of(struct kvr_interval *out, const double *missed,
                                const double *other, const double *recorded,
                                uint32_t n,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* Whether the interval of a difference leaves 0 out. */
bool kvr_interval_tells(const struct kvr_interval *difference);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
