/* rows.c -- a trace as a row source: one scratch per worker.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_rows.h"

#include "kvr_memory.h"
#include "shared.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct trace_rows {
    struct kvr_rows rows; /* first: what kvr_rows_open hands out */
    const struct kvr_trace *trace;
    struct shared shared; /* layers as caches see them */
    pthread_mutex_t lock; /* of sink */
    float **sink;         /* [n_layer] heads together; NULL: not asked yet */
    struct kvr_trace_scratch **scratch; /* [workers] */
    uint32_t workers;
};

static enum kvr_status read_trace(void *ud, uint32_t layer, uint32_t head,
                                  uint32_t first, uint32_t n, kvr_real *out,
                                  size_t stride, uint32_t worker,
                                  struct kvr_error *err)
{
    struct trace_rows *t = ud;
    const struct place *at = &t->shared.place[layer][head];
#ifdef KVR_REAL_DOUBLE
    /* In place, from the end: floats fill the first half of the doubles. */
    float *narrow = (float *)(void *)out;
    const enum kvr_status status =
        kvr_trace_read_rows(t->trace, at->layer, at->head, first, n, narrow,
                            stride, t->scratch[worker], err);
    for (size_t i = (size_t)n * stride; status == KVR_OK && i-- > 0;) {
        float value;
        memcpy(&value, narrow + i, sizeof value);
        out[i] = (kvr_real)value;
    }
    return status;
#else
    return kvr_trace_read_rows(t->trace, at->layer, at->head, first, n, out,
                               stride, t->scratch[worker], err);
#endif
}

/* sink_mass of all heads that read the layer's cache; a head without is 0.
 * Under the lock. */
static enum kvr_status make_sink(struct trace_rows *t, uint32_t layer,
                                 const float **out, uint32_t *rows,
                                 struct kvr_error *err)
{
    const uint32_t n = t->shared.layers[layer].n_head, T = t->rows.n_token;
    bool any = false;

    for (uint32_t h = 0; t->sink[layer] == NULL && h < n; h++) {
        const struct place *at = &t->shared.place[layer][h];
        const float *one = NULL;
        const enum kvr_status status = kvr_trace_array(
            &one, rows, t->trace, at->layer, KVR_SINK_MASS, err);
        if (status != KVR_OK)
            return status;
        any = any || one != NULL;
    }
    *out = t->sink[layer];
    *rows = *out != NULL ? n : 0;
    if (!any)
        return KVR_OK;
    t->sink[layer] = kvr_calloc((size_t)n * T, sizeof(float));
    if (t->sink[layer] == NULL)
        return kvr_no_memory(err, "sink masses", (size_t)n * T);
    for (uint32_t h = 0; h < n; h++) {
        const struct place *at = &t->shared.place[layer][h];
        const float *one = NULL;
        const enum kvr_status status = kvr_trace_array(
            &one, rows, t->trace, at->layer, KVR_SINK_MASS, err);
        if (status != KVR_OK)
            return status;
        if (one != NULL)
            memcpy(t->sink[layer] + (size_t)h * T, one + (size_t)at->head * T,
                   T * sizeof(float));
    }
    *out = t->sink[layer];
    *rows = n;
    return KVR_OK;
}

static enum kvr_status read_sink(struct trace_rows *t, uint32_t layer,
                                 const float **out, uint32_t *rows,
                                 struct kvr_error *err)
{
    pthread_mutex_lock(&t->lock);
    const enum kvr_status status = make_sink(t, layer, out, rows, err);
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* Values lie in the cache: those of the layer that owns it. */
static enum kvr_status read_array(void *ud, uint32_t layer, enum kvr_array kind,
                                  const float **out, uint32_t *rows,
                                  struct kvr_error *err)
{
    struct trace_rows *t = ud;

    if (kind == KVR_SINK_MASS)
        return read_sink(t, layer, out, rows, err);
    return kvr_trace_array(out, rows, t->trace, t->shared.place[layer][0].layer,
                           kind, err);
}

static enum kvr_status refuse(const struct kvr_trace *trace,
                              uint32_t prompt_len, struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    const char *path = kvr_trace_path(trace);

    if (shape->cache != NULL && strcmp(shape->cache, "full") != 0)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: recorded with cache policy '%s' in force; "
                        "replay needs rows of the full cache",
                        path, shape->cache);
    for (uint32_t l = 0; l < shape->n_layer; l++)
        if (shape->layers[l].mask == KVR_MASK_NONE)
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "%s: layer %u is bidirectional; eviction is "
                            "defined for causal attention",
                            path, shape->layers[l].layer);
    if (!kvr_trace_facts(trace)->has_rows)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED, "%s: holds no attention rows",
                        path);
    if (prompt_len >= shape->n_token)
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "%s: prompt of %u of %u tokens: no decode row to "
                        "count; --prompt-len moves the split",
                        path, prompt_len, shape->n_token);
    if (prompt_len == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: prompt_len is 0, expected at least 1", path);
    return KVR_OK;
}

enum kvr_status kvr_rows_open(struct kvr_rows **out,
                              const struct kvr_trace *trace,
                              uint32_t prompt_len, uint32_t workers,
                              struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);

    if (prompt_len == 0)
        prompt_len = shape->prompt_len;
    enum kvr_status status = refuse(trace, prompt_len, err);
    if (status != KVR_OK)
        return status;
    struct trace_rows *t = kvr_calloc(1, sizeof *t);
    if (t == NULL)
        return kvr_no_memory(err, "a row source", sizeof *t);
    t->trace = trace;
    pthread_mutex_init(&t->lock, NULL);
    status = kvr__shared_init(&t->shared, shape, err);
    t->rows = (struct kvr_rows){
        .n_layer = t->shared.n_layer,
        .n_token = shape->n_token,
        .prompt_len = prompt_len,
        .layers = t->shared.layers,
        .unit = shape->dtype == KVR_F16 && !kvr_trace_facts(trace)->recomputed
                    ? 0x1p-24
                    : 0x1p-30,
        .bytes = workers * kvr_trace_scratch_bytes(trace),
        .workers = workers,
        .read = read_trace,
        .array = read_array,
        .ud = t,
    };
    t->scratch = kvr_calloc(workers, sizeof *t->scratch);
    t->sink = kvr_calloc(shape->n_layer, sizeof *t->sink);
    if (status == KVR_OK && (t->scratch == NULL || t->sink == NULL))
        status = kvr_no_memory(err, "a row source", workers);
    for (; status == KVR_OK && t->workers < workers; t->workers++)
        status = kvr_trace_scratch_new(&t->scratch[t->workers], trace, err);
    if (status != KVR_OK) {
        kvr_rows_close(&t->rows);
        return status;
    }
    *out = &t->rows;
    return KVR_OK;
}

void kvr_rows_close(struct kvr_rows *rows)
{
    if (rows == NULL)
        return;
    struct trace_rows *t = rows->ud;
    for (uint32_t i = 0; t->scratch != NULL && i < t->workers; i++)
        kvr_trace_scratch_free(t->scratch[i]);
    for (uint32_t l = 0; t->sink != NULL && l < t->shared.n_layer; l++)
        free(t->sink[l]);
    free(t->sink);
    kvr__shared_fini(&t->shared);
    pthread_mutex_destroy(&t->lock);
    free(t->scratch);
    free(t);
}
