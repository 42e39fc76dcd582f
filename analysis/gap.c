/* gap.c -- the terms of a loss from a replay's tally.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_gap.h"

#include <math.h>

struct kvr_gap kvr_gap_of(const struct kvr_tally *t)
{
    struct kvr_gap g = {.miss = NAN,
                        .head_bound = NAN,
                        .sharing = NAN,
                        .topk = NAN,
                        .irrevocability = NAN,
                        .oracle = NAN,
                        .regret = NAN};

    if (t->recorded <= 0)
        return g;
    g.miss = t->missed / t->recorded;
    g.head_bound = t->head_bound / t->recorded;
    g.topk = t->topk_b / t->recorded;
    g.sharing = (t->topk_b - t->head_bound) / t->recorded;
    g.oracle = t->oracle / t->recorded;
    g.irrevocability = (t->oracle - t->topk_b) / t->recorded;
    g.regret = (t->missed - t->oracle) / t->recorded;
    return g;
}
