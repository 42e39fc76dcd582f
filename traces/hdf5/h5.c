/* h5.c -- HDF5 with its voice off.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kvr__h5_quiet(void)
{
    H5open();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

struct reason {
    int system; /* errno, 0: none */
    char text[H5_REASON_TEXT];
};

static herr_t find_reason(unsigned n, const H5E_error2_t *error, void *ud)
{
    struct reason *reason = ud;
    const char *desc = error->desc != NULL ? error->desc : "";
    const char *code = strstr(desc, "errno = ");

    (void)n;
    if (code != NULL && reason->system == 0)
        reason->system = (int)strtol(code + 8, NULL, 10);
    if (reason->text[0] == '\0' && desc[0] != '\0')
        snprintf(reason->text, sizeof reason->text, "%s", desc);
    return 0;
}

int kvr__h5_reason(char text[H5_REASON_TEXT])
{
    struct reason reason = {0};

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, find_reason, &reason);
    H5Eclear2(H5E_DEFAULT);
    snprintf(text, H5_REASON_TEXT, "%s",
             reason.system != 0 ? strerror(reason.system) : reason.text);
    return reason.system;
}

enum kvr_status kvr__h5_fail(struct kvr_error *err, enum kvr_status status,
                             const char *path, const char *what)
{
    char text[H5_REASON_TEXT];

    if (kvr__h5_reason(text) != 0)
        status = KVR_ERR_IO;
    return kvr_fail(err, status, "%s: %s%s%s", path, what,
                    text[0] != '\0' ? ": " : "", text);
}

static bool put_attr(hid_t object, const char *name, hid_t file_type,
                     hid_t memory_type, unsigned n, const void *value)
{
    const hsize_t dims[1] = {n};
    const hid_t space =
        n == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, dims, NULL);

    if (space < 0)
        return false;
    const hid_t attr =
        H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool ok = attr >= 0 && H5Awrite(attr, memory_type, value) >= 0;
    if (attr >= 0)
        H5Aclose(attr);
    H5Sclose(space);
    return ok;
}

bool kvr__h5_put_u32(hid_t object, const char *name, const uint32_t *value,
                     unsigned n)
{
    return put_attr(object, name, H5T_STD_U32LE, H5T_NATIVE_UINT32, n, value);
}

bool kvr__h5_put_i32(hid_t object, const char *name, int32_t value)
{
    return put_attr(object, name, H5T_STD_I32LE, H5T_NATIVE_INT32, 1, &value);
}

bool kvr__h5_put_real(hid_t object, const char *name, double value)
{
    return put_attr(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &value);
}

bool kvr__h5_put_text(hid_t object, const char *name, const char *text)
{
    const hid_t type = H5Tcopy(H5T_C_S1);

    if (type < 0)
        return false;
    const bool ok = H5Tset_size(type, H5T_VARIABLE) >= 0 &&
                    H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
                    put_attr(object, name, type, type, 1, &text);
    H5Tclose(type);
    return ok;
}

bool kvr__h5_put_data(hid_t group, const char *name, hid_t file_type,
                      hid_t memory_type, int rank, const hsize_t *dims,
                      const void *data)
{
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    const hid_t space = H5Screate_simple(rank, dims, NULL);
    bool ok = false;

    if (plist >= 0 && space >= 0 && H5Pset_obj_track_times(plist, 0) >= 0) {
        const hid_t set = H5Dcreate2(group, name, file_type, space, H5P_DEFAULT,
                                     plist, H5P_DEFAULT);
        ok = set >= 0 && (H5Sget_simple_extent_npoints(space) == 0 ||
                          H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL,
                                   H5P_DEFAULT, data) >= 0);
        if (set >= 0)
            ok = H5Dclose(set) >= 0 && ok;
    }
    if (plist >= 0)
        H5Pclose(plist);
    if (space >= 0)
        H5Sclose(space);
    return ok;
}

hid_t kvr__h5_f16(void)
{
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);

    if (type >= 0 && H5Tset_fields(type, 15, 10, 5, 0, 10) >= 0 &&
        H5Tset_size(type, 2) >= 0 && H5Tset_ebias(type, 15) >= 0)
        return type;
    if (type >= 0)
        H5Tclose(type);
    return -1;
}

hid_t kvr__h5_new_group(hid_t parent, const char *name)
{
    const hid_t plist = H5Pcreate(H5P_GROUP_CREATE);

    if (plist < 0)
        return -1;
    hid_t group = -1;
    if (H5Pset_obj_track_times(plist, 0) >= 0)
        group = H5Gcreate2(parent, name, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Pclose(plist);
    return group;
}
