/* gguf.c -- opening a GGUF file and checking it whole.
 *
 * Layout: magic, version u32, tensor count u64, pair count u64, the pairs,
 * the tensor directory, padding to general.alignment, tensor data. Tensor
 * offsets count from the start of the data.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "gguf_private.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least a pair takes (an empty key, a type, one byte) and the least a
 * directory entry takes: a count above "what is left / this" is a lie. */
enum { MIN_PAIR = 8 + 4 + 1, MIN_ENTRY = 8 + 4 + 8 + 4 + 8, MAX_DEPTH = 4 };

struct gguf_cursor {
    const struct kvr_gguf_part *part;
    uint64_t at;
    char what[KVR_SLICE_TEXT + 32]; /* what is being read, for messages */
};

static enum kvr_status take(const uint8_t **out, struct gguf_cursor *c,
                            uint64_t size, struct kvr_error *err)
{
    const uint64_t left = c->part->size - c->at;

    if (size > left)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s needs %" PRIu64 " bytes at offset %" PRIu64
                        ", but the file has %" PRIu64
                        " bytes in all (an incomplete download?)",
                        c->part->path, c->what, size, c->at, c->part->size);
    *out = c->part->bytes + c->at;
    c->at += size;
    return KVR_OK;
}

static enum kvr_status take_u32(uint32_t *out, struct gguf_cursor *c,
                                struct kvr_error *err)
{
    const uint8_t *at = NULL;
    const enum kvr_status status = take(&at, c, sizeof *out, err);

    if (status == KVR_OK)
        memcpy(out, at, sizeof *out);
    return status;
}

static enum kvr_status take_u64(uint64_t *out, struct gguf_cursor *c,
                                struct kvr_error *err)
{
    const uint8_t *at = NULL;
    const enum kvr_status status = take(&at, c, sizeof *out, err);

    if (status == KVR_OK)
        memcpy(out, at, sizeof *out);
    return status;
}

static enum kvr_status take_string(struct kvr_slice *out, struct gguf_cursor *c,
                                   struct kvr_error *err)
{
    uint64_t size;
    const uint8_t *at = NULL;
    enum kvr_status status = take_u64(&size, c, err);

    if (status != KVR_OK || (status = take(&at, c, size, err)) != KVR_OK)
        return status;
    *out = (struct kvr_slice){.bytes = (const char *)at, .size = size};
    return KVR_OK;
}

/* Bytes of a scalar; 0 for strings and arrays. */
static size_t scalar_size(uint32_t type)
{
    static const uint8_t size[KVR_GGUF_N_TYPE] = {
        [KVR_GGUF_U8] = 1,  [KVR_GGUF_I8] = 1,   [KVR_GGUF_U16] = 2,
        [KVR_GGUF_I16] = 2, [KVR_GGUF_U32] = 4,  [KVR_GGUF_I32] = 4,
        [KVR_GGUF_F32] = 4, [KVR_GGUF_BOOL] = 1, [KVR_GGUF_U64] = 8,
        [KVR_GGUF_I64] = 8, [KVR_GGUF_F64] = 8,
    };

    return size[type];
}

static enum kvr_status check_type(const struct gguf_cursor *c, uint32_t type,
                                  struct kvr_error *err)
{
    if (type < KVR_GGUF_N_TYPE)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "%s: %s has the unknown value type %" PRIu32
                    ", so its size is unknown too",
                    c->part->path, c->what, type);
}

static enum kvr_status skip_array(struct gguf_cursor *c, uint32_t depth,
                                  uint32_t *item_type, uint64_t *n,
                                  const uint8_t **data, struct kvr_error *err);

static enum kvr_status skip_item(struct gguf_cursor *c, uint32_t type,
                                 uint32_t depth, struct kvr_error *err)
{
    struct kvr_slice text;
    uint32_t item_type;
    uint64_t n;
    const uint8_t *data;

    if (type == KVR_GGUF_STRING)
        return take_string(&text, c, err);
    return skip_array(c, depth + 1, &item_type, &n, &data, err);
}

