/* assemble_head.c -- attributes of the root, /model and /tokens.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "assemble.h"

#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

static bool put_texts(hid_t object, const struct kvr_trace_shape *shape,
                      const char *group)
{
    for (int i = 0; i < N_SHAPE_TEXT; i++) {
        const char *text = kvr__shape_text(shape, i);
        if (text == NULL || strcmp(kvr__shape_texts[i].group, group) != 0)
            continue;
        if (!kvr__h5_put_text(object, kvr__shape_texts[i].name, text))
            return false;
    }
    return true;
}

static bool put_root(const struct assembly *a)
{
    const struct kvr_trace_shape *s = &a->shape;
    const uint32_t version[2] = {KVR_FORMAT_MAJOR, KVR_FORMAT_MINOR};

    return kvr__h5_put_text(a->file, "format", KVR_FORMAT_NAME) &&
           kvr__h5_put_u32(a->file, "format_version", version, 2) &&
           kvr__h5_put_text(a->file, "source", kvr__source_name(s->source)) &&
           kvr__h5_put_text(a->file, "hash", a->hash) &&
           kvr__h5_put_u32(a->file, "n_layer", &s->n_layer, 1) &&
           kvr__h5_put_u32(a->file, "n_head", &s->n_head, 1) &&
           kvr__h5_put_u32(a->file, "n_kv_head", &s->n_kv_head, 1) &&
           kvr__h5_put_u32(a->file, "n_token", &s->n_token, 1) &&
           kvr__h5_put_u32(a->file, "prompt_len", &s->prompt_len, 1) &&
           kvr__h5_put_u32(a->file, "round_bits", &s->round_bits, 1) &&
           put_texts(a->file, s, "/");
}

static bool put_model(const struct assembly *a)
{
    const hid_t group = kvr__h5_new_group(a->file, "model");

    if (group < 0)
        return false;
    const bool ok = put_texts(group, &a->shape, "/model");
    return H5Gclose(group) >= 0 && ok;
}

static bool put_text_of_tokens(hid_t group, const struct token_data *t,
                               uint32_t n)
{
    uint32_t *offset = kvr_calloc((size_t)n + 1, sizeof *offset);

    if (offset == NULL)
        return false;
    memcpy(offset + 1, t->text_end, n * sizeof *offset);
    const hsize_t size[1] = {offset[n]}, count[1] = {(hsize_t)n + 1};
    const bool ok = kvr__h5_put_data(group, "text", H5T_STD_U8LE,
                                     H5T_NATIVE_UINT8, 1, size, t->text.data) &&
                    kvr__h5_put_data(group, "text_offset", H5T_STD_U32LE,
                                     H5T_NATIVE_UINT32, 1, count, offset);
    free(offset);
    return ok;
}

static bool put_tokens(const struct assembly *a)
{
    const struct token_data *t = &a->content->tokens;
    const hsize_t n[1] = {a->shape.n_token};

    if (t->n == 0)
        return true;
    const hid_t group = kvr__h5_new_group(a->file, "tokens");
    if (group < 0)
        return false;
    bool ok = kvr__h5_put_data(group, "id", H5T_STD_I32LE, H5T_NATIVE_INT32, 1,
                               n, t->id) &&
              kvr__h5_put_data(group, "logprob", H5T_IEEE_F32LE,
                               H5T_NATIVE_FLOAT, 1, n, t->logprob) &&
              kvr__h5_put_data(group, "class", H5T_STD_U8LE, H5T_NATIVE_UINT8,
                               1, n, t->class_of);
    if (ok && t->has_text)
        ok = put_text_of_tokens(group, t, a->shape.n_token);
    return H5Gclose(group) >= 0 && ok;
}

enum kvr_status kvr__assemble_head(struct assembly *a, struct kvr_error *err)
{
    if (put_root(a) && put_model(a) && put_tokens(a))
        return KVR_OK;
    return kvr__h5_fail(err, KVR_ERR_IO, a->path, "cannot be written");
}
