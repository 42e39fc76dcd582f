/* tokenizer.h -- text to token ids and back.
 *
 * Text is bytes: a NUL is a byte like any other, and what is not UTF-8 goes
 * through byte tokens or is refused with its offset. The ids of a text decode
 * to exactly its bytes. Two kinds: byte-level BPE with merges ("gpt2"), and
 * SentencePiece-style BPE with scores and byte fallback ("llama").
 *
 * Choices where tools differ: a blank is put in front of SentencePiece text
 * only at the very start of the text, not after special tokens (the same goes
 * for byte-level tokenizers that add one); a literal
 * U+2581, which stands for a blank inside such vocabularies, is encoded as
 * three byte tokens, so that it decodes to itself.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "gguf.h"
#include "kvr_error.h"
#include "kvr_trace.h"
#include "pretokenize.h"
#include "slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvr_tokenizer_kind { KVR_TOKENIZER_BPE, KVR_TOKENIZER_SPM };

/* Numbers as in tokenizer.ggml.token_type. */
enum kvr_token_type {
    KVR_TYPE_NORMAL = 1,
    KVR_TYPE_UNKNOWN,
    KVR_TYPE_CONTROL, /* special; found in text unless told otherwise */
    KVR_TYPE_USER,    /* always found in text */
    KVR_TYPE_UNUSED,
    KVR_TYPE_BYTE, /* "<0x0A>" */
};

enum { KVR_MAX_END = 8 };

/* Of special and user-defined tokens. */
enum {
    /* white space beside it belongs to it, and to no token's bytes */
    KVR_STRIP_LEFT = 1,
    KVR_STRIP_RIGHT = 2,
    KVR_NORMALIZED = 4, /* found in normalised text */
    KVR_NOT_MERGED = 8, /* merges do not know it */
};

/* What a vocabulary is, wherever it comes from. Borrowed during _new. */
struct kvr_vocabulary {
    enum kvr_tokenizer_kind kind;
    size_t n;
    const struct kvr_slice *texts;  /* [n] as stored */
    const uint8_t *types;           /* [n], NULL: all normal */
    const uint8_t *flags;           /* [n] of the above; NULL: none */
    const float *scores;            /* [n], SPM without merges */
    const struct kvr_slice *merges; /* [n_merges] "left right"; BPE, and SPM
                                     * that merges by rank */
    size_t n_merges;
    struct kvr_slice pre; /* name of the pre-tokenizer, BPE only; without
                           * bytes the patterns apply */
    const struct kvr_pattern *patterns;
    size_t n_patterns;
    int32_t bos;              /* -1: none */
    int32_t end[KVR_MAX_END]; /* ids that end a generation */
    size_t n_end;
    bool add_bos;
    bool add_space;    /* in front of the text */
    bool add_once;     /* but not where it begins with one */
    bool prepends;     /* SPM: normalised text begins with U+2581, .. */
    bool replaces;     /* .. and has U+2581 for blanks */
    bool split_blanks; /* SPM: no piece has a blank but at its start */
    bool whole_words;  /* BPE: a word that is a token is not built by merges */
    bool nfc;          /* refuse what normal form C might change */
    struct kvr_slice chat_template; /* no bytes: none */
};

struct kvr_tokenizer;

enum kvr_status kvr__tokenizer_new(struct kvr_tokenizer **out,
                                   const struct kvr_vocabulary *vocabulary,
                                   struct kvr_error *err) KVR_MUST_CHECK;
/* From GGUF metadata. *out is NULL, and that is fine, where the file has no
 * tokenizer.ggml.model. */
enum kvr_status kvr__tokenizer_from_gguf(struct kvr_tokenizer **out,
                                         const struct kvr_gguf *gguf,
                                         struct kvr_error *err) KVR_MUST_CHECK;
/* From a Hugging Face tokenizer.json. Ids that end a generation, the BOS id
 * and the chat template come from the files beside it where they are there:
 * tokenizer_config.json, generation_config.json, chat_template.jinja.
 * KVR_ERR_INPUT: not such a file, or damaged; KVR_ERR_UNSUPPORTED names the
 * normalizer, pre-tokenizer, pattern or option that is not understood. */
enum kvr_status kvr__tokenizer_from_json(struct kvr_tokenizer **out,
                                         const char *path,
                                         struct kvr_error *err) KVR_MUST_CHECK;
void kvr__tokenizer_free(struct kvr_tokenizer *tokenizer);

/* Ids of a text. Zero-initialise; free ids. */
struct kvr_ids {
    int32_t *ids;
    size_t n, capacity;
    bool spaced; /* the first id's piece begins with an added blank */
};

enum kvr_status kvr__ids_add(struct kvr_ids *ids, int32_t id,
                             struct kvr_error *err) KVR_MUST_CHECK;

/* Appends the ids of text; no BOS. special: special-token strings in the text
 * become their ids. KVR_ERR_INPUT names the offset of a byte that the
 * vocabulary cannot express. Not thread-safe. */
enum kvr_status kvr__tokenizer_encode(struct kvr_ids *out,
                                      struct kvr_tokenizer *tokenizer,
                                      const uint8_t *text, size_t size,
                                      bool special,
                                      struct kvr_error *err) KVR_MUST_CHECK;

/* The bytes of a token, borrowed; empty for an id that there is not. */
struct kvr_slice kvr__tokenizer_piece(const struct kvr_tokenizer *tokenizer,
                                      int32_t id);
enum kvr_token_class kvr__tokenizer_class(struct kvr_tokenizer *tokenizer,
                                          int32_t id);

size_t kvr__tokenizer_size(const struct kvr_tokenizer *tokenizer);
/* -1: none. */
int32_t kvr__tokenizer_bos(const struct kvr_tokenizer *tokenizer);
bool kvr__tokenizer_adds_bos(const struct kvr_tokenizer *tokenizer);
/* Generation ends at this id. */
bool kvr__tokenizer_is_end(const struct kvr_tokenizer *tokenizer, int32_t id);
/* Ends generations at one more id; false where there is no room for it. */
bool kvr__tokenizer_add_end(struct kvr_tokenizer *tokenizer, int32_t id);
/* Id of a special or user-defined token with this text; -1: none. */
int32_t kvr__tokenizer_special(const struct kvr_tokenizer *tokenizer,
                               const char *text);
/* As the model's files have it, borrowed; no bytes: none. */
struct kvr_slice
kvr__tokenizer_chat_template(const struct kvr_tokenizer *tokenizer);

#endif
