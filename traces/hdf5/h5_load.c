/* h5_load.c -- whole datasets as numbers of ours.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_data.h"

#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

size_t kvr__h5_as_size(enum h5_as as)
{
    return as == AS_U8 ? sizeof(uint8_t) : sizeof(uint32_t);
}

/* An integer into its place; false: the type does not hold it. */
static bool put_integer(void *out, enum h5_as as, size_t i, int64_t value)
{
    switch (as) {
    case AS_I32:
        if (value < INT32_MIN || value > INT32_MAX)
            return false;
        ((int32_t *)out)[i] = (int32_t)value;
        return true;
    case AS_U32:
        if (value < 0 || value > UINT32_MAX)
            return false;
        ((uint32_t *)out)[i] = (uint32_t)value;
        return true;
    case AS_U8:
        if (value < 0 || value > UINT8_MAX)
            return false;
        ((uint8_t *)out)[i] = (uint8_t)value;
        return true;
    case AS_F32:
        break;
    }
    return false;
}

static enum kvr_status convert(void *out, enum h5_as as,
                               const struct h5_index *file,
                               const struct h5_set *set, const char *where,
                               const uint8_t *stored, size_t n,
                               struct kvr_error *err)
{
    const struct h5_type *type = &set->type;

    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = stored + i * type->size;
        if (as == AS_F32) {
            double value;
            kvr__h5_widen(&value, at, 1, type);
            ((float *)out)[i] = (float)value;
            continue;
        }
        const int64_t value = kvr__h5_integer(at, type);
        if (!put_integer(out, as, i, value))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: number %zu is %lld: expected %s",
                            file->path, where, i, (long long)value,
                            as == AS_I32   ? "a signed number of 32 bits"
                            : as == AS_U32 ? "0 to 4294967295"
                                           : "0 to 255");
    }
    return KVR_OK;
}

static enum kvr_status read_all(uint8_t *out, const struct h5_index *file,
                                const struct h5_set *set, const char *where,
                                struct kvr_error *err)
{
    const uint64_t from[INDEX_MAX_RANK] = {0};
    struct h5_reader *reader = NULL;

    enum kvr_status status = kvr__h5_reader_new(&reader, file, set, where, err);
    if (status == KVR_OK)
        status = kvr__h5_read_box(reader, from, set->dims, out, err);
    kvr__h5_reader_free(reader);
    return status;
}

enum kvr_status kvr__h5_load(void **out, enum h5_as as,
                             const struct h5_index *file,
                             const struct h5_set *set, const char *where,
                             uint64_t limit, struct kvr_error *err)
{
    size_t n = 1;

    *out = NULL;
    enum kvr_status status = kvr__h5_check_stored(file, set, where, limit, err);
    if (status != KVR_OK)
        return status;
    if (as != AS_F32 && set->type.kind != TYPE_INTEGER)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: expected integers",
                        file->path, where);
    for (int i = 0; i < set->rank; i++)
        n *= (size_t)set->dims[i]; /* checked against `limit` */
    uint8_t *stored = kvr_calloc(n, set->type.size);
    void *data = kvr_calloc(n, kvr__h5_as_size(as));
    if (stored == NULL || data == NULL)
        status = kvr_no_memory(err, where, n * set->type.size);
    if (status == KVR_OK)
        status = read_all(stored, file, set, where, err);
    if (status == KVR_OK)
        status = convert(data, as, file, set, where, stored, n, err);
    free(stored);
    if (status != KVR_OK) {
        free(data);
        return status;
    }
    *out = data;
    return KVR_OK;
}
