/* safetensors.c -- a set of files: one, or the shards of an index.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "safetensors_private.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "kvr_text.h"
#include "slice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INDEX = 100 << 20, MAX_MISSING = 400 };

struct kvr_safetensors {
    struct kvr_st_file *files;
    size_t n_files;
    struct kvr_st_tensor *tensors; /* of all files, by name */
    size_t n_tensors;
};

static char *join(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *out = kvr_calloc(size, 1);

    if (out != NULL)
        snprintf(out, size, "%s/%s", folder, name);
    return out;
}

static int by_name(const void *a, const void *b)
{
    const struct kvr_st_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* All files' tensors in one list, each name once. */
static enum kvr_status gather(struct kvr_safetensors *st, struct kvr_error *err)
{
    size_t n = 0;
    char shown[KVR_SLICE_TEXT];

    for (size_t i = 0; i < st->n_files; i++)
        n += st->files[i].n_tensors;
    st->tensors = kvr_calloc(n, sizeof *st->tensors);
    if (st->tensors == NULL)
        return kvr_no_memory(err, "tensors", n * sizeof *st->tensors);
    for (size_t i = 0; i < st->n_files; i++)
        for (size_t k = 0; k < st->files[i].n_tensors; k++)
            st->tensors[st->n_tensors++] = st->files[i].tensors[k];
    qsort(st->tensors, n, sizeof *st->tensors, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(st->tensors[i].name, st->tensors[i - 1].name) == 0)
            return kvr_fail(
                err, KVR_ERR_INPUT, "%s: tensor '%s' is in %s too",
                st->tensors[i].path,
                kvr_slice_show(shown, kvr_slice_of(st->tensors[i].name)),
                st->tensors[i - 1].path);
    return KVR_OK;
}

static enum kvr_status add_file(struct kvr_safetensors *st, const char *path,
                                struct kvr_error *err)
{
    return kvr__st_file_open(&st->files[st->n_files++], path, err);
}

static enum kvr_status new_set(struct kvr_safetensors **out, size_t n_files,
                               struct kvr_error *err)
{
    struct kvr_safetensors *st = kvr_calloc(1, sizeof *st);

    *out = st;
    if (st == NULL)
        return kvr_no_memory(err, "a model", sizeof *st);
    st->files = kvr_calloc(n_files, sizeof *st->files);
    if (st->files == NULL)
        return kvr_no_memory(err, "a model", n_files * sizeof *st->files);
    return KVR_OK;
}

static enum kvr_status finish(struct kvr_safetensors **out,
                              struct kvr_safetensors *st,
                              enum kvr_status status, struct kvr_error *err)
{
    if (status == KVR_OK)
        status = gather(st, err);
    *out = st;
    if (status != KVR_OK) {
        kvr__safetensors_close(st);
        *out = NULL;
    }
    return status;
}

enum kvr_status kvr__safetensors_open(struct kvr_safetensors **out,
                                      const char *path, struct kvr_error *err)
{
    struct kvr_safetensors *st;
    enum kvr_status status = new_set(&st, 1, err);

    if (status == KVR_OK)
        status = add_file(st, path, err);
    return finish(out, st, status, err);
}

/* ---- an index ---- */

struct index {
    char *path;
    const char *folder;
    json_t *root, *map; /* map: name of a tensor to name of its file */
    const char **files; /* each once, in order */
    size_t n_files;
};

/* A plain name: nothing that leads out of the folder. */
static bool stays_inside(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL &&
           strchr(name, '\\') == NULL;
}

static int by_text(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;

    return strcmp(*x, *y);
}

static enum kvr_status list_files(struct index *index, struct kvr_error *err)
{
    const char *name;
    json_t *value;
    size_t n = 0;
    char shown[KVR_SLICE_TEXT];

    index->files =
        kvr_calloc(json_object_size(index->map), sizeof *index->files);
    if (index->files == NULL)
        return kvr_no_memory(err, "shards", json_object_size(index->map));
    json_object_foreach(index->map, name, value)
    {
        const char *file = json_string_value(value);
        if (file == NULL || !stays_inside(file))
            return kvr_fail(
                err, KVR_ERR_INPUT,
                "%s: '%s' is no name of a file in the folder", index->path,
                kvr_slice_show(shown, kvr_slice_of(file ? file : name)));
        index->files[n++] = file;
    }
    qsort(index->files, n, sizeof *index->files, by_text);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(index->files[i], index->files[i - 1]) != 0)
            index->files[index->n_files++] = index->files[i];
    return KVR_OK;
}

