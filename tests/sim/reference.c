/* reference.c -- the steps of a replay, one token and one row at a time.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *room(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size);

    if (p == NULL) {
        fprintf(stderr, "reference: no memory\n");
        exit(EXIT_FAILURE);
    }
    return p;
}

double ref_cell(const struct ref_walk *w, uint32_t head, uint32_t row,
                uint32_t key)
{
    const struct ref_trace *t = w->q->trace;
    const size_t at = ((size_t)w->layer * t->n_head + head) * t->T + row;

    return key <= row ? t->cell[at * t->T + key] : 0;
}

double ref_loss(const struct ref_walk *w, uint32_t head, uint32_t row,
                uint32_t key)
{
    const struct ref_trace *t = w->q->trace;
    const size_t at = ((size_t)w->layer * t->n_head + head) * t->T + row;

    if (t->loss == NULL)
        return ref_cell(w, head, row, key);
    return key <= row ? t->loss[at * t->T + key] : 0;
}

double ref_summed(const struct ref_walk *w, uint32_t c, uint32_t row,
                  uint32_t key)
{
    const uint32_t g = w->n_head / w->n_cache;
    const uint32_t from = c == w->n_cache ? 0 : c * g;
    const uint32_t to = c == w->n_cache ? w->n_head : from + g;
    double sum = 0;

    for (uint32_t h = from; h < to; h++)
        sum += ref_loss(w, w->first_head + h, row, key);
    return sum;
}

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

double *ref_sorted(const double *value, uint32_t n)
{
    double *copy = room(n, sizeof *copy);

    memcpy(copy, value, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, falling);
    return copy;
}

double ref_top(const double *value, uint32_t n, uint32_t count)
{
    double *v = ref_sorted(value, n);
    double sum = 0;

    for (uint32_t i = 0; i < count && i < n; i++)
        sum += v[i];
    free(v);
    return sum;
}

/* First position that the layer's mask lets row t see. */
uint32_t ref_mask_from(const struct ref_walk *w, uint32_t t)
{
    const uint32_t span = w->q->trace->span[w->layer];

    if (w->q->trace->mask[w->layer] == REF_LOCAL)
        return t + 1 > span ? t + 1 - span : 0;
    if (w->q->trace->mask[w->layer] == REF_CHUNK)
        return t / span * span;
    return 0;
}

static void drop_below(struct ref_walk *w, uint32_t from)
{
    for (uint32_t i = 0; i < from && i < w->q->trace->T; i++)
        if (w->here[i]) {
            w->here[i] = false;
            w->n_here--;
        }
}

/* The B heaviest past tokens of the summed row, the newer of equals first. */
static void see_heaviest(struct ref_walk *w)
{
    const uint32_t t = w->step, from = ref_mask_from(w, t);

    memset(w->seen, 0, w->q->trace->T * sizeof *w->seen);
    w->seen[t] = true;
    for (uint32_t n = 0; n < w->budget; n++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = from; i < t; i++)
            if (!w->seen[i] &&
                (best == UINT32_MAX ||
                 ref_summed(w, 0, t, i) >= ref_summed(w, 0, t, best)))
                best = i;
        if (best == UINT32_MAX)
            return;
        w->seen[best] = true;
    }
}

static uint32_t surplus(const struct ref_walk *w)
{
    const struct ref_question *q = w->q;
    const uint32_t t = w->step, start = q->stream ? 0 : q->trace->P - 1;

    if (q->rule == REF_FULL || q->rule == REF_TOPK || t < start ||
        w->n_here <= w->target)
        return 0;
    if (q->when == REF_PROMPT_END && t != q->trace->P - 1)
        return 0;
    if (q->when == REF_EVERY && (t - start) % q->n != 0)
        return 0;
    if (q->when == REF_OVERFLOW && w->n_here <= w->cap)
        return 0;
    return w->n_here - w->target;
}

static void evict_one(struct ref_walk *w, uint32_t victim, uint32_t tied)
{
    const bool counted = w->step + 1 >= w->q->trace->P;
    const bool looks = w->q->rule != REF_WINDOW && w->q->rule != REF_STREAMING;
    const ref_real weight =
        w->weight[(size_t)w->step * w->q->trace->T + victim];

    w->here[victim] = false;
    w->n_here--;
    for (uint32_t c = 0; c < w->n_cache; c++) {
        struct ref_cache *k = &w->cache[c];
        k->evicted[k->n_evicted++] = (struct ref_eviction){w->step, victim};
        if (!counted)
            continue;
        k->evictions++;
        k->tied += tied > 1;
        k->tied_at_zero += tied > 1 && looks && weight == 0;
    }
}

