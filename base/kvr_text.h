/* kvr_text.h -- numbers in text, strictly, in the C locale.
 *
 * The program never calls setlocale, so strtod and printf use '.' always.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_TEXT_H
#define KVR_TEXT_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The whole of text[0..n) must be one number; no white space, no sign for
 * unsigned ones, decimal, no overflow. False otherwise. */
bool kvr_parse_u64(uint64_t *value, const char *text, size_t n);
bool kvr_parse_u32(uint32_t *value, const char *text, size_t n);
/* Finite decimal number, as strtod reads it; no hex, no nan, no inf. */
bool kvr_parse_real(double *value, const char *text, size_t n);

/* "512M", "2G", "1.5G", plain bytes; powers of 1024. */
bool kvr_parse_bytes(uint64_t *bytes, const char *text);

/* Bytes for people: "207 MB", "1.2 GB" (powers of 1000). */
void kvr_format_bytes(char out[32], uint64_t bytes);

/* A list such as "0,4-7,12" of numbers below `limit` into marks[limit];
 * `what` names it in the message ("layer"). */
enum kvr_status kvr_parse_list(bool *marks, uint32_t limit, const char *text,
                               const char *what,
                               struct kvr_error *err) KVR_MUST_CHECK;
/* The same, allocated (the caller frees *marks, after an error too); without a
 * list all are marked. */
enum kvr_status kvr_list_marks(bool **marks, uint32_t limit, const char *text,
                               const char *what,
                               struct kvr_error *err) KVR_MUST_CHECK;

/* True where n bytes are valid UTF-8; else *bad is the offset of the first
 * byte that is not. */
bool kvr_utf8_valid(const uint8_t *bytes, size_t n, size_t *bad);

#ifdef __cplusplus
}
#endif

#endif
