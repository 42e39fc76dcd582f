/* heads.c -- see heads.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "heads.h"

#include "kvr_memory.h"
#include "kvr_parallel.h"
#include "kvr_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t kvr__cli_layer_number(const struct cli_heads *heads, uint32_t item)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(heads->trace);

    return shape->layers[heads->items[item].layer].layer;
}

uint32_t kvr__cli_head_number(const struct cli_heads *heads, uint32_t item)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(heads->trace);
    const struct kvr_head_item *at = &heads->items[item];

    return shape->layers[at->layer].head_index[at->head];
}

void kvr__cli_set_real(json_t *object, const char *key, double value,
                       const char *reason)
{
    if (isfinite(value))
        kvr__cli_set(object, key, json_real(value));
    else
        kvr__cli_null(object, key, reason);
}

/* Numbers that a list may name: the largest that is stored, and one. */
static void limits(uint32_t *n_layer, uint32_t *n_head, uint32_t *n_item,
                   const struct kvr_trace_shape *shape)
{
    *n_layer = *n_head = *n_item = 0;
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        const struct kvr_layer_shape *layer = &shape->layers[l];
        if (layer->layer >= *n_layer)
            *n_layer = layer->layer + 1;
        for (uint32_t h = 0; h < layer->n_head; h++)
            if (layer->head_index[h] >= *n_head)
                *n_head = layer->head_index[h] + 1;
        *n_item += layer->n_head;
    }
}

static enum kvr_status select_heads(struct cli_heads *heads,
                                    const struct cli_common *common,
                                    struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(heads->trace);
    bool *layer_marks = NULL, *head_marks = NULL;
    uint32_t n_layer, n_head, n_item;

    limits(&n_layer, &n_head, &n_item, shape);
    enum kvr_status status =
        kvr_list_marks(&layer_marks, n_layer, common->layers, "layer", err);
    if (status == KVR_OK)
        status =
            kvr_list_marks(&head_marks, n_head, common->heads, "head", err);
    heads->items = kvr_calloc(n_item, sizeof *heads->items);
    if (status == KVR_OK && heads->items == NULL)
        status = kvr_no_memory(err, "heads", n_item * sizeof *heads->items);
    for (uint32_t l = 0; status == KVR_OK && l < shape->n_layer; l++) {
        const struct kvr_layer_shape *layer = &shape->layers[l];
        for (uint32_t h = 0; h < layer->n_head; h++)
            if (layer_marks[layer->layer] && head_marks[layer->head_index[h]])
                heads->items[heads->n++] =
                    (struct kvr_head_item){.layer = l, .head = h};
    }
    free(layer_marks);
    free(head_marks);
    if (status == KVR_OK && heads->n == 0)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: holds none of the heads asked for",
                          kvr_trace_path(heads->trace));
    return status;
}

/* A tile of rows, some vectors and what reads the rows, for each worker. */
static enum kvr_status check_memory(const struct cli_heads *heads,
                                    const struct cli_common *common,
                                    struct kvr_error *err)
{
    const uint64_t n_token = kvr_trace_shape(heads->trace)->n_token;
    const uint64_t workers = kvr_parallel_workers(heads->n, common->threads);
    const uint64_t row = sizeof(float) * KVR_TILE_ROWS + 8 * sizeof(double);
    const uint64_t need =
        workers * (n_token * row + kvr_trace_scratch_bytes(heads->trace));
    char what[256];

    snprintf(what, sizeof what,
             "%s: %" PRIu64 " threads on rows of %" PRIu64 " tokens",
             kvr_trace_path(heads->trace), workers, n_token);
    return kvr_check_memory(err, what, need, kvr__cli_memory(common));
}

static enum kvr_status do_trace(json_t **facts, const char *path,
                                uint32_t index, const struct cli_common *common,
                                cli_heads_fn fn, void *ud,
                                struct kvr_error *err)
{
    struct kvr_trace *trace;
    enum kvr_status status = kvr_trace_open(&trace, path, err);

    if (status != KVR_OK)
        return status;
    struct cli_heads heads = {.trace = trace, .trace_index = index};
    *facts = kvr__cli_trace_json(trace);
    status = select_heads(&heads, common, err);
    if (status == KVR_OK)
        status = check_memory(&heads, common, err);
    if (status == KVR_OK)
        status = fn(&heads, ud, err);
    free(heads.items);
    kvr_trace_close(trace);
    return status;
}

enum kvr_status kvr__cli_each_trace(struct cli_report *report,
                                    const struct cli_common *common,
                                    const char *const *paths, size_t n,
                                    cli_heads_fn fn, void *ud,
                                    struct kvr_error *err)
{
    if (n > 1)
        report->traces = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *facts = NULL;
        const enum kvr_status status =
            do_trace(&facts, paths[i], (uint32_t)i, common, fn, ud, err);
        if (n > 1)
            kvr__cli_add(report->traces, facts);
        else
            report->trace = facts;
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}
