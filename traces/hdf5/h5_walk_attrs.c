/* h5_walk_attrs.c -- attributes with their values as stored, and types.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_walk.h"

#include "h5_index.h"
#include "h5_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 1 << 20, MAX_VALUES = 8 };

/* A number that fills its bytes, in one of the two byte orders. */
static bool is_plain(hid_t type)
{
    const size_t size = H5Tget_size(type);
    const H5T_order_t order = H5Tget_order(type);

    return (size == 1 || size == 2 || size == 4 || size == 8) &&
           H5Tget_offset(type) == 0 && H5Tget_precision(type) == 8 * size &&
           (order == H5T_ORDER_LE || order == H5T_ORDER_BE);
}

static bool is_ieee(hid_t type)
{
    const size_t size = H5Tget_size(type);
    const size_t exponent = size == 2 ? 5 : size == 4 ? 8 : 11;
    const size_t mantissa = 8 * size - 1 - exponent;
    size_t spos, epos, esize, mpos, msize;

    return size != 1 &&
           H5Tget_fields(type, &spos, &epos, &esize, &mpos, &msize) >= 0 &&
           spos == 8 * size - 1 && epos == mantissa && esize == exponent &&
           mpos == 0 && msize == mantissa &&
           H5Tget_ebias(type) == ((size_t)1 << (exponent - 1)) - 1 &&
           H5Tget_norm(type) == H5T_NORM_IMPLIED;
}

static enum h5_type_kind kind_of(hid_t type)
{
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        return is_plain(type) ? TYPE_INTEGER : TYPE_OTHER;
    case H5T_FLOAT:
        return is_plain(type) && is_ieee(type) ? TYPE_FLOAT : TYPE_OTHER;
    case H5T_STRING:
        if (H5Tis_variable_str(type) > 0)
            return TYPE_VARIABLE_TEXT;
        return H5Tget_strpad(type) == H5T_STR_SPACEPAD ? TYPE_PADDED_TEXT
                                                       : TYPE_FIXED_TEXT;
    default:
        return TYPE_OTHER;
    }
}

bool kvr__walk_reads(hid_t type)
{
    return type >= 0 && kind_of(type) != TYPE_OTHER;
}

void kvr__walk_type(struct h5_walk *w, hid_t type)
{
    const size_t size = type >= 0 ? H5Tget_size(type) : 0;
    const enum h5_type_kind kind = type >= 0 ? kind_of(type) : TYPE_OTHER;

    kvr__put_u32(&w->out, kind);
    kvr__put_u32(&w->out, size <= UINT32_MAX ? (uint32_t)size : UINT32_MAX);
    kvr__put_u32(&w->out,
                 kind != TYPE_OTHER && H5Tget_order(type) == H5T_ORDER_BE);
    kvr__put_u32(&w->out,
                 kind == TYPE_INTEGER && H5Tget_sign(type) == H5T_SGN_2);
}

struct attr_walk {
    struct h5_walk *w;
    uint64_t used, room; /* bytes of attributes, and of where they lie */
};

/* Values: 0 for one that is empty, UINT64_MAX for one not known. */
static uint64_t count_of(hid_t attr)
{
    const hid_t space = H5Aget_space(attr);
    hssize_t n = -1;

    if (space >= 0) {
        n = H5Sget_simple_extent_type(space) == H5S_NULL
                ? 0
                : H5Sget_simple_extent_npoints(space);
        H5Sclose(space);
    }
    return n >= 0 ? (uint64_t)n : UINT64_MAX;
}

static bool tell_variable(struct h5_walk *w, hid_t attr, hid_t type)
{
    char *value = NULL;

    if (H5Aread(attr, type, &value) < 0)
        return false;
    const char *text = value != NULL ? value : "";
    const size_t n = strlen(text);
    if (n <= MAX_TEXT)
        kvr__walk_bytes(w, text, n);
    H5free_memory(value);
    return n <= MAX_TEXT;
}

static bool tell_plain(struct h5_walk *w, hid_t attr, hid_t type, size_t n)
{
    uint8_t *value = calloc(n + 1, 1);
    const bool ok = value != NULL && H5Aread(attr, type, value) >= 0;

    w->out.failed |= value == NULL;
    if (ok)
        kvr__walk_bytes(w, value, n);
    free(value);
    return ok;
}

