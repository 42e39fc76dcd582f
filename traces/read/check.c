/* check.c -- every row of a trace against what the trace says of itself.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "check_parts.h"
#include "trace_check.h"

#include "hash.h"
#include "kvr_half.h"
#include "kvr_log.h"
#include "kvr_memory.h"
#include "kvr_parallel.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kvr_trace_report_free(struct kvr_trace_report *report)
{
    for (size_t i = 0; i < report->n_problem; i++)
        free(report->problems[i]);
    free(report->problems);
    *report = (struct kvr_trace_report){0};
}

void kvr__add_problem(struct kvr_trace_report *report, const char *format, ...)
{
    char line[512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    report->ok = false;
    if (!kvr_grow((void **)&report->problems, &report->capacity,
                  report->n_problem + 1, sizeof *report->problems))
        return;
    report->problems[report->n_problem] = kvr_strdup(line);
    if (report->problems[report->n_problem] != NULL)
        report->n_problem++;
}

void kvr__note_row(struct finding *f, uint32_t row, const struct kvr_error *why)
{
    if (why->status == KVR_ERR_MEMORY || why->status == KVR_ERR_IO)
        f->broken = *why;
    if (f->n_bad++ == 0) {
        f->first_bad = row;
        f->first = *why;
    }
}

static enum kvr_status check_weights(const struct kvr_trace *trace,
                                     const struct finding *f, uint32_t row,
                                     const float *weight, uint32_t n,
                                     struct kvr_error *err)
{
    const struct kvr_layer_shape *y = &trace->box->layers[f->layer];
    const uint32_t first = kvr__row_first_key(y, row);
    double sum = 0;

    for (uint32_t key = 0; key < n; key++) {
        if (!(weight[key] >= 0 && weight[key] < NO_WEIGHT))
            return kvr_fail(err, KVR_ERR_NO,
                            "layer %u head %u row %u key %u: weight %.9g",
                            y->layer, kvr_head_number(y, f->head), row, key,
                            (double)weight[key]);
        if (key < first && weight[key] != 0)
            return kvr_fail(err, KVR_ERR_NO,
                            "layer %u head %u row %u key %u: weight %.9g "
                            "outside of the %s of %u",
                            y->layer, kvr_head_number(y, f->head), row, key,
                            (double)weight[key],
                            y->mask == KVR_MASK_WINDOW ? "window" : "chunk",
                            y->span);
        sum += (double)weight[key];
    }
    struct row_claims claims;
    const enum kvr_status status =
        kvr__row_claims(&claims, trace, f->layer, err);
    return status != KVR_OK ? status
                            : kvr__judge_sum(trace, f->layer, f->head, row,
                                             &claims, sum, 0, err);
}

static enum kvr_status check_row(const struct kvr_trace *trace,
                                 const struct finding *f, uint32_t row,
                                 const float *wide, uint32_t n,
                                 struct kvr_error *err)
{
    char text[SET_TEXT];

    if (f->set == SET_ATTENTION)
        return check_weights(trace, f, row, wide, n, err);
    for (uint32_t i = 0; i < n; i++) {
        if (isfinite(wide[i]))
            continue;
        kvr__set_text(text, trace, &trace->sets[f->layer][f->set], f->layer);
        return kvr_fail(err, KVR_ERR_NO, "%s head %u row %u, number %u: %g",
                        text, f->head, row, i, (double)wide[i]);
    }
    return KVR_OK;
}

/* Numbers items.. of a stored row of attention: none is other than 0. */
static enum kvr_status check_above(const struct kvr_trace *trace,
                                   const struct finding *f, uint32_t row,
                                   const uint8_t *stored, uint32_t items,
                                   struct kvr_error *err)
{
    const struct stored_set *set = &trace->sets[f->layer][f->set];

    for (uint32_t key = items; key < set->dims[2]; key++) {
        float weight;
        uint16_t half;
        memcpy(&half, stored + (size_t)key * set->item, sizeof half);
        if (set->item == sizeof half)
            weight = kvr_f16_to_f32(half);
        else
            memcpy(&weight, stored + (size_t)key * set->item, sizeof weight);
        if (weight != 0)
            return kvr_fail(
                err, KVR_ERR_NO,
                "layer %u head %u row %u key %u: weight %g above "
                "the diagonal",
                trace->box->layers[f->layer].layer,
                kvr_head_number(&trace->box->layers[f->layer], f->head), row,
                key, (double)weight);
    }
    return KVR_OK;
}

