/* h5_sink.c -- HDF5's writes, with the failures kept from it.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_sink.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

/* What HDF5 holds: its own part must come first. */
struct driver {
    H5FD_t hdf5;
    struct h5_sink *sink;
    haddr_t end, end_of_file;
};

struct driver_info { /* passed through the access list */
    struct h5_sink *sink;
};

static struct driver *driver_of(const H5FD_t *file)
{
    return (struct driver *)(uintptr_t)file;
}

static H5FD_t *sink_open(const char *name, unsigned flags, hid_t access,
                         haddr_t most)
{
    const struct driver_info *info = H5Pget_driver_info(access);
    struct driver *driver = kvr_calloc(1, sizeof *driver);

    (void)name;
    (void)flags;
    (void)most;
    if (driver == NULL || info == NULL) {
        free(driver);
        return NULL;
    }
    driver->sink = info->sink;
    return &driver->hdf5;
}

static herr_t sink_close(H5FD_t *file)
{
    free(driver_of(file));
    return 0;
}

/* The same features as HDF5's own driver for files, so that the layout is the
 * same too. */
static herr_t sink_query(const H5FD_t *file, unsigned long *flags)
{
    (void)file;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
             H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t sink_get_end(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return driver_of(file)->end;
}

static herr_t sink_set_end(H5FD_t *file, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    driver_of(file)->end = end;
    return 0;
}

static haddr_t sink_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return driver_of(file)->end_of_file;
}

/* Bytes that never reached the disk read as zeros: after a failure only
 * closing follows. */
static herr_t sink_read(H5FD_t *file, H5FD_mem_t type, hid_t transfer,
                        haddr_t at, size_t size, void *out)
{
    struct h5_sink *sink = driver_of(file)->sink;
    size_t done = 0;

    (void)type;
    (void)transfer;
    while (done < size) {
        const ssize_t n = pread(sink->fd, (uint8_t *)out + done, size - done,
                                (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && sink->error == 0)
            sink->error = errno;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    memset((uint8_t *)out + done, 0, size - done);
    return 0;
}

static herr_t sink_write(H5FD_t *file, H5FD_mem_t type, hid_t transfer,
                         haddr_t at, size_t size, const void *data)
{
    struct driver *driver = driver_of(file);
    struct h5_sink *sink = driver->sink;
    size_t done = 0;

    (void)type;
    (void)transfer;
    while (done < size && sink->error == 0) {
        const ssize_t n = pwrite(sink->fd, (const uint8_t *)data + done,
                                 size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            sink->error = errno;
            break;
        }
        done += (size_t)n;
        sink->written += (uint64_t)n;
    }
    if (at + size > driver->end_of_file)
        driver->end_of_file = at + size;
    return 0;
}

/* HDF5 asks for the size that it allocated: the file must have it. */
static herr_t sink_truncate(H5FD_t *file, hid_t transfer, hbool_t closing)
{
    struct driver *driver = driver_of(file);

    (void)transfer;
    (void)closing;
    if (driver->sink->error == 0 &&
        ftruncate(driver->sink->fd, (off_t)driver->end) != 0)
        driver->sink->error = errno;
    driver->end_of_file = driver->end;
    return 0;
}

static const H5FD_class_t sink_class = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)511,
#endif
    .name = "kvreplay-sink",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(struct driver_info),
    .open = sink_open,
    .close = sink_close,
    .query = sink_query,
    .get_eoa = sink_get_end,
    .set_eoa = sink_set_end,
    .get_eof = sink_get_eof,
    .read = sink_read,
    .write = sink_write,
    .truncate = sink_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

static hid_t create(struct h5_sink *sink, hid_t driver)
{
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    const hid_t plist = H5Pcreate(H5P_FILE_CREATE);
    const struct driver_info info = {.sink = sink};
    hid_t file = -1;

    if (access >= 0 && plist >= 0 &&
        H5Pset_driver(access, driver, &info) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18) >=
            0 &&
        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
        H5Pset_obj_track_times(plist, 0) >= 0)
        file = H5Fcreate(sink->path, H5F_ACC_TRUNC, plist, access);
    if (access >= 0)
        H5Pclose(access);
    if (plist >= 0)
        H5Pclose(plist);
    return file;
}

enum kvr_status kvr__sink_create(struct h5_sink *sink, hid_t *file,
                                 const char *path, struct kvr_error *err)
{
    kvr__h5_quiet();
    *sink = (struct h5_sink){.path = path};
    sink->fd = kvr_create_temporary(path);
    if (sink->fd < 0)
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be created: %s", path,
                        strerror(errno));
    sink->driver = H5FDregister(&sink_class);
    *file = sink->driver >= 0 ? create(sink, sink->driver) : -1;
    if (*file >= 0)
        return KVR_OK;
    if (sink->driver >= 0)
        H5FDunregister(sink->driver);
    close(sink->fd);
    return kvr__h5_fail(err, KVR_ERR_IO, path, "cannot be created");
}

enum kvr_status kvr__sink_state(const struct h5_sink *sink,
                                struct kvr_error *err)
{
    if (sink->error == 0)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_IO,
                    "%s: write failed: %s (%llu bytes written)", sink->path,
                    strerror(sink->error), (unsigned long long)sink->written);
}

enum kvr_status kvr__sink_close(struct h5_sink *sink, hid_t file,
                                struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    if (H5Fclose(file) < 0)
        status = kvr__h5_fail(err, KVR_ERR_IO, sink->path, "cannot be written");
    /* Not before: H5Fclose drops its reference, then still calls the class. */
    H5FDunregister(sink->driver);
    H5Eclear2(H5E_DEFAULT);
    if (status == KVR_OK && sink->error == 0 && fsync(sink->fd) != 0 &&
        errno != EINVAL)
        sink->error = errno;
    if (close(sink->fd) != 0 && sink->error == 0)
        sink->error = errno;
    return status == KVR_OK ? kvr__sink_state(sink, err) : status;
}
