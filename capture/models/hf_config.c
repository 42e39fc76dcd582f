/* hf_config.c -- config.json: its keys into the config, or refused.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "hf_defaults.h"
#include "hf_rope.h"
#include "keys.h"
#include "model_private.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG = 16 << 20 };

static const struct {
    const char *name;
    enum kvr_activation activation;
} activations[] = {
    {"silu", KVR_SILU},           {"swish", KVR_SILU},
    {"gelu", KVR_GELU},           {"gelu_new", KVR_GELU_TANH},
    {"gelu_fast", KVR_GELU_TANH}, {"gelu_pytorch_tanh", KVR_GELU_TANH},
    {"relu", KVR_RELU},
};

static enum kvr_status wrong(const struct kvr_model *model, const char *key,
                             const char *expected, struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_INPUT, "%s: %s is not %s", model->path, key,
                    expected);
}

static enum kvr_status read_activation(struct kvr_model *model,
                                       enum kvr_activation *out,
                                       const char *key, const json_t *value,
                                       struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];

    if (!json_is_string(value))
        return wrong(model, key, "a string", err);
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (strcmp(activations[i].name, json_string_value(value)) == 0) {
            *out = activations[i].activation;
            return KVR_OK;
        }
    return kvr_fail(
        err, KVR_ERR_UNSUPPORTED,
        "%s: %s '%s' is not supported (supported: silu gelu "
        "gelu_new gelu_pytorch_tanh relu)",
        model->path, key,
        kvr_slice_show(shown, kvr_slice_of(json_string_value(value))));
}

static enum kvr_status read_u32(struct kvr_model *model, uint32_t *out,
                                const char *key, const json_t *value,
                                struct kvr_error *err)
{
    if (!json_is_integer(value))
        return wrong(model, key, "a whole number", err);
    const json_int_t n = json_integer_value(value);
    if (n < 1 || n > KVR_MAX_DIM)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s is %" JSON_INTEGER_FORMAT ", expected 1 to %d",
                        model->path, key, n, (int)KVR_MAX_DIM);
    *out = (uint32_t)n;
    return KVR_OK;
}

static enum kvr_status read_real(struct kvr_model *model, double *out,
                                 const struct kvr_key *key, const json_t *value,
                                 struct kvr_error *err)
{
    const bool positive = key->kind == KVR_KEY_POSITIVE;
    const double x = json_number_value(value);

    if (!json_is_number(value))
        return wrong(model, key->name, "a number", err);
    if (!isfinite(x) || x < 0 || (positive && x == 0))
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s is %g, expected %s",
                        model->path, key->name, x,
                        positive ? "above 0" : "0 or more");
    *out = x;
    return KVR_OK;
}

static enum kvr_status read_bool(struct kvr_model *model, bool *out,
                                 const struct kvr_key *key, const json_t *value,
                                 struct kvr_error *err)
{
    if (!json_is_boolean(value))
        return wrong(model, key->name, "true or false", err);
    *out = json_is_true(value);
    return KVR_OK;
}

/* A switch that is supported in one position. */
static enum kvr_status check_switch(const struct kvr_model *model,
                                    const struct kvr_key *key,
                                    const json_t *value, struct kvr_error *err)
{
    const bool on = key->kind == KVR_KEY_TRUE;

    if (json_is_boolean(value) && json_is_true(value) == on)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_UNSUPPORTED, "%s: %s is supported as %s only",
                    model->path, key->name, on ? "true" : "false");
}

/* null says: none, or as follows from the others. */
static void clear(struct kvr_model *model, const struct kvr_key *key)
{
    char *into = (char *)&model->config + key->offset;

    if (key->kind == KVR_KEY_U32)
        memset(into, 0, sizeof(uint32_t));
    else if (key->kind == KVR_KEY_POSITIVE)
        *(double *)(void *)into = 0;
}

static enum kvr_status read_key(struct kvr_model *model,
                                const struct kvr_key *key, const json_t *root,
                                struct kvr_error *err)
{
    const json_t *value = json_object_get(root, key->name);
    void *into = (char *)&model->config + key->offset;

    if (key->required && (value == NULL || json_is_null(value)))
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no %s", model->path,
                        key->name);
    if (value == NULL)
        return KVR_OK;
    if (json_is_null(value) && key->nullable) {
        clear(model, key);
        return KVR_OK;
    }
    switch (key->kind) {
    case KVR_KEY_U32:
    case KVR_KEY_COUNT:
        return read_u32(model, into, key->name, value, err);
    case KVR_KEY_REAL:
    case KVR_KEY_POSITIVE:
        return read_real(model, into, key, value, err);
    case KVR_KEY_BOOL:
        return read_bool(model, into, key, value, err);
    case KVR_KEY_ACTIVATION:
        return read_activation(model, into, key->name, value, err);
    case KVR_KEY_TRUE:
    case KVR_KEY_FALSE:
        return check_switch(model, key, value, err);
    case KVR_KEY_READ:
    case KVR_KEY_INERT:
        break;
    }
    return KVR_OK;
}