static void check_tile(const struct check *c, struct finding *f, uint32_t first,
                       uint32_t n, uint32_t worker)
{
    const struct kvr_trace *trace = c->trace;
    const struct stored_set *set = &trace->sets[f->layer][f->set];
    const struct stored_rows want = {.set = set,
                                     .layer = f->layer,
                                     .head = f->head,
                                     .first = first,
                                     .n = n,
                                     .out = c->rows[worker],
                                     .stride = set->dims[2],
                                     .whole = f->set == SET_ATTENTION};
    uint64_t hashes[KVR_TILE_ROWS];
    struct kvr_error err = {0};

    if (kvr__read_stored(trace, &want, c->scratch[worker], &err) != KVR_OK) {
        kvr__note_row(f, first, &err);
        f->n_bad += n - 1;
        f->unreadable = true;
        return;
    }
    for (uint32_t r = 0; r < n; r++) {
        const uint8_t *stored = want.out + r * want.stride * set->item;
        const uint32_t items =
            kvr__set_columns(trace, set, f->layer, first + r);
        float *wide = c->wide[worker];
        hashes[r] = kvr_hash64(stored, (size_t)items * set->item);
        if (set->item == sizeof(uint16_t))
            kvr_f16_to_f32_n(wide, (const uint16_t *)(const void *)stored,
                             items);
        else
            memcpy(wide, stored, items * sizeof *wide);
        if (check_row(trace, f, first + r, wide, items, &err) != KVR_OK ||
            check_above(trace, f, first + r, stored, items, &err) != KVR_OK)
            kvr__note_row(f, first + r, &err);
    }
    f->hashes[first / KVR_TILE_ROWS] = kvr_hash64(hashes, n * sizeof *hashes);
}

static enum kvr_status check_head(uint32_t item, uint32_t worker, void *ud,
                                  struct kvr_error *err)
{
    const struct check *c = ud;
    struct finding *f = &c->findings[item];
    const uint32_t t = c->trace->box->shape.n_token;

    (void)err;
    f->first_bad = t;
    for (uint32_t first = 0; first < t; first += KVR_TILE_ROWS)
        check_tile(c, f, first,
                   t - first < KVR_TILE_ROWS ? t - first : KVR_TILE_ROWS,
                   worker);
    if (f->set == SET_QUERY && f->n_bad == 0)
        kvr__check_pair(c, f, worker);
    return KVR_OK;
}

static void free_check(struct check *c, uint32_t workers)
{
    for (uint32_t i = 0; c->findings != NULL && i < c->n; i++)
        free(c->findings[i].hashes);
    for (uint32_t w = 0; w < workers; w++) {
        if (c->scratch != NULL)
            kvr_trace_scratch_free(c->scratch[w]);
        if (c->rows != NULL)
            free(c->rows[w]);
        if (c->made != NULL)
            free(c->made[w]);
        if (c->wide != NULL)
            free(c->wide[w]);
    }
    free(c->findings);
    free(c->scratch);
    free(c->rows);
    free(c->made);
    free(c->wide);
}

/* A finding for every head of every dataset of rows, in the hash's order. */
static bool list_heads(struct check *c)
{
    const struct kvr_trace *trace = c->trace;
    const uint32_t n_layer = trace->box->shape.n_layer;
    const size_t n_tile =
        (trace->box->shape.n_token + KVR_TILE_ROWS - 1) / KVR_TILE_ROWS;
    uint32_t next = 0;

    for (int first = SET_ATTENTION; first <= SET_QUERY; first++)
        for (uint32_t l = 0; l <= n_layer; l++)
            for (int s = first; s < (first == 0 ? 1 : (int)N_ROW_SET); s++)
                for (uint32_t h = 0;
                     trace->sets[l][s].present && h < trace->sets[l][s].dims[0];
                     h++) {
                    struct finding *f = &c->findings[next++];
                    f->layer = l;
                    f->head = h;
                    f->set = (enum row_set)s;
                    f->hashes = kvr_calloc(n_tile, sizeof(uint64_t));
                    if (f->hashes == NULL)
                        return false;
                }
    return true;
}

