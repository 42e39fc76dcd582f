/* cmd_trace_info.c -- kvreplay trace info: what a trace holds.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "trace_commands.h"

#include "kvr_journal.h"
#include "kvr_text.h"

#include <stdio.h>
#include <string.h>

struct info_command {
    struct cli_common common; /* first: see cli.h */
};

static const struct cli_column columns[] = {
    {.path = "path", .title = "trace"},
    {.path = "complete", .title = "complete"},
    {.path = "model", .title = "model"},
    {.path = "source", .title = "source"},
    {.path = "n_layer", .title = "layers"},
    {.path = "n_head", .title = "heads"},
    {.path = "n_kv_head", .title = "kv heads"},
    {.path = "n_token", .title = "tokens"},
    {.path = "prompt_len", .title = "prompt"},
    {.path = "dtype", .title = "dtype"},
    {.path = "stored_bytes", .title = "bytes of rows"},
    {.path = "hash", .title = "hash"},
    {.path = NULL},
};

static const char *const masks[] = {"causal", "window", "chunk", "none"};
static const char *const sources[] = {"capture", "import", "synthetic"};

static void set_text(json_t *item, const char *key, const char *text)
{
    kvr__cli_set(item, key, text != NULL ? kvr__cli_text(text) : json_null());
}

static void set_shape(json_t *item, const struct kvr_trace_shape *s)
{
    kvr__cli_set(item, "n_layer", json_integer(s->n_layer));
    kvr__cli_set(item, "n_head", json_integer(s->n_head));
    kvr__cli_set(item, "n_kv_head", json_integer(s->n_kv_head));
    kvr__cli_set(item, "prompt_len", json_integer(s->prompt_len));
    set_text(item, "dtype", s->dtype == KVR_F16 ? "f16" : "f32");
    kvr__cli_set(item, "round_bits", json_integer(s->round_bits));
    set_text(item, "source", sources[s->source]);
    set_text(item, "cache", s->cache);
    set_text(item, "model", s->model_name);
    set_text(item, "architecture", s->architecture);
    set_text(item, "model_hash", s->model_hash);
    set_text(item, "quantisation", s->quantisation);
    set_text(item, "backend", s->backend);
    set_text(item, "compute", s->compute);
    set_text(item, "bos", s->bos);
    set_text(item, "writer", s->writer);
    set_text(item, "created", s->created);
    set_text(item, "options", s->options);
}

static void set_layers(json_t *item, const struct kvr_trace_shape *s)
{
    json_t *layers = json_array();

    for (uint32_t l = 0; l < s->n_layer; l++) {
        const struct kvr_layer_shape *y = &s->layers[l];
        json_t *layer = json_object();
        kvr__cli_set(layer, "layer", json_integer(y->layer));
        kvr__cli_set(layer, "n_head", json_integer(y->n_head));
        kvr__cli_set(layer, "n_kv_head", json_integer(y->n_kv_head));
        kvr__cli_set(layer, "key_dim", json_integer(y->key_dim));
        kvr__cli_set(layer, "value_dim", json_integer(y->value_dim));
        set_text(layer, "mask", masks[y->mask]);
        kvr__cli_set(layer, "span", json_integer(y->span));
        kvr__cli_set(layer, "scale", kvr__cli_real(y->scale));
        kvr__cli_set(layer, "softcap", kvr__cli_real(y->softcap));
        kvr__cli_set(layer, "kv_source", json_integer(y->kv_source));
        for (int v = 0; v < KVR_N_VECTOR; v++)
            if (y->stores & (uint32_t)KVR_STORES_QUERY << v)
                set_text(layer, kvr_vector_name((enum kvr_vector)v),
                         y->vector_dtype[v] == KVR_F16 ? "f16" : "f32");
        kvr__cli_add(layers, layer);
    }
    kvr__cli_set(item, "layers", layers);
}

/* Attention and vectors of layer 0. */
static void add_stores(json_t *members, uint32_t stores)
{
    if (stores & KVR_STORES_ATTENTION)
        kvr__cli_add(members, kvr__cli_text("attention"));
    for (int v = 0; v < KVR_N_VECTOR; v++)
        if (stores & (uint32_t)KVR_STORES_QUERY << v)
            kvr__cli_add(members,
                         kvr__cli_text(kvr_vector_name((enum kvr_vector)v)));
}

/* Names of what is stored, those of a layer once. */
static enum kvr_status set_members(json_t *item, const struct kvr_trace *trace,
                                   struct kvr_error *err)
{
    const struct kvr_trace_tokens *t = kvr_trace_tokens(trace);
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    json_t *members = json_array();
    const struct {
        const char *name;
        bool there;
    } known[] = {{"mlp_mass", kvr_trace_mlp(trace, 0).mass != NULL},
                 {"mlp_active", kvr_trace_mlp(trace, 0).active != NULL},
                 {"tokens/id", t->id != NULL},
                 {"tokens/text", t->text != NULL},
                 {"tokens/logprob", t->logprob != NULL},
                 {"tokens/class", t->class_of != NULL},
                 {"tokens/position", t->position != NULL},
                 {"tokens/logits", shape->n_vocab > 0}};

