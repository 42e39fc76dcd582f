/* model.c -- from a GGUF file to a checked model description.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "model.h"

#include "kvr_memory.h"
#include "quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounds that no model comes near; they keep products in range. */
enum { MAX_DIM = 1 << 24, MAX_LAYERS = 1 << 14, MAX_KEY = 128 };

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
                        kvr_gguf_path(model->gguf));
    model->family = kvr_family_find(name);
    if (model->family != NULL)
        return KVR_OK;
    kvr_family_list(list, sizeof list);
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "%s: architecture '%s' is not supported (supported: %s)",
                    kvr_gguf_path(model->gguf), kvr_view_show(shown, name),
                    list);
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
    if (key->kind == KVR_KEY_U32)
        status = kvr_gguf_u32(into, &found, model->gguf, name, err);
    else if (key->kind == KVR_KEY_REAL)
        status = kvr_gguf_real(into, &found, model->gguf, name, err);
    if (status == KVR_OK && key->required && !found)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no %s",
                        kvr_gguf_path(model->gguf), name);
    if (status == KVR_OK && found && key->kind == KVR_KEY_U32 &&
        (*(uint32_t *)into == 0 || *(uint32_t *)into > MAX_DIM))
        return kvr_fail(
            err, KVR_ERR_INPUT, "%s: %s is %" PRIu32 ", expected 1 to %d",
            kvr_gguf_path(model->gguf), name, *(uint32_t *)into, (int)MAX_DIM);
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
        const struct kvr_key *key = model->family->keys;
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
                            kvr_gguf_path(model->gguf),
                            kvr_view_show(shown, value->key));
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
    if ((status = kvr_gguf_real(&config->rope_linear, &older, model->gguf, key,
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
                        kvr_gguf_path(model->gguf), key,
                        kvr_view_show(shown, type));
    /* without a type, a factor means linear scaling */
    if ((linear || !typed) && factor != 0)
        config->rope_linear = factor;
    if (!(config->rope_linear > 0) || !isfinite(config->rope_linear))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: rope scaling factor %g, expected above 0",
                        kvr_gguf_path(model->gguf), config->rope_linear);
    return KVR_OK;
}

/* What was not stated follows from what was. */
static enum kvr_status derive(struct kvr_model *model, struct kvr_error *err)
{
    struct kvr_config *c = &model->config;
    const char *path = kvr_gguf_path(model->gguf);
    const struct kvr_gguf_tensor *embedding =
        kvr_gguf_tensor_named(model->gguf, "token_embd.weight");

    if (c->n_layer > MAX_LAYERS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: block_count is %" PRIu32 ", at most %d is read",
                        path, c->n_layer, (int)MAX_LAYERS);
    if (c->n_kv_head == 0)
        c->n_kv_head = c->n_head;
    if (c->n_head % c->n_kv_head != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: attention.head_count %" PRIu32
                        " is not a multiple of attention.head_count_kv "
                        "%" PRIu32,
                        path, c->n_head, c->n_kv_head);
    if (c->key_dim == 0 && c->hidden % c->n_head != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: embedding_length %" PRIu32 " is not a multiple "
                        "of attention.head_count %" PRIu32
                        " and attention.key_length is not stated",
                        path, c->hidden, c->n_head);
    if (c->key_dim == 0)
        c->key_dim = c->hidden / c->n_head;
    if (c->value_dim == 0)
        c->value_dim = c->key_dim;
    if (c->rope_dim == 0)
        c->rope_dim = c->key_dim;
    if (c->rope_dim > c->key_dim || c->rope_dim % 2 != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: rope.dimension_count is %" PRIu32
                        ", expected an even number up to the key length "
                        "%" PRIu32,
                        path, c->rope_dim, c->key_dim);
    if (c->n_vocab == 0 && embedding != NULL && embedding->rows <= MAX_DIM)
        c->n_vocab = (uint32_t)embedding->rows;
    if (!(c->norm_eps >= 0 && c->norm_eps < 1))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: attention.layer_norm_rms_epsilon is %g", path,
                        c->norm_eps);
    if (!(c->rope_base > 0) || !isfinite(c->rope_base))
        return kvr_fail(err, KVR_ERR_INPUT, "%s: rope.freq_base is %g", path,
                        c->rope_base);
    return KVR_OK;
}

static enum kvr_status read_config(struct kvr_model *model,
                                   struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    model->config.rope_base = 10000;
    model->config.rope_linear = 1;
    for (const struct kvr_key *key = model->family->keys;
         key->name != NULL && status == KVR_OK; key++)
        status = read_key(model, key, err);
    if (status != KVR_OK || (status = refuse_unknown(model, err)) != KVR_OK ||
        (status = read_scaling(model, err)) != KVR_OK)
        return status;
    return derive(model, err);
}