static enum kvr_status read_index(struct index *index, struct kvr_error *err)
{
    uint8_t *text;
    size_t size;
    json_error_t why;
    const enum kvr_status status =
        kvr_file_read(&text, &size, index->path, MAX_INDEX, err);

    if (status != KVR_OK)
        return status;
    index->root =
        json_loadb((const char *)text, size, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (index->root == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: not JSON: %s at line %d",
                        index->path, why.text, why.line);
    index->map = json_object_get(index->root, "weight_map");
    if (!json_is_object(index->map) || json_object_size(index->map) == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: has no weight_map",
                        index->path);
    return list_files(index, err);
}

static enum kvr_status open_shards(struct kvr_safetensors *st,
                                   const struct index *index,
                                   struct kvr_error *err)
{
    char missing[MAX_MISSING] = "";
    size_t used = 0;
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < index->n_files && status == KVR_OK; i++) {
        char *path = join(index->folder, index->files[i]);
        if (path == NULL)
            return kvr_no_memory(err, "a path", 0);
        if (kvr_file_exists(path))
            status = add_file(st, path, err);
        else if (used < MAX_MISSING - 1)
            used += (size_t)snprintf(missing + used, MAX_MISSING - used, " %s",
                                     index->files[i]);
        free(path);
    }
    if (status == KVR_OK && used > 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: incomplete download: missing%s", index->path,
                        missing);
    return status;
}

/* The index and the files say the same. */
static enum kvr_status check_map(const struct kvr_safetensors *st,
                                 const struct index *index,
                                 struct kvr_error *err)
{
    const char *name;
    json_t *value;
    char shown[KVR_SLICE_TEXT];

    json_object_foreach(index->map, name, value)
    {
        const struct kvr_st_tensor key = {.name = name};
        const struct kvr_st_tensor *found = bsearch(
            &key, st->tensors, st->n_tensors, sizeof *st->tensors, by_name);
        const char *slash = found != NULL ? strrchr(found->path, '/') : NULL;
        if (slash == NULL || strcmp(slash + 1, json_string_value(value)) != 0)
            return kvr_fail(err, KVR_ERR_INPUT, "%s: tensor '%s' is not in %s",
                            index->path,
                            kvr_slice_show(shown, kvr_slice_of(name)),
                            json_string_value(value));
    }
    for (size_t i = 0; i < st->n_tensors; i++)
        if (json_object_get(index->map, st->tensors[i].name) == NULL)
            return kvr_fail(
                err, KVR_ERR_INPUT, "%s: does not name tensor '%s' of %s",
                index->path,
                kvr_slice_show(shown, kvr_slice_of(st->tensors[i].name)),
                st->tensors[i].path);
    return KVR_OK;
}

/* "model-00001-of-00003.safetensors" says that there are three. */
static enum kvr_status check_shard_count(const struct index *index,
                                         struct kvr_error *err)
{
    for (size_t i = 0; i < index->n_files; i++) {
        const char *of = strstr(index->files[i], "-of-");
        const size_t digits = of != NULL ? strspn(of + 4, "0123456789") : 0;
        uint32_t n;
        if (digits == 0 || strcmp(of + 4 + digits, ".safetensors") != 0 ||
            !kvr_parse_u32(&n, of + 4, digits) || n == index->n_files)
            continue;
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: names %zu files, but %s is one of %" PRIu32,
                        index->path, index->n_files, index->files[i], n);
    }
    return KVR_OK;
}

