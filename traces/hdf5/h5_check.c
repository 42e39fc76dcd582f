/* h5_check.c -- datasets that hold their own bytes, and enough of them.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_data.h"

#include "kvr_memory.h"

#include <stdio.h>
#include <string.h>

/* deflate's best: 258 bytes in 2 bits, so about 1032 to 1. */
enum { BEST_RATIO = 1100, SLACK = 4096 };

static enum kvr_status check_filters(const struct h5_index *file,
                                     const struct h5_set *set,
                                     const char *where, struct kvr_error *err)
{
    if (set->n_filter > INDEX_MAX_FILTERS)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s: more than %d filters", file->path, where,
                        INDEX_MAX_FILTERS);
    for (int i = 0; i < set->n_filter; i++) {
        const struct h5_filter *f = &set->filter[i];
        if (f->id == FILTER_SHUFFLE || f->id == FILTER_DEFLATE ||
            f->id == FILTER_FLETCHER32)
            continue;
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s: compressed with filter %u (%s), which is not "
                        "read; repack it with gzip: h5repack -f GZIP=4, or in "
                        "h5py compression='gzip'",
                        file->path, where, f->id,
                        f->name[0] != '\0' ? f->name : "no name");
    }
    return KVR_OK;
}

static enum kvr_status check_own_bytes(const struct h5_index *file,
                                       const struct h5_object *object,
                                       const char *where, struct kvr_error *err)
{
    const struct h5_set *set = object->set;

    if (object->kind != OBJECT_SET || set == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: not a dataset", file->path,
                        where);
    if (set->external != NULL)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s: its bytes are in another file ('%s'): "
                        "external storage is not followed",
                        file->path, where, set->external);
    if (set->layout == LAYOUT_VIRTUAL)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s: a virtual dataset, which is not followed; "
                        "repack it",
                        file->path, where);
    return check_filters(file, set, where, err);
}

enum kvr_status kvr__h5_find_set(const struct h5_object **out,
                                 const struct h5_index *file,
                                 const struct h5_object *group,
                                 const char *name, const char *where,
                                 struct kvr_error *err)
{
    char full[300];

    enum kvr_status status = kvr__h5_member(out, file, group, name, where, err);
    if (status != KVR_OK || *out == NULL)
        return status;
    snprintf(full, sizeof full, "%s%s%s", where,
             strcmp(where, "/") == 0 || name[0] == '/' ? "" : "/", name);
    status = check_own_bytes(file, *out, full, err);
    if (status != KVR_OK)
        *out = NULL;
    return status;
}

/* Data in one piece lie inside the file and are as long as declared. */
static bool piece_fits(const struct h5_index *file, const struct h5_set *set,
                       uint64_t declared)
{
    switch (set->layout) {
    case LAYOUT_CHUNKED:
        return true;
    case LAYOUT_COMPACT:
        return set->n_compact == declared;
    default:
        return (set->offset == UINT64_MAX && set->stored == 0) ||
               (set->stored == declared && set->offset <= file->size &&
                declared <= file->size - set->offset);
    }
}

/* Bytes of a whole chunk; false: more than 64 bits. */
static bool chunk_bytes(uint64_t *bytes, const struct h5_set *set)
{
    *bytes = set->type.size;
    for (int i = 0; i < set->rank; i++)
        if (!kvr_mul_u64(bytes, *bytes, set->chunk[i]))
            return false;
    return true;
}

/* Before anything is inflated: chunks lie in the file, and without deflate
 * they are whole. */
static enum kvr_status check_chunks(const struct h5_index *file,
                                    const struct h5_set *set, const char *where,
                                    struct kvr_error *err)
{
    const struct h5_place *place = file->places + set->first_place;
    uint64_t bytes, most = 0;
    bool deflated = false;

    if (set->layout != LAYOUT_CHUNKED)
        return KVR_OK;
    if (!chunk_bytes(&bytes, set) || bytes > UINT32_MAX)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: chunks of more than 4 GiB",
                        file->path, where);
    for (int i = 0; i < set->n_filter; i++) {
        deflated = deflated || set->filter[i].id == FILTER_DEFLATE;
        most += set->filter[i].id == FILTER_FLETCHER32 ? 4 : 0;
    }
    for (uint64_t i = 0; i < set->n_place; i++) {
        if (place[i].offset > file->size ||
            place[i].size > file->size - place[i].offset)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: a chunk of %llu bytes at %llu is not "
                            "inside the file of %llu bytes",
                            file->path, where,
                            (unsigned long long)place[i].size,
                            (unsigned long long)place[i].offset,
                            (unsigned long long)file->size);
        if (deflated ? bytes > SLACK && bytes / BEST_RATIO > place[i].size
                     : place[i].size < bytes || place[i].size > bytes + most)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: a chunk is not the %llu bytes that it "
                            "should be",
                            file->path, where, (unsigned long long)bytes);
    }
    return KVR_OK;
}

enum kvr_status kvr__h5_check_stored(const struct h5_index *file,
                                     const struct h5_set *set,
                                     const char *where, uint64_t limit,
                                     struct kvr_error *err)
{
    uint64_t declared = set->type.size;

    if (set->type.kind != TYPE_INTEGER && set->type.kind != TYPE_FLOAT)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: its items are no integers or IEEE floats of "
                        "1 to 8 bytes",
                        file->path, where);
    if (set->rank < 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: no simple array of at most %d axes",
                        file->path, where, INDEX_MAX_RANK);
    for (int i = 0; i < set->rank; i++)
        if (!kvr_mul_u64(&declared, declared, set->dims[i]))
            return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: its size overflows",
                            file->path, where);
    const bool plausible =
        declared <= SLACK ||
        (set->stored > 0 && declared / BEST_RATIO <= set->stored);
    if (declared > limit || !plausible || !piece_fits(file, set, declared))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: declares %llu bytes and stores %llu",
                        file->path, where, (unsigned long long)declared,
                        (unsigned long long)set->stored);
    return check_chunks(file, set, where, err);
}
