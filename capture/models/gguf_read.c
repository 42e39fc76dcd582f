/* gguf_read.c -- a model of one or several GGUF files: its look-ups.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "gguf_private.h"

#include "kvr_file.h"
#include "kvr_log.h"
#include "kvr_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 99999, PART_SUFFIX = 20 /* "-00001-of-00003.gguf" */ };

static int by_name(const void *a, const void *b)
{
    const struct kvr_gguf_tensor *left = a, *right = b;

    return kvr_slice_compare(left->name, right->name);
}

/* All parts' tensors in one sorted list. */
static enum kvr_status join_tensors(struct kvr_gguf *gguf,
                                    struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];
    size_t total = 0;

    for (size_t i = 0; i < gguf->n_parts; i++)
        total += gguf->parts[i].n_tensors;
    gguf->tensors = kvr_calloc(total, sizeof *gguf->tensors);
    if (gguf->tensors == NULL)
        return kvr_no_memory(err, "the tensor directory",
                             total * sizeof *gguf->tensors);
    for (size_t i = 0; i < gguf->n_parts; i++) {
        const struct kvr_gguf_part *part = &gguf->parts[i];
        for (size_t k = 0; k < part->n_tensors; k++)
            gguf->tensors[gguf->n_tensors++] = part->tensors[k];
    }
    qsort(gguf->tensors, total, sizeof *gguf->tensors, by_name);
    for (size_t i = 1; i < total; i++)
        if (by_name(&gguf->tensors[i - 1], &gguf->tensors[i]) == 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: tensor '%s' is there twice",
                            kvr__gguf_path(gguf),
                            kvr_slice_show(shown, gguf->tensors[i].name));
    return KVR_OK;
}

/* "BASE-0000N-of-0000M.gguf" into out; false where path has no such end. */
static bool part_name(char *out, size_t room, const char *path, uint32_t no,
                      uint32_t count)
{
    char tail[PART_SUFFIX + 12];
    const size_t n = strlen(path);

    snprintf(tail, sizeof tail, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", 1u,
             count);
    if (n < PART_SUFFIX || strcmp(path + n - PART_SUFFIX, tail) != 0)
        return false;
    snprintf(out, room, "%.*s-%05" PRIu32 "-of-%05" PRIu32 ".gguf",
             (int)(n - PART_SUFFIX), path, no, count);
    return true;
}

static enum kvr_status name_missing(const char *path, uint32_t count,
                                    char *name, size_t room,
                                    struct kvr_error *err)
{
    char list[512];
    size_t used = 0;
    uint32_t missing = 0;

    for (uint32_t no = 1; no <= count; no++) {
        if (!part_name(name, room, path, no, count))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: first of %" PRIu32 " split files, but its "
                            "name does not end in -00001-of-%05" PRIu32
                            ".gguf, so the others cannot be found",
                            path, count, count);
        if (kvr_file_exists(name))
            continue;
        missing++;
        const char *slash = strrchr(name, '/');
        const char *base = slash != NULL ? slash + 1 : name;
        if (used + strlen(base) + 3 < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                     used > 0 ? ", " : "", base);
    }
    if (missing == 0)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: first of %" PRIu32 " split files; missing beside it "
                    "(%" PRIu32 "): %s",
                    path, count, missing, list);
}

/* A number of a part's metadata; `otherwise` where it has none. */
static double part_number(const struct kvr_gguf_part *part, const char *key,
                          double otherwise)
{
    const struct kvr_gguf_value *value = kvr__gguf_part_find(part, key);
    double number;

    return value != NULL && kvr__gguf_number(&number, value, 0) ? number
                                                                : otherwise;
}

/* A part of another model's files under this one's name. */
static enum kvr_status check_part(const struct kvr_gguf_part *part, uint32_t no,
                                  uint32_t count, struct kvr_error *err)
{
    const double found_no = part_number(part, "split.no", -1);
    const double found_count = part_number(part, "split.count", -1);

    if (found_no == no && found_count == count)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: has split.no %g and split.count %g, expected %" PRIu32
                    " and %" PRIu32 " (-1: not stated)",
                    part->path, found_no, found_count, no, count);
}