/* metadata.total_size: bytes of all tensors. */
static enum kvr_status check_total(const struct kvr_safetensors *st,
                                   const struct index *index,
                                   struct kvr_error *err)
{
    const json_t *total =
        json_object_get(json_object_get(index->root, "metadata"), "total_size");
    uint64_t found = 0;

    if (total == NULL)
        return KVR_OK;
    for (size_t i = 0; i < st->n_tensors; i++)
        found += st->tensors[i].size;
    if (json_is_number(total) && json_number_value(total) == (double)found)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: total_size is %.0f, but its files have %" PRIu64
                    " bytes of tensors",
                    index->path, json_number_value(total), found);
}

static enum kvr_status open_index(struct kvr_safetensors **out,
                                  struct index *index, struct kvr_error *err)
{
    struct kvr_safetensors *st;
    enum kvr_status status = read_index(index, err);

    *out = NULL;
    if (status != KVR_OK)
        return status;
    if ((status = check_shard_count(index, err)) != KVR_OK)
        return status;
    status = new_set(&st, index->n_files, err);
    if (status == KVR_OK)
        status = open_shards(st, index, err);
    if ((status = finish(out, st, status, err)) != KVR_OK)
        return status;
    status = check_map(*out, index, err);
    if (status == KVR_OK)
        status = check_total(*out, index, err);
    if (status != KVR_OK) {
        kvr__safetensors_close(*out);
        *out = NULL;
    }
    return status;
}

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

enum kvr_status kvr__safetensors_open_index(struct kvr_safetensors **out,
                                            const char *folder,
                                            struct kvr_error *err)
{
    struct index index = {.folder = folder, .path = join(folder, index_name)};
    enum kvr_status status;

    *out = NULL;
    if (index.path == NULL)
        return kvr_no_memory(err, "a path", strlen(folder));
    status = open_index(out, &index, err);
    json_decref(index.root);
    free(index.files);
    free(index.path);
    return status;
}

/* single, index: paths in the folder. */
static enum kvr_status open_either(struct kvr_safetensors **out,
                                   const char *folder, const char *single,
                                   const char *index, struct kvr_error *err)
{
    const bool one = kvr_file_exists(single), many = kvr_file_exists(index);

    if (one && many)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: has both %s and %s, which may be two models; "
                        "name the file that is meant",
                        folder, single_name, index_name);
    if (one)
        return kvr__safetensors_open(out, single, err);
    if (many)
        return kvr__safetensors_open_index(out, folder, err);
    return kvr_fail(err, KVR_ERR_INPUT, "%s: has neither %s nor %s", folder,
                    single_name, index_name);
}

enum kvr_status kvr__safetensors_open_folder(struct kvr_safetensors **out,
                                             const char *folder,
                                             struct kvr_error *err)
{
    char *single = join(folder, single_name);
    char *index = join(folder, index_name);

    *out = NULL;
    const enum kvr_status status =
        single == NULL || index == NULL
            ? kvr_no_memory(err, "a path", strlen(folder))
            : open_either(out, folder, single, index, err);
    free(index);
    free(single);
    return status;
}

void kvr__safetensors_close(struct kvr_safetensors *st)
{
    if (st == NULL)
        return;
    for (size_t i = 0; i < st->n_files; i++)
        kvr__st_file_close(&st->files[i]);
    free(st->files);
    free(st->tensors);
    free(st);
}

size_t kvr__safetensors_n_tensors(const struct kvr_safetensors *st)
{
    return st->n_tensors;
}

const struct kvr_st_tensor *
kvr__safetensors_tensor(const struct kvr_safetensors *st, size_t index)
{
    return &st->tensors[index];
}
