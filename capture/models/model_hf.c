/* model_hf.c -- a Hugging Face folder: config.json beside safetensors.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "model_private.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Ends of names of stored buffers: constants that are computed here. */
static const char *const buffers[] = {
    ".attn.bias",          ".attn.masked_bias",
    ".attention.bias",     ".attention.masked_bias",
    "rotary_emb.inv_freq",
};

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool kvr__model_is_hf(const char *path)
{
    return is_folder(path) || ends_with(path, ".safetensors") ||
           ends_with(path, ".safetensors.index.json") ||
           strcmp(base_name(path), "config.json") == 0;
}

/* folder: of the path, without blanks of slashes at its end. */
static enum kvr_status set_paths(struct kvr_model *model, const char *path,
                                 struct kvr_error *err)
{
    size_t n =
        is_folder(path) ? strlen(path) : (size_t)(base_name(path) - path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    model->folder = n > 0 ? kvr_strndup(path, n) : kvr_strdup(".");
    if (model->folder == NULL)
        return kvr_no_memory(err, "a path", n);
    const size_t size = strlen(model->folder) + sizeof "/config.json";
    model->path = kvr_calloc(size, 1);
    if (model->path == NULL)
        return kvr_no_memory(err, "a path", size);
    snprintf(model->path, size, "%s/config.json", model->folder);
    return KVR_OK;
}

/* The named file alone, if it is one; a shard or the index bring the set. */
static enum kvr_status open_tensors(struct kvr_model *model, const char *path,
                                    struct kvr_error *err)
{
    const bool file = !is_folder(path);
    const bool shard = strstr(base_name(path), "-of-") != NULL;

    if (file && ends_with(path, ".safetensors") && !shard)
        return kvr__safetensors_open(&model->safetensors, path, err);
    if (file && (shard || ends_with(path, ".safetensors.index.json")))
        return kvr__safetensors_open_index(&model->safetensors, model->folder,
                                           err);
    return kvr__safetensors_open_folder(&model->safetensors, model->folder,
                                        err);
}

static bool is_buffer(const struct kvr_st_tensor *tensor)
{
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (ends_with(tensor->name, buffers[i]))
            return true;
    return false;
}

static enum kvr_status list_tensors(struct kvr_model *model,
                                    struct kvr_error *err)
{
    const size_t n = kvr__safetensors_n_tensors(model->safetensors);
    char shown[KVR_SLICE_TEXT];
    const enum kvr_status status = kvr__model_new_stored(model, n, err);

    if (status != KVR_OK)
        return status;
    for (size_t i = 0; i < n; i++) {
        const struct kvr_st_tensor *t =
            kvr__safetensors_tensor(model->safetensors, i);
        struct kvr_stored stored = {
            .name = kvr_slice_of(t->name),
            .type = t->type,
            .rows = 1,
            .cols = t->n_dims > 0 ? t->dims[t->n_dims - 1] : 1,
            .data = t->data,
            .size = t->size,
        };
        if (is_buffer(t))
            continue;
        if (t->type == KVR_ST_NO_TYPE)
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "%s: tensor '%s' has dtype %.40s, which is not "
                            "supported (supported: F32 F16 BF16)",
                            t->path, kvr_slice_show(shown, stored.name),
                            t->dtype);
        for (uint32_t k = 0; k + 1 < t->n_dims; k++)
            stored.rows *= t->dims[k]; /* checked: the product fits */
        model->stored[model->n_stored++] = stored;
    }
    return KVR_OK;
}

enum kvr_status kvr__model_open_hf(struct kvr_model *model, const char *path,
                                   struct kvr_error *err)
{
    enum kvr_status status;

    model->format = KVR_FORMAT_HF;
    if ((status = set_paths(model, path, err)) != KVR_OK ||
        (status = open_tensors(model, path, err)) != KVR_OK ||
        (status = list_tensors(model, err)) != KVR_OK)
        return status;
    if (!kvr_file_exists(model->path))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: is missing: it says what the tensors beside it "
                        "are",
                        model->path);
    const char *name = base_name(model->folder); /* empty: of "/" */
    kvr__model_set_name(model, kvr_slice_of(*name != '\0' ? name : "/"));
    return kvr__hf_read_config(model, err);
}
