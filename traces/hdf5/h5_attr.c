/* h5_attr.c -- values of attributes out of their stored bytes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_index.h"

#include "kvr_half.h"

#include <string.h>

enum kvr_status kvr__h5_check_attrs(const struct h5_index *file,
                                    const struct h5_object *object,
                                    const char *where, struct kvr_error *err)
{
    if (object->attr_problem == NULL)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: %s", file->path, where,
                    object->attr_problem);
}

static const struct h5_attr *find_attr(const struct h5_index *file,
                                       const struct h5_object *object,
                                       const char *name)
{
    const struct h5_attr *attr = file->attrs + object->first_attr;

    for (size_t i = 0; i < object->n_attr; i++)
        if (strcmp(attr[i].name, name) == 0)
            return &attr[i];
    return NULL;
}

bool kvr__h5_has_attr(const struct h5_index *file,
                      const struct h5_object *object, const char *name)
{
    return find_attr(file, object, name) != NULL;
}

/* The bytes in the host's order, which is little-endian. */
static uint64_t bits_of(const uint8_t *at, const struct h5_type *type)
{
    uint64_t bits = 0;

    for (uint32_t i = 0; i < type->size; i++)
        bits |= (uint64_t)at[type->big_endian ? type->size - 1 - i : i]
                << (8 * i);
    return bits;
}

int64_t kvr__h5_integer(const uint8_t *at, const struct h5_type *type)
{
    const uint64_t bits = bits_of(at, type);

    if (!type->is_signed)
        return bits <= INT64_MAX ? (int64_t)bits : INT64_MAX;
    switch (type->size) {
    case 1:
        return (int8_t)bits;
    case 2:
        return (int16_t)bits;
    case 4:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static double real_of(const uint8_t *at, const struct h5_type *type)
{
    const uint64_t bits = bits_of(at, type);
    const uint32_t low = (uint32_t)bits;
    float single;
    double wide;

    if (type->size == 2)
        return (double)kvr_f16_to_f32((uint16_t)bits);
    if (type->size == 4) {
        memcpy(&single, &low, sizeof single);
        return (double)single;
    }
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static double number_of(const uint8_t *at, const struct h5_type *type)
{
    if (type->kind == TYPE_FLOAT)
        return real_of(at, type);
    if (!type->is_signed)
        return (double)bits_of(at, type);
    return (double)kvr__h5_integer(at, type);
}

void kvr__h5_widen(double *out, const uint8_t *in, size_t n,
                   const struct h5_type *type)
{
    const bool single =
        type->kind == TYPE_FLOAT && !type->big_endian && type->size == 4;
    float value;

    if (!single) {
        for (size_t i = 0; i < n; i++)
            out[i] = number_of(in + i * type->size, type);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(&value, in + i * sizeof value, sizeof value);
        out[i] = (double)value;
    }
}

static bool get_integers(int64_t *value, uint64_t n,
                         const struct h5_index *file,
                         const struct h5_object *object, const char *name)
{
    const struct h5_attr *attr = find_attr(file, object, name);

    if (attr == NULL || attr->value == NULL ||
        attr->type.kind != TYPE_INTEGER || attr->n != n)
        return false;
    for (uint64_t i = 0; i < n; i++)
        value[i] =
            kvr__h5_integer(attr->value + i * attr->type.size, &attr->type);
    return true;
}

bool kvr__h5_get_int(int64_t *value, const struct h5_index *file,
                     const struct h5_object *object, const char *name)
{
    return get_integers(value, 1, file, object, name);
}

bool kvr__h5_get_pair(int64_t value[2], const struct h5_index *file,
                      const struct h5_object *object, const char *name)
{
    return get_integers(value, 2, file, object, name);
}

bool kvr__h5_get_real(double *value, const struct h5_index *file,
                      const struct h5_object *object, const char *name)
{
    const struct h5_attr *attr = find_attr(file, object, name);

    if (attr == NULL || attr->value == NULL || attr->n != 1 ||
        (attr->type.kind != TYPE_FLOAT && attr->type.kind != TYPE_INTEGER))
        return false;
    *value = number_of(attr->value, &attr->type);
    return true;
}

bool kvr__h5_get_text(const char **text, const struct h5_index *file,
                      const struct h5_object *object, const char *name)
{
    const struct h5_attr *attr = find_attr(file, object, name);

    if (attr == NULL || attr->value == NULL || attr->type.kind <= TYPE_FLOAT)
        return false;
    *text = (const char *)attr->value;
    return true;
}
