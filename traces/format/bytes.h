/* bytes.h -- little-endian fields in memory: growing output, checked input.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef BYTES_H
#define BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "little-endian hosts only"
#endif

/* Zero-initialise; free(data). After a failed allocation `failed` stays. */
struct bytes {
    uint8_t *data;
    size_t n, capacity;
    bool failed;
};

void kvr__put(struct bytes *out, const void *data, size_t n);
void kvr__put_u32(struct bytes *out, uint32_t value);
void kvr__put_u64(struct bytes *out, uint64_t value);
void kvr__put_real(struct bytes *out, double value);
/* Length and bytes; NULL is told from "". */
void kvr__put_text(struct bytes *out, const char *text);
/* n bytes to be filled by the caller; NULL: no memory. */
uint8_t *kvr__put_space(struct bytes *out, size_t n);

/* Reads stay inside; a read past the end gives zeros and sets `bad`. */
struct cursor {
    const uint8_t *at;
    size_t left;
    bool bad;
};

const uint8_t *kvr__take(struct cursor *in, size_t n); /* NULL: not there */
uint32_t kvr__take_u32(struct cursor *in);
uint64_t kvr__take_u64(struct cursor *in);
double kvr__take_real(struct cursor *in);
/* *text malloc'ed or NULL. False: no memory. */
bool kvr__take_text(struct cursor *in, char **text);

#endif
