/* row_set.h -- the datasets of a trace that come in rows.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef ROW_SET_H
#define ROW_SET_H

#include "shape.h"

/* Datasets that come in rows, one per token and head. Slots, one per head of
 * a dataset, are numbered in this order, then by layer, then by head. */
enum row_set {
    SET_ATTENTION,
    SET_QUERY,
    SET_KEY,
    SET_VALUE,
    SET_LOGITS, /* of the whole trace: "layer" n_layer, one head */
    N_ROW_SET,
};

/* Heads that a dataset of a layer has; 0: it is not stored. */
uint32_t kvr__set_heads(const struct kvr_trace_shape *shape, uint32_t layer,
                        enum row_set set);
/* What a dataset is called in the file and in messages. */
const char *kvr__set_name(enum row_set set);

#endif