/* Name, type, count, and the value where it is of a kind that is read. */
static bool tell_value(struct h5_walk *w, const char *name, hid_t attr,
                       hid_t type, uint64_t n)
{
    const size_t size = H5Tget_size(type);
    const enum h5_type_kind kind = kind_of(type);
    const bool text = kind > TYPE_FLOAT;
    const bool read =
        kind != TYPE_OTHER && n <= (text ? 1 : MAX_VALUES) && size <= MAX_TEXT;

    kvr__put_u32(&w->out, TAG_ATTR);
    kvr__walk_text(w, name);
    kvr__walk_type(w, type);
    kvr__put_u64(&w->out, n);
    kvr__put_u32(&w->out, read);
    if (!read || n == 0) {
        kvr__walk_bytes(w, "", 0);
        return true;
    }
    return kind == TYPE_VARIABLE_TEXT
               ? tell_variable(w, attr, type)
               : tell_plain(w, attr, type, (size_t)n * size);
}

/* The least that a header's message needs for an attribute: 8 bytes, its name,
 * type, extent and value. */
static uint64_t least_bytes(const char *name, hid_t type, uint64_t data)
{
    enum { BEFORE = 8, ENCODED_BEFORE = 2, EXTENT = 4 };
    size_t n = 0;

    if (H5Tencode(type, NULL, &n) < 0 || n < ENCODED_BEFORE)
        n = ENCODED_BEFORE;
    return BEFORE + strlen(name) + 1 + n - ENCODED_BEFORE + EXTENT + data;
}

static herr_t tell_attr(hid_t object, const char *name, const H5A_info_t *info,
                        void *ud)
{
    struct attr_walk *attrs = ud;
    struct h5_walk *w = attrs->w;
    const size_t before = w->out.n;

    kvr__child_step(w->child, "attribute ", name);
    const hid_t attr = H5Aopen(object, name, H5P_DEFAULT);
    const hid_t type = attr >= 0 ? H5Aget_type(attr) : -1;
    const uint64_t n = type >= 0 ? count_of(attr) : 0;
    if (type >= 0)
        attrs->used += least_bytes(name, type, info->data_size);
    const bool fits = attrs->used <= attrs->room &&
                      (type < 0 || H5Tis_variable_str(type) <= 0 ||
                       info->data_size == n * w->variable_bytes);
    const bool ok = fits && type >= 0 && tell_value(w, name, attr, type, n);
    if (!fits)
        kvr__walk_problem(w, TAG_ATTR_PROBLEM,
                          "an attribute is longer than its place in the "
                          "file: damaged");
    else if (!ok) {
        char text[200];
        w->out.n = before;
        snprintf(text, sizeof text, "attribute '%.100s' cannot be read", name);
        kvr__walk_problem(w, TAG_ATTR_PROBLEM, text);
    }
    if (type >= 0)
        H5Tclose(type);
    if (attr >= 0)
        H5Aclose(attr);
    return fits ? 0 : 1;
}

/* Bytes that attributes can take: the header's messages without those that
 * must be there, or the heap that many attributes lie in. HDF5 1.10 copies as
 * much as an attribute says. 0: not known, HDF5's stack says why. */
static uint64_t room_of(hid_t object)
{
    enum { ATTR_MESSAGE = 12, TABLE_MESSAGE = 17, TABLE_BYTES = 16 };
    H5O_info_t info;

    if (H5Oget_info2(object, &info, H5O_INFO_HDR) < 0)
        return 0;
    if ((info.hdr.mesg.shared >> ATTR_MESSAGE & 1) != 0)
        return UINT64_MAX;
    uint64_t room = info.hdr.space.mesg;
    if ((info.hdr.mesg.present >> ATTR_MESSAGE & 1) == 0) {
        if (H5Oget_info2(object, &info, H5O_INFO_META_SIZE) < 0)
            return 0;
        return room + info.meta_size.attr.heap_size;
    }
    const uint64_t table =
        (info.hdr.mesg.present >> TABLE_MESSAGE & 1) * TABLE_BYTES;
    return room > table ? room - table : 1;
}

void kvr__walk_attrs(struct h5_walk *w, hid_t object)
{
    struct attr_walk attrs = {.w = w};
    hsize_t next = 0;

    kvr__child_step(w->child, "the attributes of an object", "");
    attrs.room = room_of(object);
    if (attrs.room == 0)
        kvr__walk_problem(w, TAG_ATTR_PROBLEM, "its header cannot be read");
    else if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &next, tell_attr,
                         &attrs) < 0)
        kvr__walk_problem(w, TAG_ATTR_PROBLEM,
                          "its attributes cannot be listed");
    kvr__walk_send(w, false);
}
