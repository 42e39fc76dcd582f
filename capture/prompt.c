/* prompt.c -- from what the user gave to token ids.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "capture_private.h"

#include "chat.h"
#include "kvr_file.h"
#include "kvr_log.h"
#include "kvr_memory.h"
#include "kvr_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT_BYTES = 1 << 28 };

static enum kvr_status read_file(uint8_t **data, size_t *size, const char *path,
                                 struct kvr_error *err)
{
    if (strcmp(path, "-") == 0)
        path = "/dev/stdin";
    return kvr_file_read(data, size, path, MAX_PROMPT_BYTES, err);
}

static bool separates(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == ',';
}

static enum kvr_status parse_ids(struct kvr_ids *out, const char *path,
                                 const uint8_t *text, size_t size,
                                 uint32_t n_vocab, struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    for (size_t at = 0; at < size && status == KVR_OK;) {
        size_t end = at;
        uint32_t id;
        while (end < size && !separates(text[end]))
            end++;
        if (end == at) {
            at++;
            continue;
        }
        if (!kvr_parse_u32(&id, (const char *)text + at, end - at))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: byte %zu: expected a token id, found '%.*s'",
                            path, at, (int)(end - at < 20 ? end - at : 20),
                            (const char *)text + at);
        if (id >= n_vocab)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: token %zu is id %" PRIu32
                            ", the model has ids 0 to %" PRIu32,
                            path, out->n, id, n_vocab - 1);
        status = kvr__ids_add(out, (int32_t)id, err);
        at = end;
    }
    return status;
}

static enum kvr_status read_ids(struct kvr_capture *c, struct kvr_error *err)
{
    uint8_t *text;
    size_t size;
    enum kvr_status status = read_file(&text, &size, c->options.ids_file, err);

    if (status != KVR_OK)
        return status;
    status = parse_ids(&c->tokens, c->options.ids_file, text, size,
                       c->model.config.n_vocab, err);
    free(text);
    snprintf(c->bos, sizeof c->bos, "none added: token ids were given");
    return status;
}

/* chat_bos: the form of the chat begins with a BOS. */
static enum kvr_status encode_text(struct kvr_capture *c, const uint8_t *text,
                                   size_t size, bool chat_bos,
                                   struct kvr_error *err)
{
    const int32_t bos = kvr__tokenizer_bos(c->tokenizer);
    const bool asked = kvr__tokenizer_adds_bos(c->tokenizer);
    enum kvr_status status = KVR_OK;

    if (asked || (chat_bos && bos >= 0)) {
        status = kvr__ids_add(&c->tokens, bos, err);
        c->first_text = 1;
        snprintf(c->bos, sizeof c->bos, "added id %" PRId32 ": %s", bos,
                 asked ? "the model's metadata ask for it"
                       : "the chat begins with it");
    } else {
        snprintf(c->bos, sizeof c->bos,
                 "none added: the model's metadata do not ask for it");
    }
    if (status != KVR_OK)
        return status;
    return kvr__tokenizer_encode(&c->tokens, c->tokenizer, text, size,
                                 !c->options.no_special, err);
}

static enum kvr_status encode(struct kvr_capture *c, const uint8_t *text,
                              size_t size, struct kvr_error *err)
{
    struct kvr_chat chat;
    enum kvr_status status;

    if (c->options.chat == NULL)
        return encode_text(c, text, size, false, err);
    status =
        kvr__chat_apply(&chat, c->options.chat, c->tokenizer, text, size, err);
    if (status == KVR_OK)
        status = encode_text(c, chat.text, chat.size, chat.bos, err);
    c->plan.chat = chat.name;
    free(chat.text);
    return status;
}

static enum kvr_status read_text(struct kvr_capture *c, struct kvr_error *err)
{
    uint8_t *text = NULL;
    size_t size;
    enum kvr_status status;

    if (c->tokenizer == NULL)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: has no tokenizer (%s is absent); give token ids "
                        "with --ids, or a tokenizer.json with --tokenizer",
                        c->options.model,
                        c->model.gguf != NULL ? "tokenizer.ggml.model"
                                              : "tokenizer.json");
    if (c->options.prompt != NULL)
        return encode(c, (const uint8_t *)c->options.prompt,
                      strlen(c->options.prompt), err);
    status = read_file(&text, &size, c->options.prompt_file, err);
    if (status == KVR_OK)
        status = encode(c, text, size, err);
    free(text);
    if (status == KVR_ERR_INPUT)
        kvr_error_prefix(err, "%s", c->options.prompt_file);
    return status;
}

static void warn_of_two_bos(struct kvr_capture *c)
{
    const int32_t bos =
        c->tokenizer != NULL ? kvr__tokenizer_bos(c->tokenizer) : -1;
    const size_t used = strlen(c->bos);

    if (bos < 0 || c->tokens.n < 2 || c->tokens.ids[0] != bos ||
        c->tokens.ids[1] != bos)
        return;
    kvr_log(KVR_LOG_WARNING,
            "the prompt starts with two BOS tokens (id %" PRId32
            "): position 0 is the sink, so this shifts every sink statistic",
            bos);
    snprintf(c->bos + used, sizeof c->bos - used,
             "; the prompt starts with two");
}

enum kvr_status kvr__capture_read_prompt(struct kvr_capture *c,
                                         struct kvr_error *err)
{
    const enum kvr_status status =
        c->options.ids_file != NULL ? read_ids(c, err) : read_text(c, err);

    if (status != KVR_OK)
        return status;
    if (c->tokens.n == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "empty prompt");
    if (c->tokens.n > INT32_MAX)
        return kvr_fail(err, KVR_ERR_LIMIT, "a prompt of %zu tokens",
                        c->tokens.n);
    warn_of_two_bos(c);
    return KVR_OK;
}
