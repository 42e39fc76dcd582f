/* model.c -- what is common to both formats: the numbers that follow from
 * others, the tensors that a family needs, frequencies, stock.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "model_private.h"

#include "kvr_memory.h"
#include "kvr_text.h"
#include "quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 128 };

/* Length of the UTF-8 character at text; 0: none begins there. */
static size_t character(const uint8_t *text, size_t left)
{
    size_t bad;

    for (size_t n = 1; n <= 4 && n <= left; n++)
        if (kvr_utf8_valid(text, n, &bad))
            return text[0] >= 0x20 && text[0] != 0x7f ? n : 0;
    return 0;
}

/* UTF-8 stays as it is; what is not, and control characters, become '?'. */
void kvr__model_set_name(struct kvr_model *model, struct kvr_slice name)
{
    static const char cut[] = "...";
    const size_t room = sizeof model->name - sizeof cut;
    const uint8_t *text = (const uint8_t *)name.bytes;
    size_t used = 0, at = 0;

    while (at < name.size) {
        const size_t n = character(text + at, name.size - at);
        if (used + (n > 0 ? n : 1) > room)
            break;
        if (n > 0)
            memcpy(model->name + used, text + at, n);
        else
            model->name[used] = '?';
        used += n > 0 ? n : 1;
        at += n > 0 ? n : 1;
    }
    memcpy(model->name + used, at < name.size ? cut : "",
           at < name.size ? sizeof cut : 1);
}

enum kvr_status kvr__model_new_stored(struct kvr_model *model, size_t n,
                                      struct kvr_error *err)
{
    model->stored = kvr_calloc(n, sizeof *model->stored);
    if (model->stored == NULL)
        return kvr_no_memory(err, "tensors", n * sizeof *model->stored);
    return KVR_OK;
}

/* ---- numbers ---- */

static enum kvr_status derive_heads(struct kvr_model *model,
                                    struct kvr_error *err)
{
    struct kvr_config *c = &model->config;

    if (c->n_kv_head == 0)
        c->n_kv_head = c->n_head;
    if (c->n_head % c->n_kv_head != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %" PRIu32 " query heads are not a multiple of "
                        "%" PRIu32 " KV heads",
                        model->path, c->n_head, c->n_kv_head);
    if (c->key_dim == 0 && c->hidden % c->n_head != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: width %" PRIu32 " is not a multiple of %" PRIu32
                        " heads and the size of a head is not stated",
                        model->path, c->hidden, c->n_head);
    if (c->key_dim == 0)
        c->key_dim = c->hidden / c->n_head;
    if (c->value_dim == 0)
        c->value_dim = c->key_dim;
    if (c->n_ff == 0)
        c->n_ff = 4 * c->hidden; /* GPT-2: n_inner null */
    return KVR_OK;
}

static enum kvr_status derive_rope(struct kvr_model *model,
                                   struct kvr_error *err)
{
    struct kvr_config *c = &model->config;

    if (c->rope.base == 0)
        return KVR_OK;
    if (!(c->rope_part >= 0 && c->rope_part <= 1))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the rotary part of a head is %g, expected up to 1",
                        model->path, c->rope_part);
    if (c->rope_dim == 0)
        c->rope_dim = c->rope_part > 0
                          ? (uint32_t)((double)c->key_dim * c->rope_part)
                          : c->key_dim;
    if (c->rope_dim == 0 || c->rope_dim > c->key_dim || c->rope_dim % 2 != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %" PRIu32 " rotary dimensions, expected an even "
                        "number up to the size of a head, %" PRIu32,
                        model->path, c->rope_dim, c->key_dim);
    if (!(c->rope.base > 0) || !isfinite(c->rope.base) ||
        !(c->rope_local.base >= 0) || !isfinite(c->rope_local.base))
        return kvr_fail(err, KVR_ERR_INPUT, "%s: rotary base %g", model->path,
                        c->rope.base);
    return KVR_OK;
}

