/* h5_dataset.c -- datasets that hold their own bytes, and nothing else.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_dataset.h"

#include "h5_chunks.h"

#include <string.h>

/* deflate's best: 258 bytes in 2 bits, so about 1032 to 1. */
enum { BEST_RATIO = 1100, SLACK = 4096 };

bool kvr__h5_extent(int *rank, hsize_t dims[8], hid_t set)
{
    const hid_t space = H5Dget_space(set);
    bool ok = false;

    memset(dims, 0, 8 * sizeof dims[0]);
    *rank = -1;
    if (space < 0)
        return false;
    if (H5Sget_simple_extent_type(space) == H5S_SIMPLE) {
        *rank = H5Sget_simple_extent_ndims(space);
        ok = *rank >= 0 && *rank <= 8 &&
             H5Sget_simple_extent_dims(space, dims, NULL) == *rank;
    }
    H5Sclose(space);
    return ok;
}

bool kvr__h5_plain_number(hid_t type)
{
    const H5T_class_t class_of = H5Tget_class(type);
    const size_t size = H5Tget_size(type), bits = 8 * size;
    size_t spos, epos, esize, mpos, msize;

    if (class_of != H5T_INTEGER && class_of != H5T_FLOAT)
        return true;
    if (size == 0 || size > 16 || H5Tget_offset(type) != 0 ||
        H5Tget_precision(type) != bits)
        return false;
    return class_of == H5T_INTEGER ||
           (H5Tget_fields(type, &spos, &epos, &esize, &mpos, &msize) >= 0 &&
            spos < bits && epos <= bits && esize <= bits - epos &&
            mpos <= bits && msize <= bits - mpos);
}

unsigned kvr__h5_float_size(hid_t type)
{
    size_t spos, epos, esize, mpos, msize;

    if (type < 0 || H5Tget_class(type) != H5T_FLOAT ||
        !kvr__h5_plain_number(type) ||
        H5Tget_fields(type, &spos, &epos, &esize, &mpos, &msize) < 0)
        return 0;
    const size_t size = H5Tget_size(type);
    const bool ieee = (size == 2 && esize == 5 && msize == 10) ||
                      (size == 4 && esize == 8 && msize == 23) ||
                      (size == 8 && esize == 11 && msize == 52);
    return ieee ? (unsigned)size : 0;
}

static enum kvr_status check_filters(const char *path, const char *where,
                                     hid_t plist, struct kvr_error *err)
{
    const int n = H5Pget_nfilters(plist);

    for (int i = 0; i < n; i++) {
        unsigned flags = 0, values[16] = {0}, config = 0;
        size_t n_value = 16;
        char name[64] = "";
        const H5Z_filter_t filter =
            H5Pget_filter2(plist, (unsigned)i, &flags, &n_value, values,
                           sizeof name, name, &config);
        if (filter < 0)
            return kvr__h5_fail(err, KVR_ERR_INPUT, path, where);
        if (kvr__h5_filter_is_known(filter) && H5Zfilter_avail(filter) > 0)
            continue;
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s: compressed with filter %d (%s), which is not "
                        "read; repack it with gzip: h5repack -f GZIP=4, or in "
                        "h5py compression='gzip'",
                        path, where, (int)filter,
                        name[0] != '\0' ? name : "no name");
    }
    return KVR_OK;
}

static enum kvr_status check_own_bytes(const char *path, const char *where,
                                       hid_t set, struct kvr_error *err)
{
    const hid_t plist = H5Dget_create_plist(set);
    enum kvr_status status = KVR_OK;
    char file[256] = "";

    if (plist < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, path, where);
    if (H5Pget_external_count(plist) > 0) {
        off_t offset;
        hsize_t size;
        H5Pget_external(plist, 0, sizeof file - 1, file, &offset, &size);
        status = kvr_fail(err, KVR_ERR_UNSUPPORTED,
                          "%s: %s: its bytes are in another file ('%s'): "
                          "external storage is not followed",
                          path, where, file);
    } else if (H5Pget_layout(plist) == H5D_VIRTUAL) {
        status = kvr_fail(err, KVR_ERR_UNSUPPORTED,
                          "%s: %s: a virtual dataset, which is not followed; "
                          "repack it",
                          path, where);
    } else {
        status = check_filters(path, where, plist, err);
    }
    H5Pclose(plist);
    return status;
}

