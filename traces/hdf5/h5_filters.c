/* h5_filters.c -- deflate, shuffle and fletcher32, undone in any order.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_filters.h"

#include <string.h>

enum { CHECKSUM = 4 };

/* HDF5's: words of two bytes, the first one high. */
static uint32_t fletcher32(const uint8_t *data, uint64_t n)
{
    uint32_t sum1 = 0, sum2 = 0;

    for (uint64_t i = 0; i + 1 < n; i += 2) {
        sum1 = (sum1 + ((uint32_t)data[i] << 8 | data[i + 1])) % 65535;
        sum2 = (sum2 + sum1) % 65535;
    }
    if (n % 2 != 0) {
        sum1 = (sum1 + ((uint32_t)data[n - 1] << 8)) % 65535;
        sum2 = (sum2 + sum1) % 65535;
    }
    return sum2 << 16 | sum1;
}

/* HDF5 folds its sums instead: 65535 stands for 0 there. Before 1.6.3 it wrote
 * the bytes of each half the other way round. */
static bool same_sum(uint32_t stated, uint32_t sum)
{
    const uint32_t swapped =
        (stated & 0x00ff00ff) << 8 | (stated >> 8 & 0x00ff00ff);

    for (int i = 0; i < 2; i++) {
        const uint32_t value = i == 0 ? stated : swapped;
        if ((value >> 16) % 65535 == sum >> 16 &&
            (value & 65535) % 65535 == (sum & 65535))
            return true;
    }
    return false;
}

static bool undo_fletcher32(const uint8_t *data, uint64_t *size)
{
    uint32_t stated;

    if (*size < CHECKSUM)
        return false;
    *size -= CHECKSUM;
    memcpy(&stated, data + *size, sizeof stated);
    return same_sum(stated, fletcher32(data, *size));
}

/* Bytes that filter i works on: the chunk, and a checksum of each fletcher32
 * before it. */
static uint64_t bytes_before(const struct h5_set *set, int i, uint64_t bytes,
                             uint64_t skipped)
{
    for (int k = 0; k < i; k++)
        if ((skipped >> k & 1) == 0 && set->filter[k].id == FILTER_FLETCHER32)
            bytes += CHECKSUM;
    return bytes;
}

/* The filters are undone from one buffer into the other. */
struct undo {
    const uint8_t *data;
    uint64_t size;
    int next; /* buffer that is free */
};

static enum kvr_status undo_one(struct undo *u, const struct h5_set *set, int i,
                                uint64_t n, struct codec *codec)
{
    const struct h5_filter *f = &set->filter[i];

    if (f->id == FILTER_FLETCHER32)
        return undo_fletcher32(u->data, &u->size) ? KVR_OK : KVR_ERR_INPUT;
    if (f->id == FILTER_SHUFFLE && f->parameter <= 1)
        return f->parameter == 1 ? KVR_OK : KVR_ERR_INPUT;
    if (f->id == FILTER_SHUFFLE)
        n = u->size; /* it may work on what deflate made */
    uint8_t *to = kvr__codec_buffer(codec, u->next, n);
    if (to == NULL)
        return KVR_ERR_MEMORY;
    if (f->id == FILTER_DEFLATE) {
        if (!kvr__codec_inflate(codec, to, n, u->data, u->size))
            return KVR_ERR_INPUT;
    } else {
        const size_t items = n / f->parameter, all = items * f->parameter;
        kvr__unshuffle(to, u->data, items, f->parameter);
        memcpy(to + all, u->data + all, n - all);
    }
    u->data = to;
    u->size = n;
    u->next = u->next == FILTER_ONE ? FILTER_OTHER : FILTER_ONE;
    return KVR_OK;
}

enum kvr_status kvr__h5_unfilter(uint8_t *out, uint64_t bytes,
                                 const struct h5_set *set, uint64_t skipped,
                                 const uint8_t *stored, uint64_t size,
                                 struct codec *codec)
{
    struct undo u = {.data = stored, .size = size, .next = FILTER_ONE};

    for (int i = set->n_filter; i-- > 0;) {
        if ((skipped >> i & 1) != 0)
            continue;
        const enum kvr_status status =
            undo_one(&u, set, i, bytes_before(set, i, bytes, skipped), codec);
        if (status != KVR_OK)
            return status;
    }
    if (u.size != bytes)
        return KVR_ERR_INPUT;
    memcpy(out, u.data, bytes);
    return KVR_OK;
}