/* Which layers have a window, where no list says it. */
static enum kvr_status derive_layers(struct kvr_model *model,
                                     struct kvr_error *err)
{
    const struct kvr_config *c = &model->config;

    if (model->layers != NULL)
        return KVR_OK;
    model->layers = kvr_calloc(c->n_layer, sizeof *model->layers);
    if (model->layers == NULL)
        return kvr_no_memory(err, "layers", c->n_layer);
    for (uint32_t l = 0; l < c->n_layer; l++) {
        const bool local = kvr_layer_has_window(c, l);
        if (local && c->window == 0 && c->window_period > 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: layer %" PRIu32 " of a %s has a window, but "
                            "its size is not stated, or 0 or null",
                            model->path, l, kvr__family_name(model->family));
        if (local && c->window > 0)
            model->layers[l] = (struct kvr_layer_kind){
                .span = c->window, .local = c->rope_local.base > 0};
    }
    return KVR_OK;
}

static bool below(double value, double limit)
{
    return value >= 0 && value < limit;
}

enum kvr_status kvr__model_derive(struct kvr_model *model,
                                  struct kvr_error *err)
{
    struct kvr_config *c = &model->config;
    enum kvr_status status;

    if (c->n_layer > KVR_MAX_LAYERS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %" PRIu32 " layers, at most %d are read",
                        model->path, c->n_layer, (int)KVR_MAX_LAYERS);
    if ((status = derive_heads(model, err)) != KVR_OK ||
        (status = derive_rope(model, err)) != KVR_OK ||
        (status = derive_layers(model, err)) != KVR_OK)
        return status;
    if (!below(c->norm_eps, 1))
        return kvr_fail(err, KVR_ERR_INPUT, "%s: epsilon of norms is %g",
                        model->path, c->norm_eps);
    if (!below(c->softcap, 1e6) || !below(c->logit_softcap, 1e6) ||
        !below(c->query_scalar, 1e6))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: soft caps %g and %g, query scalar %g: expected 0 "
                        "or more",
                        model->path, c->softcap, c->logit_softcap,
                        c->query_scalar);
    c->attention_scale =
        1.0 / sqrt(c->query_scalar > 0 ? c->query_scalar : c->key_dim);
    c->embedding_scale = model->family->scale_embedding ? sqrt(c->hidden) : 1;
    return KVR_OK;
}

/* ---- tensors ---- */

static int by_name(const void *a, const void *b)
{
    const struct kvr_stored *x = a, *y = b;

    return kvr_slice_compare(x->name, y->name);
}

static struct kvr_stored *look_up(const struct kvr_model *model,
                                  const char *name)
{
    const struct kvr_stored key = {.name = kvr_slice_of(name)};
    const char *base = model->family->hf_base;
    struct kvr_stored *found = bsearch(&key, model->stored, model->n_stored,
                                       sizeof *model->stored, by_name);

    /* saved from the bare model: without what its wrapper puts in front */
    if (found == NULL && model->format == KVR_FORMAT_HF &&
        strncmp(name, base, strlen(base)) == 0)
        return look_up(model, name + strlen(base));
    return found;
}

/* Rows or values of the whole tensor that the slot's part is cut from. */
static uint64_t fused_size(const struct kvr_config *c,
                           const struct kvr_slot *slot, enum kvr_dim own)
{
    switch (slot->cut) {
    case KVR_CUT_Q:
    case KVR_CUT_K:
    case KVR_CUT_V:
        return kvr__dim_size(c, KVR_DIM_QUERY) + kvr__dim_size(c, KVR_DIM_KEY) +
               kvr__dim_size(c, KVR_DIM_VALUE);
    case KVR_CUT_GATE:
    case KVR_CUT_UP:
        return 2 * kvr__dim_size(c, KVR_DIM_FF);
    case KVR_WHOLE:
        break;
    }
    return kvr__dim_size(c, own);
}

