/* pattern.h -- the regular expressions of tokenizer.json, for PCRE2.
 *
 * Those files are written for Oniguruma. What means the same to both is
 * taken over, \s and \S are spelt out, and the rest is refused by name: a
 * pattern that is read differently gives other token ids without a word.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef PATTERN_H
#define PATTERN_H

#include "kvr_error.h"
#include "slice.h"

/* White space inside a character class: Unicode's White_Space. PCRE2's own \s
 * also takes U+180E, which is none since Unicode 6.3. */
#define KVR_WHITE "\\x{9}-\\x{D}\\x{85}\\p{Z}"

enum { KVR_MAX_PATTERN = 4096 };

/* The pattern for PCRE2 into *out (free() it). literal: the text itself.
 * KVR_ERR_UNSUPPORTED names what is not understood. */
enum kvr_status kvr__pattern_translate(char **out, struct kvr_slice text,
                                       bool literal,
                                       struct kvr_error *err) KVR_MUST_CHECK;

#endif
