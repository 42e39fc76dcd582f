/* hash.c -- XXH3 behind two calls.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_hash.h"

#include <stdio.h>
#include <xxhash.h>

uint64_t kvr_hash64(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

static XXH3_state_t *state_of(const struct kvr_hash *hash)
{
    return (XXH3_state_t *)(uintptr_t)hash;
}

struct kvr_hash *kvr_hash_new(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state != NULL)
        XXH3_128bits_reset(state);
    return (struct kvr_hash *)(void *)state;
}

void kvr_hash_add(struct kvr_hash *hash, const void *data, size_t size)
{
    XXH3_128bits_update(state_of(hash), data, size);
}

void kvr_hash_text(const struct kvr_hash *hash, char text[KVR_HASH_TEXT])
{
    const XXH128_hash_t h = XXH3_128bits_digest(state_of(hash));

    snprintf(text, KVR_HASH_TEXT, "%016llx%016llx",
             (unsigned long long)h.high64, (unsigned long long)h.low64);
}

void kvr_hash_free(struct kvr_hash *hash)
{
    if (hash != NULL)
        XXH3_freeState(state_of(hash));
}
