/* matrix_rows.h -- matrices in memory as a row source for the engine.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MATRIX_ROWS_H
#define MATRIX_ROWS_H

#include "kvr_rows.h"

#include <string.h>

/* cell[((layer * n_head + head) * T + row) * T + key] */
struct matrix_rows {
    struct kvr_rows rows;
    struct kvr_layer_shape layer[8];
    uint32_t n_head;
    const double *cell;
    const float *sink;  /* [layer][head][T], or NULL */
    const float *value; /* [layer][head][T] as value_norm2, or NULL */
};

static enum kvr_status matrix_read(void *ud, uint32_t layer, uint32_t head,
                                   uint32_t first, uint32_t n, kvr_real *out,
                                   size_t stride, uint32_t worker,
                                   struct kvr_error *err)
{
    const struct matrix_rows *m = ud;
    const uint32_t T = m->rows.n_token;

    (void)worker, (void)err;
    for (uint32_t r = 0; r < n; r++) {
        const double *row =
            m->cell + (((size_t)layer * m->n_head + head) * T + first + r) * T;
        memset(out + r * stride, 0, stride * sizeof *out);
        for (uint32_t i = 0; i <= first + r; i++)
            out[r * stride + i] = (kvr_real)row[i];
    }
    return KVR_OK;
}

static enum kvr_status matrix_array(void *ud, uint32_t layer,
                                    enum kvr_array kind, const float **out,
                                    uint32_t *rows, struct kvr_error *err)
{
    const struct matrix_rows *m = ud;
    const float *from = kind == KVR_SINK_MASS     ? m->sink
                        : kind == KVR_VALUE_NORM2 ? m->value
                                                  : NULL;

    (void)err;
    *out = from != NULL ? from + (size_t)layer * m->n_head * m->rows.n_token
                        : NULL;
    *rows = from != NULL ? m->n_head : 0;
    return KVR_OK;
}

/* unit: 0 for weights that are on no grid (double build only). */
static inline void matrix_rows_init(struct matrix_rows *m, const double *cell,
                                    uint32_t n_layer, uint32_t n_head,
                                    uint32_t n_kv_head, uint32_t T, uint32_t P,
                                    double unit)
{
    *m = (struct matrix_rows){.n_head = n_head, .cell = cell};
    for (uint32_t l = 0; l < n_layer; l++)
        m->layer[l] = (struct kvr_layer_shape){.layer = l,
                                               .n_head = n_head,
                                               .n_kv_head = n_kv_head,
                                               .kv_source = -1};
    m->rows = (struct kvr_rows){.n_layer = n_layer,
                                .n_token = T,
                                .prompt_len = P,
                                .layers = m->layer,
                                .unit = unit,
                                .read = matrix_read,
                                .array = matrix_array,
                                .ud = m};
}

#endif
