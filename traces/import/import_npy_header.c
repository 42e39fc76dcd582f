/* import_npy_header.c -- the header of a .npy, a Python literal.
 *
 * Writers other than NumPy put blanks, quotes and commas elsewhere, and NumPy
 * of Python 2 wrote 12L: all of them are read by NumPy, so they are read here.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_npy.h"

#include "kvr_memory.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4 };

struct literal {
    const char *at;
    const char *path;
    struct kvr_error *err;
};

static const char *skip(struct literal *in)
{
    while (*in->at != '\0' && strchr(" \t\r\n\f", *in->at) != NULL)
        in->at++;
    return in->at;
}

static bool take(struct literal *in, char c)
{
    if (*skip(in) != c)
        return false;
    in->at++;
    return true;
}

/* What stands at `in`, for people: printable, and not too long. */
static const char *found(char out[40], const struct literal *in)
{
    size_t n = 0;

    while (n < 30 && in->at[n] != '\0' && in->at[n] != '\n') {
        out[n] = isprint((unsigned char)in->at[n]) ? in->at[n] : '?';
        n++;
    }
    out[n] = '\0';
    return n > 0 ? out : "its end";
}

static enum kvr_status expected(struct literal *in, const char *what)
{
    char text[40];

    skip(in);
    return kvr_fail(in->err, KVR_ERR_INPUT, "%s: header: expected %s, found %s",
                    in->path, what, found(text, in));
}

static enum kvr_status take_string(char *out, size_t room, struct literal *in,
                                   const char *what)
{
    const struct literal start = *in;
    char quote;
    size_t n = 0;

    if (*skip(in) == 'u')
        in->at++;
    quote = *in->at;
    if (quote != '\'' && quote != '"') {
        *in = start;
        return expected(in, what);
    }
    for (in->at++; *in->at != '\0' && *in->at != quote; in->at++)
        if (*in->at == '\\' || n + 1 == room) {
            *in = start;
            return expected(in, what);
        } else {
            out[n++] = *in->at;
        }
    if (*in->at != quote)
        return expected(in, "a closing quote");
    in->at++;
    out[n] = '\0';
    return KVR_OK;
}

/* Byte order and float: '<f4', 'f4', '|f4', 'float32'. */
static enum kvr_status take_type(struct npy_header *header, struct literal *in)
{
    static const struct {
        const char *name;
        unsigned item;
    } types[] = {{"f2", 2},     {"f4", 4},      {"f8", 8},      {"e", 2},
                 {"f", 4},      {"d", 8},       {"half", 2},    {"single", 4},
                 {"double", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8}};
    char type[32];

    const enum kvr_status status =
        take_string(type, sizeof type, in, "a simple dtype: f2, f4 or f8");
    if (status != KVR_OK)
        return status;
    const bool ordered = type[0] != '\0' && strchr("<>=|", type[0]) != NULL;
    header->swapped = type[0] == '>';
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type + ordered, types[i].name) == 0) {
            header->item = types[i].item;
            return KVR_OK;
        }
    return kvr_fail(in->err, KVR_ERR_UNSUPPORTED,
                    "%s: dtype '%s': expected f2, f4 or f8%s", in->path, type,
                    strcmp(type + ordered, "V2") == 0
                        ? " (bfloat16? save it as float32)"
                        : "");
}

static enum kvr_status take_order(struct npy_header *header, struct literal *in)
{
    skip(in);
    header->fortran = strncmp(in->at, "True", 4) == 0;
    if (!header->fortran && strncmp(in->at, "False", 5) != 0)
        return expected(in, "True or False for fortran_order");
    in->at += header->fortran ? 4 : 5;
    return KVR_OK;
}

static enum kvr_status take_number(uint64_t *value, struct literal *in)
{
    const struct literal start = *in;

    if (!isdigit((unsigned char)*skip(in)))
        return expected(in, "a number or ) in the shape");
    for (*value = 0; isdigit((unsigned char)*in->at); in->at++)
        if (!kvr_mul_u64(value, *value, 10) ||
            !kvr_add_u64(value, *value, (uint64_t)(*in->at - '0'))) {
            *in = start;
            return expected(in, "a length below 2^64 in the shape");
        }
    if (*in->at == 'L')
        in->at++;
    return KVR_OK;
}

static enum kvr_status take_shape(struct npy_header *header, struct literal *in)
{
    const struct literal start = *in;
    bool more = true;

    header->rank = 0;
    if (!take(in, '('))
        return expected(in, "a shape such as (4, 12, 12)");
    while (!take(in, ')')) {
        uint64_t value = 0;
        if (!more)
            return expected(in, ", or ) in the shape");
        const enum kvr_status status = take_number(&value, in);
        if (status != KVR_OK)
            return status;
        if (header->rank == NPY_MAX_RANK) {
            *in = start;
            return expected(in, "a shape of 2 to 5 axes");
        }
        header->dims[header->rank++] = value;
        more = take(in, ',');
    }
    if (header->rank == 1 && !more) { /* (12) is a number in Python */
        *in = start;
        return expected(in, "a shape such as (4, 12, 12)");
    }
    return KVR_OK;
}

static enum kvr_status take_entry(struct npy_header *header, unsigned *seen,
                                  struct literal *in)
{
    static const char what[] = "'descr', 'fortran_order' or 'shape'";
    const struct literal start = *in;
    char key[32];

    const enum kvr_status status = take_string(key, sizeof key, in, what);
    if (status != KVR_OK)
        return status;
    const unsigned is = strcmp(key, "descr") == 0           ? HAS_DESCR
                        : strcmp(key, "fortran_order") == 0 ? HAS_ORDER
                        : strcmp(key, "shape") == 0         ? HAS_SHAPE
                                                            : 0;
    if (is == 0 || (*seen & is) != 0) {
        *in = start;
        return expected(in, is == 0 ? what : "each key once");
    }
    *seen |= is;
    if (!take(in, ':'))
        return expected(in, "a colon behind a key");
    if (is == HAS_DESCR)
        return take_type(header, in);
    return is == HAS_ORDER ? take_order(header, in) : take_shape(header, in);
}

enum kvr_status kvr__npy_header(struct npy_header *header, const char *text,
                                const char *path, struct kvr_error *err)
{
    struct literal in = {.at = text, .path = path, .err = err};
    unsigned seen = 0;
    bool more = true;

    *header = (struct npy_header){0};
    if (!take(&in, '{'))
        return expected(&in, "a dictionary {'descr': ..}");
    while (!take(&in, '}')) {
        if (!more)
            return expected(&in, ", or } behind a value");
        const enum kvr_status status = take_entry(header, &seen, &in);
        if (status != KVR_OK)
            return status;
        more = take(&in, ',');
    }
    if (*skip(&in) != '\0')
        return expected(&in, "nothing behind }");
    if (seen != (HAS_DESCR | HAS_ORDER | HAS_SHAPE))
        return kvr_fail(err, KVR_ERR_INPUT, "%s: header: %s is missing", path,
                        (seen & HAS_DESCR) == 0   ? "'descr'"
                        : (seen & HAS_ORDER) == 0 ? "'fortran_order'"
                                                  : "'shape'");
    return KVR_OK;
}
