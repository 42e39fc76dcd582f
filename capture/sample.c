/* sample.c -- greedy choice, temperature and top-p.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "sample.h"

#include "kvr_memory.h"
#include "kvr_random.h"

#include <math.h>
#include <stdlib.h>

struct kvr_choice {
    double weight;
    int32_t id;
};

enum kvr_status kvr__sampler_init(struct kvr_sampler *s, double temperature,
                                  double top_p, uint64_t seed, size_t n_vocab,
                                  struct kvr_error *err)
{
    *s = (struct kvr_sampler){
        .temperature = temperature,
        .top_p = top_p,
        .seed = seed,
        .n_vocab = n_vocab,
        .choices = kvr_calloc(n_vocab, sizeof *s->choices),
    };
    if (s->choices == NULL)
        return kvr_no_memory(err, "sampling", n_vocab * sizeof *s->choices);
    return KVR_OK;
}

void kvr__sampler_fini(struct kvr_sampler *s)
{
    free(s->choices);
    s->choices = NULL;
}

static size_t best_of(const float *logits, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int likeliest_first(const void *a, const void *b)
{
    const struct kvr_choice *left = a, *right = b;

    if (left->weight != right->weight)
        return left->weight > right->weight ? -1 : 1;
    return (left->id > right->id) - (left->id < right->id);
}

/* Sorts the choices and returns how many stay; *total: their weight. */
static size_t keep_top(struct kvr_sampler *s, double *total)
{
    const double goal = s->top_p * *total;
    size_t n = 0;
    double sum = 0;

    qsort(s->choices, s->n_vocab, sizeof *s->choices, likeliest_first);
    do
        sum += s->choices[n++].weight;
    while (n < s->n_vocab && sum < goal);
    *total = sum;
    return n;
}

int32_t kvr__sampler_next(struct kvr_sampler *s, const float *logits,
                          uint32_t step)
{
    const struct kvr_random stream = {.seed = s->seed,
                                      .purpose = KVR_RANDOM_SAMPLING};
    const size_t best = best_of(logits, s->n_vocab);
    double total = 0;
    size_t n = s->n_vocab;

    if (s->temperature == 0)
        return (int32_t)best;
    for (size_t i = 0; i < n; i++) {
        const double above = (double)logits[i] - (double)logits[best];
        s->choices[i].weight = exp(above / s->temperature);
        s->choices[i].id = (int32_t)i;
        total += s->choices[i].weight;
    }
    if (s->top_p < 1)
        n = keep_top(s, &total);
    double left = kvr_random_real(&stream, step, 0, 0) * total;
    for (size_t i = 0; i < n; i++) {
        left -= s->choices[i].weight;
        if (left < 0)
            return s->choices[i].id;
    }
    return (int32_t)best; /* rounding used all of it up */
}

float kvr__log_prob_of(const float *logits, size_t n, int32_t id)
{
    const double max = (double)logits[best_of(logits, n)];
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return (float)((double)logits[id] - max - log(sum));
}