static enum kvr_status new_check(struct check *c, const struct kvr_trace *trace,
                                 uint32_t workers, struct kvr_error *err)
{
    size_t width = trace->box->shape.n_token;
    enum kvr_status status = KVR_OK;

    for (uint32_t l = 0; l <= trace->box->shape.n_layer; l++)
        for (int s = 0; s < N_ROW_SET; s++)
            if (trace->sets[l][s].present && trace->sets[l][s].dims[2] > width)
                width = trace->sets[l][s].dims[2];
    c->findings = kvr_calloc(c->n, sizeof *c->findings);
    c->scratch = kvr_calloc(workers, sizeof(struct kvr_trace_scratch *));
    c->rows = kvr_calloc(workers, sizeof(uint8_t *));
    c->made = kvr_calloc(workers, sizeof(float *));
    c->wide = kvr_calloc(workers, sizeof(float *));
    bool ok = c->findings != NULL && c->scratch != NULL && c->rows != NULL &&
              c->made != NULL && c->wide != NULL && list_heads(c);
    for (uint32_t w = 0; ok && status == KVR_OK && w < workers; w++) {
        status = kvr_trace_scratch_new(&c->scratch[w], trace, err);
        c->rows[w] = kvr_calloc(KVR_TILE_ROWS * width, sizeof(float));
        c->made[w] = kvr_calloc(
            KVR_TILE_ROWS * (size_t)trace->box->shape.n_token, sizeof(float));
        c->wide[w] = kvr_calloc(width, sizeof(float));
        ok = c->rows[w] != NULL && c->made[w] != NULL && c->wide[w] != NULL;
    }
    return ok ? status
              : kvr_no_memory(err, "a check", KVR_TILE_ROWS * width * 8);
}

/* Hashes of the tiles of one dataset; *next runs through the findings. */
static void hash_set(struct kvr_hash *hash, const struct check *c, uint32_t l,
                     int set, uint32_t *next)
{
    const uint32_t n_tile =
        (c->trace->box->shape.n_token + KVR_TILE_ROWS - 1) / KVR_TILE_ROWS;

    for (; *next < c->n && c->findings[*next].layer == l &&
           c->findings[*next].set == (enum row_set)set;
         (*next)++)
        kvr_hash_add(hash, c->findings[*next].hashes,
                     n_tile * sizeof(uint64_t));
}

static enum kvr_status hash_optional(struct kvr_hash *hash,
                                     const struct check *c, uint32_t *next,
                                     struct kvr_error *err)
{
    const struct kvr_trace *trace = c->trace;
    const uint32_t n_layer = trace->box->shape.n_layer;
    enum kvr_status status = KVR_OK;

    for (uint32_t l = 0; status == KVR_OK && l <= n_layer; l++) {
        for (int s = SET_QUERY; s < N_ROW_SET; s++) {
            const struct stored_set *set = &trace->sets[l][s];
            if (!set->present)
                continue;
            kvr__hash_rows_head(hash, l, (uint32_t)s, set->dims[0],
                                set->dims[2], set->item);
            hash_set(hash, c, l, s, next);
        }
        if (l < n_layer && trace->mlp[l].mass != NULL &&
            trace->mlp[l].active != NULL)
            status =
                kvr__hash_mlp(hash, l, trace->mlp[l].n_ff, NULL,
                              trace->mlp[l].mass, trace->mlp[l].active, err);
    }
    return status;
}

static enum kvr_status hash_trace(char text[KVR_HASH_TEXT],
                                  const struct check *c, struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &c->trace->box->shape;
    const uint32_t t = shape->n_token;
    struct kvr_hash *hash = kvr_hash_new();
    uint32_t next = 0;

    if (hash == NULL)
        return kvr_no_memory(err, "a hash", 0);
    enum kvr_status status = kvr__hash_shape(hash, shape, err);
    for (uint32_t l = 0; l < shape->n_layer; l++)
        hash_set(hash, c, l, SET_ATTENTION, &next);
    for (uint32_t l = 0; l < shape->n_layer; l++)
        for (int a = 0; status == KVR_OK && a < KVR_N_ARRAY; a++) {
            const float *data;
            uint32_t rows;
            status = kvr_trace_array(&data, &rows, c->trace, l,
                                     (enum kvr_array)a, err);
            if (status == KVR_OK && data != NULL)
                kvr__hash_array(hash, rows, t, data, t);
        }
    kvr__hash_tokens(hash, t, &c->trace->tokens);
    if (status == KVR_OK)
        status = hash_optional(hash, c, &next, err);
    kvr_hash_text(hash, text);
    kvr_hash_free(hash);
    return status;
}

/* A check that could not be made is not one that was passed. Our own writer
 * states a hash always. */
