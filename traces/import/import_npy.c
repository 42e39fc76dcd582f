/* import_npy.c -- NumPy's .npy: one array with its shape in a line of text.
 *
 * Format: numpy.lib.format, versions 1 to 3.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import.h"
#include "import_npy.h"

#include "kvr_file.h"
#include "kvr_half.h"
#include "kvr_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 1 << 16 };

static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

struct npy {
    int fd;
    uint64_t size;  /* of the file */
    uint64_t start; /* of the data */
    struct npy_header is;
    uint64_t stride[NPY_MAX_RANK]; /* bytes */
    struct view view;
    uint8_t *row;   /* one row as stored */
    uint8_t *whole; /* the file, where a row is not in one piece */
};

static void close_npy(struct dump *dump)
{
    struct npy *npy = dump->own;

    if (npy == NULL)
        return;
    if (npy->fd >= 0)
        close(npy->fd);
    free(npy->row);
    free(npy->whole);
    free(npy);
    dump->own = NULL;
}

static enum kvr_status read_header(struct npy *npy, const char *path,
                                   struct kvr_error *err)
{
    uint8_t lead[12] = {0};
    const size_t n = npy->size < sizeof lead ? (size_t)npy->size : sizeof lead;

    if (n == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: empty file", path);
    if (!kvr_read_at(npy->fd, lead, n, 0))
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be read: %s", path,
                        strerror(errno));
    if (n < 10 || memcmp(lead, magic, sizeof magic) != 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: not a .npy file", path);
    if (lead[6] < 1 || lead[6] > 3)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: .npy version %u.%u: 1 to 3 are read", path,
                        lead[6], lead[7]);
    const bool wide = lead[6] > 1;
    const uint64_t begin = wide ? 12 : 10;
    const uint64_t size =
        lead[8] | (uint64_t)lead[9] << 8 |
        (wide ? (uint64_t)lead[10] << 16 | (uint64_t)lead[11] << 24 : 0);
    if (size > MAX_HEADER || begin + size > npy->size)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: truncated: a header of %llu bytes in a file of "
                        "%llu",
                        path, (unsigned long long)size,
                        (unsigned long long)npy->size);
    char *header = kvr_calloc(size + 1, 1);
    if (header == NULL)
        return kvr_no_memory(err, "a header", size);
    enum kvr_status status = KVR_OK;
    if (!kvr_read_at(npy->fd, header, size, begin))
        status = kvr_fail(err, KVR_ERR_IO, "%s: cannot be read", path);
    else if (strlen(header) != size)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: header: a zero byte at %zu of %llu", path,
                          strlen(header), (unsigned long long)size);
    else
        status = kvr__npy_header(&npy->is, header, path, err);
    free(header);
    npy->start = begin + size;
    return status;
}

/* np.save into an open file appends: what stands behind is not left out. */
static enum kvr_status refuse_tail(const struct npy *npy, const char *path,
                                   uint64_t end, struct kvr_error *err)
{
    uint8_t next[sizeof magic];
    const uint64_t behind = npy->size - end;
    const bool again = behind >= sizeof next &&
                       kvr_read_at(npy->fd, next, sizeof next, end) &&
                       memcmp(next, magic, sizeof next) == 0;

    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: the array ends at byte %llu, the file at %llu: %llu "
                    "bytes behind it%s",
                    path, (unsigned long long)end,
                    (unsigned long long)npy->size, (unsigned long long)behind,
                    again ? ", where another array begins (one file holds one "
                            "array: stack them, or save each alone)"
                          : "");
}

static enum kvr_status check_size(struct npy *npy, const char *path,
                                  struct kvr_error *err)
{
    uint64_t bytes = npy->is.item;

    for (int i = 0; i < npy->is.rank; i++) {
        const int axis = npy->is.fortran ? i : npy->is.rank - 1 - i;
        npy->stride[axis] = bytes;
        if (!kvr_mul_u64(&bytes, bytes, npy->is.dims[axis]))
            return kvr_fail(err, KVR_ERR_INPUT, "%s: its size overflows", path);
    }
    if (bytes > npy->size - npy->start)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: truncated: the header says %llu bytes of data, "
                        "the file has %llu",
                        path, (unsigned long long)bytes,
                        (unsigned long long)(npy->size - npy->start));
    if (bytes < npy->size - npy->start)
        return refuse_tail(npy, path, npy->start + bytes, err);
    return KVR_OK;
}

