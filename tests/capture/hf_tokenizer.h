/* hf_tokenizer.h -- tokenizer.json files made of a GGUF's vocabulary.
 * Everything here ends the test on failure.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef HF_TOKENIZER_H
#define HF_TOKENIZER_H

#include "gguf.h"
#include "suite.h"

#include <jansson.h>

/* A byte-level tokenizer of the file's tokens and merges: every digit alone,
 * then GPT-2's words. pairs: merges as pairs of texts. */
json_t *hf_byte_level(const struct kvr_gguf *gguf, bool pairs);

/* A tokenizer with byte fallback of a SentencePiece-style vocabulary: pieces
 * with two parts that are pieces make the merges, in the order of scores. */
json_t *hf_byte_fallback(const struct kvr_gguf *gguf);

/* Parses JSON text in which ' stands for ". */
json_t *hf_json(const char *text);

/* Writes value to path and takes it over. */
void hf_write(const char *path, json_t *value);

#endif