static enum kvr_status check_shape(const struct kvr_model *model,
                                   const struct kvr_stored *tensor,
                                   const struct kvr_slot *slot,
                                   const struct kvr_slot_shape *shape,
                                   struct kvr_error *err)
{
    const struct kvr_config *c = &model->config;
    const bool vector = shape->rows == KVR_DIM_ONE;
    uint64_t rows = vector ? 1 : fused_size(c, slot, shape->rows);
    uint64_t cols = vector ? fused_size(c, slot, shape->cols)
                           : kvr__dim_size(c, shape->cols);
    char shown[KVR_SLICE_TEXT], why_cols[128], why_rows[128];

    if (kvr_model_turned(model, shape)) {
        const uint64_t keep = rows;
        rows = cols;
        cols = keep;
    }
    if (tensor->rows == rows && tensor->cols == cols)
        return KVR_OK;
    kvr__dim_text(why_cols, sizeof why_cols, c, shape->cols, model->format);
    kvr__dim_text(why_rows, sizeof why_rows, c, shape->rows, model->format);
    const bool gguf = model->format == KVR_FORMAT_GGUF; /* fastest first */
    return kvr_fail(
        err, KVR_ERR_INPUT,
        "%s: tensor '%s' has shape [%" PRIu64 ", %" PRIu64
        "], but the metadata say [%" PRIu64 ", %" PRIu64 "] (%s; %s%s)",
        model->path, kvr_slice_show(shown, tensor->name),
        gguf ? tensor->cols : tensor->rows, gguf ? tensor->rows : tensor->cols,
        gguf ? cols : rows, gguf ? rows : cols, why_cols, why_rows,
        slot->cut != KVR_WHOLE ? "; fused" : "");
}

/* Is the slot's tensor there, as the config says? */
static bool wanted(const struct kvr_model *model, const struct kvr_slot *slot)
{
    const struct kvr_config *c = &model->config;

    switch (slot->when) {
    case KVR_WITH_QKV_BIAS:
        return c->qkv_bias;
    case KVR_WITH_O_BIAS:
        return c->o_bias;
    case KVR_WITH_MLP_BIAS:
        return c->mlp_bias;
    case KVR_UNTIED:
        return !c->tied;
    case KVR_ALWAYS:
    case KVR_OPTIONAL:
        break;
    }
    return true;
}

static enum kvr_status find_tensor(const struct kvr_stored **out,
                                   const struct kvr_model *model,
                                   const struct kvr_slot *slot,
                                   const struct kvr_slot_shape *shape,
                                   const char *name, struct kvr_error *err)
{
    const bool says = model->format == KVR_FORMAT_HF; /* whether it is there */
    struct kvr_stored *tensor = NULL;

    *out = NULL;
    if (says && !wanted(model, slot))
        return KVR_OK;
    tensor = look_up(model, name);
    if (tensor == NULL &&
        (slot->when == KVR_OPTIONAL ||
         (!says && (slot->when == KVR_UNTIED || !wanted(model, slot)))))
        return KVR_OK;
    if (tensor == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: tensor '%s' is missing",
                        model->path, name);
    tensor->used = true;
    *out = tensor;
    return check_shape(model, tensor, slot, shape, err);
}

static const char *slot_name(const struct kvr_model *model,
                             const struct kvr_slot *slot)
{
    return model->format == KVR_FORMAT_GGUF ? slot->gguf : slot->hf;
}

static enum kvr_status find_layer_tensors(struct kvr_model *model,
                                          struct kvr_error *err)
{
    const struct kvr_family *family = model->family;
    const uint32_t n = model->config.n_layer * (uint32_t)KVR_N_LAYER_SLOT;
    const char *prefix =
        model->format == KVR_FORMAT_GGUF ? "blk." : family->hf_layers;
    char name[MAX_NAME];
    enum kvr_status status = KVR_OK;

