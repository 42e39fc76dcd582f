/* tokenizer_json.h -- shared by the files that read tokenizer.json.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOKENIZER_JSON_H
#define TOKENIZER_JSON_H

#include "tokenizer.h"

#include <jansson.h>

/* What stands around the model: how text is prepared and cut. Views are
 * borrowed from the JSON. */
struct kvr_json_steps {
    bool nfc;
    bool replaces;            /* blanks become U+2581, .. */
    bool normalizer_replaces; /* .. in the normalizer */
    bool prepends;            /* U+2581 goes in front, always */
    bool byte_level;          /* the last of the pre-tokenizers */
    bool add_space;           /* in front, where there is none */
    bool split_blanks;        /* words begin at blanks */
    struct kvr_pattern patterns[KVR_MAX_PATTERNS];
    size_t n_patterns;
    int32_t bos; /* put in front; -1: none */
};

/* Reads normalizer, pre_tokenizer and post_processor of `root`. */
enum kvr_status kvr__json_read_steps(struct kvr_json_steps *steps,
                                     const json_t *root,
                                     struct kvr_error *err) KVR_MUST_CHECK;

/* From the files beside `path`: ends, BOS id where the tokenizer names none,
 * and the chat template, which is copied into *chat (free() it). */
enum kvr_status kvr__json_read_beside(struct kvr_vocabulary *vocabulary,
                                      char **chat, const char *path,
                                      struct kvr_error *err) KVR_MUST_CHECK;

/* "" where it is no string. */
struct kvr_slice kvr__json_text(const json_t *value);
/* object[key] as a bool; `otherwise` where it is absent or no bool. */
bool kvr__json_flag(const json_t *object, const char *key, bool otherwise);
/* object[key] is absent, null, "" or false. */
bool kvr__json_unset(const json_t *object, const char *key);

/* Whole file. KVR_ERR_INPUT names the line. */
enum kvr_status kvr__json_load(json_t **out, const char *path,
                               struct kvr_error *err) KVR_MUST_CHECK;

#endif
