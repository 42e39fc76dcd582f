/* sparsity.c -- all variants of sparsity in one pass over a head's rows.
 *
 * Stored weights are multiples of 2^-30, so sums of a row's weights are exact
 * in doubles and do not depend on their order.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_sparsity.h"
#include "kvr_concentration.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Weights by size: 16 buckets for each power of two from 2^-31 to 2. */
enum { FIRST_BUCKET = 96 << 4, N_BUCKET = 33 << 4, BUCKET_SHIFT = 19 };

struct pass {
    const struct kvr_head *head;
    double *sum;                     /* [T] accumulated */
    float *sorted;                   /* [T] scratch */
    double below_rows, below_decode; /* sums of the rows' shares */
    uint64_t below, zero, visible;   /* entries */
    uint64_t decode_visible, keys95;
    uint32_t decode_rows, decode_mass_rows, empty_rows, argmax_first;
    double support, first, first4;
};

static size_t bucket_of(float weight)
{
    uint32_t bits;

    memcpy(&bits, &weight, sizeof bits);
    bits >>= BUCKET_SHIFT;
    if (bits < FIRST_BUCKET)
        return 0;
    bits -= FIRST_BUCKET;
    return bits < N_BUCKET ? bits : N_BUCKET - 1;
}

static int falling(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

/* Least number of keys, the heaviest first, that hold `goal`. Buckets are
 * taken whole from the top; only the one that crosses the goal is sorted. */
static uint32_t keys_for(struct pass *p, const float *weight, size_t n,
                         double goal)
{
    double mass[N_BUCKET] = {0}, held = 0;
    uint32_t count[N_BUCKET] = {0}, keys = 0;
    size_t b = N_BUCKET, m = 0;

    for (size_t i = 0; i < n; i++) {
        const size_t at = bucket_of(weight[i]);
        mass[at] += (double)weight[i];
        count[at]++;
    }
    while (b > 0 && held + mass[b - 1] < goal) {
        held += mass[--b];
        keys += count[b];
    }
    if (b == 0)
        return keys;
    for (size_t i = 0; i < n; i++)
        if (bucket_of(weight[i]) == b - 1)
            p->sorted[m++] = weight[i];
    qsort(p->sorted, m, sizeof *p->sorted, falling);
    for (size_t i = 0; i < m && held < goal; i++, keys++)
        held += (double)p->sorted[i];
    return keys;
}

static void add_decode_row(struct pass *p, uint32_t row, const float *weight,
                           double sum, float largest)
{
    const uint32_t from = kvr_head_from(p->head, row), n = row + 1 - from;

    p->decode_rows++;
    p->decode_visible += n;
    p->first += (double)weight[0];
    for (uint32_t i = 0; i < 4 && i <= row; i++)
        p->first4 += (double)weight[i];
    if (!(sum > 0))
        return;
    p->argmax_first += weight[0] == largest;
    p->decode_mass_rows++;
    p->support += kvr_effective_support(weight + from, n);
    p->keys95 += keys_for(p, weight + from, n, 0.95 * sum);
}

static void add_row(uint32_t row, const float *weight, void *ud)
{
    struct pass *p = ud;
    const uint32_t from = kvr_head_from(p->head, row), n = row + 1 - from;
    uint32_t below = 0, zero = 0;
    float largest = 0;
    double sum = 0;

    for (uint32_t i = from; i <= row; i++)
        largest = weight[i] > largest ? weight[i] : largest;
    const double threshold = 0.01 * (double)largest;
    for (uint32_t i = from; i <= row; i++) {
        const double a = (double)weight[i];
        below += a < threshold;
        zero += a == 0;
        sum += a;
        p->sum[i] += a;
    }
    p->below += below;
    p->zero += zero;
    p->visible += n;
    p->empty_rows += !(sum > 0);
    p->below_rows += (double)below / n;
    if (row < p->head->prompt_len)
        return;
    p->below_decode += (double)below / n;
    add_decode_row(p, row, weight, sum, largest);
}

static double over(double sum, double n)
{
    return n > 0 ? sum / n : NAN;
}

static void finish(struct kvr_sparsity *out, struct pass *p)
{
    const double n = p->head->n_token, decode = p->decode_rows;
    const double masked = n * n - (double)p->visible;

    *out = (struct kvr_sparsity){
        .row_mean = over(p->below_rows, n),
        .decode_row_mean = over(p->below_decode, decode),
        .pooled_causal = over((double)p->below, (double)p->visible),
        .pooled_square = over((double)p->below + masked, n * n),
        .zeros = over((double)p->zero, (double)p->visible),
        .effective_support = over(p->support, p->decode_mass_rows),
        .keys95 = over((double)p->keys95, p->decode_mass_rows),
        .visible = over((double)p->decode_visible, decode),
        .mass_first = over(p->first, decode),
        .mass_first4 = over(p->first4, decode),
        .argmax_first = over(p->argmax_first, decode),
        .empty_rows = p->empty_rows,
    };
    kvr_sort_values(p->sum, p->head->n_token);
    out->gini = kvr_gini(p->sum, p->head->n_token);
    out->top5 = kvr_top_share(p->sum, p->head->n_token, 0.05);
    out->top20 = kvr_top_share(p->sum, p->head->n_token, 0.2);
    kvr_head_uniform_sums(p->sum, p->head);
    kvr_sort_values(p->sum, p->head->n_token);
    out->null_gini = kvr_gini(p->sum, p->head->n_token);
    out->null_top5 = kvr_top_share(p->sum, p->head->n_token, 0.05);
    out->null_top20 = kvr_top_share(p->sum, p->head->n_token, 0.2);
}

enum kvr_status kvr_sparsity_of(struct kvr_sparsity *out,
                                const struct kvr_head *head,
                                struct kvr_error *err)
{
    struct pass p = {.head = head};
    enum kvr_status status;

    p.sum = kvr_calloc(head->n_token, sizeof *p.sum);
    p.sorted = kvr_calloc(head->n_token, sizeof *p.sorted);
    if (p.sum == NULL || p.sorted == NULL)
        status = kvr_no_memory(err, "sparsity", head->n_token * sizeof(double));
    else
        status = kvr_head_rows(head, 0, add_row, &p, err);
    if (status == KVR_OK)
        finish(out, &p);
    free(p.sum);
    free(p.sorted);
    return status;
}

void kvr_sparsity_mean(struct kvr_sparsity *out,
                       const struct kvr_sparsity *each, size_t n)
{
    enum { N_MEMBER = sizeof(struct kvr_sparsity) / sizeof(double) };
    double sum[N_MEMBER] = {0}, value[N_MEMBER];

    /* All members are doubles. */
    for (size_t i = 0; i < n; i++) {
        memcpy(value, &each[i], sizeof value);
        for (size_t m = 0; m < N_MEMBER; m++)
            sum[m] += value[m];
    }
    for (size_t m = 0; m < N_MEMBER; m++)
        sum[m] /= (double)n;
    memcpy(out, sum, sizeof *out);
}
