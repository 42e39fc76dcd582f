/* reader_arrays.c -- arrays of a layer, and the tokens.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "reader_h5.h"

#include "journal.h"
#include "kvr_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t array_limit = (uint64_t)1 << 40;

/* Our own files store arrays in one piece of f32: read when asked for. */
static bool plain_f32(uint64_t *offset, hid_t set, uint64_t bytes,
                      uint64_t file_size)
{
    const hid_t type = H5Dget_type(set);
    const bool little_f32 =
        kvr__h5_float_size(type) == 4 && H5Tget_order(type) == H5T_ORDER_LE;

    H5Tclose(type);
    const haddr_t at = H5Dget_offset(set);
    H5Eclear2(H5E_DEFAULT);
    if (!little_f32 || at == HADDR_UNDEF || at == 0 || at > file_size ||
        bytes > file_size - at || H5Dget_storage_size(set) != bytes)
        return false;
    *offset = at;
    return true;
}

static enum kvr_status load_array(struct kvr_trace *trace, hid_t set,
                                  uint32_t layer, enum kvr_array array,
                                  const char *where, struct kvr_error *err)
{
    struct lazy_array *out = &trace->arrays[layer][array];
    const struct kvr_layer_shape *y = &trace->box->layers[layer];
    const uint32_t t = trace->box->shape.n_token;
    hsize_t dims[8];
    int rank;

    if (!kvr__h5_extent(&rank, dims, set) || rank != 2 || dims[1] != t ||
        dims[0] > UINT32_MAX ||
        !kvr__array_rows_fit(y, array, (uint32_t)dims[0]))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: expected shape [%u%s, %u], found rank %d "
                        "[%llu, %llu]",
                        trace->path, where, y->n_head,
                        array >= KVR_KEY_NORM ? " or n_kv_head" : "", t, rank,
                        (unsigned long long)dims[0],
                        (unsigned long long)dims[1]);
    const enum kvr_status status =
        kvr__h5_check_stored(set, trace->path, where, array_limit, err);
    if (status != KVR_OK)
        return status;
    out->rows = (uint32_t)dims[0];
    const size_t bytes = (size_t)out->rows * t * sizeof(float);
    if (plain_f32(&out->offset, set, bytes, trace->size))
        return KVR_OK;
    out->data = kvr_calloc(1, bytes);
    if (out->data == NULL)
        return kvr_no_memory(err, where, bytes);
    if (H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                out->data) < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, where);
    return KVR_OK;
}

enum kvr_status kvr__load_arrays(struct kvr_trace *trace, hid_t group,
                                 uint32_t layer, struct kvr_error *err)
{
    char parent[32], where[64];

    snprintf(parent, sizeof parent, "/layers/%02u",
             trace->box->layers[layer].layer);
    for (int i = 0; i < KVR_N_ARRAY; i++) {
        const enum kvr_array array = (enum kvr_array)i;
        hid_t set = -1;
        enum kvr_status status = kvr__open_dataset(
            &set, trace->path, group, kvr_array_name(array), parent, err);
        if (status == KVR_OK && set >= 0) {
            snprintf(where, sizeof where, "%s/%s", parent,
                     kvr_array_name(array));
            status = load_array(trace, set, layer, array, where, err);
            H5Dclose(set);
        }
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

/* A 1-D dataset of *n numbers, *n set where it is 0. *out NULL: absent. */
static enum kvr_status load_vector(void **out, uint32_t *n,
                                   const struct kvr_trace *trace, hid_t group,
                                   const char *parent, const char *name,
                                   hid_t type, struct kvr_error *err)
{
    const size_t item = H5Tget_size(type);
    hid_t set = -1;
    hsize_t dims[8] = {0};
    int rank = 0;

    enum kvr_status status =
        kvr__open_dataset(&set, trace->path, group, name, parent, err);
    if (status != KVR_OK || set < 0)
        return status;
    if (!kvr__h5_extent(&rank, dims, set) || rank != 1 || dims[0] == 0 ||
        dims[0] > SHAPE_MAX_FF || (*n != 0 && dims[0] != *n))
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: %s/%s: expected [n_ff] numbers, found rank %d, "
                          "%llu",
                          trace->path, parent, name, rank,
                          (unsigned long long)dims[0]);
    else
        status = kvr__h5_check_stored(set, trace->path, name, UINT32_MAX, err);
    if (status == KVR_OK) {
        *n = (uint32_t)dims[0];
        *out = kvr_calloc(*n, item);
        if (*out == NULL)
            status = kvr_no_memory(err, name, *n * item);
        else if (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *out) < 0)
            status = kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, name);
    }
    H5Dclose(set);
    return status;
}

