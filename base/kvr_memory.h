/* kvr_memory.h -- allocation with checked sizes.
 *
 * Counts often come from files, so every product is checked. A failed
 * allocation is a status with the size asked for, never an abort.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_MEMORY_H
#define KVR_MEMORY_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *product = a * b; false (and *product untouched) when it does not fit. */
bool kvr_mul_size(size_t *product, size_t a, size_t b);
bool kvr_mul_u64(uint64_t *product, uint64_t a, uint64_t b);
bool kvr_add_u64(uint64_t *sum, uint64_t a, uint64_t b);

/* Zeroed array of `count` items of `size` bytes; free() it. count 0 gives a
 * pointer that may be freed. NULL when it does not fit or is not to be had. */
void *kvr_calloc(size_t count, size_t size);

/* The same, aligned to 64 bytes and rounded up to whole cache lines. */
void *kvr_aligned_calloc(size_t count, size_t size);

/* Grows *items (realloc) to hold at least `need` items of `size` bytes,
 * doubling *capacity. False leaves both as they were. */
bool kvr_grow(void **items, size_t *capacity, size_t need, size_t size);

/* Copy of `text`, or of its first n bytes; free() it. NULL: no memory. */
char *kvr_strdup(const char *text);
char *kvr_strndup(const char *text, size_t n);

/* KVR_ERR_MEMORY with "no memory for WHAT (N bytes)". */
enum kvr_status kvr_no_memory(struct kvr_error *err, const char *what,
                              size_t bytes);

/* KVR_ERR_LIMIT where `need` bytes are over `limit` (0: none): "WHAT: about ..
 * of memory are needed, the limit is .. (--memory)". */
enum kvr_status kvr_check_memory(struct kvr_error *err, const char *what,
                                 uint64_t need, uint64_t limit);

/* Bytes of physical memory; 0 if the system does not say. */
uint64_t kvr_physical_memory(void);

#ifdef __cplusplus
}
#endif

#endif