/* A type that is not read is named before anything is missed. */
static enum kvr_status check_types(const struct kvr_model *model,
                                   struct kvr_error *err)
{
    char shown[KVR_VIEW_TEXT], list[256];
    const size_t n = kvr_gguf_n_tensors(model->gguf);

    if (n == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: no tensors; a vocabulary-only file",
                        kvr_gguf_path(model->gguf));
    for (size_t i = 0; i < n; i++) {
        const struct kvr_gguf_tensor *t = kvr_gguf_tensor(model->gguf, i);
        const struct kvr_quant_row *type = kvr_quant_find(t->type);
        if (type->expand != NULL)
            continue;
        kvr_quant_list(list, sizeof list);
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: tensor '%s' has type %s, which is not supported "
                        "(supported: %s)",
                        kvr_gguf_path(model->gguf),
                        kvr_view_show(shown, t->name), type->name, list);
    }
    return KVR_OK;
}

static enum kvr_status find_tensor(const struct kvr_gguf_tensor **out,
                                   const struct kvr_model *model,
                                   const struct kvr_slot *slot,
                                   const char *name, struct kvr_error *err)
{
    const struct kvr_gguf_tensor *tensor =
        kvr_gguf_tensor_named(model->gguf, name);
    const uint64_t cols = kvr_dim_size(&model->config, slot->cols);
    const uint64_t rows = kvr_dim_size(&model->config, slot->rows);
    char why_cols[128], why_rows[128];

    *out = tensor;
    if (tensor == NULL && !slot->optional)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: tensor '%s' is missing",
                        kvr_gguf_path(model->gguf), name);
    if (tensor == NULL || (tensor->dims[0] == cols && tensor->rows == rows))
        return KVR_OK;
    kvr_dim_text(why_cols, sizeof why_cols, &model->config, slot->cols);
    kvr_dim_text(why_rows, sizeof why_rows, &model->config, slot->rows);
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: tensor '%s' has shape [%" PRIu64 ", %" PRIu64
                    "], but the metadata say [%" PRIu64 ", %" PRIu64
                    "] (%s; %s)",
                    kvr_gguf_path(model->gguf), name, tensor->dims[0],
                    tensor->rows, cols, rows, why_cols, why_rows);
}

/* What is not there is said before any shape is looked at. */
static enum kvr_status refuse_missing(const struct kvr_model *model,
                                      struct kvr_error *err)
{
    for (int s = 0; s < KVR_N_MODEL_SLOT; s++) {
        const struct kvr_slot *slot = &model->family->model_slots[s];
        if (slot->name != NULL && !slot->optional &&
            kvr_gguf_tensor_named(model->gguf, slot->name) == NULL)
            return kvr_fail(err, KVR_ERR_INPUT, "%s: tensor '%s' is missing",
                            kvr_gguf_path(model->gguf), slot->name);
    }
    return KVR_OK;
}

static enum kvr_status find_tensors(struct kvr_model *model, size_t *n_found,
                                    struct kvr_error *err)
{
    const struct kvr_family *family = model->family;
    const uint32_t n_layer = model->config.n_layer;
    char name[128];
    enum kvr_status status = KVR_OK;

    model->layer_file = kvr_calloc((size_t)n_layer * KVR_N_LAYER_SLOT,
                                   sizeof *model->layer_file);
    if (model->layer_file == NULL)
        return kvr_no_memory(err, "layers", n_layer);
    status = refuse_missing(model, err);
    for (int s = 0; s < KVR_N_MODEL_SLOT && status == KVR_OK; s++) {
        const struct kvr_slot *slot = &family->model_slots[s];
        if (slot->name == NULL)
            continue;
        status =
            find_tensor(&model->model_file[s], model, slot, slot->name, err);
        *n_found += model->model_file[s] != NULL;
    }
    for (uint32_t i = 0;
         i < n_layer * (uint32_t)KVR_N_LAYER_SLOT && status == KVR_OK; i++) {
        const struct kvr_slot *slot =
            &family->layer_slots[i % KVR_N_LAYER_SLOT];
        if (slot->name == NULL)
            continue;
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", i / KVR_N_LAYER_SLOT,
                 slot->name);
        status = find_tensor(&model->layer_file[i], model, slot, name, err);
        *n_found += model->layer_file[i] != NULL;
    }
    return status;
}

static bool is_used(const struct kvr_model *model,
                    const struct kvr_gguf_tensor *tensor)
{
    for (int s = 0; s < KVR_N_MODEL_SLOT; s++)
        if (model->model_file[s] == tensor)
            return true;
    for (size_t i = 0; i < (size_t)model->config.n_layer * KVR_N_LAYER_SLOT;
         i++)
        if (model->layer_file[i] == tensor)
            return true;
    return false;
}