/* An unknown key passes with the value that it has where it is absent. */
static enum kvr_status refuse_unknown(const struct kvr_model *model,
                                      json_t *root, struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT], what[KVR_SLICE_TEXT];

    for (void *at = json_object_iter(root); at != NULL;
         at = json_object_iter_next(root, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        bool usual = kvr__hf_key_known(model->family, name);
        if (usual)
            continue;
        const enum kvr_status status =
            kvr__hf_is_default(&usual, name, value, err);
        if (status != KVR_OK)
            return status;
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        if (usual || text == NULL) {
            free(text);
            if (usual)
                continue;
            return kvr_no_memory(err, name, 0);
        }
        kvr_slice_show(what, kvr_slice_of(text));
        free(text);
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: key '%s' is %s, which is not supported for %s "
                        "and may change attention",
                        model->path, kvr_slice_show(shown, kvr_slice_of(name)),
                        what, model->family->hf);
    }
    return KVR_OK;
}

static enum kvr_status find_family(struct kvr_model *model, const json_t *root,
                                   struct kvr_error *err)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    char shown[KVR_SLICE_TEXT], list[256];

    if (type == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no model_type",
                        model->path);
    model->family = kvr__family_find(KVR_FORMAT_HF, kvr_slice_of(type));
    if (model->family != NULL)
        return KVR_OK;
    kvr__family_list(list, sizeof list, KVR_FORMAT_HF);
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "%s: model_type '%s' is not supported (supported: %s)",
                    model->path, kvr_slice_show(shown, kvr_slice_of(type)),
                    list);
}

/* layer_types: which layers have the window. */
static enum kvr_status read_layer_types(struct kvr_model *model,
                                        const json_t *types,
                                        struct kvr_error *err)
{
    const struct kvr_config *c = &model->config;
    char shown[KVR_SLICE_TEXT];

    if (json_array_size(types) != c->n_layer)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer_types has %zu entries, num_hidden_layers is "
                        "%" PRIu32,
                        model->path, json_array_size(types), c->n_layer);
    model->layers = kvr_calloc(c->n_layer, sizeof *model->layers);
    if (model->layers == NULL)
        return kvr_no_memory(err, "layers", c->n_layer);
    for (uint32_t l = 0; l < c->n_layer; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        if (type != NULL && strcmp(type, "full_attention") == 0)
            continue;
        if (type == NULL || strcmp(type, "sliding_attention") != 0)
            return kvr_fail(
                err, KVR_ERR_UNSUPPORTED,
                "%s: layer_types: '%s' is not supported (supported: "
                "full_attention sliding_attention)",
                model->path,
                kvr_slice_show(shown, kvr_slice_of(type != NULL ? type : "")));
        if (c->window == 0 || !c->use_window)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: layer_types says sliding_attention, but "
                            "there is no sliding_window",
                            model->path);
        model->layers[l] = (struct kvr_layer_kind){
            .span = c->window, .local = c->rope_local.base > 0};
    }
    return KVR_OK;
}

/* layer_types counts; what else says where windows are must not differ. */
static enum kvr_status check_layer_types(const struct kvr_model *model,
                                         const json_t *root,
                                         struct kvr_error *err)
{
    static const char *const rules[] = {"sliding_window_pattern",
                                        "_sliding_window_pattern",
                                        "max_window_layers"};
    const struct kvr_config *c = &model->config;

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const json_t *rule = json_object_get(root, rules[i]);
        if (rule == NULL || !kvr__hf_key_known(model->family, rules[i]) ||
            !c->use_window || c->window == 0)
            continue;
        for (uint32_t l = 0; l < c->n_layer; l++)
            if ((model->layers[l].span > 0) != kvr_layer_has_window(c, l))
                return kvr_fail(err, KVR_ERR_INPUT,
                                "%s: layer %" PRIu32 ": layer_types and %s "
                                "differ about its window",
                                model->path, l, rules[i]);
    }
    return KVR_OK;
}

