/* chat.h -- a message as the first turn of a chat, in a model's own form.
 *
 * Templates are not run: the known forms are told by the marker tokens in the
 * model's template, or named by the user, and written out here.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CHAT_H
#define CHAT_H

#include "tokenizer.h"

struct kvr_chat {
    const char *name; /* static */
    uint8_t *text;    /* the turn, and the beginning of the answer; free() it */
    size_t size;
    bool bos; /* the form begins with a BOS token */
};

/* `name`: "auto" (by the tokenizer's template) or one of the forms.
 * KVR_ERR_UNSUPPORTED: there is no template, it is of no known form, or the
 * vocabulary lacks the form's tokens; KVR_ERR_USAGE: no such name. Both list
 * the forms. */
enum kvr_status kvr__chat_apply(struct kvr_chat *out, const char *name,
                                const struct kvr_tokenizer *tokenizer,
                                const uint8_t *message, size_t size,
                                struct kvr_error *err) KVR_MUST_CHECK;

#endif
