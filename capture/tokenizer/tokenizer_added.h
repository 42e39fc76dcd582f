/* tokenizer_added.h -- special and user-defined tokens, found in text.
 *
 * As in Hugging Face's tokenizers there are two passes. The first looks for
 * raw tokens in the raw text. What it leaves is normalised piece by piece, and
 * the second looks there for tokens that are "normalized", their own texts
 * normalised too: behind Prepend and Replace "<s>" is found where the text
 * has a blank in front of it. Within a pass the leftmost token counts, of
 * those the longest.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOKENIZER_ADDED_H
#define TOKENIZER_ADDED_H

#include "map.h"

#include "kvr_error.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

struct kvr_tokenizer;

/* What one pass looks for. Zero-initialised; fini may follow a failure. */
struct kvr_added {
    struct kvr_text_map map; /* texts to ids */
    uint8_t *arena;          /* the texts */
    size_t *sizes;           /* their different lengths, longest first */
    size_t n_sizes;
    bool start[256]; /* their first bytes */
};

/* Special and user tokens of t with KVR_NORMALIZED or without. */
enum kvr_status kvr__added_init(struct kvr_added *added,
                                const struct kvr_tokenizer *t, bool normalized,
                                struct kvr_error *err) KVR_MUST_CHECK;
void kvr__added_fini(struct kvr_added *added);

#endif