static void note_no_hash(struct kvr_trace_report *report,
                         const struct kvr_trace *trace)
{
    static const char text[] = "no hash is stated: contents not verified";
    const char *writer = trace->box->shape.writer;

    if (writer != NULL && strncmp(writer, "kvreplay", 8) == 0)
        kvr__add_problem(report, "%s, though %.60s wrote this trace", text,
                         writer);
    else
        kvr_log(KVR_LOG_WARNING, "%s: %s", trace->path, text);
}

static enum kvr_status summarise(struct kvr_trace_report *report,
                                 const struct check *c, struct kvr_error *err)
{
    const char *stated = c->trace->facts.hash;
    char computed[KVR_HASH_TEXT];
    bool unreadable = false;

    for (uint32_t i = 0; i < c->n; i++) {
        const struct finding *f = &c->findings[i];
        if (f->broken.status != KVR_OK)
            return kvr_fail(err, f->broken.status, "%s", f->broken.message);
        unreadable = unreadable || f->unreadable;
        if (f->first_bad < report->closed_rows)
            report->closed_rows = f->first_bad;
        if (f->n_bad == 1)
            kvr__add_problem(report, "%.400s", f->first.message);
        else if (f->n_bad > 1)
            kvr__add_problem(report, "%.400s (and %u more rows of this head)",
                             f->first.message, f->n_bad - 1);
    }
    if (stated[0] == '\0')
        note_no_hash(report, c->trace);
    if (stated[0] == '\0' || unreadable)
        return KVR_OK;
    const enum kvr_status status = hash_trace(computed, c, err);
    if (status == KVR_OK && strcmp(stated, computed) != 0)
        kvr__add_problem(report, "the content hash is %s, stated is %s",
                         computed, stated);
    return status;
}

/* A tile as it is stored, made and inflated, and what reads the rows, for each
 * worker. */
static enum kvr_status check_memory(const struct kvr_trace *trace,
                                    uint32_t workers, uint64_t memory,
                                    struct kvr_error *err)
{
    const uint64_t row = (uint64_t)trace->box->shape.n_token * 3;
    const uint64_t each =
        KVR_TILE_ROWS * row * sizeof(float) + kvr_trace_scratch_bytes(trace);
    char what[300];

    snprintf(what, sizeof what, "%s: %u threads on rows of %u tokens",
             trace->path, workers, trace->box->shape.n_token);
    return kvr_check_memory(err, what, workers * each, memory);
}

static enum kvr_status check_rows(struct kvr_trace_report *report,
                                  const struct kvr_trace *trace,
                                  uint32_t threads, uint64_t memory,
                                  struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &trace->box->shape;
    struct check c = {.trace = trace};

    for (uint32_t l = 0; l <= shape->n_layer; l++) {
        for (int s = 0; s < N_ROW_SET; s++)
            if (trace->sets[l][s].present)
                c.n += trace->sets[l][s].dims[0];
        if (l < shape->n_layer && !trace->sets[l][SET_ATTENTION].present &&
            !kvr__has_pair(trace, l))
            kvr__add_problem(report, "layer %u has no attention",
                             shape->layers[l].layer);
    }
    const uint32_t workers = kvr_parallel_workers(c.n, threads);
    enum kvr_status status = check_memory(trace, workers, memory, err);
    if (status == KVR_OK)
        status = new_check(&c, trace, workers, err);
    if (status == KVR_OK)
        status = kvr_parallel_for(c.n, threads, check_head, &c, err);
    if (status == KVR_OK)
        status = summarise(report, &c, err);
    free_check(&c, workers);
    return status;
}

enum kvr_status kvr__check_trace(struct kvr_trace_report *report,
                                 const char *path, uint32_t threads,
                                 uint64_t memory, struct kvr_error *err)
{
    struct kvr_trace *trace = NULL;

    *report = (struct kvr_trace_report){.ok = true};
    enum kvr_status status = kvr__trace_open(&trace, path, err);
    if (status != KVR_OK)
        return status;
    report->complete = true;
    report->closed_rows = trace->box->shape.n_token;
    status = kvr__judge_arrays(trace, err);
    if (status == KVR_ERR_INPUT) {
        kvr__add_problem(report, "%.400s", err->message);
        status = KVR_OK;
    }
    if (status == KVR_OK)
        status = check_rows(report, trace, threads, memory, err);
    kvr_trace_close(trace);
    if (status != KVR_OK)
        kvr_trace_report_free(report);
    return status;
}
