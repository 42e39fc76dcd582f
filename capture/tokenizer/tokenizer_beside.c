/* tokenizer_beside.c -- what the files beside a tokenizer.json add: which ids
 * end a generation, the BOS token's name, the chat template.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "tokenizer_json.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEMPLATE = 1 << 20 };

/* FOLDER/name into *out; *there: whether such a file exists. */
static enum kvr_status beside(char **out, bool *there, const char *path,
                              const char *name, struct kvr_error *err)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    const size_t room = folder + strlen(name) + 1;

    *out = malloc(room);
    if (*out == NULL)
        return kvr_no_memory(err, "a path", room);
    memcpy(*out, path, folder);
    memcpy(*out + folder, name, room - folder);
    *there = kvr_file_exists(*out);
    return KVR_OK;
}

/* The file as an object; NULL: it is not there. */
static enum kvr_status load_beside(json_t **out, const char *path,
                                   const char *name, struct kvr_error *err)
{
    char *file;
    bool there = false;
    enum kvr_status status = beside(&file, &there, path, name, err);

    *out = NULL;
    if (status == KVR_OK && there)
        status = kvr__json_load(out, file, err);
    free(file);
    return status;
}

/* "eos_token": "</s>", or an object with that as its content. */
static int32_t named(const struct kvr_vocabulary *v, const json_t *value)
{
    const struct kvr_slice text = kvr__json_text(
        json_is_object(value) ? json_object_get(value, "content") : value);

    for (size_t i = 0; text.size > 0 && i < v->n; i++)
        if (kvr_slice_compare(v->texts[i], text) == 0)
            return (int32_t)i;
    return -1;
}

static void add_end(struct kvr_vocabulary *v, json_int_t id)
{
    if (id < 0 || (uint64_t)id >= v->n || v->n_end == KVR_MAX_END)
        return;
    for (size_t i = 0; i < v->n_end; i++)
        if (v->end[i] == id)
            return;
    v->end[v->n_end++] = (int32_t)id;
}

/* "eos_token_id": 2, or a list. */
static void add_ends(struct kvr_vocabulary *v, const json_t *value)
{
    if (json_is_integer(value))
        add_end(v, json_integer_value(value));
    for (size_t i = 0; i < json_array_size(value); i++)
        if (json_is_integer(json_array_get(value, i)))
            add_end(v, json_integer_value(json_array_get(value, i)));
}

/* A string, or a list of {name, template} of which "default" is taken. */
static enum kvr_status take_chat(char **chat, const json_t *value,
                                 struct kvr_error *err)
{
    struct kvr_slice text = kvr__json_text(value);

    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (kvr_slice_is(kvr__json_text(json_object_get(item, "name")),
                         "default"))
            text = kvr__json_text(json_object_get(item, "template"));
    }
    if (text.size == 0)
        return KVR_OK;
    *chat = kvr_strndup(text.bytes, text.size);
    return *chat != NULL ? KVR_OK
                         : kvr_no_memory(err, "the chat template", text.size);
}

/* The same said twice: what the post-processor of tokenizer.json adds, and
 * the switches of tokenizer_config.json. */
static enum kvr_status check_adding(const struct kvr_vocabulary *v,
                                    const char *path, const json_t *config,
                                    struct kvr_error *err)
{
    const json_t *bos = json_object_get(config, "add_bos_token");
    const int32_t named_bos = named(v, json_object_get(config, "bos_token"));

    if (kvr__json_flag(config, "add_eos_token", false))
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: add_eos_token in tokenizer_config.json beside it "
                        "is supported as false only; --ids takes token ids "
                        "instead of text",
                        path);
    if (json_is_boolean(bos) && json_is_true(bos) != v->add_bos)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: its post_processor adds %s BOS token, but "
                        "add_bos_token in tokenizer_config.json beside it is "
                        "%s; --ids takes token ids instead of text",
                        path, v->add_bos ? "a" : "no",
                        json_is_true(bos) ? "true" : "false");
    if (v->bos >= 0 && named_bos >= 0 && named_bos != v->bos)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: its BOS token is %d, but that of "
                        "tokenizer_config.json beside it is %d",
                        path, (int)v->bos, (int)named_bos);
    return KVR_OK;
}

static enum kvr_status read_config(struct kvr_vocabulary *v, char **chat,
                                   const char *path, struct kvr_error *err)
{
    json_t *config;
    enum kvr_status status =
        load_beside(&config, path, "tokenizer_config.json", err);

    if (status != KVR_OK || config == NULL)
        return status;
    status = check_adding(v, path, config, err);
    if (status != KVR_OK) {
        json_decref(config);
        return status;
    }
    add_end(v, named(v, json_object_get(config, "eos_token")));
    if (v->bos < 0)
        v->bos = named(v, json_object_get(config, "bos_token"));
    status = take_chat(chat, json_object_get(config, "chat_template"), err);
    json_decref(config);
    return status;
}

static enum kvr_status read_generation(struct kvr_vocabulary *v,
                                       const char *path, struct kvr_error *err)
{
    json_t *config;
    const enum kvr_status status =
        load_beside(&config, path, "generation_config.json", err);

    if (status == KVR_OK && config != NULL)
        add_ends(v, json_object_get(config, "eos_token_id"));
    json_decref(config);
    return status;
}

/* The newer place of the template; it goes before the older. */
static enum kvr_status read_template(char **chat, const char *path,
                                     struct kvr_error *err)
{
    char *file;
    uint8_t *text;
    size_t size;
    bool there = false;
    enum kvr_status status =
        beside(&file, &there, path, "chat_template.jinja", err);

    if (status == KVR_OK && there) {
        status = kvr_file_read(&text, &size, file, MAX_TEMPLATE, err);
        if (status == KVR_OK) {
            free(*chat);
            *chat = (char *)text;
        }
    }
    free(file);
    return status;
}

enum kvr_status kvr__json_read_beside(struct kvr_vocabulary *v, char **chat,
                                      const char *path, struct kvr_error *err)
{
    enum kvr_status status;

    *chat = NULL;
    if ((status = read_config(v, chat, path, err)) == KVR_OK &&
        (status = read_generation(v, path, err)) == KVR_OK)
        status = read_template(chat, path, err);
    return status;
}