static enum kvr_status skip_array(struct gguf_cursor *c, uint32_t depth,
                                  uint32_t *item_type, uint64_t *n,
                                  const uint8_t **data, struct kvr_error *err)
{
    uint64_t bytes;
    enum kvr_status status;

    if (depth > MAX_DEPTH)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s: arrays nested deeper than %d", c->part->path,
                        c->what, (int)MAX_DEPTH);
    if ((status = take_u32(item_type, c, err)) != KVR_OK ||
        (status = check_type(c, *item_type, err)) != KVR_OK ||
        (status = take_u64(n, c, err)) != KVR_OK)
        return status;
    const size_t size = scalar_size(*item_type);
    /* a string takes at least its length, an array its type and length */
    const uint64_t least = size > 0                        ? size
                           : *item_type == KVR_GGUF_STRING ? 8
                                                           : 12;
    if (!kvr_mul_u64(&bytes, *n, least))
        bytes = UINT64_MAX;
    const uint64_t start = c->at;
    if ((status = take(data, c, bytes, err)) != KVR_OK || size > 0)
        return status;
    c->at = start;
    for (uint64_t i = 0; i < *n && status == KVR_OK; i++)
        status = skip_item(c, *item_type, depth, err);
    return status;
}

static enum kvr_status read_value(struct kvr_gguf_value *value,
                                  struct gguf_cursor *c, struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];
    uint32_t type, item_type = 0;
    struct kvr_slice text;
    enum kvr_status status;

    if ((status = take_string(&value->key, c, err)) != KVR_OK)
        return status;
    if (value->key.size == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s is empty", c->part->path,
                        c->what);
    snprintf(c->what, sizeof c->what, "metadata key '%s'",
             kvr_slice_show(shown, value->key));
    if ((status = take_u32(&type, c, err)) != KVR_OK ||
        (status = check_type(c, type, err)) != KVR_OK)
        return status;
    value->type = (enum kvr_gguf_type)type;
    if (type == KVR_GGUF_ARRAY) {
        status = skip_array(c, 1, &item_type, &value->n, &value->data, err);
        value->item_type = (enum kvr_gguf_type)item_type;
    } else if (type == KVR_GGUF_STRING) {
        if ((status = take_string(&text, c, err)) == KVR_OK) {
            value->n = text.size;
            value->data = (const uint8_t *)text.bytes;
        }
    } else {
        value->n = 1;
        status = take(&value->data, c, scalar_size(type), err);
    }
    return status;
}

static int by_key(const void *a, const void *b)
{
    const struct kvr_gguf_value *left = a, *right = b;

    return kvr_slice_compare(left->key, right->key);
}

static enum kvr_status read_values(struct kvr_gguf_part *part,
                                   struct gguf_cursor *c, struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];

    part->values = kvr_calloc(part->n_values, sizeof *part->values);
    if (part->values == NULL)
        return kvr_no_memory(err, "metadata",
                             part->n_values * sizeof *part->values);
    for (size_t i = 0; i < part->n_values; i++) {
        snprintf(c->what, sizeof c->what, "the key of metadata pair %zu", i);
        const enum kvr_status status = read_value(&part->values[i], c, err);
        if (status != KVR_OK)
            return status;
    }
    qsort(part->values, part->n_values, sizeof *part->values, by_key);
    for (size_t i = 1; i < part->n_values; i++)
        if (by_key(&part->values[i - 1], &part->values[i]) == 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: metadata key '%s' is there twice", part->path,
                            kvr_slice_show(shown, part->values[i].key));
    return KVR_OK;
}

static enum kvr_status read_alignment(uint64_t *out,
                                      const struct kvr_gguf_part *part,
                                      struct kvr_error *err)
{
    const struct kvr_gguf_value *value =
        kvr__gguf_part_find(part, "general.alignment");
    double number = 32;

    if (value != NULL &&
        (value->type != KVR_GGUF_U32 || !kvr__gguf_number(&number, value, 0)))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: general.alignment is of type %s, expected u32",
                        part->path, kvr__gguf_type_name(value->type));
    const uint32_t alignment = (uint32_t)number;
    if (alignment < 8 || alignment > 1u << 20 ||
        (alignment & (alignment - 1)) != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: general.alignment is %" PRIu32
                        ", expected a power of two from 8 to 1048576",
                        part->path, alignment);
    *out = alignment;
    return KVR_OK;
}

/* Rows and bytes from the dimensions, with every product checked. */
static enum kvr_status measure(struct kvr_gguf_tensor *tensor,
                               const struct gguf_cursor *c,
                               struct kvr_error *err)
{
    const struct kvr_quant_row *row = kvr__quant_find(tensor->type);
    uint64_t values = 1;
    bool fits = true;

    if (row == NULL)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s has the unknown type %" PRIu32, c->part->path,
                        c->what, tensor->type);
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (tensor->dims[i] == 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: dimension %" PRIu32 " is 0", c->part->path,
                            c->what, i);
        fits = fits && kvr_mul_u64(&values, values, tensor->dims[i]);
    }
    if (!fits || values > INT64_MAX / 8)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: size overflows",
                        c->part->path, c->what);
    if (tensor->dims[0] % row->block != 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: rows of %" PRIu64 " values, but %s has "
                        "blocks of %" PRIu32,
                        c->part->path, c->what, tensor->dims[0], row->name,
                        row->block);
    tensor->rows = values / tensor->dims[0];
    tensor->size = values / row->block * row->bytes;
    return KVR_OK;
}

