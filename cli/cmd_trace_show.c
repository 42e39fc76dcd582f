/* cmd_trace_show.c -- kvreplay trace show: one row of attention.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "trace_commands.h"

#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

struct show_command {
    struct cli_common common; /* first: see cli.h */
    uint32_t layer, head, row, top;
    bool layer_given, head_given, row_given;
};

static const struct kvr_option own_options[] = {
    {.name = "layer",
     .type = KVR_OPTION_U32,
     .offset = offsetof(struct show_command, layer),
     .given = offsetof(struct show_command, layer_given),
     .argument = "L",
     .help = "layer of the model (default: the first stored)"},
    {.name = "head",
     .type = KVR_OPTION_U32,
     .offset = offsetof(struct show_command, head),
     .given = offsetof(struct show_command, head_given),
     .argument = "H",
     .help = "query head of the model (default: the first stored)"},
    {.name = "row",
     .type = KVR_OPTION_U32,
     .offset = offsetof(struct show_command, row),
     .given = offsetof(struct show_command, row_given),
     .argument = "T",
     .help = "row: the token that attends (default: the last)"},
    {.name = "top",
     .type = KVR_OPTION_U32,
     .offset = offsetof(struct show_command, top),
     .argument = "N",
     .help = "only the N heaviest keys, heaviest first (default: all)"},
    {.name = NULL},
};

static const struct cli_column columns[] = {
    {.path = "layer"},
    {.path = "head"},
    {.path = "row"},
    {.path = "key", .title = "key"},
    {.path = "weight", .title = "weight", .digits = 6},
    {.path = "id", .title = "id"},
    {.path = "text", .title = "token"},
    {.path = NULL},
};

/* Index of the layer and head asked for, by their numbers in the model. */
static enum kvr_status find_head(uint32_t *layer, uint32_t *head,
                                 const struct kvr_trace *trace,
                                 const struct show_command *options,
                                 struct kvr_error *err)
{
    const struct kvr_trace_shape *s = kvr_trace_shape(trace);
    const uint32_t number =
        options->layer_given ? options->layer : s->layers[0].layer;

    for (*layer = 0; *layer < s->n_layer; (*layer)++) {
        const struct kvr_layer_shape *y = &s->layers[*layer];
        if (y->layer != number)
            continue;
        for (*head = 0; *head < y->n_head; (*head)++)
            if (!options->head_given || y->head_index[*head] == options->head)
                return KVR_OK;
        return kvr_fail(
            err, KVR_ERR_USAGE, "%s: layer %u has no head %u (%u are stored)",
            kvr_trace_path(trace), number, options->head, y->n_head);
    }
    return kvr_fail(err, KVR_ERR_USAGE, "%s: layer %u is not stored",
                    kvr_trace_path(trace), number);
}

struct pair {
    uint32_t key;
    float weight;
};