    model->layer_file = kvr_calloc(n, sizeof *model->layer_file);
    if (model->layer_file == NULL)
        return kvr_no_memory(err, "layers", n);
    for (uint32_t i = 0; i < n && status == KVR_OK; i++) {
        const uint32_t s = i % KVR_N_LAYER_SLOT;
        const char *own = slot_name(model, &family->layer_slots[s]);
        if (own == NULL)
            continue;
        snprintf(name, sizeof name, "%s%" PRIu32 ".%s", prefix,
                 i / KVR_N_LAYER_SLOT, own);
        status =
            find_tensor(&model->layer_file[i], model, &family->layer_slots[s],
                        &kvr__layer_shapes[s], name, err);
    }
    return status;
}

/* An output matrix beside a tied embedding is the embedding once more, as
 * older files have it; another one would be another model. */
static enum kvr_status check_tie(const struct kvr_model *model,
                                 struct kvr_error *err)
{
    const struct kvr_slot *slot = &model->family->model_slots[KVR_OUTPUT];
    const struct kvr_stored *embedding = model->model_file[KVR_EMBEDDING];

    if (model->format != KVR_FORMAT_HF || !model->config.tied)
        return KVR_OK;
    struct kvr_stored *output = look_up(model, slot->hf);
    if (output == NULL)
        return KVR_OK;
    output->used = true;
    if (output->type == embedding->type && output->size == embedding->size &&
        memcmp(output->data, embedding->data, (size_t)output->size) == 0)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: tie_word_embeddings is true, but '%s' differs from "
                    "the embedding",
                    model->path, slot->hf);
}

/* What is not there is said before any shape is looked at. */
static enum kvr_status refuse_missing(const struct kvr_model *model,
                                      struct kvr_error *err)
{
    for (int s = 0; s < KVR_N_MODEL_SLOT; s++) {
        const struct kvr_slot *slot = &model->family->model_slots[s];
        const char *name = slot_name(model, slot);
        if (name != NULL && slot->when == KVR_ALWAYS &&
            look_up(model, name) == NULL)
            return kvr_fail(err, KVR_ERR_INPUT, "%s: tensor '%s' is missing",
                            model->path, name);
    }
    return KVR_OK;
}

static enum kvr_status find_tensors(struct kvr_model *model,
                                    struct kvr_error *err)
{
    const struct kvr_family *family = model->family;
    enum kvr_status status = KVR_OK;

    qsort(model->stored, model->n_stored, sizeof *model->stored, by_name);
    status = refuse_missing(model, err);
    for (int s = 0; s < KVR_N_MODEL_SLOT && status == KVR_OK; s++) {
        const char *name = slot_name(model, &family->model_slots[s]);
        if (name != NULL)
            status = find_tensor(&model->model_file[s], model,
                                 &family->model_slots[s], &kvr__model_shapes[s],
                                 name, err);
    }
    if (status != KVR_OK || (status = check_tie(model, err)) != KVR_OK)
        return status;
    return find_layer_tensors(model, err);
}

/* Rows of the embedding, where the metadata do not count tokens. */
static void count_vocab(struct kvr_model *model)
{
    const char *name =
        slot_name(model, &model->family->model_slots[KVR_EMBEDDING]);

    if (model->config.n_vocab != 0)
        return;
    for (size_t i = 0; i < model->n_stored; i++)
        if (kvr_slice_is(model->stored[i].name, name) &&
            model->stored[i].rows <= KVR_MAX_DIM)
            model->config.n_vocab = (uint32_t)model->stored[i].rows;
}

/* A tensor that no slot asked for might change attention: say its name. */
static enum kvr_status refuse_left_over(const struct kvr_model *model,
                                        struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];

    for (size_t i = 0; i < model->n_stored; i++)
        if (!model->stored[i].used)
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "%s: tensor '%s' is not known for architecture %s",
                            model->path,
                            kvr_slice_show(shown, model->stored[i].name),
                            kvr__family_name(model->family));
    return KVR_OK;
}

/* ---- frequencies ---- */

