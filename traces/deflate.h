/* deflate.h -- a quick deflate for shuffled numbers, and its Huffman codes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef DEFLATE_H
#define DEFLATE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that kvr__deflate may write for n. */
size_t kvr__deflate_bound(size_t n, size_t plane);

/* A zlib stream (RFC 1950) of n bytes, whose statistics change every `plane`
 * bytes (0: nowhere). Returns its size. Only runs of one byte are looked for:
 * other repetitions are not found. The same bytes give the same stream. */
size_t kvr__deflate(uint8_t *out, const uint8_t *in, size_t n, size_t plane);

enum { HUFFMAN_MAX_SYMBOLS = 286, HUFFMAN_MAX_BITS = 12 };

/* bits[i]: code length of symbol i, 0 where count[i] is 0. n at most
 * HUFFMAN_MAX_SYMBOLS, their counts below 65536; most <= HUFFMAN_MAX_BITS, and
 * enough for the symbols that occur. One symbol alone has 1 bit. */
void kvr__huffman_lengths(uint8_t *bits, const uint32_t *count, uint32_t n,
                          uint32_t most);

/* Canonical codes, first bit lowest. */
void kvr__huffman_codes(uint16_t *code, const uint8_t *bits, uint32_t n);

#endif
