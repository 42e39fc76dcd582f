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
    struct kvr_slice name = {0};
    char shown[KVR_SLICE_TEXT], list[256];
    bool found;
    const enum kvr_status status = kvr__gguf_string(
        &name, &found, model->gguf, "general.architecture", err);

    if (status != KVR_OK)
        return status;
    if (!found)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no general.architecture",
                        model->path);
    model->family = kvr__family_find(KVR_FORMAT_GGUF, name);
    if (model->family != NULL)
        return KVR_OK;
    kvr__family_list(list, sizeof list, KVR_FORMAT_GGUF);
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "%s: architecture '%s' is not supported (supported: %s)",
                    model->path, kvr_slice_show(shown, name), list);
}

static enum kvr_status read_real(double *out, bool *found,
                                 const struct kvr_model *model,
                                 const struct kvr_key *key, const char *name,
                                 struct kvr_error *err)
{
    const bool positive = key->kind == KVR_KEY_POSITIVE;
    const enum kvr_status status =
        kvr__gguf_real(out, found, model->gguf, name, err);

    if (status != KVR_OK || !*found ||
        (isfinite(*out) && *out >= 0 && (*out > 0 || !positive)))
        return status;
    return kvr_fail(err, KVR_ERR_INPUT, "%s: %s is %g, expected %s",
                    model->path, name, *out,
                    positive ? "above 0" : "0 or more");
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
        status = kvr__gguf_u32(into, &found, model->gguf, name, err);
    else if (key->kind == KVR_KEY_REAL || key->kind == KVR_KEY_POSITIVE)
        status = read_real(into, &found, model, key, name, err);
    else if (key->kind == KVR_KEY_BOOL)
        status = kvr__gguf_bool(into, &found, model->gguf, name, err);
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

/* " (0)" of a single number; nothing of others. */
static void show_value(char *out, size_t size,
                       const struct kvr_gguf_value *value)
{
    double number;

    out[0] = '\0';
    if (value->n == 1 && kvr__gguf_number(&number, value, 0))
        snprintf(out, size, " (%g)", number);
}

/* Refuses what the architecture's own metadata says and this reader does not
 * know: a window or a soft cap that is ignored gives another matrix. */
static enum kvr_status refuse_unknown(const struct kvr_model *model,
                                      struct kvr_error *err)
{
    const size_t prefix = strlen(model->family->gguf) + 1;
    char shown[KVR_SLICE_TEXT], number[40];

    for (size_t i = 0; i < kvr__gguf_n_values(model->gguf); i++) {
        const struct kvr_gguf_value *value = kvr__gguf_value(model->gguf, i);
        const struct kvr_key *key = model->family->gguf_keys;
        if (value->key.size <= prefix || value->key.bytes[prefix - 1] != '.' ||
            memcmp(value->key.bytes, model->family->gguf, prefix - 1) != 0)
            continue;
        const struct kvr_slice rest = {value->key.bytes + prefix,
                                       value->key.size - prefix};
        while (key->name != NULL && !kvr_slice_is(rest, key->name))
            key++;
        if (key->name != NULL || kvr__gguf_is_default(rest, value))
            continue;
        show_value(number, sizeof number, value);
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: metadata key '%s'%s is not supported and may "
                        "change attention",
                        model->path, kvr_slice_show(shown, value->key), number);
    }
    return KVR_OK;
}

/* A factor of linear scaling; 0 means none, as in llama.cpp. */
static enum kvr_status read_factor(double *out, bool *found,
                                   const struct kvr_model *model,
                                   const char *name, struct kvr_error *err)
{
    char key[MAX_KEY];
    enum kvr_status status;

    full_key(key, model, name);
    *out = 1;
    if ((status = kvr__gguf_real(out, found, model->gguf, key, err)) != KVR_OK)
        return status;
    if (!isfinite(*out) || *out < 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s is %g, expected 0 or more",
                        model->path, key, *out);
    *out = *out > 0 ? *out : 1;
    return KVR_OK;
}

/* rope.scaling.*: none and linear are applied, the others refused. Without a
 * type a factor means linear scaling; scale_linear is its older name. */
static enum kvr_status read_scaling(struct kvr_model *model,
                                    struct kvr_error *err)
{
    struct kvr_slice type = {0};
    char key[MAX_KEY], shown[KVR_SLICE_TEXT];
    double factor, older;
    bool typed, given, older_given;
    enum kvr_status status;

    full_key(key, model, "rope.scaling.type");
    if ((status = read_factor(&older, &older_given, model, "rope.scale_linear",
                              err)) != KVR_OK ||
        (status = read_factor(&factor, &given, model, "rope.scaling.factor",
                              err)) != KVR_OK ||
        (status = kvr__gguf_string(&type, &typed, model->gguf, key, err)) !=
            KVR_OK)
        return status;
    if (given && older_given && factor != older)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: rope.scaling.factor is %g, but "
                        "rope.scale_linear is %g",
                        model->path, factor, older);
    const bool none = typed && kvr_slice_is(type, "none");
    if (typed && !none && !kvr_slice_is(type, "linear"))
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s is '%s'; supported are none and linear",
                        model->path, key, kvr_slice_show(shown, type));
    model->config.rope.linear = none ? 1 : given ? factor : older;
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
    char shown[KVR_SLICE_TEXT], list[256];
    const size_t n = kvr__gguf_n_tensors(model->gguf);

    if (n == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: no tensors; a vocabulary-only file", model->path);
    for (size_t i = 0; i < n; i++) {
        const struct kvr_gguf_tensor *t = kvr__gguf_tensor(model->gguf, i);
        const struct kvr_quant_row *type = kvr__quant_find(t->type);
        if (type->expand != NULL)
            continue;
        kvr__quant_list(list, sizeof list);
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: tensor '%s' has type %s, which is not supported "
                        "(supported: %s)",
                        model->path, kvr_slice_show(shown, t->name), type->name,
                        list);
    }
    return KVR_OK;
}

static enum kvr_status list_tensors(struct kvr_model *model,
                                    struct kvr_error *err)
{
    const size_t n = kvr__gguf_n_tensors(model->gguf);
    const enum kvr_status status = kvr__model_new_stored(model, n, err);

    for (size_t i = 0; i < n && status == KVR_OK; i++) {
        const struct kvr_gguf_tensor *t = kvr__gguf_tensor(model->gguf, i);
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

/* Name for the trace: general.name, else, or where that is empty, the file's
 * base name. */
static enum kvr_status name_model(struct kvr_model *model,
                                  struct kvr_error *err)
{
    const char *slash = strrchr(model->path, '/');
    const struct kvr_slice file =
        kvr_slice_of(slash != NULL ? slash + 1 : model->path);
    struct kvr_slice name = {0};
    const enum kvr_status status =
        kvr__gguf_string(&name, NULL, model->gguf, "general.name", err);

    kvr__model_set_name(model, name.size > 0 ? name : file);
    return status;
}

enum kvr_status kvr__model_open_gguf(struct kvr_model *model, const char *path,
                                     struct kvr_error *err)
{
    enum kvr_status status;

    model->format = KVR_FORMAT_GGUF;
    model->path = kvr_strdup(path);
    if (model->path == NULL)
        return kvr_no_memory(err, "a path", strlen(path));
    if ((status = kvr__gguf_open(&model->gguf, path, err)) != KVR_OK ||
        (status = find_family(model, err)) != KVR_OK ||
        (status = check_types(model, err)) != KVR_OK ||
        (status = read_config(model, err)) != KVR_OK ||
        (status = list_tensors(model, err)) != KVR_OK)
        return status;
    return name_model(model, err);
}
