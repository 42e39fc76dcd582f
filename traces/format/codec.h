/* codec.h -- a tile's bytes: shuffle and deflate, and back. The only file
 * besides shuffle.c that knows how a chunk is stored.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CODEC_H
#define CODEC_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* HDF5's shuffle: byte b of item i goes to b * n + i. size is 1, 2, 4 or 8;
 * the bytes after the last whole item stay in place. */
void kvr__shuffle(uint8_t *out, const uint8_t *in, size_t n, size_t size);
void kvr__unshuffle(uint8_t *out, const uint8_t *in, size_t n, size_t size);
/* Items first..first+count-1 of n shuffled ones. */
void kvr__unshuffle_part(uint8_t *out, const uint8_t *in, size_t n,
                         size_t first, size_t count, size_t size);

/* One thread's compressor, decompressor and buffers, each of a chunk. */
struct codec;
enum { CODEC_N_BUFFER = 5 };

/* level 0 stores tiles as they are. */
enum kvr_status kvr__codec_new(struct codec **out, int level,
                               struct kvr_error *err);
void kvr__codec_free(struct codec *codec);

/* n items of `size` bytes, shuffled and deflated (level 0: copied).
 * *packed is borrowed until the next call. */
enum kvr_status kvr__codec_pack(struct codec *codec, const uint8_t **packed,
                                size_t *n_packed, const void *plain, size_t n,
                                size_t size, struct kvr_error *err);

/* Inflates to exactly n_plain bytes; false: the stream is damaged. */
bool kvr__codec_inflate(struct codec *codec, void *plain, size_t n_plain,
                        const void *packed, size_t n_packed);

/* kvr__codec_inflate and unshuffle; without `deflated` a copy. False: the
 * bytes are damaged, or there is no memory. */
bool kvr__codec_unpack(struct codec *codec, void *plain, size_t n, size_t size,
                       const void *packed, size_t n_packed, bool deflated);

/* A buffer of the codec's own, at least n bytes; NULL: no memory.
 * Borrowed until the next call with the same slot (0..2). Not zeroed. */
uint8_t *kvr__codec_buffer(struct codec *codec, int slot, size_t n);

#endif
