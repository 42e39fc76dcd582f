/* kvr_sparsity.h -- how much of attention is next to nothing, and where the
 * rest is.
 *
 * H2O (Zhang et al. 2023, section 3.1) calls an entry zero if it is below one
 * percent of the largest in its row. The paper says neither whether masked
 * entries count nor how rows are pooled, and the answers differ widely: 0.86,
 * 0.90 and 0.95 on one trace. So all are given. Here: strictly below, masked
 * entries only in pooled_square.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_SPARSITY_H
#define KVR_SPARSITY_H

#include "kvr_head.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Of one head, or the mean of several. "Visible" entries are those that the
 * mask lets a row see. NaN: there is nothing to take it of (no decode row, no
 * mass). */
struct kvr_sparsity {
    /* Share of entries below 1 % of the row's largest. */
    double row_mean;        /* mean over rows of the share of visible ones */
    double decode_row_mean; /* the same over decode rows, t >= P */
    double pooled_causal;   /* all visible entries pooled */
    double pooled_square;   /* of T x T, masked entries counted as zeros */
    double zeros;           /* visible entries that are exactly 0 */
    /* Means over decode rows. Rows without mass are left out of the first
     * two; empty_rows counts those of all rows. */
    double effective_support; /* exp(entropy) of the row over its sum */
    double keys95;  /* least number of keys that hold 95 % of the row */
    double visible; /* keys that the row sees */
    double mass_first, mass_first4; /* on token 0, on tokens 0..3 */
    double argmax_first; /* share of rows whose largest weight is token 0's */
    double empty_rows;
    /* Of the accumulated attention (kvr_head_sums over all rows), and the
     * same of attention spread evenly under the same mask. */
    double gini, top5, top20; /* shares of the 5 % and 20 % largest */
    double null_gini, null_top5, null_top20;
};

enum kvr_status kvr_sparsity_of(struct kvr_sparsity *out,
                                const struct kvr_head *head,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* Mean of each member, in order; NaN where one of them is. n > 0. */
void kvr_sparsity_mean(struct kvr_sparsity *out,
                       const struct kvr_sparsity *each, size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