/* One directory entry; its offset into *offset. */
static enum kvr_status read_entry(struct kvr_gguf_tensor *tensor,
                                  uint64_t *offset, struct gguf_cursor *c,
                                  struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];
    enum kvr_status status;

    if ((status = take_string(&tensor->name, c, err)) != KVR_OK)
        return status;
    if (tensor->name.size == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s is empty", c->part->path,
                        c->what);
    snprintf(c->what, sizeof c->what, "tensor '%s'",
             kvr_slice_show(shown, tensor->name));
    if ((status = take_u32(&tensor->n_dims, c, err)) != KVR_OK)
        return status;
    if (tensor->n_dims < 1 || tensor->n_dims > KVR_GGUF_MAX_DIMS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s has %" PRIu32 " dimensions, expected 1 to %d",
                        c->part->path, c->what, tensor->n_dims,
                        (int)KVR_GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        if ((status = take_u64(&tensor->dims[i], c, err)) != KVR_OK)
            return status;
    if ((status = take_u32(&tensor->type, c, err)) != KVR_OK ||
        (status = take_u64(offset, c, err)) != KVR_OK)
        return status;
    return measure(tensor, c, err);
}

/* data of each tensor: its offset for now, see place. */
static enum kvr_status read_directory(struct kvr_gguf_part *part,
                                      struct gguf_cursor *c,
                                      struct kvr_error *err)
{
    uint64_t alignment = 32;
    enum kvr_status status = read_alignment(&alignment, part, err);

    if (status != KVR_OK)
        return status;
    part->tensors = kvr_calloc(part->n_tensors, sizeof *part->tensors);
    part->offsets = kvr_calloc(part->n_tensors, sizeof *part->offsets);
    if (part->tensors == NULL || part->offsets == NULL)
        return kvr_no_memory(err, "the tensor directory",
                             part->n_tensors * sizeof *part->tensors);
    for (size_t i = 0; i < part->n_tensors; i++) {
        snprintf(c->what, sizeof c->what, "the name of tensor %zu", i);
        status = read_entry(&part->tensors[i], &part->offsets[i], c, err);
        if (status != KVR_OK)
            return status;
        if (part->offsets[i] % alignment != 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: offset %" PRIu64 " is not a multiple of "
                            "the alignment %" PRIu64,
                            part->path, c->what, part->offsets[i], alignment);
    }
    part->alignment = alignment;
    part->data_at = (c->at + alignment - 1) / alignment * alignment;
    return KVR_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct kvr_gguf_extent *left = a, *right = b;

    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Tensors follow each other with less than the alignment between them: what
 * is left belongs to a tensor that the directory has lost, or to no GGUF
 * file. */
static enum kvr_status no_owner(const struct kvr_gguf_part *part, uint64_t n,
                                const char *before, struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: %" PRIu64 " bytes %s%s%s belong to no tensor of the "
                    "%zu in its directory",
                    part->path, n,
                    before != NULL ? "before tensor '" : "at its end",
                    before != NULL ? before : "", before != NULL ? "'" : "",
                    part->n_tensors);
}

static enum kvr_status check_extents(struct kvr_gguf_part *part,
                                     const struct kvr_gguf_extent *extents,
                                     struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT], other[KVR_SLICE_TEXT];
    uint64_t end = 0, file_end = part->data_at;

    for (size_t i = 0; i < part->n_tensors; i++) {
        struct kvr_gguf_tensor *tensor = extents[i].tensor;
        const uint64_t offset = extents[i].offset;
        kvr_slice_show(shown, tensor->name);
        if (i > 0 && offset < end)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: tensor '%s' at offset %" PRIu64
                            " overlaps tensor '%s', which ends at %" PRIu64,
                            part->path, shown, offset,
                            kvr_slice_show(other, extents[i - 1].tensor->name),
                            end);
        const uint64_t gap = offset - end;
        if (!kvr_add_u64(&end, offset, tensor->size) ||
            !kvr_add_u64(&file_end, part->data_at, end))
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: tensor '%s': offset %" PRIu64 " overflows",
                            part->path, shown, offset);
        if (file_end > part->size)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: tensor '%s' (offset %" PRIu64
                            ") ends at byte %" PRIu64
                            ", but the file has %" PRIu64
                            " bytes (an incomplete download?)",
                            part->path, shown, offset, file_end, part->size);
        if (gap >= part->alignment)
            return no_owner(part, gap, shown, err);
        tensor->data = part->bytes + part->data_at + offset;
    }
    const uint64_t over = part->size - file_end;
    const uint64_t padding = -file_end & (part->alignment - 1);
    if (part->n_tensors > 0 && over > padding)
        return no_owner(part, over - padding, NULL, err);
    return KVR_OK;
}

