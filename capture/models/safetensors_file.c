/* safetensors_file.c -- the header of one file, checked.
 *
 * Eight bytes of length, a JSON object of that length, then the data.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "safetensors_private.h"

#include "kvr_memory.h"
#include "quant.h"
#include "slice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A header is some 100 bytes a tensor; more than this is no header. */
enum { MAX_HEADER = 100 << 20, MAX_SHOWN = 160 };

static const struct {
    const char *name;
    uint32_t bytes, type;
} dtypes[] = {
    {"F32", 4, KVR_QUANT_F32},      {"F16", 2, KVR_QUANT_F16},
    {"BF16", 2, KVR_QUANT_BF16},    {"F64", 8, KVR_ST_NO_TYPE},
    {"I64", 8, KVR_ST_NO_TYPE},     {"U64", 8, KVR_ST_NO_TYPE},
    {"I32", 4, KVR_ST_NO_TYPE},     {"U32", 4, KVR_ST_NO_TYPE},
    {"I16", 2, KVR_ST_NO_TYPE},     {"U16", 2, KVR_ST_NO_TYPE},
    {"I8", 1, KVR_ST_NO_TYPE},      {"U8", 1, KVR_ST_NO_TYPE},
    {"BOOL", 1, KVR_ST_NO_TYPE},    {"F8_E4M3", 1, KVR_ST_NO_TYPE},
    {"F8_E5M2", 1, KVR_ST_NO_TYPE},
};

static const char *show(char out[KVR_SLICE_TEXT], const char *text)
{
    return kvr_slice_show(out, kvr_slice_of(text));
}

static void show_shape(char out[MAX_SHOWN], const struct kvr_st_tensor *t)
{
    size_t used = (size_t)snprintf(out, MAX_SHOWN, "[");

    for (uint32_t i = 0; i < t->n_dims && used + 24 < MAX_SHOWN; i++)
        used += (size_t)snprintf(out + used, MAX_SHOWN - used, "%s%" PRIu64,
                                 i > 0 ? ", " : "", t->dims[i]);
    snprintf(out + used, MAX_SHOWN - used, "]");
}

static enum kvr_status bad_entry(const struct kvr_st_file *file,
                                 const char *name, const char *what,
                                 struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];

    return kvr_fail(err, KVR_ERR_INPUT, "%s: tensor '%s': %s", file->path,
                    show(shown, name), what);
}

static bool natural(uint64_t *out, const json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

/* Shape, and the number of values. */
static enum kvr_status read_shape(struct kvr_st_tensor *t, uint64_t *count,
                                  const struct kvr_st_file *file,
                                  const json_t *shape, struct kvr_error *err)
{
    if (!json_is_array(shape))
        return bad_entry(file, t->name, "has no shape", err);
    if (json_array_size(shape) > KVR_ST_MAX_DIMS)
        return bad_entry(file, t->name, "more than 8 dimensions", err);
    *count = 1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        if (!natural(&t->dims[i], json_array_get(shape, i)))
            return bad_entry(file, t->name, "a dimension is no whole number",
                             err);
        if (!kvr_mul_u64(count, *count, t->dims[i]))
            return bad_entry(file, t->name, "size overflows", err);
        t->n_dims++;
    }
    return KVR_OK;
}

/* Type, and that it has the bytes that the shape asks for. */
static enum kvr_status check_size(struct kvr_st_tensor *t, uint64_t count,
                                  const struct kvr_st_file *file,
                                  struct kvr_error *err)
{
    char name[KVR_SLICE_TEXT], shape[MAX_SHOWN];
    uint64_t bytes;
    size_t i = 0;

    t->type = KVR_ST_NO_TYPE;
    while (i < sizeof dtypes / sizeof dtypes[0] &&
           strcmp(dtypes[i].name, t->dtype) != 0)
        i++;
    if (i == sizeof dtypes / sizeof dtypes[0])
        return KVR_OK; /* unknown: no size to compare with */
    t->type = dtypes[i].type;
    if (!kvr_mul_u64(&bytes, count, dtypes[i].bytes))
        return bad_entry(file, t->name, "size overflows", err);
    if (bytes == t->size)
        return KVR_OK;
    show_shape(shape, t);
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: tensor '%s' of shape %s and type %s takes %" PRIu64
                    " bytes, its offsets give it %" PRIu64,
                    file->path, show(name, t->name), shape, t->dtype, bytes,
                    t->size);
}