/* Llama 3: wavelengths beyond the trained length, over `low`, are divided by
 * the factor, those below it, over `high`, stay; between them a mixture. */
static double slow_down(const struct kvr_rope *rope, double frequency)
{
    const double turns =
        rope->original * frequency / (2 * 3.14159265358979323846);

    if (rope->factor == 0 || turns > rope->high)
        return frequency;
    if (turns < rope->low)
        return frequency / rope->factor;
    const double mix = (turns - rope->low) / (rope->high - rope->low);
    return (1 - mix) * frequency / rope->factor + mix * frequency;
}

static enum kvr_status make_frequencies(float **out,
                                        const struct kvr_model *model,
                                        const struct kvr_rope *rope,
                                        struct kvr_error *err)
{
    const struct kvr_stored *tensor = model->model_file[KVR_ROPE_FACTORS];
    const uint32_t half = model->config.rope_dim / 2;
    float *factors = kvr_calloc(half, sizeof *factors);
    enum kvr_status status = KVR_OK;

    *out = kvr_calloc(half, sizeof **out);
    if (factors == NULL || *out == NULL) {
        free(factors);
        return kvr_no_memory(err, "rotary frequencies", half);
    }
    for (uint32_t j = 0; j < half; j++)
        factors[j] = 1;
    if (tensor != NULL)
        kvr__quant_find(tensor->type)->expand(factors, tensor->data, half);
    for (uint32_t j = 0; j < half && status == KVR_OK; j++) {
        const double plain = pow(rope->base, -2.0 * j / model->config.rope_dim);
        if (!(factors[j] > 0) || !isfinite(factors[j]))
            status = kvr_fail(err, KVR_ERR_INPUT,
                              "%s: rope_freqs.weight: factor %" PRIu32
                              " is %g, expected above 0",
                              model->path, j, (double)factors[j]);
        (*out)[j] =
            (float)slow_down(rope, plain) / (factors[j] * (float)rope->linear);
    }
    free(factors);
    return status;
}

static enum kvr_status set_frequencies(struct kvr_model *model,
                                       struct kvr_error *err)
{
    const struct kvr_config *c = &model->config;
    enum kvr_status status = KVR_OK;

    if (!(c->rope.linear > 0) && c->rope.base > 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: rotary scaling factor %g",
                        model->path, c->rope.linear);
    if (c->rope.base > 0)
        status = make_frequencies(&model->inv_freq, model, &c->rope, err);
    if (status == KVR_OK && c->rope_local.base > 0)
        status = make_frequencies(&model->inv_freq_local, model, &c->rope_local,
                                  err);
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
    for (size_t i = 0; i < model->n_stored; i++) {
        const struct kvr_stored *t = &model->stored[i];
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
            "%s%s", used > 0 ? " " : "", kvr__quant_find(most)->name);
        bytes[most] = 0;
    }
}

enum kvr_status kvr__model_init(struct kvr_model *model, const char *path,
                                struct kvr_error *err)
{
    enum kvr_status status;

    *model = (struct kvr_model){0};
    status = kvr__model_is_hf(path) ? kvr__model_open_hf(model, path, err)
                                    : kvr__model_open_gguf(model, path, err);
    if (status != KVR_OK)
        return status;
    count_vocab(model);
    if ((status = kvr__model_derive(model, err)) != KVR_OK ||
        (status = find_tensors(model, err)) != KVR_OK ||
        (status = refuse_left_over(model, err)) != KVR_OK ||
        (status = set_frequencies(model, err)) != KVR_OK)
        return status;
    return take_stock(model, err);
}

void kvr__model_fini(struct kvr_model *model)
{
    kvr__gguf_close(model->gguf);
    kvr__safetensors_close(model->safetensors);
    free(model->path);
    free(model->folder);
    free(model->inv_freq);
    free(model->inv_freq_local);
    free(model->layers);
    free(model->stored);
    free(model->layer_file);
    *model = (struct kvr_model){0};
}
