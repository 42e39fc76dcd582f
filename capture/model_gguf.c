/* model_gguf.c -- a GGUF file's metadata and tensors into a model.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "keys.h"
#include "model_private.h"

#include "kvr_memory.h"
#include "quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_KEY = 128 };

/* "llama.block_count" */
static void full_key(char out[MAX_KEY], const struct kvr_model *model,
                     const char *name)
{
    snprintf(out, MAX_KEY, "%s.%s", model->family->gguf, name);
}

static enum kvr_status find_family(struct kvr_model *model,
                                   struct kvr_error *err)
{
    struct kvr_view name = {0};
    char shown[KVR_VIEW_TEXT], list[256];
    bool found;
    const enum kvr_status status = kvr_gguf_string(&name, &found, model->gguf,
                                                   "general.architecture", err);

    if (status != KVR_OK)
        return status;
    if (!found)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no general.architecture",
                        model->path);
    model->family = kvr_family_find(KVR_FORMAT_GGUF, name);
    if (model->family != NULL)
        return KVR_OK;
    kvr_family_list(list, sizeof list, KVR_FORMAT_GGUF);
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "%s: architecture '%s' is not supported (supported: %s)",
                    model->path, kvr_view_show(shown, name), list);
}

static enum kvr_status read_key(struct kvr_model *model,
                                const struct kvr_key *key,
                                struct kvr_error *err)
{
    void *into = (char *)&model->config + key->offset;
    char name[MAX_KEY];
    bool found = true;
    enum kvr_status status = KVR_OK;

    full_key(name, model, key->name);
    if (key->kind == KVR_KEY_U32 || key->kind == KVR_KEY_COUNT)
        status = kvr_gguf_u32(into, &found, model->gguf, name, err);
    else if (key->kind == KVR_KEY_REAL)
        status = kvr_gguf_real(into, &found, model->gguf, name, err);
    else if (key->kind == KVR_KEY_BOOL)
        status = kvr_gguf_bool(into, &found, model->gguf, name, err);
    if (status == KVR_OK && key->required && !found)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no %s", model->path, name);
    if (status == KVR_OK && key->kind == KVR_KEY_COUNT &&
        *(uint32_t *)into == 0)
        return KVR_OK;
    if (status == KVR_OK && found &&
        (key->kind == KVR_KEY_U32 || key->kind == KVR_KEY_COUNT) &&
        (*(uint32_t *)into == 0 || *(uint32_t *)into > KVR_MAX_DIM))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s is %" PRIu32 ", expected 1 to %d", model->path,
                        name, *(uint32_t *)into, (int)KVR_MAX_DIM);
    return status;
}

/* Values that switch a feature off: 0, false, an array of them. */
static bool is_off(const struct kvr_gguf_value *value)
{
    double number;

    if (value->type == KVR_GGUF_STRING ||
        (value->type == KVR_GGUF_ARRAY &&
         (value->item_type == KVR_GGUF_STRING ||
          value->item_type == KVR_GGUF_ARRAY)))
        return value->n == 0;
    for (uint64_t i = 0; i < value->n; i++)
        if (!kvr_gguf_number(&number, value, i) || number != 0)
            return false;
    return true;
}

/* Refuses what the architecture's own metadata says and this reader does not
 * know: a window or a soft cap that is ignored gives another matrix. */
static enum kvr_status refuse_unknown(const struct kvr_model *model,
                                      struct kvr_error *err)
{
    const size_t prefix = strlen(model->family->gguf) + 1;
    char shown[KVR_VIEW_TEXT];

    for (size_t i = 0; i < kvr_gguf_n_values(model->gguf); i++) {
        const struct kvr_gguf_value *value = kvr_gguf_value(model->gguf, i);
        const struct kvr_key *key = model->family->gguf_keys;
        if (value->key.size <= prefix || value->key.bytes[prefix - 1] != '.' ||
            memcmp(value->key.bytes, model->family->gguf, prefix - 1) != 0)
            continue;
        const struct kvr_view rest = {value->key.bytes + prefix,
                                      value->key.size - prefix};
        while (key->name != NULL && !kvr_view_is(rest, key->name))
            key++;
        if (key->name == NULL && !is_off(value))
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "%s: metadata key '%s' is not supported and may "
                            "change attention",
                            model->path, kvr_view_show(shown, value->key));
    }
    return KVR_OK;
}

/* rope.scaling.*: none and linear are applied, the others refused. */
static enum kvr_status read_scaling(struct kvr_model *model,
                                    struct kvr_error *err)
{
    struct kvr_config *config = &model->config;
    struct kvr_view type = {0};
    char key[MAX_KEY], shown[KVR_VIEW_TEXT];
    double factor = 0;
    bool typed, older;
    enum kvr_status status;

