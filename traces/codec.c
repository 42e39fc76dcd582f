/* codec.c -- deflate around the shuffle.
 *
 * Each library does what it is quicker at: ISA-L compresses in a third of the
 * time that libdeflate's lowest level takes, to nearly the same size;
 * libdeflate inflates in three quarters of ISA-L's (docs/performance.md).
 *
 * Of ISA-L's levels the lowest is taken, with Huffman codes made for each
 * plane. Level 1 would be 0.8 % smaller, but in ISA-L 2.30 its output is no
 * function of its input: at the start of a buffer one slot of its hash table is
 * filled by a hash of what a register held, the stream's address. Where that
 * slot is the one of a run that comes again (1 tile in 10,000) a match reaches
 * back to another place. tests/traces/check_codec.c packs the same tiles at
 * many addresses. SPDX-License-Identifier: GPL-3.0-or-later */
#include "codec.h"

#include "kvr_memory.h"

#include <isa-l/igzip_lib.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

enum { N_BUFFER = 5, SHUFFLED = 3, PACKED = 4 };

struct deflater {
    struct isal_zstream stream;
    struct isal_huff_histogram histogram;
    struct isal_hufftables codes; /* of the plane in work */
};

struct codec {
    struct deflater *deflate; /* made at first use */
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
    free(codec->deflate);
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

/* One plane: codes that fit it, then itself. */
static bool deflate_plane(struct deflater *d, uint8_t *plane, size_t n,
                          bool last)
{
    struct isal_zstream *z = &d->stream;

    memset(&d->histogram, 0, sizeof d->histogram);
    isal_update_histogram(plane, (int)n, &d->histogram);
    if (isal_create_hufftables(&d->codes, &d->histogram) != 0 ||
        isal_deflate_set_hufftables(z, &d->codes, IGZIP_HUFFTABLE_CUSTOM) !=
            COMP_OK)
        return false;
    z->next_in = plane;
    z->avail_in = (uint32_t)n;
    z->end_of_stream = last;
    z->flush = last ? NO_FLUSH : FULL_FLUSH;
    return isal_deflate_stateless(z) == COMP_OK && z->avail_in == 0;
}

enum { ZLIB_HEAD = 2, ZLIB_TAIL = 4 }; /* RFC 1950 */

/* Planes of n bytes each, and what is left of n_plain, into `out` as a zlib
 * stream; 0: no room. A plane has Huffman codes of its own: low bytes of
 * weights are all but random, and high ones few. The frame is put around it
 * here, as ISA-L's checksum is of one call only. */
static size_t deflate_planes(struct deflater *d, uint8_t *out, size_t room,
                             uint8_t *planes, size_t n_plain, size_t n)
{
    struct isal_zstream *z = &d->stream;

    memset(z, 0, sizeof *z);
    isal_deflate_stateless_init(z);
    z->level = 0;
    z->gzip_flag = IGZIP_DEFLATE;
    z->next_out = out + ZLIB_HEAD;
    z->avail_out = (uint32_t)(room - ZLIB_HEAD - ZLIB_TAIL);
    for (size_t done = 0; z->end_of_stream == 0; done += n) {
        const bool last = n_plain - done <= n;
        if (!deflate_plane(d, planes + done, last ? n_plain - done : n, last))
            return 0;
    }
    out[0] = 0x78; /* deflate, a window of 32 KiB */
    out[1] = 0x01; /* the quickest level, no dictionary */
    const uint32_t sum = libdeflate_adler32(1, planes, n_plain);
    uint8_t *tail = out + ZLIB_HEAD + z->total_out;
    for (int i = 0; i < ZLIB_TAIL; i++)
        tail[i] = (uint8_t)(sum >> (24 - 8 * i));
    return ZLIB_HEAD + z->total_out + ZLIB_TAIL;
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
        codec->deflate = kvr_calloc(1, sizeof *codec->deflate);
    if (codec->deflate == NULL)
        return kvr_no_memory(err, "a compressor", sizeof *codec->deflate);
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
    *n_packed = deflate_planes(codec->deflate, out, room, shuffled, n_plain, n);
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
