/* pretokenize.h -- cutting text into words, before merging.
 *
 * A pre-tokenizer is a list of patterns. Each cuts every piece of the one
 * before into its matches and what lies between them. Models name theirs in
 * their metadata.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef PRETOKENIZE_H
#define PRETOKENIZE_H

#include "kvr_error.h"
#include "slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_cutter;

enum { KVR_MAX_PATTERNS = 8 };

struct kvr_pattern {
    struct kvr_slice text; /* a regular expression (pattern.h) */
    bool literal;          /* text is what is looked for itself */
    bool only; /* what lies between the matches would be dropped: a text
                * where there is any is refused */
};

/* What goes with a pre-tokenizer's name. */
struct kvr_cutter_traits {
    bool whole_words; /* a word that is a token is not built by merges */
    bool nfc;         /* text is normalised first */
};

/* By name. KVR_ERR_UNSUPPORTED names the pre-tokenizer and those that are
 * known. */
enum kvr_status kvr__cutter_new(struct kvr_cutter **out,
                                struct kvr_cutter_traits *traits,
                                struct kvr_slice name,
                                struct kvr_error *err) KVR_MUST_CHECK;
/* From n patterns; KVR_ERR_UNSUPPORTED names what is not understood. */
enum kvr_status kvr__cutter_from(struct kvr_cutter **out,
                                 const struct kvr_pattern *patterns, size_t n,
                                 struct kvr_error *err) KVR_MUST_CHECK;
void kvr__cutter_free(struct kvr_cutter *cutter);

typedef enum kvr_status (*kvr_word_fn)(void *ud, const uint8_t *word,
                                       size_t size, struct kvr_error *err);

/* Calls fn for each word of text, which must be valid UTF-8, in order.
 * KVR_ERR_LIMIT: a pattern takes too many steps on it. Not thread-safe. */
enum kvr_status kvr__cutter_run(struct kvr_cutter *cutter, const uint8_t *text,
                                size_t size, kvr_word_fn fn, void *ud,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* What a token's text (valid UTF-8) is made of. */
enum kvr_text_kind {
    KVR_TEXT_SPACE,       /* only white space */
    KVR_TEXT_DIGIT,       /* digits, and white space */
    KVR_TEXT_PUNCTUATION, /* punctuation or symbols, and white space */
    KVR_TEXT_OTHER,
};

struct kvr_classifier;

enum kvr_status kvr__classifier_new(struct kvr_classifier **out,
                                    struct kvr_error *err) KVR_MUST_CHECK;
void kvr__classifier_free(struct kvr_classifier *classifier);
enum kvr_text_kind kvr__classifier_run(struct kvr_classifier *classifier,
                                       const uint8_t *text, size_t size);

#endif
