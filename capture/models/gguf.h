/* gguf.h -- reading GGUF files (versions 2 and 3, little-endian).
 *
 * The file is mapped and checked as a whole when it is opened: every count,
 * length, dimension and offset against what is left of the file, every
 * tensor's extent against the file and the other tensors. After that nothing
 * that these functions hand out points outside the file.
 * A split model is opened by its first part; the others must be beside it.
 * Everything is read-only and may be used from many threads.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef GGUF_H
#define GGUF_H

#include "kvr_error.h"
#include "slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvr_gguf_type {
    KVR_GGUF_U8,
    KVR_GGUF_I8,
    KVR_GGUF_U16,
    KVR_GGUF_I16,
    KVR_GGUF_U32,
    KVR_GGUF_I32,
    KVR_GGUF_F32,
    KVR_GGUF_BOOL,
    KVR_GGUF_STRING,
    KVR_GGUF_ARRAY,
    KVR_GGUF_U64,
    KVR_GGUF_I64,
    KVR_GGUF_F64,
    KVR_GGUF_N_TYPE,
};

enum { KVR_GGUF_MAX_DIMS = 4 };

/* One metadata pair. data points at the value: a scalar's bytes, a string's
 * bytes, an array's first item (which is unaligned). */
struct kvr_gguf_value {
    struct kvr_slice key;
    enum kvr_gguf_type type, item_type; /* item_type: of an array */
    uint64_t n;                         /* items, or a string's length */
    const uint8_t *data;
};

/* dims[0] is the fastest: the length of a row. rows * dims[0] values. */
struct kvr_gguf_tensor {
    struct kvr_slice name;
    uint32_t n_dims, type; /* type: enum kvr_quant of quant.h */
    uint64_t dims[KVR_GGUF_MAX_DIMS], rows;
    const uint8_t *data;
    uint64_t size; /* bytes */
};

struct kvr_gguf;

/* KVR_ERR_INPUT: not a GGUF file, damaged, incomplete; KVR_ERR_UNSUPPORTED:
 * another version or byte order, an unknown metadata or tensor type. The
 * message names the file, the key or tensor, and the numbers. */
enum kvr_status kvr__gguf_open(struct kvr_gguf **out, const char *path,
                               struct kvr_error *err) KVR_MUST_CHECK;
void kvr__gguf_close(struct kvr_gguf *gguf);

/* Borrowed until close, like all below. */
const char *kvr__gguf_path(const struct kvr_gguf *gguf);
size_t kvr__gguf_n_tensors(const struct kvr_gguf *gguf);
/* In the order of their names. */
const struct kvr_gguf_tensor *kvr__gguf_tensor(const struct kvr_gguf *gguf,
                                               size_t index);
/* NULL: no such tensor. */
const struct kvr_gguf_tensor *
kvr__gguf_tensor_named(const struct kvr_gguf *gguf, const char *name);
size_t kvr__gguf_n_values(const struct kvr_gguf *gguf);
const struct kvr_gguf_value *kvr__gguf_value(const struct kvr_gguf *gguf,
                                             size_t index);
const struct kvr_gguf_value *kvr__gguf_find(const struct kvr_gguf *gguf,
                                            const char *key);

/* Typed look-ups. An absent key leaves *out as it was and, if found is not
 * NULL, sets *found to false. A value of another type, or out of range, is
 * KVR_ERR_INPUT naming the key. */
enum kvr_status kvr__gguf_u32(uint32_t *out, bool *found,
                              const struct kvr_gguf *gguf, const char *key,
                              struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__gguf_real(double *out, bool *found,
                               const struct kvr_gguf *gguf, const char *key,
                               struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__gguf_bool(bool *out, bool *found,
                               const struct kvr_gguf *gguf, const char *key,
                               struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__gguf_string(struct kvr_slice *out, bool *found,
                                 const struct kvr_gguf *gguf, const char *key,
                                 struct kvr_error *err) KVR_MUST_CHECK;

/* Item i of a numeric scalar (i = 0) or array; false where it is no number. */
bool kvr__gguf_number(double *out, const struct kvr_gguf_value *value,
                      uint64_t i);

/* Array of strings as views into the file; free() *out. Absent: NULL, 0. */
enum kvr_status kvr__gguf_strings(struct kvr_slice **out, size_t *n,
                                  const struct kvr_gguf *gguf, const char *key,
                                  struct kvr_error *err) KVR_MUST_CHECK;

/* "u32", "string", ...; static storage. */
const char *kvr__gguf_type_name(enum kvr_gguf_type type);

#endif