static enum kvr_status open_rest(struct kvr_gguf *gguf, uint32_t count,
                                 struct kvr_error *err)
{
    const size_t room = strlen(gguf->parts[0].path) + 32;
    char *name = malloc(room);
    enum kvr_status status;

    if (name == NULL)
        return kvr_no_memory(err, "a path", room);
    status = name_missing(gguf->parts[0].path, count, name, room, err);
    if (status == KVR_OK) {
        struct kvr_gguf_part *parts =
            realloc(gguf->parts, count * sizeof *parts);
        if (parts == NULL) {
            status = kvr_no_memory(err, "split files", count * sizeof *parts);
        } else {
            memset(parts + 1, 0, (count - 1) * sizeof *parts);
            gguf->parts = parts;
            gguf->n_parts = count;
        }
    }
    for (uint32_t no = 2; no <= count && status == KVR_OK; no++) {
        (void)part_name(name, room, gguf->parts[0].path, no, count);
        status = kvr__gguf_part_open(&gguf->parts[no - 1], name, err);
        if (status == KVR_OK)
            status = check_part(&gguf->parts[no - 1], no - 1, count, err);
    }
    free(name);
    return status;
}

/* What each part states about all of them, against what was found. */
static enum kvr_status count_tensors(const struct kvr_gguf *gguf,
                                     struct kvr_error *err)
{
    size_t found = 0;
    bool stated = false;

    for (size_t i = 0; i < gguf->n_parts; i++)
        found += gguf->parts[i].n_tensors;
    for (size_t i = 0; i < gguf->n_parts; i++) {
        const struct kvr_gguf_part *part = &gguf->parts[i];
        const double n = part_number(part, "split.tensors.count", -1);
        if (kvr__gguf_part_find(part, "split.tensors.count") == NULL)
            continue;
        stated = true;
        if (n != (double)found)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: split.tensors.count is %g, but the %zu files "
                            "of the model have %zu tensors",
                            part->path, n, gguf->n_parts, found);
    }
    if (!stated && gguf->n_parts > 1)
        kvr_log(KVR_LOG_WARNING,
                "%s: no part of the split model has split.tensors.count, so "
                "whether a tensor is missing cannot be told",
                kvr__gguf_path(gguf));
    return KVR_OK;
}

static enum kvr_status open_split(struct kvr_gguf *gguf, struct kvr_error *err)
{
    uint32_t count = 1, no = 0;
    enum kvr_status status;

    if ((status = kvr__gguf_u32(&count, NULL, gguf, "split.count", err)) !=
            KVR_OK ||
        (status = kvr__gguf_u32(&no, NULL, gguf, "split.no", err)) != KVR_OK)
        return status;
    if (count <= 1)
        return KVR_OK;
    if (no != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: part %" PRIu32 " of %" PRIu32
                        " split files; give the first part",
                        kvr__gguf_path(gguf), no + 1, count);
    if (count > MAX_PARTS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: split.count is %" PRIu32 ", at most %d is read",
                        kvr__gguf_path(gguf), count, (int)MAX_PARTS);
    return open_rest(gguf, count, err);
}

enum kvr_status kvr__gguf_open(struct kvr_gguf **out, const char *path,
                               struct kvr_error *err)
{
    struct kvr_gguf *gguf = kvr_calloc(1, sizeof *gguf);
    enum kvr_status status = KVR_OK;

    *out = NULL;
    if (gguf == NULL)
        return kvr_no_memory(err, "a model file", sizeof *gguf);
    gguf->parts = kvr_calloc(1, sizeof *gguf->parts);
    if (gguf->parts == NULL)
        status = kvr_no_memory(err, "a model file", sizeof *gguf->parts);
    else
        gguf->n_parts = 1;
    if (status != KVR_OK ||
        (status = kvr__gguf_part_open(&gguf->parts[0], path, err)) != KVR_OK ||
        (status = open_split(gguf, err)) != KVR_OK ||
        (status = count_tensors(gguf, err)) != KVR_OK ||
        (status = join_tensors(gguf, err)) != KVR_OK) {
        kvr__gguf_close(gguf);
        return status;
    }
    *out = gguf;
    return KVR_OK;
}

