/* reader_shape.c -- what a file says it is, checked against itself.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader_h5.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum kvr_status check_format(struct kvr_trace *trace,
                                    const struct h5_index *file,
                                    struct kvr_error *err)
{
    const struct h5_object *root = kvr__h5_root(file);
    const char *format = NULL;
    int64_t version[2] = {0};

    const bool named = kvr__h5_get_text(&format, file, root, "format") &&
                       strcmp(format, KVR_FORMAT_NAME) == 0;
    if (!named)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: an HDF5 file but not a trace: attribute 'format' "
                        "= \"%s\" is not there ('kvreplay trace import' reads "
                        "attention dumps)",
                        trace->path, KVR_FORMAT_NAME);
    if (!kvr__h5_get_pair(version, file, root, "format_version"))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: attribute 'format_version' is not two integers",
                        trace->path);
    if (version[0] != KVR_FORMAT_MAJOR || version[1] < 0 ||
        version[1] > UINT32_MAX)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: trace format %lld.%lld; this program reads %d.x",
                        trace->path, (long long)version[0],
                        (long long)version[1], KVR_FORMAT_MAJOR);
    trace->facts.version[0] = (uint32_t)version[0];
    trace->facts.version[1] = (uint32_t)version[1];
    return KVR_OK;
}

/* A non-negative integer attribute that fits 32 bits. */
static enum kvr_status get_u32(uint32_t *value, const struct h5_index *file,
                               const struct h5_object *object,
                               const char *where, const char *name,
                               bool optional, struct kvr_error *err)
{
    int64_t wide;

    if (!kvr__h5_has_attr(file, object, name)) {
        if (optional)
            return KVR_OK;
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: attribute '%s' is missing",
                        file->path, where, name);
    }
    if (!kvr__h5_get_int(&wide, file, object, name))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: attribute '%s' is not one integer", file->path,
                        where, name);
    if (wide < 0 || wide > UINT32_MAX)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: attribute '%s' is %lld",
                        file->path, where, name, (long long)wide);
    *value = (uint32_t)wide;
    return KVR_OK;
}

/* A real number; what is there must be one. */
static enum kvr_status get_real(double *value, const struct h5_index *file,
                                const struct h5_object *object,
                                const char *where, const char *name,
                                struct kvr_error *err)
{
    *value = 0;
    if (!kvr__h5_has_attr(file, object, name) ||
        kvr__h5_get_real(value, file, object, name))
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: %s: attribute '%s' is not one number", file->path,
                    where, name);
}

static enum kvr_status load_texts(struct kvr_trace *trace,
                                  const struct h5_index *file,
                                  const struct h5_object *object,
                                  const char *group, struct kvr_error *err)
{
    for (int i = 0; i < N_SHAPE_TEXT; i++) {
        const char *name = kvr__shape_texts[i].name, *text;
        if (strcmp(kvr__shape_texts[i].group, group) != 0 ||
            !kvr__h5_has_attr(file, object, name))
            continue;
        if (!kvr__h5_get_text(&text, file, object, name))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: attribute '%s' is not a string",
                            trace->path, group, name);
        char *copy = kvr_strdup(text);
        if (copy == NULL)
            return kvr_no_memory(err, name, strlen(text));
        kvr__shape_set_text(trace->box, i, copy);
    }
    return KVR_OK;
}

/* Absent in files of other programs; what is there must be one. */
static enum kvr_status load_hash(struct kvr_trace *trace,
                                 const struct h5_index *file,
                                 struct kvr_error *err)
{
    const struct h5_object *root = kvr__h5_root(file);
    const char *text = NULL;

    if (!kvr__h5_has_attr(file, root, "hash"))
        return KVR_OK;
    const bool is = kvr__h5_get_text(&text, file, root, "hash") &&
                    strlen(text) == KVR_HASH_TEXT - 1;
    if (is) {
        memcpy(trace->facts.hash, text, KVR_HASH_TEXT);
        return KVR_OK;
    }
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: /: attribute 'hash' is not a string of %d digits",
                    trace->path, KVR_HASH_TEXT - 1);
}

