/* shared.c -- puts the heads of readers into the groups of their source.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "shared.h"

#include "kvr_memory.h"

#include <stdlib.h>

static bool reads(const struct kvr_layer_shape *reader,
                  const struct kvr_layer_shape *source)
{
    return reader->kv_source >= 0 && source->kv_source < 0 &&
           (uint32_t)reader->kv_source == source->layer;
}

static enum kvr_status check_reader(const struct kvr_trace_shape *shape,
                                    const struct kvr_layer_shape *reader,
                                    struct kvr_error *err)
{
    for (uint32_t s = 0; s < shape->n_layer; s++) {
        const struct kvr_layer_shape *source = &shape->layers[s];
        if (!reads(reader, source))
            continue;
        if (source->n_kv_head == reader->n_kv_head &&
            source->mask == reader->mask && source->span == reader->span)
            return KVR_OK;
        return kvr_fail(err, KVR_ERR_INPUT,
                        "layer %u reads the cache of layer %u, but has %u KV "
                        "heads and span %u, not %u and %u",
                        reader->layer, source->layer, reader->n_kv_head,
                        reader->span, source->n_kv_head, source->span);
    }
    return kvr_fail(err, KVR_ERR_INPUT,
                    "layer %u reads the cache of layer %d, which is not "
                    "stored",
                    reader->layer, (int)reader->kv_source);
}

/* The heads of group c of stored layer l go behind the *n that are there. */
static void add_group(struct place *place, uint32_t *n, uint32_t l,
                      const struct kvr_layer_shape *layer, uint32_t c)
{
    const uint32_t g = layer->n_head / layer->n_kv_head;

    for (uint32_t h = c * g; h < (c + 1) * g; h++)
        place[(*n)++] = (struct place){.layer = l, .head = h};
}

static enum kvr_status merge(struct shared *out,
                             const struct kvr_trace_shape *shape, uint32_t l,
                             struct kvr_error *err)
{
    const struct kvr_layer_shape *source = &shape->layers[l];
    const uint32_t own = source->n_head / source->n_kv_head, at = out->n_layer;
    uint32_t total = source->n_head, n = 0;

    for (uint32_t k = 0; k < shape->n_layer; k++)
        total += reads(&shape->layers[k], source) ? shape->layers[k].n_head : 0;
    out->place[at] = kvr_calloc(total, sizeof **out->place);
    out->number[at] = kvr_calloc(total, sizeof **out->number);
    out->n_layer++;
    if (out->place[at] == NULL || out->number[at] == NULL)
        return kvr_no_memory(err, "heads", total);
    for (uint32_t c = 0; c < source->n_kv_head; c++) {
        add_group(out->place[at], &n, l, source, c);
        for (uint32_t k = 0; k < shape->n_layer; k++)
            if (reads(&shape->layers[k], source))
                add_group(out->place[at], &n, k, &shape->layers[k], c);
    }
    /* Query heads are numbered so that number / group size = KV head. */
    const uint32_t g = total / source->n_kv_head;
    for (uint32_t c = 0; c < source->n_kv_head; c++) {
        const uint32_t first = c * own;
        const uint32_t in_model =
            source->head_index != NULL ? source->head_index[first] : first;
        for (uint32_t i = 0; i < g; i++)
            out->number[at][c * g + i] = in_model / own * g + i;
    }
    out->layers[at] = *source;
    out->layers[at].n_head = total;
    out->layers[at].head_index = out->number[at];
    return KVR_OK;
}

enum kvr_status kvr__shared_init(struct shared *out,
                                 const struct kvr_trace_shape *shape,
                                 struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    *out = (struct shared){0};
    out->layers = kvr_calloc(shape->n_layer, sizeof *out->layers);
    out->place = kvr_calloc(shape->n_layer, sizeof *out->place);
    out->number = kvr_calloc(shape->n_layer, sizeof *out->number);
    if (out->layers == NULL || out->place == NULL || out->number == NULL)
        return kvr_no_memory(err, "layers", shape->n_layer);
    for (uint32_t l = 0; l < shape->n_layer && status == KVR_OK; l++)
        status = shape->layers[l].kv_source >= 0
                     ? check_reader(shape, &shape->layers[l], err)
                     : merge(out, shape, l, err);
    return status;
}

void kvr__shared_fini(struct shared *shared)
{
    for (uint32_t l = 0; l < shared->n_layer; l++) {
        free(shared->place[l]);
        free(shared->number[l]);
    }
    free(shared->layers);
    free(shared->place);
    free(shared->number);
}
