/* gguf_made.c -- see gguf_made.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "gguf_made.h"

#include "suite.h"

#include <string.h>

static const uint8_t sizes[KVR_GGUF_N_TYPE] = {1, 1, 2, 2, 4, 4, 4,
                                               1, 0, 0, 8, 8, 8};

void gguf_put(FILE *file, const void *data, size_t size)
{
    ck_assert(size == 0 || fwrite(data, 1, size, file) == size);
}

void gguf_put_u32(FILE *file, uint32_t value)
{
    gguf_put(file, &value, sizeof value);
}

void gguf_put_u64(FILE *file, uint64_t value)
{
    gguf_put(file, &value, sizeof value);
}

void gguf_put_text(FILE *file, struct kvr_slice text)
{
    gguf_put_u64(file, text.size);
    gguf_put(file, text.bytes, text.size);
}

uint64_t gguf_padded(uint64_t size)
{
    return (size + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

static size_t array_bytes(const struct kvr_gguf_value *v)
{
    size_t size = 0;

    if (v->item_type != KVR_GGUF_STRING)
        return (size_t)v->n * sizes[v->item_type];
    for (uint64_t i = 0; i < v->n; i++) {
        uint64_t n;
        memcpy(&n, v->data + size, sizeof n);
        size += 8 + (size_t)n;
    }
    return size;
}

void gguf_put_value(FILE *file, const struct kvr_gguf_value *v)
{
    gguf_put_text(file, v->key);
    gguf_put_u32(file, (uint32_t)v->type);
    if (v->type == KVR_GGUF_STRING) {
        gguf_put_text(file, (struct kvr_slice){(const char *)v->data, v->n});
    } else if (v->type == KVR_GGUF_ARRAY) {
        gguf_put_u32(file, (uint32_t)v->item_type);
        gguf_put_u64(file, v->n);
        gguf_put(file, v->data, array_bytes(v));
    } else {
        gguf_put(file, v->data, sizes[v->type]);
    }
}

static void put_key(FILE *file, const struct made_key *key)
{
    const float real = (float)key->number;
    const uint8_t flag = key->number != 0;

    gguf_put_text(file, kvr_slice_of(key->name));
    gguf_put_u32(file, (uint32_t)key->type);
    switch (key->type) {
    case KVR_GGUF_STRING:
        gguf_put_text(file, kvr_slice_of(key->text));
        break;
    case KVR_GGUF_F32:
        gguf_put(file, &real, sizeof real);
        break;
    case KVR_GGUF_BOOL:
        gguf_put(file, &flag, sizeof flag);
        break;
    case KVR_GGUF_I32:
        gguf_put_u32(file, (uint32_t)(int32_t)key->number);
        break;
    default:
        ck_assert_int_eq(key->type, KVR_GGUF_U32);
        gguf_put_u32(file, (uint32_t)key->number);
    }
}

static bool replaced(const struct made_gguf *changes, struct kvr_slice key)
{
    for (size_t i = 0; i < changes->n_keys; i++)
        if (kvr_slice_is(key, changes->keys[i].name))
            return true;
    return false;
}

static void put_metadata(FILE *file, const struct kvr_gguf *from,
                         const struct made_gguf *changes)
{
    const size_t n = kvr__gguf_n_values(from);
    uint64_t kept = 0;

    for (size_t i = 0; i < n; i++)
        kept += !replaced(changes, kvr__gguf_value(from, i)->key);
    gguf_put(file, "GGUF", 4);
    gguf_put_u32(file, 3);
    gguf_put_u64(file, kvr__gguf_n_tensors(from) - (changes->lost != NULL));
    gguf_put_u64(file, kept + changes->n_keys);
    for (size_t i = 0; i < n; i++)
        if (!replaced(changes, kvr__gguf_value(from, i)->key))
            gguf_put_value(file, kvr__gguf_value(from, i));
    for (size_t i = 0; i < changes->n_keys; i++)
        put_key(file, &changes->keys[i]);
}

void gguf_put_entry(FILE *file, const struct kvr_gguf_tensor *t,
                    uint64_t offset)
{
    gguf_put_text(file, t->name);
    gguf_put_u32(file, t->n_dims);
    for (uint32_t d = 0; d < t->n_dims; d++)
        gguf_put_u64(file, t->dims[d]);
    gguf_put_u32(file, t->type);
    gguf_put_u64(file, offset);
}

void gguf_pad(FILE *file)
{
    while (ftell(file) % GGUF_ALIGNMENT != 0)
        gguf_put(file, "", 1);
}

void made_gguf_write(const char *path, const char *from,
                     const struct made_gguf *changes)
{
    FILE *file = fopen(path, "wb");
    struct kvr_gguf *gguf;
    struct kvr_error err = {0};
    uint64_t offset = 0;

    ck_assert_ptr_nonnull(file);
    must(kvr__gguf_open(&gguf, from, &err));
    put_metadata(file, gguf, changes);
    for (size_t i = 0; i < kvr__gguf_n_tensors(gguf); i++) {
        const struct kvr_gguf_tensor *t = kvr__gguf_tensor(gguf, i);
        if (changes->lost == NULL || !kvr_slice_is(t->name, changes->lost))
            gguf_put_entry(file, t, offset);
        offset += gguf_padded(t->size);
    }
    for (size_t i = 0; i < kvr__gguf_n_tensors(gguf); i++) {
        gguf_pad(file);
        gguf_put(file, kvr__gguf_tensor(gguf, i)->data,
                 (size_t)kvr__gguf_tensor(gguf, i)->size);
    }
    gguf_pad(file);
    for (size_t i = 0; i < changes->tail; i++)
        gguf_put(file, "", 1);
    ck_assert_int_eq(fclose(file), 0);
    kvr__gguf_close(gguf);
}
