/* sha256.h -- SHA-256 (FIPS 180-4), for the hashes in golden files.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SHA256_H
#define SHA256_H

#include <stddef.h>

/* 64 hex digits and a zero. */
void sha256_hex(char out[65], const void *data, size_t size);

#endif