/* word_embed_proj_dim: null or absent is hidden_size. */
static enum kvr_status check_width(const struct kvr_model *model,
                                   const json_t *root, struct kvr_error *err)
{
    const struct kvr_config *c = &model->config;
    const json_t *wide = json_object_get(root, "word_embed_proj_dim");

    if (wide == NULL || json_is_null(wide))
        return KVR_OK;
    if (!json_is_integer(wide))
        return wrong(model, "word_embed_proj_dim", "a whole number", err);
    if (json_integer_value(wide) == c->hidden)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "%s: word_embed_proj_dim %" JSON_INTEGER_FORMAT
                    " is not hidden_size %" PRIu32
                    ": projected embeddings are not supported",
                    model->path, json_integer_value(wide), c->hidden);
}

static enum kvr_status read_window_from(struct kvr_model *model,
                                        const json_t *root,
                                        struct kvr_error *err)
{
    const json_t *from = json_object_get(root, "max_window_layers");

    if (from == NULL)
        return KVR_OK;
    if (!json_is_integer(from))
        return wrong(model, "max_window_layers", "a whole number", err);
    const json_int_t n = json_integer_value(from);
    if (n < 0)
        return wrong(model, "max_window_layers", "0 or more", err);
    model->config.window_from =
        n > KVR_MAX_LAYERS ? KVR_MAX_LAYERS : (uint32_t)n;
    return KVR_OK;
}

/* Two names of one thing: where a file has both, they say the same. null is
 * no word. */
static enum kvr_status check_spellings(const struct kvr_model *model,
                                       const json_t *root,
                                       struct kvr_error *err)
{
    static const char *const pairs[][2] = {
        {"hidden_activation", "hidden_act"},
        {"n_positions", "n_ctx"},
        {"sliding_window_pattern", "_sliding_window_pattern"},
        {"rotary_pct", "partial_rotary_factor"},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const json_t *a = json_object_get(root, pairs[i][0]);
        const json_t *b = json_object_get(root, pairs[i][1]);
        const bool numbers = json_is_number(a) && json_is_number(b);
        if (a == NULL || b == NULL || json_is_null(a) || json_is_null(b) ||
            json_equal(a, b) ||
            (numbers && json_number_value(a) == json_number_value(b)) ||
            !kvr__hf_key_known(model->family, pairs[i][0]))
            continue;
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s and %s are two names of one thing and differ",
                        model->path, pairs[i][0], pairs[i][1]);
    }
    return KVR_OK;
}

/* Keys that are not just a number in the config. */
static enum kvr_status read_others(struct kvr_model *model, const json_t *root,
                                   struct kvr_error *err)
{
    const json_t *types = json_object_get(root, "layer_types");
    enum kvr_status status;

    if ((status = check_spellings(model, root, err)) != KVR_OK ||
        (status = check_width(model, root, err)) != KVR_OK ||
        (status = read_window_from(model, root, err)) != KVR_OK ||
        (status = kvr__hf_read_rope(model, root, err)) != KVR_OK)
        return status;
    if (types == NULL || json_is_null(types))
        return KVR_OK;
    if (!json_is_array(types))
        return wrong(model, "layer_types", "a list", err);
    if ((status = read_layer_types(model, types, err)) != KVR_OK)
        return status;
    return check_layer_types(model, root, err);
}

static enum kvr_status read_root(struct kvr_model *model, json_t *root,
                                 struct kvr_error *err)
{
    enum kvr_status status = find_family(model, root, err);

    if (status != KVR_OK)
        return status;
    model->config = model->family->defaults;
    for (const struct kvr_key *key = model->family->hf_keys;
         key->name != NULL && status == KVR_OK; key++)
        status = read_key(model, key, root, err);
    if (status == KVR_OK)
        status = refuse_unknown(model, root, err);
    if (status != KVR_OK)
        return status;
    if (model->config.n_layer > KVR_MAX_LAYERS)
        return kvr_fail(
            err, KVR_ERR_INPUT, "%s: %" PRIu32 " layers, at most %d are read",
            model->path, model->config.n_layer, (int)KVR_MAX_LAYERS);
    return read_others(model, root, err);
}

enum kvr_status kvr__hf_read_config(struct kvr_model *model,
                                    struct kvr_error *err)
{
    uint8_t *text;
    size_t size;
    json_error_t why;
    enum kvr_status status =
        kvr_file_read(&text, &size, model->path, MAX_CONFIG, err);

    if (status != KVR_OK)
        return status;
    json_t *root =
        json_loadb((const char *)text, size, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (root == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: not JSON: %s at line %d",
                        model->path, why.text, why.line);
    if (json_is_object(root))
        status = read_root(model, root, err);
    else
        status = kvr_fail(err, KVR_ERR_INPUT, "%s: is not a JSON object",
                          model->path);
    json_decref(root);
    return status;
}
