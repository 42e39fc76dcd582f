/* reader_shape.c -- what a file says it is, checked against itself.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_vlen.h"
#include "reader_h5.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <stdlib.h>
#include <string.h>

static enum kvr_status check_format(struct kvr_trace *trace, hid_t file,
                                    struct kvr_error *err)
{
    char *format = NULL;
    int64_t version[2] = {0};

    const bool named = kvr__h5_get_text(&format, file, "format") &&
                       strcmp(format, KVR_FORMAT_NAME) == 0;
    free(format);
    if (!named)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: an HDF5 file but not a trace: attribute 'format' "
                        "= \"%s\" is not there ('kvreplay trace import' reads "
                        "attention dumps)",
                        trace->path, KVR_FORMAT_NAME);
    if (!kvr__h5_get_pair(version, file, "format_version"))
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

enum kvr_status kvr__check_attributes(const struct kvr_trace *trace,
                                      hid_t object, const char *where,
                                      struct kvr_error *err)
{
    if (kvr__h5_attributes_whole(object))
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: %s: an attribute is longer than its place in the "
                    "file: damaged",
                    trace->path, where);
}

/* A non-negative integer attribute that fits 32 bits. */
static enum kvr_status get_u32(uint32_t *value, const struct kvr_trace *trace,
                               hid_t object, const char *where,
                               const char *name, bool optional,
                               struct kvr_error *err)
{
    int64_t wide;

    if (!kvr__h5_has_attr(object, name)) {
        if (optional)
            return KVR_OK;
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: attribute '%s' is missing",
                        trace->path, where, name);
    }
    if (!kvr__h5_get_int(&wide, object, name))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: attribute '%s' is not one integer",
                        trace->path, where, name);
    if (wide < 0 || wide > UINT32_MAX)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: attribute '%s' is %lld",
                        trace->path, where, name, (long long)wide);
    *value = (uint32_t)wide;
    return KVR_OK;
}

static enum kvr_status load_texts(struct kvr_trace *trace, hid_t object,
                                  const char *group, struct kvr_error *err)
{
    for (int i = 0; i < N_SHAPE_TEXT; i++) {
        const char *name = kvr__shape_texts[i].name;
        char *text = NULL;
        if (strcmp(kvr__shape_texts[i].group, group) != 0 ||
            !kvr__h5_has_attr(object, name))
            continue;
        if (!kvr__h5_get_text(&text, object, name))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: attribute '%s' is not a string",
                            trace->path, group, name);
        kvr__shape_set_text(trace->box, i, text);
    }
    return KVR_OK;
}

static enum kvr_status load_root(struct kvr_trace *trace, hid_t file,
                                 struct kvr_error *err)
{
    struct kvr_trace_shape *s = &trace->box->shape;
    char *text = NULL;
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
            get_u32(numbers[i].value, trace, file, "/", numbers[i].name,
                    numbers[i].optional, err);
        if (status != KVR_OK)
            return status;
    }
    if (kvr__h5_has_attr(file, "source")) {
        const bool known = kvr__h5_get_text(&text, file, "source") &&
                           kvr__source_of(&s->source, text);
        free(text);
        if (!known)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: attribute 'source' is none of capture, "
                            "import, synthetic",
                            trace->path);
    }
    text = NULL;
    if (kvr__h5_get_text(&text, file, "hash") &&
        strlen(text) == KVR_HASH_TEXT - 1)
        memcpy(trace->facts.hash, text, KVR_HASH_TEXT);
    free(text);
    return load_texts(trace, file, "/", err);
}

static enum kvr_status load_model(struct kvr_trace *trace, hid_t file,
                                  struct kvr_error *err)
{
    if (kvr__h5_has_member(file, "model") <= 0)
        return KVR_OK;
    const hid_t group = H5Gopen2(file, "model", H5P_DEFAULT);
    if (group < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, "/model");
    enum kvr_status status = kvr__check_attributes(trace, group, "/model", err);
    if (status == KVR_OK)
        status = load_texts(trace, group, "/model", err);
    H5Gclose(group);
    return status;
}

struct name_list {
    uint32_t *number;
    size_t n, capacity;
    bool failed;
};

/* Members whose name is a number; others are unknown and ignored. */
static herr_t note_layer(hid_t group, const char *name, const H5L_info_t *info,
                         void *ud)
{
    struct name_list *list = ud;
    uint32_t number;

    (void)group;
    if (info->type != H5L_TYPE_HARD ||
        !kvr_parse_u32(&number, name, strlen(name)))
        return 0;
    if (list->n >= SHAPE_MAX_LAYERS ||
        !kvr_grow((void **)&list->number, &list->capacity, list->n + 1,
                  sizeof *list->number)) {
        list->failed = true;
        return 1;
    }
    list->number[list->n++] = number;
    return 0;
}

