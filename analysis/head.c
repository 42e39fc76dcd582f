/* head.c -- rows of one head, tile by tile.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_head.h"

#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

uint32_t kvr_head_from(const struct kvr_head *head, uint32_t row)
{
    return kvr_mask_first_key(head->mask, head->span, row);
}

enum kvr_status kvr_head_rows(const struct kvr_head *head, uint32_t first,
                              kvr_head_row_fn fn, void *ud,
                              struct kvr_error *err)
{
    const uint32_t n = head->n_token;
    float *tile = kvr_aligned_calloc((size_t)KVR_TILE_ROWS * n, sizeof *tile);
    enum kvr_status status = KVR_OK;

    if (tile == NULL)
        return kvr_no_memory(err, "attention rows",
                             (size_t)KVR_TILE_ROWS * n * sizeof *tile);
    for (uint32_t row = first; row < n && status == KVR_OK;) {
        /* Up to the end of a stored tile. */
        uint32_t count = KVR_TILE_ROWS - row % KVR_TILE_ROWS;
        count = count < n - row ? count : n - row;
        status = head->read(head->ud, row, count, tile, n, err);
        for (uint32_t i = 0; i < count && status == KVR_OK; i++)
            fn(row + i, tile + (size_t)i * n, ud);
        row += count;
    }
    free(tile);
    return status;
}

struct sums {
    const struct kvr_head *head;
    double *sum;
    uint32_t *seen;
};

static void add_row(uint32_t row, const float *weight, void *ud)
{
    const struct sums *s = ud;

    for (uint32_t key = kvr_head_from(s->head, row); key <= row; key++) {
        s->sum[key] += (double)weight[key];
        if (s->seen != NULL)
            s->seen[key]++;
    }
}

enum kvr_status kvr_head_sums(double *sum, uint32_t *seen,
                              const struct kvr_head *head, uint32_t first,
                              struct kvr_error *err)
{
    struct sums s = {.head = head, .sum = sum, .seen = seen};

    memset(sum, 0, head->n_token * sizeof *sum);
    if (seen != NULL)
        memset(seen, 0, head->n_token * sizeof *seen);
    return kvr_head_rows(head, first, add_row, &s, err);
}

static double share_of_row(const struct kvr_head *head, uint32_t row)
{
    return 1.0 / (row + 1 - kvr_head_from(head, row));
}

void kvr_head_uniform_sums(double *sum, const struct kvr_head *head)
{
    uint32_t n_row = head->n_token; /* rows above it no longer see the key */
    double total = 0;

    /* From the youngest key on: small terms first, and each row joins at its
     * own key and leaves below the first one it sees. */
    for (uint32_t key = head->n_token; key-- > 0;) {
        for (; n_row > 0 && kvr_head_from(head, n_row - 1) > key; n_row--)
            total -= share_of_row(head, n_row - 1);
        total += share_of_row(head, key);
        sum[key] = total;
    }
}
