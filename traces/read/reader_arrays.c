/* reader_arrays.c -- arrays of a layer, and the tokens.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader_h5.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t array_limit = (uint64_t)1 << 40;

/* Our own files store arrays in one piece of f32: read when asked for. */
static bool plain_f32(const struct h5_set *set)
{
    return set->type.kind == TYPE_FLOAT && set->type.size == 4 &&
           !set->type.big_endian && set->layout == LAYOUT_CONTIGUOUS &&
           set->offset != UINT64_MAX && set->offset != 0;
}

static enum kvr_status load_array(struct kvr_trace *trace,
                                  const struct h5_index *file,
                                  const struct h5_set *set, uint32_t layer,
                                  enum kvr_array array, const char *where,
                                  struct kvr_error *err)
{
    struct lazy_array *out = &trace->arrays[layer][array];
    const struct kvr_layer_shape *y = &trace->box->layers[layer];
    const uint32_t t = trace->box->shape.n_token;
    void *data = NULL;

    if (set->rank != 2 || set->dims[1] != t || set->dims[0] > UINT32_MAX ||
        !kvr__array_rows_fit(y, array, (uint32_t)set->dims[0]))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: expected shape [%u%s, %u], found rank %d "
                        "[%llu, %llu]",
                        trace->path, where, y->n_head,
                        array >= KVR_KEY_NORM ? " or n_kv_head" : "", t,
                        set->rank, (unsigned long long)set->dims[0],
                        (unsigned long long)set->dims[1]);
    out->rows = (uint32_t)set->dims[0];
    if (plain_f32(set)) {
        out->offset = set->offset;
        return kvr__h5_check_stored(file, set, where, array_limit, err);
    }
    const enum kvr_status status =
        kvr__h5_load(&data, AS_F32, file, set, where, array_limit, err);
    out->data = data;
    return status;
}

enum kvr_status kvr__load_arrays(struct kvr_trace *trace,
                                 const struct h5_index *file,
                                 const struct h5_object *group, uint32_t layer,
                                 struct kvr_error *err)
{
    char parent[32], where[64];

    snprintf(parent, sizeof parent, "/layers/%02u",
             trace->box->layers[layer].layer);
    for (int i = 0; i < KVR_N_ARRAY; i++) {
        const enum kvr_array array = (enum kvr_array)i;
        const struct h5_object *found;
        enum kvr_status status = kvr__h5_find_set(
            &found, file, group, kvr_array_name(array), parent, err);
        if (status == KVR_OK && found != NULL) {
            snprintf(where, sizeof where, "%s/%s", parent,
                     kvr_array_name(array));
            status =
                load_array(trace, file, found->set, layer, array, where, err);
        }
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

/* A 1-D dataset of *n numbers, *n set where it is 0. *out NULL: absent. */
static enum kvr_status load_vector(void **out, uint32_t *n,
                                   const struct h5_index *file,
                                   const struct h5_object *group,
                                   const char *parent, const char *name,
                                   enum h5_as as, struct kvr_error *err)
{
    const struct h5_object *found;
    char where[64];

    const enum kvr_status status =
        kvr__h5_find_set(&found, file, group, name, parent, err);
    if (status != KVR_OK || found == NULL)
        return status;
    const struct h5_set *set = found->set;
    if (set->rank != 1 || set->dims[0] == 0 || set->dims[0] > SHAPE_MAX_FF ||
        (*n != 0 && set->dims[0] != *n))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s/%s: expected [n_ff] numbers, found rank %d, "
                        "%llu",
                        file->path, parent, name, set->rank,
                        (unsigned long long)set->dims[0]);
    *n = (uint32_t)set->dims[0];
    snprintf(where, sizeof where, "%s/%s", parent, name);
    return kvr__h5_load(out, as, file, set, where, UINT32_MAX, err);
}

enum kvr_status kvr__load_mlp(struct kvr_trace *trace,
                              const struct h5_index *file,
                              const struct h5_object *group, uint32_t layer,
                              struct kvr_error *err)
{
    struct mlp_sums *m = &trace->mlp[layer];
    void *mass = NULL, *active = NULL;
    char parent[32];

    snprintf(parent, sizeof parent, "/layers/%02u",
             trace->box->layers[layer].layer);
    enum kvr_status status = load_vector(&mass, &m->n_ff, file, group, parent,
                                         "mlp_mass", AS_F32, err);
    m->mass = mass;
    if (status == KVR_OK)
        status = load_vector(&active, &m->n_ff, file, group, parent,
                             "mlp_active", AS_U32, err);
    m->active = active;
    return status;
}

enum kvr_status kvr_trace_array(const float **out, uint32_t *rows,
                                const struct kvr_trace *trace, uint32_t layer,
                                enum kvr_array array, struct kvr_error *err)
{
    struct kvr_trace *t = (struct kvr_trace *)(uintptr_t)trace;
    enum kvr_status status = KVR_OK;