static int compare_u32(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Numbers of the layer groups, ascending. */
static enum kvr_status list_layers(struct name_list *list,
                                   const struct kvr_trace *trace, hid_t file,
                                   struct kvr_error *err)
{
    hsize_t next = 0;

    *list = (struct name_list){0};
    if (kvr__h5_has_member(file, "layers") <= 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: group '/layers' is missing",
                        trace->path);
    const hid_t group = H5Gopen2(file, "layers", H5P_DEFAULT);
    if (group < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, "/layers");
    const herr_t walked =
        H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &next, note_layer, list);
    H5Gclose(group);
    if (walked < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, "/layers");
    if (list->failed || list->n == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: /layers has %zu numbered groups: expected 1 to "
                        "%d",
                        trace->path, list->n, SHAPE_MAX_LAYERS);
    qsort(list->number, list->n, sizeof *list->number, compare_u32);
    return KVR_OK;
}

hid_t kvr__open_layer(const struct kvr_trace *trace, hid_t file, uint32_t layer,
                      struct kvr_error *err)
{
    const uint32_t number = trace->box->layers[layer].layer;
    char name[32];

    for (int width = 2; width >= 1; width--) {
        snprintf(name, sizeof name, "layers/%0*u", width, number);
        if (kvr__h5_has_member(file, name) > 0) {
            const hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
            if (group < 0)
                (void)kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, name);
            else if (kvr__check_attributes(trace, group, name, err) == KVR_OK)
                return group;
            if (group >= 0)
                H5Gclose(group);
            return -1;
        }
    }
    (void)kvr_fail(err, KVR_ERR_INPUT,
                   "%s: layer %u is not named in two digits", trace->path,
                   number);
    return -1;
}

static enum kvr_status load_mask(struct kvr_trace *trace, hid_t group,
                                 struct kvr_layer_shape *y, const char *where,
                                 struct kvr_error *err)
{
    char *text = NULL;
    bool ok = true;

    if (kvr__h5_has_attr(group, "mask"))
        ok = kvr__h5_get_text(&text, group, "mask") &&
             kvr__mask_of(&y->mask, text);
    free(text);
    if (!ok)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: attribute 'mask' is none of causal, window, "
                        "chunk, none",
                        trace->path, where);
    return get_u32(&y->span, trace, group, where, "span", true, err);
}

static enum kvr_status load_head_index(struct kvr_trace *trace, hid_t group,
                                       struct kvr_layer_shape *y,
                                       const char *where, struct kvr_error *err)
{
    hid_t set = -1;
    hsize_t dims[8] = {0};
    int rank = 0;

    if (y->n_head == 0 || y->n_head > SHAPE_MAX_HEADS)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: %u heads", trace->path,
                        where, y->n_head);
    uint32_t *index = kvr_calloc(y->n_head, sizeof *index);
    if (index == NULL)
        return kvr_no_memory(err, "head_index", y->n_head * sizeof *index);
    y->head_index = index;
    for (uint32_t h = 0; h < y->n_head; h++)
        index[h] = h;
    enum kvr_status status =
        kvr__open_dataset(&set, trace->path, group, "head_index", where, err);
    if (status != KVR_OK || set < 0)
        return status;
    if (!kvr__h5_extent(&rank, dims, set) || rank != 1 || dims[0] != y->n_head)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: %s/head_index: expected [%u] integers, found "
                          "rank %d, %llu",
                          trace->path, where, y->n_head, rank,
                          (unsigned long long)dims[0]);
    else
        status = kvr__h5_check_stored(set, trace->path, where,
                                      SHAPE_MAX_HEADS * 8, err);
    if (status == KVR_OK && H5Dread(set, H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL,
                                    H5P_DEFAULT, index) < 0)
        status = kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, where);
    H5Dclose(set);
    return status;
}

static enum kvr_status load_layer_attrs(struct kvr_trace *trace, hid_t group,
                                        struct kvr_layer_shape *y,
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
            get_u32(numbers[i].value, trace, group, where, numbers[i].name,
                    numbers[i].optional, err);
        if (status != KVR_OK)
            return status;
    }
    if (number != y->layer)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: attribute 'layer' is %u",
                        trace->path, where, number);
    y->scale = 0;
    if (kvr__h5_has_attr(group, "kv_source") &&
        (!kvr__h5_get_int(&kv_source, group, "kv_source") || kv_source < -1 ||
         kv_source > INT32_MAX))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: attribute 'kv_source' is %lld", trace->path,
                        where, (long long)kv_source);
    y->kv_source = (int32_t)kv_source;
    (void)kvr__h5_get_real(&y->scale, group, "scale");
    (void)kvr__h5_get_real(&y->softcap, group, "softcap");
    return load_mask(trace, group, y, where, err);
}