enum kvr_status kvr__load_mlp(struct kvr_trace *trace, hid_t group,
                              uint32_t layer, struct kvr_error *err)
{
    struct mlp_sums *m = &trace->mlp[layer];
    void *mass = NULL, *active = NULL;
    char parent[32];

    snprintf(parent, sizeof parent, "/layers/%02u",
             trace->box->layers[layer].layer);
    enum kvr_status status = load_vector(&mass, &m->n_ff, trace, group, parent,
                                         "mlp_mass", H5T_NATIVE_FLOAT, err);
    m->mass = mass;
    if (status == KVR_OK)
        status = load_vector(&active, &m->n_ff, trace, group, parent,
                             "mlp_active", H5T_NATIVE_UINT32, err);
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
        } else if (!kvr__pread_all(t->fd, data, bytes, a->offset)) {
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
                                       const struct kvr_trace *trace,
                                       hid_t group, const char *name,
                                       hid_t type, struct kvr_error *err)
{
    const size_t item = H5Tget_size(type);
    hid_t set = -1;
    hsize_t dims[8];
    int rank;

    enum kvr_status status =
        kvr__open_dataset(&set, trace->path, group, name, "/tokens", err);
    if (status != KVR_OK || set < 0)
        return status;
    if (!kvr__h5_extent(&rank, dims, set) || rank != 1 ||
        (*n != UINT64_MAX && dims[0] != *n))
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: /tokens/%s: expected %llu items, found rank "
                          "%d, %llu",
                          trace->path, name, (unsigned long long)*n, rank,
                          (unsigned long long)dims[0]);
    else
        status = kvr__h5_check_stored(set, trace->path, name, UINT32_MAX, err);
    if (status == KVR_OK) {
        *n = dims[0];
        *out = kvr_calloc(dims[0], item);
        if (*out == NULL)
            status = kvr_no_memory(err, name, dims[0] * item);
        else if (dims[0] > 0 &&
                 H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *out) < 0)
            status = kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, name);
    }
    H5Dclose(set);
    return status;
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

static enum kvr_status load_members(struct kvr_trace *trace, hid_t group,
                                    struct kvr_error *err)
{
    struct kvr_trace_tokens *t = &trace->tokens;
    uint64_t n = trace->box->shape.n_token, n_offset = n + 1;
    uint64_t n_text = UINT64_MAX;
    const struct {
        const char *name;
        const void *to; /* address of a member, all of them pointers */
        hid_t type;
        uint64_t *n;
    } members[] = {
        {"id", &t->id, H5T_NATIVE_INT32, &n},
        {"logprob", &t->logprob, H5T_NATIVE_FLOAT, &n},
        {"class", &t->class_of, H5T_NATIVE_UINT8, &n},
        {"position", &t->position, H5T_NATIVE_INT32, &n},
        {"text", &t->text, H5T_NATIVE_UINT8, &n_text},
        {"text_offset", &t->text_offset, H5T_NATIVE_UINT32, &n_offset}};

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        void *data = NULL;
        const enum kvr_status status =
            load_token_data(&data, members[i].n, trace, group, members[i].name,
                            members[i].type, err);
        memcpy((void *)(uintptr_t)members[i].to, &data, sizeof data);
        if (status != KVR_OK)
            return status;
    }
    trace->text_size = t->text != NULL ? n_text : 0;
    trace->facts.has_tokens = t->id != NULL;
    return check_text(trace, err);
}

enum kvr_status kvr__load_tokens(struct kvr_trace *trace, hid_t file,
                                 struct kvr_error *err)
{
    if (kvr__h5_has_member(file, "tokens") <= 0)
        return KVR_OK;
    const hid_t group = H5Gopen2(file, "tokens", H5P_DEFAULT);
    if (group < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, trace->path, "/tokens");
    enum kvr_status status = load_members(trace, group, err);
    if (status == KVR_OK)
        status = kvr__load_rows(trace, group, trace->box->shape.n_layer,
                                SET_LOGITS, err);
    H5Gclose(group);
    return status;
}