/* A tensor that no slot asked for might change attention: say its name. */
static enum kvr_status refuse_left_over(const struct kvr_model *model,
                                        size_t n_found, struct kvr_error *err)
{
    const size_t n = kvr_gguf_n_tensors(model->gguf);
    char shown[KVR_VIEW_TEXT];

    for (size_t i = 0; i < n && n_found < n; i++)
        if (!is_used(model, kvr_gguf_tensor(model->gguf, i)))
            return kvr_fail(
                err, KVR_ERR_UNSUPPORTED,
                "%s: tensor '%s' is not known for architecture %s",
                kvr_gguf_path(model->gguf),
                kvr_view_show(shown, kvr_gguf_tensor(model->gguf, i)->name),
                model->family->gguf);
    return KVR_OK;
}

static enum kvr_status make_frequencies(struct kvr_model *model,
                                        struct kvr_error *err)
{
    const struct kvr_config *c = &model->config;
    const struct kvr_gguf_tensor *tensor = model->model_file[KVR_ROPE_FACTORS];
    const uint32_t half = c->rope_dim / 2;
    float *factors = kvr_calloc(half, sizeof *factors);

    model->inv_freq = kvr_calloc(half, sizeof *model->inv_freq);
    if (factors == NULL || model->inv_freq == NULL) {
        free(factors);
        return kvr_no_memory(err, "rotary frequencies", half);
    }
    for (uint32_t j = 0; j < half; j++)
        factors[j] = 1;
    if (tensor != NULL)
        kvr_quant_find(tensor->type)->expand(factors, tensor->data, half);
    enum kvr_status status = KVR_OK;
    for (uint32_t j = 0; j < half && status == KVR_OK; j++) {
        const double plain = pow(c->rope_base, -2.0 * j / c->rope_dim);
        if (!(factors[j] > 0) || !isfinite(factors[j]))
            status =
                kvr_fail(err, KVR_ERR_INPUT,
                         "%s: rope_freqs.weight: factor %" PRIu32
                         " is %g, expected above 0",
                         kvr_gguf_path(model->gguf), j, (double)factors[j]);
        model->inv_freq[j] =
            (float)plain / (factors[j] * (float)c->rope_linear);
    }
    free(factors);
    return status;
}

/* Name for the trace: general.name, else the file's base name. */
static enum kvr_status name_model(struct kvr_model *model,
                                  struct kvr_error *err)
{
    const char *path = kvr_gguf_path(model->gguf);
    const char *slash = strrchr(path, '/');
    struct kvr_view name = kvr_view_of(slash != NULL ? slash + 1 : path);
    const enum kvr_status status =
        kvr_gguf_string(&name, NULL, model->gguf, "general.name", err);
    char shown[KVR_VIEW_TEXT];

    snprintf(model->name, sizeof model->name, "%s", kvr_view_show(shown, name));
    return status;
}

/* Types by bytes, and a hash of all tensors. */
static enum kvr_status take_stock(struct kvr_model *model,
                                  struct kvr_error *err)
{
    uint64_t bytes[64] = {0};
    struct kvr_hash *hash = kvr_hash_new();
    size_t used = 0;

    if (hash == NULL)
        return kvr_no_memory(err, "a hash", 0);
    for (size_t i = 0; i < kvr_gguf_n_tensors(model->gguf); i++) {
        const struct kvr_gguf_tensor *t = kvr_gguf_tensor(model->gguf, i);
        bytes[t->type] += t->size;
        model->weight_bytes += t->size;
        kvr_hash_add(hash, t->data, (size_t)t->size);
    }
    kvr_hash_text(hash, model->hash);
    kvr_hash_free(hash);
    for (;;) {
        uint32_t most = 0;
        for (uint32_t type = 1; type < 64; type++)
            most = bytes[type] > bytes[most] ? type : most;
        if (bytes[most] == 0 || used + 16 > sizeof model->quantisation)
            return KVR_OK;
        used += (size_t)snprintf(
            model->quantisation + used, sizeof model->quantisation - used,
            "%s%s", used > 0 ? " " : "", kvr_quant_find(most)->name);
        bytes[most] = 0;
    }
}

enum kvr_status kvr_model_init(struct kvr_model *model, const char *path,
                               struct kvr_error *err)
{
    size_t n_found = 0;
    enum kvr_status status;

    *model = (struct kvr_model){0};
    if ((status = kvr_gguf_open(&model->gguf, path, err)) != KVR_OK ||
        (status = find_family(model, err)) != KVR_OK ||
        (status = check_types(model, err)) != KVR_OK ||
        (status = read_config(model, err)) != KVR_OK ||
        (status = find_tensors(model, &n_found, err)) != KVR_OK ||
        (status = refuse_left_over(model, n_found, err)) != KVR_OK ||
        (status = make_frequencies(model, err)) != KVR_OK ||
        (status = name_model(model, err)) != KVR_OK)
        return status;
    return take_stock(model, err);
}

void kvr_model_fini(struct kvr_model *model)
{
    kvr_gguf_close(model->gguf);
    free(model->inv_freq);
    free(model->layer_file);
    *model = (struct kvr_model){0};
}
