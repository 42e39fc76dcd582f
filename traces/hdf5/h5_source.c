/* h5_source.c -- HDF5's reads.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_source.h"

#include "kvr_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

/* What HDF5 holds: its own part must come first. */
struct read_driver {
    H5FD_t hdf5;
    struct h5_source *source;
    haddr_t end;
};

struct read_info { /* passed through the access list */
    struct h5_source *source;
};

static struct read_driver *driver_of(const H5FD_t *file)
{
    return (struct read_driver *)(uintptr_t)file;
}

static H5FD_t *source_open(const char *name, unsigned flags, hid_t access,
                           haddr_t most)
{
    const struct read_info *info = H5Pget_driver_info(access);
    struct read_driver *driver = kvr_calloc(1, sizeof *driver);

    (void)name;
    (void)most;
    if (driver == NULL || info == NULL || (flags & H5F_ACC_RDWR) != 0) {
        free(driver);
        return NULL;
    }
    driver->source = info->source;
    return &driver->hdf5;
}

static herr_t source_close(H5FD_t *file)
{
    free(driver_of(file));
    return 0;
}

static herr_t source_query(const H5FD_t *file, unsigned long *flags)
{
    (void)file;
    *flags = 0;
    return 0;
}

static haddr_t source_get_end(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return driver_of(file)->end;
}

static herr_t source_set_end(H5FD_t *file, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    driver_of(file)->end = end;
    return 0;
}

static haddr_t source_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return driver_of(file)->source->size;
}

static herr_t source_read(H5FD_t *file, H5FD_mem_t type, hid_t transfer,
                          haddr_t at, size_t size, void *out)
{
    struct h5_source *source = driver_of(file)->source;
    size_t done = 0;

    (void)transfer;
    if (source->noting && type == H5FD_MEM_DRAW) {
        source->at = at;
        source->n = size;
        return 0;
    }
    if (at > source->size || size > source->size - at)
        return -1;
    while (done < size) {
        const ssize_t n = pread(source->fd, (uint8_t *)out + done, size - done,
                                (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && source->error == 0)
            source->error = errno;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

static herr_t source_write(H5FD_t *file, H5FD_mem_t type, hid_t transfer,
                           haddr_t at, size_t size, const void *data)
{
    (void)file;
    (void)type;
    (void)transfer;
    (void)at;
    (void)size;
    (void)data;
    return -1;
}

static const H5FD_class_t source_class = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)510,
#endif
    .name = "kvreplay-source",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(struct read_info),
    .open = source_open,
    .close = source_close,
    .query = source_query,
    .get_eoa = source_get_end,
    .set_eoa = source_set_end,
    .get_eof = source_get_eof,
    .read = source_read,
    .write = source_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

hid_t kvr__source_open(struct h5_source *source, const char *path)
{
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    const hid_t driver = H5FDregister(&source_class);
    const struct read_info info = {.source = source};
    hid_t file = -1;

    if (access >= 0 && driver >= 0 &&
        H5Pset_driver(access, driver, &info) >= 0 &&
        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0)
        file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (access >= 0)
        H5Pclose(access);
    return file;
}