static double value_at(const struct npy *npy, const uint8_t *at)
{
    uint8_t bytes[8] = {0};
    double wide;
    float single;
    uint16_t half;

    for (unsigned i = 0; i < npy->is.item; i++)
        bytes[i] = at[npy->is.swapped ? npy->is.item - 1 - i : i];
    if (npy->is.item == 2) {
        memcpy(&half, bytes, sizeof half);
        return (double)kvr_f16_to_f32(half);
    }
    if (npy->is.item == 4) {
        memcpy(&single, bytes, sizeof single);
        return (double)single;
    }
    memcpy(&wide, bytes, sizeof wide);
    return wide;
}

static uint64_t offset_of(const struct npy *npy, enum axis axis, uint64_t i)
{
    const int at = npy->view.at[axis];

    return at >= 0 ? i * npy->stride[at] : 0;
}

static enum kvr_status read_npy(struct dump *dump, uint32_t layer,
                                uint32_t head, uint32_t first, uint32_t n,
                                double *out, struct kvr_error *err)
{
    struct npy *npy = dump->own;
    const uint64_t base = npy->start + offset_of(npy, AXIS_B, npy->view.batch) +
                          offset_of(npy, AXIS_L, layer) +
                          offset_of(npy, AXIS_H, head);
    const size_t step = npy->stride[npy->view.at[AXIS_K]];

    for (uint32_t r = 0; r < n; r++) {
        const uint64_t at = base + offset_of(npy, AXIS_Q, first + r);
        const uint8_t *from = npy->row;
        if (npy->whole != NULL)
            from = npy->whole + at;
        else if (!kvr_read_at(npy->fd, npy->row,
                              (size_t)dump->n_row * npy->is.item, at))
            return kvr_fail(
                err, KVR_ERR_IO, "%s: cannot be read: %s", dump->path,
                errno != 0 ? strerror(errno) : "the file ends before");
        for (uint32_t key = 0; key < dump->n_row; key++)
            out[(size_t)r * dump->n_row + key] =
                value_at(npy, from + key * step);
    }
    return KVR_OK;
}

/* A row in one piece is read alone; otherwise the whole file is held. */
static enum kvr_status prepare_rows(struct dump *dump, struct npy *npy,
                                    struct kvr_error *err)
{
    size_t size;

    if (npy->stride[npy->view.at[AXIS_K]] == npy->is.item) {
        npy->row = kvr_calloc(dump->n_row, npy->is.item);
        return npy->row != NULL ? KVR_OK
                                : kvr_no_memory(err, "a row", dump->n_row);
    }
    enum kvr_status status =
        kvr_file_read(&npy->whole, &size, dump->path, SIZE_MAX / 2, err);
    if (status == KVR_OK && size < npy->size)
        status = kvr_fail(err, KVR_ERR_IO, "%s: the file shrank", dump->path);
    return status;
}

static enum kvr_status open_npy(struct dump *dump, struct npy *npy,
                                const struct kvr_import_options *options,
                                struct kvr_error *err)
{
    struct stat st;

    npy->fd = open(dump->path, O_RDONLY | O_CLOEXEC);
    if (npy->fd < 0 || fstat(npy->fd, &st) != 0)
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be opened: %s", dump->path,
                        strerror(errno));
    npy->size = (uint64_t)st.st_size;
    enum kvr_status status = read_header(npy, dump->path, err);
    if (status == KVR_OK)
        status = check_size(npy, dump->path, err);
    if (status == KVR_OK)
        status = kvr__view(&npy->view, npy->is.rank, npy->is.dims, options,
                           dump->path, err);
    if (status != KVR_OK)
        return status;
    const uint64_t *extent = npy->view.extent;
    if (extent[AXIS_Q] != extent[AXIS_K] || extent[AXIS_Q] > UINT32_MAX ||
        extent[AXIS_H] > UINT32_MAX || extent[AXIS_L] > UINT32_MAX)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %llu rows of %llu keys: expected as many keys as "
                        "rows (are the axes in another order?)",
                        dump->path, (unsigned long long)extent[AXIS_Q],
                        (unsigned long long)extent[AXIS_K]);
    dump->n_layer = (uint32_t)extent[AXIS_L];
    dump->n_head = (uint32_t)extent[AXIS_H];
    dump->n_row = (uint32_t)extent[AXIS_Q];
    dump->item = npy->is.item;
    return prepare_rows(dump, npy, err);
}

enum kvr_status kvr__dump_open_npy(struct dump *dump,
                                   const struct kvr_import_options *options,
                                   struct kvr_error *err)
{
    if (options->dataset != NULL)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: --dataset names one of an HDF5 file; this is one "
                        "array",
                        dump->path);
    struct npy *npy = kvr_calloc(1, sizeof *npy);

    if (npy == NULL)
        return kvr_no_memory(err, "an array", sizeof *npy);
    npy->fd = -1;
    dump->own = npy;
    dump->read = read_npy;
    dump->close = close_npy;
    return open_npy(dump, npy, options, err);
}
