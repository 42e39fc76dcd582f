/* codec.c -- libdeflate around the shuffle.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "codec.h"

#include "kvr_memory.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

enum { N_BUFFER = 5, SHUFFLED = 3, PACKED = 4 };

struct codec {
    struct libdeflate_compressor *deflate; /* made at first use */
    struct libdeflate_decompressor *inflate;
    int level;
    struct {
        uint8_t *data;
        size_t capacity;
    } buffer[N_BUFFER];
};

enum kvr_status kvr__codec_new(struct codec **out, int level,
                               struct kvr_error *err)
{
    struct codec *codec = kvr_calloc(1, sizeof *codec);

    if (codec == NULL)
        return kvr_no_memory(err, "a codec", sizeof *codec);
    codec->level = level;
    *out = codec;
    return KVR_OK;
}

void kvr__codec_free(struct codec *codec)
{
    if (codec == NULL)
        return;
    libdeflate_free_compressor(codec->deflate);
    libdeflate_free_decompressor(codec->inflate);
    for (int i = 0; i < N_BUFFER; i++)
        free(codec->buffer[i].data);
    free(codec);
}

uint8_t *kvr__codec_buffer(struct codec *codec, int slot, size_t n)
{
    if (codec->buffer[slot].capacity < n) {
        free(codec->buffer[slot].data);
        codec->buffer[slot].data = malloc(n);
        codec->buffer[slot].capacity = codec->buffer[slot].data != NULL ? n : 0;
    }
    if (codec->buffer[slot].data == NULL && n == 0)
        return kvr__codec_buffer(codec, slot, 1);
    return codec->buffer[slot].data;
}

enum kvr_status kvr__codec_pack(struct codec *codec, const uint8_t **packed,
                                size_t *n_packed, const void *plain, size_t n,
                                size_t size, struct kvr_error *err)
{
    const size_t n_plain = n * size;

    if (codec->level == 0) {
        *packed = plain;
        *n_packed = n_plain;
        return KVR_OK;
    }
    if (codec->deflate == NULL)
        codec->deflate = libdeflate_alloc_compressor(codec->level);
    if (codec->deflate == NULL)
        return kvr_no_memory(err, "a compressor", 0);
    const size_t room = libdeflate_zlib_compress_bound(codec->deflate, n_plain);
    uint8_t *shuffled = kvr__codec_buffer(codec, SHUFFLED, n_plain);
    uint8_t *out = kvr__codec_buffer(codec, PACKED, room);
    if (shuffled == NULL || out == NULL)
        return kvr_no_memory(err, "a tile", room);
    kvr__shuffle(shuffled, plain, n, size);
    *n_packed =
        libdeflate_zlib_compress(codec->deflate, shuffled, n_plain, out, room);
    *packed = out;
    if (*n_packed == 0)
        return kvr_fail(err, KVR_ERR_INTERNAL,
                        "a tile of %zu bytes did not "
                        "fit its bound of %zu",
                        n_plain, room);
    return KVR_OK;
}

bool kvr__codec_inflate(struct codec *codec, void *plain, size_t n_plain,
                        const void *packed, size_t n_packed)
{
    size_t got;

    if (codec->inflate == NULL)
        codec->inflate = libdeflate_alloc_decompressor();
    if (codec->inflate == NULL)
        return false;
    return libdeflate_zlib_decompress(codec->inflate, packed, n_packed, plain,
                                      n_plain, &got) == LIBDEFLATE_SUCCESS &&
           got == n_plain;
}

bool kvr__codec_unpack(struct codec *codec, void *plain, size_t n, size_t size,
                       const void *packed, size_t n_packed, bool deflated)
{
    const size_t n_plain = n * size;

    if (!deflated) {
        if (n_packed != n_plain)
            return false;
        memcpy(plain, packed, n_plain);
        return true;
    }
    uint8_t *shuffled = kvr__codec_buffer(codec, SHUFFLED, n_plain);
    if (shuffled == NULL ||
        !kvr__codec_inflate(codec, shuffled, n_plain, packed, n_packed))
        return false;
    kvr__unshuffle(plain, shuffled, n, size);
    return true;
}