    add_stores(members, shape->layers[0].stores);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].there)
            kvr__cli_add(members, kvr__cli_text(known[i].name));
    enum kvr_status status = KVR_OK;
    for (int a = 0; status == KVR_OK && a < KVR_N_ARRAY; a++) {
        const float *data;
        uint32_t rows = 0;
        status =
            kvr_trace_array(&data, &rows, trace, 0, (enum kvr_array)a, err);
        if (rows > 0)
            kvr__cli_add(members,
                         kvr__cli_text(kvr_array_name((enum kvr_array)a)));
    }
    kvr__cli_set(item, "members", members);
    return status;
}

static json_t *new_item(const char *path, uint32_t major, uint32_t minor,
                        bool complete)
{
    json_t *item = json_object();

    kvr__cli_set(item, "path", kvr__cli_text(path));
    kvr__cli_set(item, "format_version",
                 json_pack("[i, i]", (int)major, (int)minor));
    kvr__cli_set(item, "complete", json_boolean(complete));
    return item;
}

static enum kvr_status info_of_trace(json_t *results, const char *path,
                                     struct kvr_error *err)
{
    struct kvr_trace *trace = NULL;

    enum kvr_status status = kvr_trace_open(&trace, path, err);
    if (status != KVR_OK)
        return status;
    const struct kvr_trace_facts *facts = kvr_trace_facts(trace);
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    json_t *item =
        new_item(path, facts->version[0], facts->version[1], facts->complete);
    set_shape(item, shape);
    kvr__cli_set(item, "n_token", json_integer(shape->n_token));
    kvr__cli_set(item, "stored_bytes",
                 json_integer((json_int_t)facts->stored_bytes));
    if (facts->hash[0] != '\0')
        set_text(item, "hash", facts->hash);
    else
        kvr__cli_null(item, "hash", "the file states none");
    set_layers(item, shape);
    status = set_members(item, trace, err);
    kvr__cli_add(results, item);
    kvr_trace_close(trace);
    return status;
}

static enum kvr_status info_of_journal(json_t *results, const char *path,
                                       struct kvr_error *err)
{
    struct kvr_journal *journal = NULL;

    const enum kvr_status status = kvr_journal_open(&journal, path, err);
    if (status != KVR_OK)
        return status;
    const struct kvr_journal_facts *facts = kvr_journal_facts(journal);
    const struct kvr_trace_shape *shape = kvr_journal_shape(journal);
    json_t *item = new_item(path, 1, 0, false);
    set_shape(item, shape);
    kvr__cli_set(item, "n_token", json_integer(facts->n_step));
    kvr__cli_set(item, "n_token_max", json_integer(shape->n_token));
    kvr__cli_set(item, "running", json_boolean(facts->running));
    kvr__cli_set(item, "stored_bytes",
                 json_integer((json_int_t)facts->stored_bytes));
    kvr__cli_null(item, "hash", "not finished");
    set_text(item, "problem",
             facts->problem[0] != '\0' ? facts->problem : NULL);
    set_layers(item, shape);
    json_t *members = json_array();
    add_stores(members, shape->layers[0].stores);
    kvr__cli_set(item, "members", members);
    kvr__cli_add(results, item);
    kvr_journal_close(journal);
    return KVR_OK;
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    struct info_command options = {0};
    const char **operands = NULL;
    size_t n = 0;
    bool done = false;
    struct cli_report report = {.command = "trace.info",
                                .settings = json_object(),
                                .results = json_array(),
                                .columns = columns};

    enum kvr_status status = kvr__cli_parse(
        self, argc, argv, &options, &operands, &n, 1, SIZE_MAX, &done, err);
    for (size_t i = 0; status == KVR_OK && !done && i < n; i++)
        status = kvr_journal_is(operands[i])
                     ? info_of_journal(report.results, operands[i], err)
                     : info_of_trace(report.results, operands[i], err);
    if (status == KVR_OK && !done)
        status = kvr__cli_report(&options.common, &report, err);
    kvr__cli_report_free(&report);
    kvr__cli_parse_free(self, &options, operands);
    return status;
}

const struct cli_command kvr__cmd_trace_info = {
    .name = "trace info",
    .group = "Traces",
    .operands = "TRACE..",
    .summary = "what a trace or a journal holds",
    .obeys = CLI_OUTPUT | CLI_REPORT,
    .run = run,
};