void kvr__gguf_close(struct kvr_gguf *gguf)
{
    if (gguf == NULL)
        return;
    for (size_t i = 0; i < gguf->n_parts; i++)
        kvr__gguf_part_close(&gguf->parts[i]);
    free(gguf->parts);
    free(gguf->tensors);
    free(gguf);
}

const char *kvr__gguf_path(const struct kvr_gguf *gguf)
{
    return gguf->parts[0].path;
}

size_t kvr__gguf_n_tensors(const struct kvr_gguf *gguf)
{
    return gguf->n_tensors;
}

const struct kvr_gguf_tensor *kvr__gguf_tensor(const struct kvr_gguf *gguf,
                                               size_t index)
{
    return &gguf->tensors[index];
}

const struct kvr_gguf_tensor *
kvr__gguf_tensor_named(const struct kvr_gguf *gguf, const char *name)
{
    const struct kvr_gguf_tensor wanted = {.name = kvr_slice_of(name)};

    if (gguf->n_tensors == 0)
        return NULL;
    return bsearch(&wanted, gguf->tensors, gguf->n_tensors,
                   sizeof *gguf->tensors, by_name);
}

static int by_key(const void *a, const void *b)
{
    const struct kvr_gguf_value *left = a, *right = b;

    return kvr_slice_compare(left->key, right->key);
}

const struct kvr_gguf_value *
kvr__gguf_part_find(const struct kvr_gguf_part *part, const char *key)
{
    const struct kvr_gguf_value wanted = {.key = kvr_slice_of(key)};

    if (part->n_values == 0)
        return NULL;
    return bsearch(&wanted, part->values, part->n_values, sizeof *part->values,
                   by_key);
}

size_t kvr__gguf_n_values(const struct kvr_gguf *gguf)
{
    return gguf->parts[0].n_values;
}

const struct kvr_gguf_value *kvr__gguf_value(const struct kvr_gguf *gguf,
                                             size_t index)
{
    return &gguf->parts[0].values[index];
}

const struct kvr_gguf_value *kvr__gguf_find(const struct kvr_gguf *gguf,
                                            const char *key)
{
    return kvr__gguf_part_find(&gguf->parts[0], key);
}

const char *kvr__gguf_type_name(enum kvr_gguf_type type)
{
    static const char *const names[KVR_GGUF_N_TYPE] = {
        "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
        "bool", "string", "array", "u64", "i64", "f64",
    };

    return names[type];
}

#define READ(type) \
    do { \
        type item; \
        memcpy(&item, value->data + i * sizeof item, sizeof item); \
        *out = (double)item; \
    } while (0)

bool kvr__gguf_number(double *out, const struct kvr_gguf_value *value,
                      uint64_t i)
{
    const enum kvr_gguf_type type =
        value->type == KVR_GGUF_ARRAY ? value->item_type : value->type;

    if (i >= value->n)
        return false;
    switch (type) {
    case KVR_GGUF_BOOL:
    case KVR_GGUF_U8:
        READ(uint8_t);
        break;
    case KVR_GGUF_I8:
        READ(int8_t);
        break;
    case KVR_GGUF_U16:
        READ(uint16_t);
        break;
    case KVR_GGUF_I16:
        READ(int16_t);
        break;
    case KVR_GGUF_U32:
        READ(uint32_t);
        break;
    case KVR_GGUF_I32:
        READ(int32_t);
        break;
    case KVR_GGUF_U64:
        READ(uint64_t);
        break;
    case KVR_GGUF_I64:
        READ(int64_t);
        break;
    case KVR_GGUF_F32:
        READ(float);
        break;
    case KVR_GGUF_F64:
        READ(double);
        break;
    default:
        return false;
    }
    return true;
}