static enum kvr_status place_tensors(struct kvr_gguf_part *part,
                                     struct kvr_error *err)
{
    struct kvr_gguf_extent *extents =
        kvr_calloc(part->n_tensors, sizeof *extents);

    if (extents == NULL)
        return kvr_no_memory(err, "the tensor directory",
                             part->n_tensors * sizeof *extents);
    for (size_t i = 0; i < part->n_tensors; i++)
        extents[i] = (struct kvr_gguf_extent){.tensor = &part->tensors[i],
                                              .offset = part->offsets[i]};
    qsort(extents, part->n_tensors, sizeof *extents, by_offset);
    const enum kvr_status status = check_extents(part, extents, err);
    free(extents);
    return status;
}

static enum kvr_status check_magic(const struct kvr_gguf_part *part,
                                   struct kvr_error *err)
{
    char shown[KVR_SLICE_TEXT];
    const size_t n = part->size < 4 ? (size_t)part->size : 4;
    const struct kvr_slice magic = {(const char *)part->bytes, n};

    if (kvr_slice_is(magic, "GGUF"))
        return KVR_OK;
    return kvr_fail(
        err, KVR_ERR_INPUT, "%s: not a GGUF file (it begins with '%s'%s)",
        part->path, kvr_slice_show(shown, magic),
        n > 0 && magic.bytes[0] == '<' ? ": a web page; the download failed"
                                       : "; did the download fail?");
}

static enum kvr_status check_version(const struct kvr_gguf_part *part,
                                     uint32_t version, struct kvr_error *err)
{
    if (version == 2 || version == 3)
        return KVR_OK;
    if (version != 0 && (version & 0xffffu) == 0)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: a big-endian GGUF file; only little-endian byte "
                        "order is read",
                        part->path);
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "%s: GGUF version %" PRIu32 "; versions 2 and 3 are read",
                    part->path, version);
}

static enum kvr_status check_count(uint64_t count, uint64_t least,
                                   const char *what,
                                   const struct gguf_cursor *c,
                                   struct kvr_error *err)
{
    if (count <= (c->part->size - c->at) / least)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: claims %" PRIu64 " %s in a file of %" PRIu64 " bytes",
                    c->part->path, count, what, c->part->size);
}

enum kvr_status kvr__gguf_part_parse(struct kvr_gguf_part *part,
                                     struct kvr_error *err)
{
    struct gguf_cursor c = {.part = part, .at = 4, .what = "the header"};
    uint32_t version;
    uint64_t n_tensors, n_values;
    enum kvr_status status;

    if ((status = check_magic(part, err)) != KVR_OK ||
        (status = take_u32(&version, &c, err)) != KVR_OK ||
        (status = check_version(part, version, err)) != KVR_OK ||
        (status = take_u64(&n_tensors, &c, err)) != KVR_OK ||
        (status = take_u64(&n_values, &c, err)) != KVR_OK ||
        (status = check_count(n_values, MIN_PAIR, "metadata pairs", &c, err)) !=
            KVR_OK ||
        (status = check_count(n_tensors, MIN_ENTRY, "tensors", &c, err)) !=
            KVR_OK)
        return status;
    part->n_tensors = (size_t)n_tensors;
    part->n_values = (size_t)n_values;
    if ((status = read_values(part, &c, err)) != KVR_OK ||
        (status = read_directory(part, &c, err)) != KVR_OK)
        return status;
    return place_tensors(part, err);
}

enum kvr_status kvr__gguf_part_open(struct kvr_gguf_part *part,
                                    const char *path, struct kvr_error *err)
{
    part->path = kvr_strdup(path);
    if (part->path == NULL)
        return kvr_no_memory(err, "a path", strlen(path));
    const enum kvr_status status = kvr__mapped_open(&part->mapped, path, err);
    if (status != KVR_OK)
        return status;
    part->bytes = part->mapped.bytes;
    part->size = part->mapped.size;
    return kvr__gguf_part_parse(part, err);
}

void kvr__gguf_part_close(struct kvr_gguf_part *part)
{
    kvr__mapped_close(&part->mapped);
    free(part->path);
    free(part->values);
    free(part->tensors);
    free(part->offsets);
}