static enum kvr_status load_root(struct kvr_trace *trace,
                                 const struct h5_index *file,
                                 struct kvr_error *err)
{
    const struct h5_object *root = kvr__h5_root(file);
    struct kvr_trace_shape *s = &trace->box->shape;
    const char *text = NULL;
    const struct {
        const char *name;
        uint32_t *value;
        bool optional;
    } numbers[] = {{"n_head", &s->n_head, false},
                   {"n_kv_head", &s->n_kv_head, false},
                   {"n_token", &s->n_token, false},
                   {"prompt_len", &s->prompt_len, false},
                   {"round_bits", &s->round_bits, true}};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const enum kvr_status status =
            get_u32(numbers[i].value, file, root, "/", numbers[i].name,
                    numbers[i].optional, err);
        if (status != KVR_OK)
            return status;
    }
    if (kvr__h5_has_attr(file, root, "source")) {
        const bool known = kvr__h5_get_text(&text, file, root, "source") &&
                           kvr__source_of(&s->source, text);
        if (!known)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: attribute 'source' is none of capture, "
                            "import, synthetic",
                            trace->path);
    }
    const enum kvr_status status = load_hash(trace, file, err);
    return status == KVR_OK ? load_texts(trace, file, root, "/", err) : status;
}

static enum kvr_status load_model(struct kvr_trace *trace,
                                  const struct h5_index *file,
                                  struct kvr_error *err)
{
    const struct h5_object *group;

    enum kvr_status status =
        kvr__h5_member(&group, file, kvr__h5_root(file), "model", "", err);
    if (status != KVR_OK || group == NULL)
        return status;
    status = kvr__h5_check_attrs(file, group, "/model", err);
    return status == KVR_OK ? load_texts(trace, file, group, "/model", err)
                            : status;
}

/* Numbers of the layer groups, ascending. */
struct layer_list {
    uint32_t *number;
    size_t n;
};

/* Members whose name is a number; others are unknown and ignored. */
static enum kvr_status note_layer(struct layer_list *list,
                                  const struct h5_index *file,
                                  const struct h5_link *link,
                                  struct kvr_error *err)
{
    uint32_t number;

    if (link->kind != LINK_HARD ||
        !kvr_parse_u32(&number, link->name, strlen(link->name)))
        return KVR_OK;
    if (number > SHAPE_MAX_LAYER_NUMBER)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: /layers/%s: a layer's number is at most %d",
                        file->path, link->name, SHAPE_MAX_LAYER_NUMBER);
    if (list->n < SHAPE_MAX_LAYERS)
        list->number[list->n] = number;
    list->n++;
    return KVR_OK;
}

static int compare_u32(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static enum kvr_status list_layers(struct layer_list *list,
                                   const struct h5_index *file,
                                   struct kvr_error *err)
{
    const struct h5_object *group;

    *list = (struct layer_list){0};
    enum kvr_status status =
        kvr__h5_member(&group, file, kvr__h5_root(file), "layers", "", err);
    if (status != KVR_OK)
        return status;
    if (group == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: group '/layers' is missing",
                        file->path);
    list->number = kvr_calloc(SHAPE_MAX_LAYERS, sizeof *list->number);
    if (list->number == NULL)
        return kvr_no_memory(err, "layers",
                             SHAPE_MAX_LAYERS * sizeof *list->number);
    for (size_t i = 0; status == KVR_OK && i < group->n_link; i++)
        status =
            note_layer(list, file, &file->links[group->first_link + i], err);
    if (status != KVR_OK)
        return status;
    if (list->n == 0 || list->n > SHAPE_MAX_LAYERS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: /layers has %zu numbered groups: expected 1 to "
                        "%d",
                        file->path, list->n, SHAPE_MAX_LAYERS);
    qsort(list->number, list->n, sizeof *list->number, compare_u32);
    return KVR_OK;
}

enum kvr_status kvr__find_layer(const struct h5_object **out,
                                const struct kvr_trace *trace,
                                const struct h5_index *file, uint32_t layer,
                                struct kvr_error *err)
{
    const uint32_t number = trace->box->layers[layer].layer;
    char name[32];

    for (int width = 2; width >= 1; width--) {
        snprintf(name, sizeof name, "/layers/%0*u", width, number);
        const enum kvr_status status =
            kvr__h5_member(out, file, kvr__h5_root(file), name, "", err);
        if (status != KVR_OK)
            return status;
        if (*out != NULL)
            return kvr__h5_check_attrs(file, *out, name, err);
    }
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: layer %u is not named in two digits", trace->path,
                    number);
}

static enum kvr_status load_mask(struct kvr_layer_shape *y,
                                 const struct h5_index *file,
                                 const struct h5_object *group,
                                 const char *where, struct kvr_error *err)
{
    const char *text = NULL;
    bool ok = true;

    if (kvr__h5_has_attr(file, group, "mask"))
        ok = kvr__h5_get_text(&text, file, group, "mask") &&
             kvr__mask_of(&y->mask, text);
    if (!ok)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: attribute 'mask' is none of causal, window, "
                        "chunk, none",
                        file->path, where);
    return get_u32(&y->span, file, group, where, "span", true, err);
}