static int heavier(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* The piece as text; bytes that are no UTF-8 alone become '?'. */
static json_t *piece(const struct kvr_trace_tokens *t, uint32_t key)
{
    const char *bytes = (const char *)t->text + t->text_offset[key];
    const size_t n = t->text_offset[key + 1] - t->text_offset[key];
    json_t *text = kvr__cli_text_of(bytes, n);
    char safe[64];

    if (text != NULL)
        return text;
    const size_t kept = n < sizeof safe - 1 ? n : sizeof safe - 1;
    for (size_t i = 0; i < kept; i++)
        safe[i] = bytes[i] >= 32 && bytes[i] < 127 ? bytes[i] : '?';
    safe[kept] = '\0';
    return kvr__cli_text(safe);
}

static void add_item(json_t *results, const struct kvr_trace *trace,
                     uint32_t layer, uint32_t head, uint32_t row,
                     const struct pair *pair)
{
    const struct kvr_trace_tokens *t = kvr_trace_tokens(trace);
    const struct kvr_layer_shape *y = &kvr_trace_shape(trace)->layers[layer];
    json_t *item = json_object();

    kvr__cli_set(item, "layer", json_integer(y->layer));
    kvr__cli_set(item, "head", json_integer(y->head_index[head]));
    kvr__cli_set(item, "row", json_integer(row));
    kvr__cli_set(item, "key", json_integer(pair->key));
    kvr__cli_set(item, "weight", kvr__cli_real((double)pair->weight));
    kvr__cli_set(item, "id",
                 t->id != NULL ? json_integer(t->id[pair->key]) : json_null());
    kvr__cli_set(item, "text",
                 t->text != NULL ? piece(t, pair->key) : json_null());
    kvr__cli_add(results, item);
}

static enum kvr_status show_row(json_t *results, const struct kvr_trace *trace,
                                const struct show_command *options,
                                uint32_t layer, uint32_t head, uint32_t row,
                                struct kvr_error *err)
{
    const struct kvr_trace_shape *s = kvr_trace_shape(trace);
    const uint32_t t = s->n_token;
    uint32_t n = s->layers[layer].mask == KVR_MASK_NONE ? t : row + 1;
    struct kvr_trace_scratch *scratch = NULL;
    float *weight = kvr_calloc(t, sizeof *weight);
    struct pair *pairs = kvr_calloc(t, sizeof *pairs);

    enum kvr_status status = KVR_OK;
    if (weight == NULL || pairs == NULL)
        status = kvr_no_memory(err, "a row", t * sizeof *pairs);
    if (status == KVR_OK)
        status = kvr_trace_scratch_new(&scratch, trace, err);
    if (status == KVR_OK)
        status = kvr_trace_read_rows(trace, layer, head, row, 1, weight, t,
                                     scratch, err);
    if (status == KVR_OK) {
        for (uint32_t i = 0; i < n; i++)
            pairs[i] = (struct pair){.key = i, .weight = weight[i]};
        if (options->top > 0) {
            qsort(pairs, n, sizeof *pairs, heavier);
            n = options->top < n ? options->top : n;
        }
        for (uint32_t i = 0; i < n; i++)
            add_item(results, trace, layer, head, row, &pairs[i]);
    }
    kvr_trace_scratch_free(scratch);
    free(weight);
    free(pairs);
    return status;
}

static enum kvr_status show(const struct show_command *options,
                            const char *path, struct kvr_error *err)
{
    struct kvr_trace *trace = NULL;
    uint32_t layer = 0, head = 0;
    struct cli_report report = {.command = "trace.show",
                                .settings = json_object(),
                                .results = json_array(),
                                .columns = columns};

    enum kvr_status status = kvr_trace_open(&trace, path, err);
    if (status == KVR_OK)
        status = find_head(&layer, &head, trace, options, err);
    if (status == KVR_OK) {
        const uint32_t t = kvr_trace_shape(trace)->n_token;
        const uint32_t row = options->row_given ? options->row : t - 1;
        if (row >= t)
            status =
                kvr_fail(err, KVR_ERR_USAGE, "%s: row %u of %u", path, row, t);
        else
            status =
                show_row(report.results, trace, options, layer, head, row, err);
    }
    if (status == KVR_OK) {
        report.trace = kvr__cli_trace_json(trace);
        status = kvr__cli_report(&options->common, &report, err);
    }
    kvr__cli_report_free(&report);
    kvr_trace_close(trace);
    return status;
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    struct show_command options = {0};
    const char **operands = NULL;
    size_t n = 0;
    bool done = false;

    enum kvr_status status = kvr__cli_parse(self, argc, argv, &options,
                                            &operands, &n, 1, 1, &done, err);
    if (status == KVR_OK && !done)
        status = show(&options, operands[0], err);
    kvr__cli_parse_free(self, &options, operands);
    return status;
}

const struct cli_command kvr__cmd_trace_show = {
    .name = "trace show",
    .group = "Traces",
    .operands = "TRACE",
    .summary = "one row of attention, with its tokens",
    .options = own_options,
    .obeys = CLI_OUTPUT | CLI_REPORT,
    .run = run,
};
