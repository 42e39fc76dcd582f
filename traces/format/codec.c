/* codec.c -- deflate around the shuffle.
 *
 * Each library does what it is quicker at: ISA-L compresses in a third of the
 * time that libdeflate's lowest level takes, to the same size; libdeflate
 * inflates in three quarters of ISA-L's (docs/performance.md).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "codec.h"

#include "kvr_memory.h"

#include <isa-l/igzip_lib.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

enum { SHUFFLED = 3, PACKED = 4 };

struct codec {
    struct isal_zstream *deflate; /* made at first use */
    uint8_t *workspace;           /* of it */
    struct libdeflate_decompressor *inflate;
    int level;
    struct {
        uint8_t *data;
        size_t capacity;
    } buffer[CODEC_N_BUFFER];
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
    free(codec->deflate);
    free(codec->workspace);
    libdeflate_free_decompressor(codec->inflate);
    for (int i = 0; i < CODEC_N_BUFFER; i++)
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

static enum kvr_status make_deflate(struct codec *codec, struct kvr_error *err)
{
    if (codec->deflate == NULL)
        codec->deflate = kvr_calloc(1, sizeof *codec->deflate);
    if (codec->workspace == NULL)
        codec->workspace = malloc(ISAL_DEF_LVL1_DEFAULT);
    if (codec->deflate == NULL || codec->workspace == NULL)
        return kvr_no_memory(err, "a compressor",
                             sizeof *codec->deflate + ISAL_DEF_LVL1_DEFAULT);
    return KVR_OK;
}

/* ISA-L 2.30 hashes the second position of a stream wrongly where one call of
 * its body covers it: what it hashes is the address of the stream, not the data
 * (write_first_byte of igzip_icf_body_h1_gr_bt.asm). Now and then, 1 tile in
 * 10,000, a match is found elsewhere for it: other bytes for the same input. So
 * the first call gives it one byte more than it keeps back, and it encodes just
 * that one; what it hashes when it is called again is right. It keeps back
 * LOOK_AHEAD, or, where a flush is asked for, SHORT_AHEAD.
 * tests/traces/check_codec.c packs the same tiles at many addresses. */
enum { LOOK_AHEAD = 288, SHORT_AHEAD = 16 };

/* Encodes the first byte; *done: bytes taken. A block of its own is flushed
 * only where a plane is too short for another way. */
static bool deflate_first(struct isal_zstream *z, uint8_t *planes, size_t n,
                          size_t *done)
{
    *done = n > LOOK_AHEAD ? LOOK_AHEAD + 1 : SHORT_AHEAD + 1;
    if (n < *done)
        *done = 0; /* so short a plane never reaches that place */
    z->next_in = planes;
    z->avail_in = (uint32_t)*done;
    z->flush = n > LOOK_AHEAD ? NO_FLUSH : SYNC_FLUSH;
    return *done == 0 || (isal_deflate(z) == COMP_OK && z->avail_in == 0);
}

/* n_plain bytes, planes of n each, into `out` as a zlib stream; 0: no room.
 * A plane has Huffman codes of its own: low bytes of weights are all but
 * random, and high ones few. */
static size_t deflate_planes(struct codec *codec, uint8_t *out, size_t room,
                             uint8_t *planes, size_t n_plain, size_t n)
{
    struct isal_zstream *z = codec->deflate;
    size_t done;

    isal_deflate_init(z);
    z->level = 1;
    z->level_buf = codec->workspace;
    z->level_buf_size = ISAL_DEF_LVL1_DEFAULT;
    z->gzip_flag = IGZIP_ZLIB;
    z->next_out = out;
    z->avail_out = (uint32_t)room;
    if (!deflate_first(z, planes, n, &done))
        return 0;
    for (size_t end = n; z->end_of_stream == 0; end += n) {
        const bool last = end == n_plain;
        z->next_in = planes + done;
        z->avail_in = (uint32_t)(end - done);
        done = end;
        z->end_of_stream = last;
        z->flush = last ? NO_FLUSH : SYNC_FLUSH;
        if (isal_deflate(z) != COMP_OK || z->avail_in != 0)
            return 0;
    }
    return z->internal_state.state == ZSTATE_END ? z->total_out : 0;
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
    const enum kvr_status status = make_deflate(codec, err);
    if (status != KVR_OK)
        return status;
    /* a literal takes 15 bits at most, and about 8 where all are as frequent */
    const size_t room = n_plain + n_plain / 4 + 4096;
    if (room > UINT32_MAX)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "a tile of %zu bytes: expected at most 3 GiB", n_plain);
    uint8_t *shuffled = kvr__codec_buffer(codec, SHUFFLED, n_plain);
    uint8_t *out = kvr__codec_buffer(codec, PACKED, room);
    if (shuffled == NULL || out == NULL)
        return kvr_no_memory(err, "a tile", room);
    kvr__shuffle(shuffled, plain, n, size);
    *n_packed = deflate_planes(codec, out, room, shuffled, n_plain, n);
    *packed = out;
    if (*n_packed == 0)
        return kvr_fail(err, KVR_ERR_INTERNAL,
                        "a tile of %zu bytes did not fit its bound of %zu",
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