static enum kvr_status load_head_index(struct kvr_layer_shape *y,
                                       const struct h5_index *file,
                                       const struct h5_object *group,
                                       const char *where, struct kvr_error *err)
{
    const struct h5_object *found;
    char full[48];
    void *data = NULL;

    if (y->n_head == 0 || y->n_head > SHAPE_MAX_HEADS)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: %u heads", file->path,
                        where, y->n_head);
    enum kvr_status status =
        kvr__h5_find_set(&found, file, group, "head_index", where, err);
    if (status != KVR_OK)
        return status;
    if (found == NULL) {
        uint32_t *index = kvr_calloc(y->n_head, sizeof *index);
        if (index == NULL)
            return kvr_no_memory(err, "head_index", y->n_head * sizeof *index);
        for (uint32_t h = 0; h < y->n_head; h++)
            index[h] = h;
        y->head_index = index;
        return KVR_OK;
    }
    const struct h5_set *set = found->set;
    if (set->rank != 1 || set->dims[0] != y->n_head)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s/head_index: expected [%u] integers, found "
                        "rank %d, %llu",
                        file->path, where, y->n_head, set->rank,
                        (unsigned long long)set->dims[0]);
    snprintf(full, sizeof full, "%s/head_index", where);
    status =
        kvr__h5_load(&data, AS_U32, file, set, full, SHAPE_MAX_HEADS * 8, err);
    y->head_index = data;
    return status;
}

static enum kvr_status load_layer_attrs(struct kvr_layer_shape *y,
                                        const struct h5_index *file,
                                        const struct h5_object *group,
                                        const char *where,
                                        struct kvr_error *err)
{
    int64_t kv_source = -1;
    uint32_t number = y->layer;
    const struct {
        const char *name;
        uint32_t *value;
        bool optional;
    } numbers[] = {{"layer", &number, true},
                   {"n_head", &y->n_head, false},
                   {"n_kv_head", &y->n_kv_head, false},
                   {"key_dim", &y->key_dim, true},
                   {"value_dim", &y->value_dim, true}};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const enum kvr_status status =
            get_u32(numbers[i].value, file, group, where, numbers[i].name,
                    numbers[i].optional, err);
        if (status != KVR_OK)
            return status;
    }
    if (number != y->layer)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: attribute 'layer' is %u",
                        file->path, where, number);
    if (kvr__h5_has_attr(file, group, "kv_source") &&
        (!kvr__h5_get_int(&kv_source, file, group, "kv_source") ||
         kv_source < -1 || kv_source > INT32_MAX))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: attribute 'kv_source' is %lld", file->path,
                        where, (long long)kv_source);
    y->kv_source = (int32_t)kv_source;
    enum kvr_status status =
        get_real(&y->scale, file, group, where, "scale", err);
    if (status == KVR_OK)
        status = get_real(&y->softcap, file, group, where, "softcap", err);
    return status == KVR_OK ? load_mask(y, file, group, where, err) : status;
}

/* *size 2 or 4, bytes of the dataset's numbers; 0: it is not there. */
static enum kvr_status float_size(unsigned *size, const struct h5_index *file,
                                  const struct h5_object *group,
                                  const char *where, const char *name,
                                  struct kvr_error *err)
{
    const struct h5_object *found;

    *size = 0;
    const enum kvr_status status =
        kvr__h5_find_set(&found, file, group, name, where, err);
    if (status != KVR_OK || found == NULL)
        return status;
    const struct h5_type *type = &found->set->type;
    if (type->kind != TYPE_FLOAT || type->size > 4 || type->big_endian)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s/%s: expected little-endian f16 or f32",
                        file->path, where, name);
    *size = type->size;
    return KVR_OK;
}

/* What the layer stores, and as what. dtype of the trace is that of the first
 * attention; *attention: one came before. */