enum kvr_status kvr__open_dataset(hid_t *out, const char *path, hid_t group,
                                  const char *name, const char *where,
                                  struct kvr_error *err)
{
    char full[256];

    *out = -1;
    snprintf(full, sizeof full, "%s/%s", where, name);
    const int there = kvr__h5_has_member(group, name);
    if (there == 0)
        return KVR_OK;
    if (there < 0)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s: a soft or external link, which is not "
                        "followed",
                        path, full);
    const hid_t set = H5Dopen2(group, name, H5P_DEFAULT);
    if (set < 0)
        return kvr__h5_fail(err, KVR_ERR_INPUT, path, full);
    const enum kvr_status status = check_own_bytes(path, full, set, err);
    if (status != KVR_OK) {
        H5Dclose(set);
        return status;
    }
    *out = set;
    return KVR_OK;
}

/* Data in one piece lie inside the file and are as long as declared: HDF5
 * 1.10 copies past its buffer where they are not. */
static bool piece_fits(hid_t set, uint64_t declared, uint64_t stored)
{
    const hid_t plist = H5Dget_create_plist(set);
    const hid_t file = H5Iget_file_id(set);
    hsize_t file_size = 0;
    bool fits = false;

    if (plist >= 0 && file >= 0 && H5Fget_filesize(file, &file_size) >= 0) {
        const H5D_layout_t layout = H5Pget_layout(plist);
        const haddr_t at =
            layout == H5D_CONTIGUOUS ? H5Dget_offset(set) : HADDR_UNDEF;
        if (layout == H5D_CHUNKED)
            fits = true;
        else if (layout == H5D_CONTIGUOUS && stored > 0)
            fits = stored == declared && at != HADDR_UNDEF && at <= file_size &&
                   stored <= file_size - at;
        else
            fits = stored == declared ||
                   (layout == H5D_CONTIGUOUS && at == HADDR_UNDEF);
    }
    if (plist >= 0)
        H5Pclose(plist);
    if (file >= 0)
        H5Fclose(file);
    return fits;
}

enum kvr_status kvr__h5_check_size(hid_t set, const char *path,
                                   const char *where, uint64_t limit,
                                   struct kvr_error *err)
{
    const hid_t type = H5Dget_type(set);
    const uint64_t item = type >= 0 ? H5Tget_size(type) : 0;
    const uint64_t stored = H5Dget_storage_size(set);
    const bool plain = type >= 0 && kvr__h5_plain_number(type);
    int rank;
    hsize_t dims[8];
    uint64_t declared = item;

    if (type >= 0)
        H5Tclose(type);
    if (!plain)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: numbers that do not fill their bytes", path,
                        where);
    if (!kvr__h5_extent(&rank, dims, set))
        return kvr__h5_fail(err, KVR_ERR_INPUT, path, where);
    for (int i = 0; i < rank; i++)
        if (!kvr_mul_u64(&declared, declared, dims[i]))
            return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: its size overflows",
                            path, where);
    const bool plausible =
        declared <= SLACK || (stored > 0 && declared / BEST_RATIO <= stored);
    if (declared > limit || !plausible || !piece_fits(set, declared, stored))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %s: declares %llu bytes and stores %llu", path,
                        where, (unsigned long long)declared,
                        (unsigned long long)stored);
    return KVR_OK;
}

enum kvr_status kvr__h5_check_stored(hid_t set, const char *path,
                                     const char *where, uint64_t limit,
                                     struct kvr_error *err)
{
    const enum kvr_status status =
        kvr__h5_check_size(set, path, where, limit, err);

    return status == KVR_OK ? kvr__h5_check_chunks(set, path, where, err)
                            : status;
}
