/* tokenizer_private.h -- shared by the tokenizer's files.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOKENIZER_PRIVATE_H
#define TOKENIZER_PRIVATE_H

#include "map.h"
#include "merge.h"
#include "pretokenize.h"
#include "tokenizer.h"
#include "tokenizer_added.h"

/* U+2581, a blank inside SentencePiece vocabularies. */
#define KVR_BLANK "\xe2\x96\x81"
enum { KVR_BLANK_SIZE = 3 };

struct kvr_tokenizer {
    enum kvr_tokenizer_kind kind;
    size_t n;
    uint8_t *arena;              /* all texts and pieces */
    struct kvr_slice *texts;     /* [n] in the vocabulary's own spelling (SPM),
                                  * or as bytes (BPE) */
    struct kvr_slice *pieces;    /* [n] bytes a token stands for */
    uint8_t *types, *flags;      /* [n] */
    float *scores;               /* [n], SPM */
    struct kvr_text_map map;     /* texts of ordinary tokens */
    struct kvr_text_map special; /* texts of special and user tokens */
    struct kvr_added added, late_added; /* what the two passes look for */
    struct kvr_pair_map pairs;          /* with merges */
    int32_t byte_ids[256];              /* -1: the vocabulary lacks it */
    struct kvr_cutter *cutter;          /* BPE */
    struct kvr_classifier *classifier;
    struct kvr_merger merger;
    char *chat_template; /* NULL: none */
    int32_t bos, end[KVR_MAX_END];
    size_t n_end;
    bool by_rank; /* pairs, not scores, say what merges */
    bool add_bos, add_space, add_once, split_blanks, whole_words, nfc;
    bool prepends, replaces; /* the normalizer: U+2581 in front, for blanks */
};

/* Appends the ids of a fragment without special tokens. `base` is the start
 * of the whole text, for offsets in messages; first: nothing came before. A
 * fragment of no bytes that is first is the blank in front of the text. */
enum kvr_status kvr__bpe_encode(struct kvr_ids *out, struct kvr_tokenizer *t,
                                const uint8_t *base, const uint8_t *text,
                                size_t size, bool first, struct kvr_error *err);
enum kvr_status kvr__spm_encode(struct kvr_ids *out, struct kvr_tokenizer *t,
                                const uint8_t *base, const uint8_t *text,
                                size_t size, bool first, struct kvr_error *err);

/* Bytes of a token's text in GPT-2's printable spelling, into out (at least
 * text.size bytes). False, and out untouched, where it is not in it. */
bool kvr__bpe_decode(uint8_t *out, size_t *size, struct kvr_slice text);

/* Whether two neighbours merge by t->pairs; ud: the tokenizer. */
bool kvr__bpe_merge(void *ud, const struct kvr_symbol *left,
                    const struct kvr_symbol *right, int32_t *id, double *cost);

/* Reads the merges of a vocabulary into t->pairs. */
enum kvr_status kvr__bpe_merges(struct kvr_tokenizer *t,
                                const struct kvr_vocabulary *vocabulary,
                                struct kvr_error *err);

/* Length of the white space that text begins or ends with. */
size_t kvr__space_before(const uint8_t *text, size_t size);
size_t kvr__space_after(const uint8_t *text, size_t size);

enum kvr_status kvr__no_token(uint8_t byte, size_t offset,
                              struct kvr_error *err);

#endif