static enum kvr_status load_stores(struct kvr_trace *trace,
                                   const struct h5_index *file,
                                   const struct h5_object *group,
                                   struct kvr_layer_shape *y, const char *where,
                                   bool *attention, struct kvr_error *err)
{
    unsigned size;

    enum kvr_status status =
        float_size(&size, file, group, where, "attention", err);
    if (status == KVR_OK && size != 0) {
        const enum kvr_dtype dtype = size == 2 ? KVR_F16 : KVR_F32;
        if (*attention && dtype != trace->box->shape.dtype)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s/attention: f%u, but the first layer has "
                            "f%u",
                            trace->path, where, 8 * size,
                            trace->box->shape.dtype == KVR_F16 ? 16u : 32u);
        trace->box->shape.dtype = dtype;
        *attention = true;
        y->stores |= KVR_STORES_ATTENTION;
    }
    for (int i = 0; status == KVR_OK && i < KVR_N_VECTOR; i++) {
        status = float_size(&size, file, group, where,
                            kvr_vector_name((enum kvr_vector)i), err);
        if (status != KVR_OK || size == 0)
            continue;
        y->vector_dtype[i] = size == 2 ? KVR_F16 : KVR_F32;
        y->stores |= (uint32_t)KVR_STORES_QUERY << i;
    }
    return status;
}

static enum kvr_status load_layer(struct kvr_trace *trace,
                                  const struct h5_index *file, uint32_t layer,
                                  bool *attention, struct kvr_error *err)
{
    struct kvr_layer_shape *y = &trace->box->layers[layer];
    const struct h5_object *group;
    char where[32];

    enum kvr_status status = kvr__find_layer(&group, trace, file, layer, err);
    if (status != KVR_OK)
        return status;
    snprintf(where, sizeof where, "/layers/%02u", y->layer);
    status = load_layer_attrs(y, file, group, where, err);
    if (status == KVR_OK)
        status = load_head_index(y, file, group, where, err);
    if (status == KVR_OK)
        status = load_stores(trace, file, group, y, where, attention, err);
    return status;
}

/* Columns of the logits, if there are any. */
static enum kvr_status load_vocab(struct kvr_trace *trace,
                                  const struct h5_index *file,
                                  struct kvr_error *err)
{
    const struct h5_object *group, *logits = NULL;
    unsigned size = 0;

    enum kvr_status status =
        kvr__h5_member(&group, file, kvr__h5_root(file), "tokens", "", err);
    if (status != KVR_OK || group == NULL)
        return status;
    status = float_size(&size, file, group, "/tokens", "logits", err);
    if (status == KVR_OK && size != 0)
        status =
            kvr__h5_find_set(&logits, file, group, "logits", "/tokens", err);
    if (status != KVR_OK || logits == NULL)
        return status;
    const struct h5_set *set = logits->set;
    if (size != 4 || set->rank != 2 || set->dims[1] == 0 ||
        set->dims[1] > SHAPE_MAX_TOKENS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: /tokens/logits: expected f32 [%u, V]", trace->path,
                        trace->box->shape.n_token);
    trace->box->shape.n_vocab = (uint32_t)set->dims[1];
    return KVR_OK;
}

enum kvr_status kvr__load_shape(struct kvr_trace *trace,
                                const struct h5_index *file,
                                struct kvr_error *err)
{
    struct layer_list list = {0};
    uint32_t n_layer = 0;
    bool attention = false;

    enum kvr_status status =
        kvr__h5_check_attrs(file, kvr__h5_root(file), "/", err);
    if (status == KVR_OK)
        status = check_format(trace, file, err);
    if (status == KVR_OK)
        status = list_layers(&list, file, err);
    if (status == KVR_OK)
        status = get_u32(&n_layer, file, kvr__h5_root(file), "/", "n_layer",
                         false, err);
    if (status == KVR_OK && n_layer != list.n)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: n_layer is %u, but /layers has %zu groups",
                          trace->path, n_layer, list.n);
    if (status == KVR_OK) {
        trace->box = kvr__shape_new(n_layer);
        if (trace->box == NULL)
            status = kvr_no_memory(err, "layers", n_layer);
    }
    for (uint32_t l = 0; status == KVR_OK && l < n_layer; l++)
        trace->box->layers[l].layer = list.number[l];
    free(list.number);
    if (status == KVR_OK)
        status = load_root(trace, file, err);
    if (status == KVR_OK)
        status = load_model(trace, file, err);
    for (uint32_t l = 0; status == KVR_OK && l < n_layer; l++)
        status = load_layer(trace, file, l, &attention, err);
    if (status == KVR_OK && !attention)
        trace->box->shape.dtype = KVR_F32;
    if (status == KVR_OK)
        status = load_vocab(trace, file, err);
    if (status == KVR_OK)
        status = kvr__shape_check(&trace->box->shape, trace->path, err);
    if (status == KVR_OK && trace->box->shape.prompt_len == 0)
        status =
            kvr_fail(err, KVR_ERR_INPUT, "%s: prompt_len is 0", trace->path);
    return status;
}
