/* import_config.c -- the windows of a model, by its config.json.
 *
 * As transformers 4.57 makes layer_types where a configuration has none.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_config.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG = 16 << 20, MAX_LAYERS = 65536 };

struct config {
    const char *path;
    const json_t *root;
    struct import_config *out;
    uint32_t window; /* 0: none */
    uint32_t period; /* every such layer sees all; 0: none does */
    uint32_t from;   /* layers before it see all */
    struct kvr_error *err;
};

/* A count, or `absent` where the key is not there or null. */
static enum kvr_status read_count(uint32_t *out, const struct config *c,
                                  const char *key, uint32_t absent)
{
    const json_t *value = json_object_get(c->root, key);

    *out = absent;
    if (value == NULL || json_is_null(value))
        return KVR_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT32_MAX) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        const enum kvr_status status =
            kvr_fail(c->err, KVR_ERR_INPUT, "%s: %s is %.60s: expected a count",
                     c->path, key, text != NULL ? text : "?");
        free(text);
        return status;
    }
    *out = (uint32_t)json_integer_value(value);
    return KVR_OK;
}

static bool is_model(const struct config *c, const char *prefix)
{
    const char *type =
        json_string_value(json_object_get(c->root, "model_type"));

    return type != NULL && strncmp(type, prefix, strlen(prefix)) == 0;
}

/* sliding_window, unless it is switched off; qwen's is, by default. */
static enum kvr_status read_window(struct config *c)
{
    const json_t *use = json_object_get(c->root, "use_sliding_window");
    const bool qwen = is_model(c, "qwen");

    if (use != NULL && !json_is_boolean(use))
        return kvr_fail(c->err, KVR_ERR_INPUT,
                        "%s: use_sliding_window: expected true or false",
                        c->path);
    if (use != NULL ? json_is_false(use) : qwen)
        return KVR_OK;
    enum kvr_status status = read_count(&c->window, c, "sliding_window", 0);
    if (status == KVR_OK)
        status = read_count(&c->from, c, "max_window_layers", qwen ? 28 : 0);
    return status;
}

/* Two spellings; the defaults of models that have a pattern. */
static enum kvr_status read_period(struct config *c)
{
    static const struct {
        const char *model;
        uint32_t period;
    } defaults[] = {
        {"gemma2", 2}, {"gemma3", 6}, {"cohere2", 4}, {"gpt_oss", 2}};
    uint32_t absent = 0, old;

    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (is_model(c, defaults[i].model))
            absent = defaults[i].period;
    enum kvr_status status =
        read_count(&old, c, "_sliding_window_pattern", absent);
    if (status == KVR_OK)
        status = read_count(&c->period, c, "sliding_window_pattern", old);
    if (status == KVR_OK && c->period != old &&
        json_is_integer(json_object_get(c->root, "_sliding_window_pattern")))
        status = kvr_fail(c->err, KVR_ERR_INPUT,
                          "%s: sliding_window_pattern is %u, "
                          "_sliding_window_pattern is %u",
                          c->path, c->period, old);
    return status;
}

static uint32_t span_of(const struct config *c, uint32_t layer)
{
    const bool all =
        layer < c->from || (c->period != 0 && (layer + 1) % c->period == 0);

    return all ? 0 : c->window;
}

/* layer_types says it layer by layer, and counts. */
static enum kvr_status read_types(const struct config *c, const json_t *types)
{
    struct import_config *out = c->out;

    if (!json_is_array(types) || json_array_size(types) != out->n_layer)
        return kvr_fail(c->err, KVR_ERR_INPUT,
                        "%s: layer_types has %zu entries, num_hidden_layers "
                        "is %u",
                        c->path, json_array_size(types), out->n_layer);
    for (uint32_t l = 0; l < out->n_layer; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        const bool slides =
            type != NULL && strcmp(type, "sliding_attention") == 0;
        if (!slides && (type == NULL || strcmp(type, "full_attention") != 0))
            return kvr_fail(c->err, KVR_ERR_UNSUPPORTED,
                            "%s: layer_types[%u] is %.60s: full_attention and "
                            "sliding_attention are known",
                            c->path, l, type != NULL ? type : "no string");
        if (slides && c->window == 0)
            return kvr_fail(c->err, KVR_ERR_INPUT,
                            "%s: layer_types[%u] is sliding_attention, but "
                            "there is no sliding_window, or it is not used",
                            c->path, l);
        out->spans[l] = slides ? c->window : 0;
    }
    return KVR_OK;
}

static enum kvr_status read_spans(struct config *c)
{
    const json_t *types = json_object_get(c->root, "layer_types");
    const json_t *chunk = json_object_get(c->root, "attention_chunk_size");

    enum kvr_status status = read_window(c);
    if (status == KVR_OK)
        status = read_period(c);
    if (status != KVR_OK)
        return status;
    if (types != NULL && !json_is_null(types))
        return read_types(c, types);
    if (chunk != NULL && !json_is_null(chunk))
        return kvr_fail(c->err, KVR_ERR_UNSUPPORTED,
                        "%s: attention_chunk_size: chunks are not read",
                        c->path);
    for (uint32_t l = 0; l < c->out->n_layer; l++)
        c->out->spans[l] = span_of(c, l);
    return KVR_OK;
}

static enum kvr_status read_root(struct config *c)
{
    struct import_config *out = c->out;
    const json_t *text = json_object_get(c->root, "text_config");

    if (json_is_object(text))
        c->root = text;
    enum kvr_status status =
        read_count(&out->n_layer, c, "num_hidden_layers", 0);
    if (status == KVR_OK && (out->n_layer == 0 || out->n_layer > MAX_LAYERS))
        status = kvr_fail(c->err, KVR_ERR_INPUT,
                          "%s: num_hidden_layers is %u: expected 1 to %d",
                          c->path, out->n_layer, MAX_LAYERS);
    if (status == KVR_OK)
        status = read_count(&out->n_kv_head, c, "num_key_value_heads", 0);
    if (status != KVR_OK)
        return status;
    out->spans = kvr_calloc(out->n_layer, sizeof *out->spans);
    if (out->spans == NULL)
        return kvr_no_memory(c->err, "layers", out->n_layer);
    return read_spans(c);
}

enum kvr_status kvr__cli_import_config(struct import_config *out,
                                       const char *path, struct kvr_error *err)
{
    struct config c = {.path = path, .out = out, .err = err};
    uint8_t *text = NULL;
    size_t size = 0;
    json_error_t why;

    *out = (struct import_config){0};
    enum kvr_status status = kvr_file_read(&text, &size, path, MAX_CONFIG, err);
    if (status != KVR_OK)
        return status;
    json_t *root =
        json_loadb((const char *)text, size, JSON_REJECT_DUPLICATES, &why);
    free(text);
    c.root = root;
    if (root == NULL)
        status = kvr_fail(err, KVR_ERR_INPUT, "%s: not JSON: %s at line %d",
                          path, why.text, why.line);
    else if (!json_is_object(root))
        status = kvr_fail(err, KVR_ERR_INPUT, "%s: is not a JSON object", path);
    else
        status = read_root(&c);
    json_decref(root);
    if (status != KVR_OK)
        kvr__cli_import_config_free(out);
    return status;
}

void kvr__cli_import_config_free(struct import_config *config)
{
    free(config->spans);
    *config = (struct import_config){0};
}
