/* row_set.c -- which datasets of rows a layer has.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "row_set.h"

uint32_t kvr__set_heads(const struct kvr_trace_shape *shape, uint32_t layer,
                        enum row_set set)
{
    if (layer == shape->n_layer || set == SET_LOGITS)
        return layer == shape->n_layer && set == SET_LOGITS &&
               shape->n_vocab > 0;
    const struct kvr_layer_shape *y = &shape->layers[layer];
    if ((y->stores & 1u << set) == 0)
        return 0;
    return set == SET_ATTENTION || set == SET_QUERY ? y->n_head : y->n_kv_head;
}

const char *kvr__set_name(enum row_set set)
{
    return set == SET_ATTENTION ? "attention"
           : set == SET_LOGITS  ? "logits"
                                : kvr_vector_name(set - SET_QUERY);
}
