/* future.c -- the pass that looks ahead, for rules that may.
 *
 * Sums and accesses of all rows to come. Runs before the replay of a layer,
 * and only if a rule asks.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t kvr__future_bytes(const struct plan *plan, uint32_t n_cache)
{
    size_t each =
        3 * plan->stride * sizeof(double) + plan->stride * sizeof(uint32_t);

    if (plan->needs_next)
        each += (size_t)plan->T * plan->words * sizeof(uint64_t);
    return n_cache * each;
}

/* Error-free addition (Knuth 1969): what a double cannot hold goes to rest,
 * so that what was added can be taken off again and equals stay equal. */
void kvr__future_add(struct future *u, uint32_t i, double mass)
{
    const double a = u->remaining[i], sum = a + mass, b = sum - a;

    u->rest[i] += (a - (sum - b)) + (mass - b);
    u->remaining[i] = sum;
}

static enum kvr_status future_init(struct future *u, const struct plan *plan,
                                   struct kvr_error *err)
{
    bool ok = true;

    u->column = kvr_aligned_calloc(plan->stride, sizeof(double));
    u->remaining = kvr_aligned_calloc(plan->stride, sizeof(double));
    u->rest = kvr_aligned_calloc(plan->stride, sizeof(double));
    u->next = kvr_aligned_calloc(plan->stride, sizeof(uint32_t));
    ok = u->column && u->remaining && u->rest && u->next;
    if (plan->needs_next) {
        u->access = kvr_calloc((size_t)plan->T * plan->words, sizeof(uint64_t));
        ok = ok && u->access;
    }
    if (!ok)
        return kvr_no_memory(err, "rows to come", kvr__future_bytes(plan, 1));
    return KVR_OK;
}

void kvr__future_free(struct layer_work *w)
{
    for (uint32_t c = 0; w->future != NULL && c < w->n_cache; c++) {
        free(w->future[c].column);
        free(w->future[c].access);
        free(w->future[c].remaining);
        free(w->future[c].rest);
        free(w->future[c].next);
    }
    free(w->future);
}

/* Accesses of the recorded mean row t, its newest token included. */
static void note_accesses(struct layer_work *w, uint32_t c, uint32_t t,
                          uint32_t k)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[c];
    const uint32_t n = t + 1, wide = (n + 63) / 64 * 64;
    uint64_t *bits = w->future[c].access + (size_t)t * plan->words;
    int inclusive;

    for (uint32_t h = 0; h < f->n_head; h++) {
        w->row[h] = row_of(w, f->first_head + h, k);
        w->by[h] = 1;
    }
    plan->kernels->weigh(w->weight, w->row, w->by, f->n_head,
                         (kvr_real)1 / (kvr_real)f->n_head, wide);
    const kvr_real least = kvr__access_least(&plan->options->access, w->weight,
                                             NULL, n, n, w->sorted, &inclusive);
    plan->kernels->above(w->accessed, w->weight, least, inclusive, wide);
    for (uint32_t i = kvr__mask_from(w->shape, t); i < n; i++)
        bits[i / 64] |= (uint64_t)(w->accessed[i] & 1) << (i % 64);
}

/* Column sums are of the attention itself, whatever the loss. */
static void note_columns(struct layer_work *w, uint32_t c, uint32_t t,
                         uint32_t k)
{
    const struct facts *f = &w->facts[c];
    double *column = w->future[c].column;

    for (uint32_t h = 0; h < f->n_head; h++) {
        const kvr_real *row = row_of(w, f->first_head + h, k);
        for (uint32_t i = 0; i <= t; i++)
            column[i] += (double)row[i] * (double)w->scale;
    }
}

static void note_row(struct layer_work *w, uint32_t c, uint32_t t, uint32_t k)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[c];
    struct future *u = &w->future[c];
    const uint32_t wide = (t + 64) / 64 * 64;

    for (uint32_t h = 0; h < f->n_head; h++)
        plan->kernels->add_units(w->wide, loss_of(w, f->first_head + h, k),
                                 (double)w->scale, h == 0, wide);
    for (uint32_t i = 0; i <= t; i++)
        kvr__future_add(u, i, w->wide[i]);
    if (plan->needs_column)
        note_columns(w, c, t, k);
    if (plan->needs_next)
        note_accesses(w, c, t, k);
}

enum kvr_status kvr__future_run(struct layer_work *w, struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    enum kvr_status status = KVR_OK;

    w->future = kvr_calloc(w->n_cache, sizeof *w->future);
    if (w->future == NULL)
        return kvr_no_memory(err, "rows to come", w->n_cache);
    for (uint32_t c = 0; status == KVR_OK && c < w->n_cache; c++)
        status = future_init(&w->future[c], plan, err);
    for (uint32_t t = 0; status == KVR_OK && t < plan->T; t += TILE) {
        const uint32_t n = plan->T - t < TILE ? plan->T - t : TILE;
        status = kvr__layer_read_tile(w, t, n, err);
        for (uint32_t k = 0; status == KVR_OK && k < n; k++)
            for (uint32_t c = 0; c < w->n_cache; c++)
                note_row(w, c, t + k, k);
    }
    for (uint32_t c = 0; c < w->n_cache && status == KVR_OK; c++)
        w->facts[c].column = w->future[c].column;
    return status;
}