    full_key(key, model, "rope.scale_linear");
    if ((status = kvr_gguf_real(&config->rope.linear, &older, model->gguf, key,
                                err)) != KVR_OK)
        return status;
    full_key(key, model, "rope.scaling.factor");
    if ((status = kvr_gguf_real(&factor, NULL, model->gguf, key, err)) !=
        KVR_OK)
        return status;
    full_key(key, model, "rope.scaling.type");
    if ((status = kvr_gguf_string(&type, &typed, model->gguf, key, err)) !=
        KVR_OK)
        return status;
    const bool linear = typed && kvr_view_is(type, "linear");
    if (typed && !linear && !kvr_view_is(type, "none"))
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s is '%s'; supported are none and linear",
                        model->path, key, kvr_view_show(shown, type));
    /* without a type, a factor means linear scaling */
    if ((linear || !typed) && factor != 0)
        config->rope.linear = factor;
    if (!(config->rope.linear > 0) || !isfinite(config->rope.linear))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: rope scaling factor %g, expected above 0",
                        model->path, config->rope.linear);
    return KVR_OK;
}

static enum kvr_status read_config(struct kvr_model *model,
                                   struct kvr_error *err)
{
    struct kvr_config *c = &model->config;
    enum kvr_status status = KVR_OK;

    *c = model->family->defaults;
    /* the format's own defaults: heads share the width, logits its root */
    c->key_dim = 0;
    c->query_scalar = 0;
    c->rope.base = c->rope.base > 0 ? 10000 : 0;
    c->tied = false; /* it is when there is no output matrix */
    for (const struct kvr_key *key = model->family->gguf_keys;
         key->name != NULL && status == KVR_OK; key++)
        status = read_key(model, key, err);
    if (status != KVR_OK || (status = refuse_unknown(model, err)) != KVR_OK)
        return status;
    if (c->n_layer == model->family->gguf_wide_layers)
        c->query_scalar = (double)c->hidden / c->n_head;
    return c->rope.base > 0 ? read_scaling(model, err) : KVR_OK;
}

/* A type that is not read is named before anything is missed. */
static enum kvr_status check_types(const struct kvr_model *model,
                                   struct kvr_error *err)
{
    char shown[KVR_VIEW_TEXT], list[256];
    const size_t n = kvr_gguf_n_tensors(model->gguf);

    if (n == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: no tensors; a vocabulary-only file", model->path);
    for (size_t i = 0; i < n; i++) {
        const struct kvr_gguf_tensor *t = kvr_gguf_tensor(model->gguf, i);
        const struct kvr_quant_row *type = kvr_quant_find(t->type);
        if (type->expand != NULL)
            continue;
        kvr_quant_list(list, sizeof list);
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: tensor '%s' has type %s, which is not supported "
                        "(supported: %s)",
                        model->path, kvr_view_show(shown, t->name), type->name,
                        list);
    }
    return KVR_OK;
}

static enum kvr_status list_tensors(struct kvr_model *model,
                                    struct kvr_error *err)
{
    const size_t n = kvr_gguf_n_tensors(model->gguf);
    const enum kvr_status status = kvr_model_new_stored(model, n, err);

    for (size_t i = 0; i < n && status == KVR_OK; i++) {
        const struct kvr_gguf_tensor *t = kvr_gguf_tensor(model->gguf, i);
        model->stored[model->n_stored++] = (struct kvr_stored){
            .name = t->name,
            .type = t->type,
            .rows = t->rows,
            .cols = t->dims[0],
            .data = t->data,
            .size = t->size,
        };
    }
    return status;
}

/* Name for the trace: general.name, else the file's base name. */
static enum kvr_status name_model(struct kvr_model *model,
                                  struct kvr_error *err)
{
    const char *slash = strrchr(model->path, '/');
    struct kvr_view name = kvr_view_of(slash != NULL ? slash + 1 : model->path);
    const enum kvr_status status =
        kvr_gguf_string(&name, NULL, model->gguf, "general.name", err);

    kvr_model_set_name(model, name);
    return status;
}

enum kvr_status kvr_model_open_gguf(struct kvr_model *model, const char *path,
                                    struct kvr_error *err)
{
    enum kvr_status status;

    model->format = KVR_FORMAT_GGUF;
    model->path = kvr_strdup(path);
    if (model->path == NULL)
        return kvr_no_memory(err, "a path", strlen(path));
    if ((status = kvr_gguf_open(&model->gguf, path, err)) != KVR_OK ||
        (status = find_family(model, err)) != KVR_OK ||
        (status = check_types(model, err)) != KVR_OK ||
        (status = read_config(model, err)) != KVR_OK ||
        (status = list_tensors(model, err)) != KVR_OK)
        return status;
    return name_model(model, err);
}
