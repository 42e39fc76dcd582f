/* kvr_hash.h -- XXH3 checksums and digests.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_HASH_H
#define KVR_HASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { KVR_HASH_TEXT = 33 }; /* 32 hex digits and the zero */

uint64_t kvr_hash64(const void *data, size_t size);

/* A running XXH3-128. NULL: no memory. */
struct kvr_hash;
struct kvr_hash *kvr_hash_new(void);
void kvr_hash_add(struct kvr_hash *hash, const void *data, size_t size);
void kvr_hash_text(const struct kvr_hash *hash, char text[KVR_HASH_TEXT]);
void kvr_hash_free(struct kvr_hash *hash);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