static enum kvr_status wrong_type(const struct kvr_gguf *gguf,
                                  const struct kvr_gguf_value *value,
                                  const char *expected, struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];

    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: metadata key '%s' is of type %s, expected %s",
                    kvr__gguf_path(gguf), kvr_slice_show(shown, value->key),
                    kvr__gguf_type_name(value->type), expected);
}

/* The value of a key, with *found set. */
static const struct kvr_gguf_value *
look_up(bool *found, const struct kvr_gguf *gguf, const char *key)
{
    const struct kvr_gguf_value *value = kvr__gguf_find(gguf, key);

    if (found != NULL)
        *found = value != NULL;
    return value;
}

enum kvr_status kvr__gguf_u32(uint32_t *out, bool *found,
                              const struct kvr_gguf *gguf, const char *key,
                              struct kvr_error *err)
{
    const struct kvr_gguf_value *value = look_up(found, gguf, key);
    double number;

    if (value == NULL)
        return KVR_OK;
    if (value->type == KVR_GGUF_ARRAY || value->type == KVR_GGUF_BOOL ||
        value->type == KVR_GGUF_F32 || value->type == KVR_GGUF_F64 ||
        !kvr__gguf_number(&number, value, 0))
        return wrong_type(gguf, value, "a whole number", err);
    if (!(number >= 0 && number <= UINT32_MAX))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: metadata key '%s' is %.17g, expected 0 to "
                        "4294967295",
                        kvr__gguf_path(gguf), key, number);
    *out = (uint32_t)number;
    return KVR_OK;
}

enum kvr_status kvr__gguf_real(double *out, bool *found,
                               const struct kvr_gguf *gguf, const char *key,
                               struct kvr_error *err)
{
    const struct kvr_gguf_value *value = look_up(found, gguf, key);

    if (value == NULL)
        return KVR_OK;
    if (value->type == KVR_GGUF_ARRAY || value->type == KVR_GGUF_BOOL ||
        !kvr__gguf_number(out, value, 0))
        return wrong_type(gguf, value, "a number", err);
    return KVR_OK;
}

enum kvr_status kvr__gguf_bool(bool *out, bool *found,
                               const struct kvr_gguf *gguf, const char *key,
                               struct kvr_error *err)
{
    const struct kvr_gguf_value *value = look_up(found, gguf, key);

    if (value == NULL)
        return KVR_OK;
    if (value->type != KVR_GGUF_BOOL)
        return wrong_type(gguf, value, "bool", err);
    *out = value->data[0] != 0;
    return KVR_OK;
}

enum kvr_status kvr__gguf_string(struct kvr_slice *out, bool *found,
                                 const struct kvr_gguf *gguf, const char *key,
                                 struct kvr_error *err)
{
    const struct kvr_gguf_value *value = look_up(found, gguf, key);

    if (value == NULL)
        return KVR_OK;
    if (value->type != KVR_GGUF_STRING)
        return wrong_type(gguf, value, "string", err);
    *out = (struct kvr_slice){(const char *)value->data, (size_t)value->n};
    return KVR_OK;
}

enum kvr_status kvr__gguf_strings(struct kvr_slice **out, size_t *n,
                                  const struct kvr_gguf *gguf, const char *key,
                                  struct kvr_error *err)
{
    const struct kvr_gguf_value *value = kvr__gguf_find(gguf, key);

    *out = NULL;
    *n = 0;
    if (value == NULL)
        return KVR_OK;
    if (value->type != KVR_GGUF_ARRAY || value->item_type != KVR_GGUF_STRING)
        return wrong_type(gguf, value, "an array of strings", err);
    struct kvr_slice *views = kvr_calloc((size_t)value->n, sizeof *views);
    if (views == NULL)
        return kvr_no_memory(err, key, (size_t)value->n * sizeof *views);
    const uint8_t *at = value->data; /* its extent was checked on opening */
    for (uint64_t i = 0; i < value->n; i++) {
        uint64_t size;
        memcpy(&size, at, sizeof size);
        views[i] = (struct kvr_slice){(const char *)at + 8, (size_t)size};
        at += 8 + size;
    }
    *out = views;
    *n = (size_t)value->n;
    return KVR_OK;
}
