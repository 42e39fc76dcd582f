/* import_pick.c -- which layers and heads of a dump are taken.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <stdlib.h>

/* Layers by their numbers, which may have gaps: only what is there. */
static enum kvr_status pick_layers(struct pick *pick, const struct dump *dump,
                                   const char *list, struct kvr_error *err)
{
    const uint32_t limit = kvr__dump_layer(dump, dump->n_layer - 1) + 1;
    bool *marks = NULL;

    pick->layer = kvr_calloc(dump->n_layer, sizeof *pick->layer);
    enum kvr_status status = kvr_list_marks(&marks, limit, list, "layer", err);
    if (status == KVR_OK && pick->layer == NULL)
        status = kvr_no_memory(err, "layers", dump->n_layer);
    if (status == KVR_OK)
        for (uint32_t l = 0; l < dump->n_layer; l++)
            if (marks[kvr__dump_layer(dump, l)]) {
                pick->layer[pick->n_layer++] = l;
                marks[kvr__dump_layer(dump, l)] = false;
            }
    for (uint32_t i = 0; list != NULL && status == KVR_OK && i < limit; i++)
        if (marks[i])
            status = kvr_fail(err, KVR_ERR_USAGE,
                              "layer list '%s': %s has no layer %u", list,
                              dump->path, i);
    free(marks);
    return status;
}

static enum kvr_status pick_heads(struct pick *pick, const struct dump *dump,
                                  const char *list, uint32_t group,
                                  struct kvr_error *err)
{
    bool *marks = NULL;

    pick->head = kvr_calloc(dump->n_head, sizeof *pick->head);
    enum kvr_status status =
        kvr_list_marks(&marks, dump->n_head, list, "head", err);
    if (status == KVR_OK && pick->head == NULL)
        status = kvr_no_memory(err, "heads", dump->n_head);
    for (uint32_t h = 0; status == KVR_OK && h < dump->n_head; h++) {
        const uint32_t first = h / group * group;
        if (marks[h] != marks[first])
            status = kvr_fail(err, KVR_ERR_USAGE,
                              "--heads %s: query heads %u to %u share the keys "
                              "of KV head %u and are stored together or not "
                              "at all",
                              list, first, first + group - 1, h / group);
        else if (marks[h])
            pick->head[pick->n_head++] = h;
    }
    free(marks);
    return status;
}

enum kvr_status kvr__pick(struct pick *pick, const struct dump *dump,
                          const struct kvr_import_options *options,
                          uint32_t n_kv_head, struct kvr_error *err)
{
    if (n_kv_head == 0 || dump->n_head % n_kv_head != 0)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: %u heads in groups of %u KV heads (--n-kv-head)",
                        dump->path, dump->n_head, n_kv_head);
    const enum kvr_status status =
        pick_layers(pick, dump, options->layers, err);
    if (status != KVR_OK)
        return status;
    return pick_heads(pick, dump, options->heads, dump->n_head / n_kv_head,
                      err);
}

void kvr__pick_free(struct pick *pick)
{
    free(pick->layer);
    free(pick->head);
    *pick = (struct pick){0};
}