static void evict(struct ref_walk *w)
{
    const uint32_t n = surplus(w), T = w->q->trace->T;

    if (w->q->rule == REF_SUBMODULAR && w->q->forward && n > 1) {
        bool *leave = room(T, sizeof *leave);
        ref_forward(w, leave, n);
        for (uint32_t i = 0; i < T; i++)
            if (leave[i])
                evict_one(w, i, 1);
        free(leave);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t tied = 1;
        const uint32_t victim = ref_victim(w, &tied);
        evict_one(w, victim, tied);
    }
}

static void step(struct ref_walk *w)
{
    const struct ref_trace *trace = w->q->trace;
    const uint32_t t = w->step;

    w->here[t] = true;
    w->n_here++;
    w->used[t] = (ref_real)t;
    w->count[t] = 1;
    drop_below(w, ref_mask_from(w, t));
    memcpy(w->seen, w->here, trace->T * sizeof *w->seen);
    if (w->q->rule == REF_TOPK && t >= trace->P)
        see_heaviest(w);
    ref_measure(w);
    ref_observe(w);
    /* What the next row cannot see leaves by itself, before anyone has to
     * make room for it. */
    drop_below(w, ref_mask_from(w, t + 1));
    evict(w);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void set_limits(struct ref_walk *w)
{
    const struct ref_question *q = w->q;
    uint32_t own_first = 0, own_last = 0;

    w->budget = q->budget;
    if (q->trace->mask[w->layer] != REF_CAUSAL)
        w->budget = smaller(q->budget, larger(q->trace->span[w->layer], 2) - 1);
    w->target = w->budget;
    w->cap = w->budget + q->n - 1;
    const uint32_t shown = q->trace->mask[w->layer] == REF_CAUSAL
                               ? q->trace->T
                               : q->trace->span[w->layer] - 1;
    if (!q->floor && q->when != REF_PROMPT_END && q->budget < shown) {
        w->target = w->budget >= q->n ? w->budget - q->n + 1 : 1;
        w->cap = w->budget;
    }
    if (q->rule == REF_STREAMING)
        own_first = q->sinks;
    if (q->rule == REF_H2O || q->rule == REF_SUBMODULAR)
        own_last = q->recent;
    if (q->rule == REF_H2O && q->forced && q->recent < w->budget)
        own_last++;
    w->last = smaller(larger(q->protect_last, own_last), w->target);
    w->first =
        smaller(larger(q->protect_first, own_first), w->target - w->last);
}

static void walk(struct ref_walk *w)
{
    const uint32_t T = w->q->trace->T;

    set_limits(w);
    w->here = room(T, sizeof *w->here);
    w->seen = room(T, sizeof *w->seen);
    w->weight = room((size_t)T * T, sizeof *w->weight);
    w->score = room(T, sizeof *w->score);
    w->used = room(T, sizeof *w->used);
    w->count = room(T, sizeof *w->count);
    w->access = room((size_t)w->n_cache * T * T, sizeof *w->access);
    ref_recorded_accesses(w);
    for (uint32_t c = 0; c < w->n_cache; c++) {
        const uint32_t g = w->n_head / w->n_cache;
        w->cache[c].evicted = room(T, sizeof *w->cache[c].evicted);
        w->cache[c].m = room((size_t)T * g, sizeof *w->cache[c].m);
    }
    for (w->step = 0; w->step < T; w->step++)
        step(w);
    for (uint32_t c = 0; c < w->n_cache; c++)
        ref_percentiles(&w->cache[c]);
    free(w->here);
    free(w->seen);
    free(w->weight);
    free(w->score);
    free(w->used);
    free(w->count);
    free(w->access);
}

void ref_replay(struct ref_answer *out, const struct ref_question *question)
{
    const struct ref_trace *trace = question->trace;
    const uint32_t caches = question->apart ? trace->n_head : trace->n_kv_head;
    const uint32_t g = trace->n_head / caches;
    const bool whole =
        question->rule == REF_TOVA && !question->per_head && !question->apart;

    out->n_cache = trace->n_layer * caches;
    out->cache = room(out->n_cache, sizeof *out->cache);
    for (uint32_t l = 0; l < trace->n_layer; l++)
        for (uint32_t c = 0; c < caches; c += whole ? caches : 1) {
            struct ref_walk w = {.q = question, .layer = l};
            w.cache = out->cache + (size_t)l * caches + c;
            w.n_cache = whole ? caches : 1;
            w.first_head = c * g;
            w.n_head = w.n_cache * g;
            walk(&w);
        }
}

void ref_free(struct ref_answer *answer)
{
    for (uint32_t c = 0; c < answer->n_cache; c++) {
        free(answer->cache[c].evicted);
        free(answer->cache[c].m);
    }
    free(answer->cache);
}