/* *size 2 or 4, bytes of the dataset's numbers; 0: it is not there. */
static enum kvr_status float_size(unsigned *size, const struct kvr_trace *trace,
                                  hid_t group, const char *where,
                                  const char *name, struct kvr_error *err)
{
    hid_t set = -1;

    *size = 0;
    const enum kvr_status status =
        kvr__open_dataset(&set, trace->path, group, name, where, err);
    if (status != KVR_OK || set < 0)
        return status;
    const hid_t type = H5Dget_type(set);
    const bool little = H5Tget_order(type) == H5T_ORDER_LE;
    *size = kvr__h5_float_size(type);
    H5Tclose(type);
    H5Dclose(set);
    if ((*size != 2 && *size != 4) || !little)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s/%s: expected little-endian f16 or f32",
                        trace->path, where, name);
    return KVR_OK;
}

/* What the layer stores, and as what. dtype of the trace is that of the first
 * attention; *attention: one came before. */
static enum kvr_status load_stores(struct kvr_trace *trace, hid_t group,
                                   struct kvr_layer_shape *y, const char *where,
                                   bool *attention, struct kvr_error *err)
{
    unsigned size;

    enum kvr_status status =
        float_size(&size, trace, group, where, "attention", err);
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
        status = float_size(&size, trace, group, where,
                            kvr_vector_name((enum kvr_vector)i), err);
        if (status != KVR_OK || size == 0)
            continue;
        y->vector_dtype[i] = size == 2 ? KVR_F16 : KVR_F32;
        y->stores |= (uint32_t)KVR_STORES_QUERY << i;
    }
    return status;
}

static enum kvr_status load_layer(struct kvr_trace *trace, hid_t file,
                                  uint32_t layer, bool *attention,
                                  struct kvr_error *err)
{
    struct kvr_layer_shape *y = &trace->box->layers[layer];
    char where[32];
    const hid_t group = kvr__open_layer(trace, file, layer, err);

    if (group < 0)
        return KVR_ERR_INPUT;
    snprintf(where, sizeof where, "/layers/%02u", y->layer);
    enum kvr_status status = load_layer_attrs(trace, group, y, where, err);
    if (status == KVR_OK)
        status = load_head_index(trace, group, y, where, err);
    if (status == KVR_OK)
        status = load_stores(trace, group, y, where, attention, err);
    H5Gclose(group);
    return status;
}

/* Columns of the logits, if there are any. */
static enum kvr_status load_vocab(struct kvr_trace *trace, hid_t file,
                                  struct kvr_error *err)
{
    hid_t group, set = -1;
    hsize_t dims[8];
    unsigned size;
    int rank;

    if (kvr__h5_has_member(file, "tokens") <= 0)
        return KVR_OK;
    group = H5Gopen2(file, "tokens", H5P_DEFAULT);
    if (group < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, "/tokens");
    enum kvr_status status =
        float_size(&size, trace, group, "/tokens", "logits", err);
    if (status == KVR_OK && size != 0)
        status = kvr__open_dataset(&set, trace->path, group, "logits",
                                   "/tokens", err);
    if (status == KVR_OK && set >= 0) {
        if (size != 4 || !kvr__h5_extent(&rank, dims, set) || rank != 2 ||
            dims[1] == 0 || dims[1] > SHAPE_MAX_TOKENS)
            status = kvr_fail(err, KVR_ERR_INPUT,
                              "%s: /tokens/logits: expected f32 [%u, V]",
                              trace->path, trace->box->shape.n_token);
        else
            trace->box->shape.n_vocab = (uint32_t)dims[1];
        H5Dclose(set);
    }
    H5Gclose(group);
    return status;
}

enum kvr_status kvr__load_shape(struct kvr_trace *trace, hid_t file,
                                struct kvr_error *err)
{
    struct name_list list = {0};
    uint32_t n_layer = 0;
    bool attention = false;

    enum kvr_status status = kvr__check_attributes(trace, file, "/", err);
    if (status == KVR_OK)
        status = check_format(trace, file, err);
    if (status == KVR_OK)
        status = list_layers(&list, trace, file, err);
    if (status == KVR_OK)
        status = get_u32(&n_layer, trace, file, "/", "n_layer", false, err);
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