    if (layer >= trace->box->shape.n_layer || (unsigned)array >= KVR_N_ARRAY)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: stored layer %u, array %d: there is none",
                        trace->path, layer, (int)array);
    struct lazy_array *a = &t->arrays[layer][array];
    const size_t bytes =
        (size_t)a->rows * trace->box->shape.n_token * sizeof(float);
    pthread_mutex_lock(&t->lock);
    if (a->data == NULL && a->offset != 0) {
        float *data = malloc(bytes);
        if (data == NULL) {
            status = kvr_no_memory(err, kvr_array_name(array), bytes);
        } else if (!kvr_read_at(t->fd, data, bytes, a->offset)) {
            status = kvr_fail(err, KVR_ERR_IO, "%s: %s cannot be read: %s",
                              t->path, kvr_array_name(array),
                              errno != 0 ? strerror(errno) : "it ends before");
            free(data);
        } else {
            a->data = data;
        }
    }
    *out = a->data;
    *rows = a->data != NULL ? a->rows : 0;
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* A whole 1-D dataset of n items, or of any number (*n is set) when *n is
 * UINT64_MAX. *out stays NULL where it is absent. */
static enum kvr_status load_token_data(void **out, uint64_t *n,
                                       const struct h5_index *file,
                                       const struct h5_object *group,
                                       const char *name, enum h5_as as,
                                       struct kvr_error *err)
{
    const struct h5_object *found;
    char where[64];

    const enum kvr_status status =
        kvr__h5_find_set(&found, file, group, name, "/tokens", err);
    if (status != KVR_OK || found == NULL)
        return status;
    const struct h5_set *set = found->set;
    if (set->rank != 1 || (*n != UINT64_MAX && set->dims[0] != *n))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: /tokens/%s: expected %llu items, found rank "
                        "%d, %llu",
                        file->path, name, (unsigned long long)*n, set->rank,
                        (unsigned long long)set->dims[0]);
    *n = set->dims[0];
    snprintf(where, sizeof where, "/tokens/%s", name);
    return kvr__h5_load(out, as, file, set, where, UINT32_MAX, err);
}

static enum kvr_status check_text(const struct kvr_trace *trace,
                                  struct kvr_error *err)
{
    const struct kvr_trace_tokens *t = &trace->tokens;
    const uint32_t n = trace->box->shape.n_token;

    if ((t->text == NULL) != (t->text_offset == NULL))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: /tokens/text without text_offset, or the other "
                        "way round",
                        trace->path);
    if (t->text == NULL)
        return KVR_OK;
    for (uint32_t i = 0; i < n; i++)
        if (t->text_offset[i] > t->text_offset[i + 1])
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: /tokens/text_offset falls at token %u",
                            trace->path, i);
    if (t->text_offset[0] != 0 || t->text_offset[n] != trace->text_size)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: /tokens/text_offset runs from %u to %u, but text "
                        "has %llu bytes",
                        trace->path, t->text_offset[0], t->text_offset[n],
                        (unsigned long long)trace->text_size);
    return KVR_OK;
}

static enum kvr_status load_members(struct kvr_trace *trace,
                                    const struct h5_index *file,
                                    const struct h5_object *group,
                                    struct kvr_error *err)
{
    struct kvr_trace_tokens *t = &trace->tokens;
    uint64_t n = trace->box->shape.n_token, n_offset = n + 1;
    uint64_t n_text = UINT64_MAX;
    const struct {
        const char *name;
        const void *to; /* address of a member, all of them pointers */
        enum h5_as as;
        uint64_t *n;
    } members[] = {{"id", &t->id, AS_I32, &n},
                   {"logprob", &t->logprob, AS_F32, &n},
                   {"class", &t->class_of, AS_U8, &n},
                   {"position", &t->position, AS_I32, &n},
                   {"text", &t->text, AS_U8, &n_text},
                   {"text_offset", &t->text_offset, AS_U32, &n_offset}};

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        void *data = NULL;
        const enum kvr_status status =
            load_token_data(&data, members[i].n, file, group, members[i].name,
                            members[i].as, err);
        memcpy((void *)(uintptr_t)members[i].to, &data, sizeof data);
        if (status != KVR_OK)
            return status;
    }
    trace->text_size = t->text != NULL ? n_text : 0;
    trace->facts.has_tokens = t->id != NULL;
    return check_text(trace, err);
}

enum kvr_status kvr__load_tokens(struct kvr_trace *trace,
                                 const struct h5_index *file,
                                 struct kvr_error *err)
{
    const struct h5_object *group;

    enum kvr_status status =
        kvr__h5_member(&group, file, kvr__h5_root(file), "tokens", "", err);
    if (status != KVR_OK || group == NULL)
        return status;
    status = load_members(trace, file, group, err);
    if (status == KVR_OK)
        status = kvr__load_rows(trace, file, group, trace->box->shape.n_layer,
                                SET_LOGITS, err);
    return status;
}