static enum kvr_status read_tensor(struct kvr_st_tensor *t, const char *name,
                                   const json_t *entry,
                                   const struct kvr_st_file *file,
                                   uint64_t data_at, struct kvr_error *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const uint64_t room = file->mapped.size - data_at;
    char shown[KVR_SLICE_TEXT];
    uint64_t begin, end, count = 0;
    enum kvr_status status;

    *t = (struct kvr_st_tensor){.name = name, .path = file->path};
    t->dtype = json_string_value(json_object_get(entry, "dtype"));
    if (t->dtype == NULL)
        return bad_entry(file, name, "has no dtype", err);
    if ((status = read_shape(t, &count, file, json_object_get(entry, "shape"),
                             err)) != KVR_OK)
        return status;
    if (json_array_size(offsets) != 2 ||
        !natural(&begin, json_array_get(offsets, 0)) ||
        !natural(&end, json_array_get(offsets, 1)) || begin > end)
        return bad_entry(file, name, "has no valid data_offsets", err);
    if (end > room)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: tensor '%s' ends at byte %" PRIu64
                        " of the data, the file has %" PRIu64 " (%" PRIu64
                        " bytes in all): incomplete file",
                        file->path, show(shown, name), end, room,
                        file->mapped.size);
    t->size = end - begin;
    t->data = file->mapped.bytes + data_at + begin;
    return check_size(t, count, file, err);
}

static enum kvr_status parse_header(struct kvr_st_file *file, uint64_t size,
                                    struct kvr_error *err)
{
    json_error_t why;

    file->header = json_loadb((const char *)file->mapped.bytes + 8,
                              (size_t)size, JSON_REJECT_DUPLICATES, &why);
    if (file->header == NULL &&
        json_error_code(&why) == json_error_duplicate_key)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: duplicate name in the header: %s at byte %d",
                        file->path, why.text, why.position);
    if (file->header == NULL)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the header is not JSON: %s at its byte %d",
                        file->path, why.text, why.position);
    if (!json_is_object(file->header))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: the header is not a JSON object", file->path);
    return KVR_OK;
}

static enum kvr_status read_tensors(struct kvr_st_file *file, uint64_t data_at,
                                    struct kvr_error *err)
{
    const char *name;
    json_t *entry;
    enum kvr_status status;

    file->tensors =
        kvr_calloc(json_object_size(file->header), sizeof *file->tensors);
    if (file->tensors == NULL)
        return kvr_no_memory(err, "tensors", json_object_size(file->header));
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        status = read_tensor(&file->tensors[file->n_tensors], name, entry, file,
                             data_at, err);
        if (status != KVR_OK)
            return status;
        file->n_tensors++;
    }
    return KVR_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct kvr_st_tensor *x = a, *y = b;

    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);
}

/* The tensors lie one after another, from the first byte to the last. */
static enum kvr_status check_layout(struct kvr_st_file *file, uint64_t data_at,
                                    struct kvr_error *err)
{
    const uint8_t *at = file->mapped.bytes + data_at;
    const uint8_t *end = file->mapped.bytes + file->mapped.size;
    const struct kvr_st_tensor *last = NULL;
    char a[KVR_SLICE_TEXT], b[KVR_SLICE_TEXT];

    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, by_place);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct kvr_st_tensor *t = &file->tensors[i];
        if (t->data < at && t->size > 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: tensors '%s' and '%s' overlap", file->path,
                            show(a, last->name), show(b, t->name));
        if (t->data > at)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %td bytes before tensor '%s' belong to no "
                            "tensor",
                            file->path, t->data - at, show(a, t->name));
        if (t->size > 0) {
            at = t->data + t->size;
            last = t;
        }
    }
    if (at != end)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %td bytes at the end belong to no tensor",
                        file->path, end - at);
    return KVR_OK;
}

static enum kvr_status header_size(uint64_t *out,
                                   const struct kvr_st_file *file,
                                   struct kvr_error *err)
{
    static const char pointer[] = "version https://git-lfs";
    const uint8_t *bytes = file->mapped.bytes;
    const uint64_t size = file->mapped.size;

    if (size >= sizeof pointer - 1 &&
        memcmp(bytes, pointer, sizeof pointer - 1) == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: a Git LFS pointer, not the file that it stands "
                        "for: incomplete download",
                        file->path);
    if (size < 8)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: incomplete file: %" PRIu64
                        " bytes, a safetensors file begins with 8 bytes of "
                        "header length",
                        file->path, size);
    *out = 0;
    for (int i = 7; i >= 0; i--)
        *out = *out << 8 | bytes[i];
    if (*out > size - 8 || *out > MAX_HEADER)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: header of %" PRIu64 " bytes, the file has %" PRIu64
                        ": incomplete file, or no safetensors file",
                        file->path, *out, size);
    return KVR_OK;
}

enum kvr_status kvr__st_file_open(struct kvr_st_file *file, const char *path,
                                  struct kvr_error *err)
{
    uint64_t size = 0;
    enum kvr_status status;

    file->path = kvr_strdup(path);
    if (file->path == NULL)
        return kvr_no_memory(err, "a path", strlen(path));
    if ((status = kvr__mapped_open(&file->mapped, path, err)) != KVR_OK ||
        (status = header_size(&size, file, err)) != KVR_OK ||
        (status = parse_header(file, size, err)) != KVR_OK ||
        (status = read_tensors(file, 8 + size, err)) != KVR_OK)
        return status;
    return check_layout(file, 8 + size, err);
}

void kvr__st_file_close(struct kvr_st_file *file)
{
    kvr__mapped_close(&file->mapped);
    json_decref(file->header);
    free(file->tensors);
    free(file->path);
}
