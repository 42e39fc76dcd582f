/* chat.c -- the known forms of a chat, and how their templates are told.
 *
 * A template is a Jinja program. Looked at are its marker tokens, what stands
 * with them in one {{ }}, and the system turn that it puts in front of a chat
 * without one, where that is spelt out in it.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "chat.h"

#include "kvr_memory.h"
#include "tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 3 };

struct form {
    const char *name;
    const char *tokens[MAX_TOKENS]; /* special ones that it needs */
    const char *before, *after;     /* of the message */
    bool trim;                      /* white space around the message goes */
    bool bos;
};

static const struct form forms[] = {
    {
        .name = "chatml",
        .tokens = {"<|im_start|>", "<|im_end|>"},
        .before = "<|im_start|>user\n",
        .after = "<|im_end|>\n<|im_start|>assistant\n",
    },
    {
        .name = "llama-2",
        .before = "[INST] ",
        .after = " [/INST]",
        .trim = true,
        .bos = true,
    },
    {
        .name = "llama-3",
        .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
        .before = "<|start_header_id|>user<|end_header_id|>\n\n",
        .after = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        .trim = true,
        .bos = true,
    },
    {
        .name = "gemma",
        .tokens = {"<start_of_turn>", "<end_of_turn>"},
        .before = "<start_of_turn>user\n",
        .after = "<end_of_turn>\n<start_of_turn>model\n",
        .trim = true,
        .bos = true,
    },
    {
        .name = "phi-3",
        .tokens = {"<|user|>", "<|end|>", "<|assistant|>"},
        .before = "<|user|>\n",
        .after = "<|end|>\n<|assistant|>\n",
    },
    {
        .name = "zephyr",
        .before = "<|user|>\n",
        .after = "</s>\n<|assistant|>\n",
    },
};

enum { N_FORMS = sizeof forms / sizeof forms[0] };

/* Offset of `text` in view from `from` on; view.size: it is not there. */
static size_t find(struct kvr_slice view, const char *text, size_t from)
{
    const size_t n = strlen(text);

    for (size_t i = from; i + n <= view.size; i++)
        if (memcmp(view.bytes + i, text, n) == 0)
            return i;
    return view.size;
}

static bool has(struct kvr_slice view, const char *text)
{
    return find(view, text, 0) < view.size;
}

/* What stands between the first `marker` and the end of its {{ }}. */
static struct kvr_slice along(struct kvr_slice template, const char *marker)
{
    const size_t from = find(template, marker, 0);
    const size_t to = find(template, "}}", from);

    return (struct kvr_slice){template.bytes + from, to - from};
}

/* NULL: of no known form. */
static const char *name_of(struct kvr_slice template)
{
    if (template.bytes == NULL)
        return NULL;
    const struct kvr_slice user = along(template, "<|user|>");
    if (has(template, "<|im_start|>"))
        return has(template, "<|im_sep|>") ? NULL : "chatml";
    if (has(template, "<|start_header_id|>"))
        return "llama-3";
    if (has(template, "<start_of_turn>"))
        return "gemma";
    if (has(template, "[INST]")) /* later ones have no blank there */
        return has(template, "<<SYS>>") || has(template, " [/INST]") ? "llama-2"
                                                                     : NULL;
    if (has(user, "<|end|>"))
        return "phi-3";
    return has(user, "eos_token") || has(user, "</s>") ? "zephyr" : NULL;
}

static void list_forms(char *out, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < N_FORMS && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 i > 0 ? " " : "", forms[i].name);
}

static enum kvr_status choose(const struct form **out, const char *name,
                              struct kvr_slice template, struct kvr_error *err)
{
    const bool by_template = strcmp(name, "auto") == 0;
    char list[128];

    *out = NULL;
    list_forms(list, sizeof list);
    if (by_template && template.bytes == NULL)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "the model has no chat template; --chat=NAME names a "
                        "form (known: %s)",
                        list);
    if (by_template && (name = name_of(template)) == NULL)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "the model's chat template is of no known form; "
                        "--chat=NAME names one (known: %s)",
                        list);
    for (size_t i = 0; i < N_FORMS; i++)
        if (strcmp(forms[i].name, name) == 0)
            *out = &forms[i];
    if (*out == NULL)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--chat=%s: no such form (known: auto %s)", name, list);
    return KVR_OK;
}

static enum kvr_status check_tokens(const struct form *form,
                                    const struct kvr_tokenizer *tokenizer,
                                    struct kvr_error *err)
{
    char list[128];

    list_forms(list, sizeof list);
    for (int i = 0; i < MAX_TOKENS && form->tokens[i] != NULL; i++)
        if (kvr__tokenizer_special(tokenizer, form->tokens[i]) < 0)
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "chat form %s: the vocabulary has no special token "
                            "'%s' (known forms: %s)",
                            form->name, form->tokens[i], list);
    return KVR_OK;
}

/* Text of ChatML's default system turn: "<|im_start|>system", a line's end
 * (as such or as \n), and plain text up to "<|im_end|>". */
static struct kvr_slice chatml_system(struct kvr_slice template)
{
    static const char begin[] = "<|im_start|>system";

    for (size_t at = find(template, begin, 0); at < template.size;
         at = find(template, begin, at + 1)) {
        size_t from = at + sizeof begin - 1;
        if (from < template.size && template.bytes[from] == '\n')
            from++;
        else if (find(template, "\\n", from) == from)
            from += 2;
        else
            continue;
        const size_t to = find(template, "<|im_end|>", from);
        const struct kvr_slice text = {template.bytes + from, to - from};
        if (to < template.size && text.size > 0 &&
            memchr(text.bytes, '\'', text.size) == NULL &&
            memchr(text.bytes, '"', text.size) == NULL &&
            memchr(text.bytes, '{', text.size) == NULL &&
            memchr(text.bytes, '\\', text.size) == NULL)
            return text;
    }
    return (struct kvr_slice){0};
}

/* The system turn that the template makes by itself, into out. Llama 3.1's
 * names dates, of which the second is that of its own default. */
static void put_system(FILE *out, const struct form *form,
                       struct kvr_slice template)
{
    const struct kvr_slice text = strcmp(form->name, "chatml") == 0
                                      ? chatml_system(template)
                                      : (struct kvr_slice){0};

    if (text.size > 0)
        fprintf(out, "<|im_start|>system\n%.*s<|im_end|>\n", (int)text.size,
                text.bytes);
    if (strcmp(form->name, "llama-3") == 0 &&
        has(template, "Cutting Knowledge Date"))
        fputs("<|start_header_id|>system<|end_header_id|>\n\n"
              "Cutting Knowledge Date: December 2023\n"
              "Today Date: 26 Jul 2024\n\n<|eot_id|>",
              out);
}

static enum kvr_status write_out(struct kvr_chat *chat, const struct form *form,
                                 struct kvr_slice template,
                                 struct kvr_slice text, struct kvr_error *err)
{
    char *buffer = NULL;
    FILE *out = open_memstream(&buffer, &chat->size);

    if (out == NULL)
        return kvr_no_memory(err, "a chat", text.size);
    put_system(out, form, template);
    fputs(form->before, out);
    (void)fwrite(text.bytes, 1, text.size, out);
    fputs(form->after, out);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(buffer);
        return kvr_no_memory(err, "a chat", text.size);
    }
    chat->text = (uint8_t *)buffer;
    return KVR_OK;
}

enum kvr_status kvr__chat_apply(struct kvr_chat *chat, const char *name,
                                const struct kvr_tokenizer *tokenizer,
                                const uint8_t *message, size_t size,
                                struct kvr_error *err)
{
    struct kvr_slice template = kvr__tokenizer_chat_template(tokenizer);
    const struct form *form;
    size_t left = 0, right = 0;
    enum kvr_status status;

    *chat = (struct kvr_chat){0};
    if ((status = choose(&form, name, template, err)) != KVR_OK ||
        (status = check_tokens(form, tokenizer, err)) != KVR_OK)
        return status;
    /* a template of another form says nothing about this one */
    const char *own = name_of(template);
    if (own == NULL || strcmp(own, form->name) != 0)
        template = (struct kvr_slice){0};
    if (form->trim) {
        left = kvr__space_before(message, size);
        right = kvr__space_after(message + left, size - left);
    }
    chat->name = form->name;
    chat->bos = form->bos || has(template, "bos_token");
    const struct kvr_slice text = {(const char *)message + left,
                                   size - left - right};
    return write_out(chat, form, template, text, err);
}
