/* import_npy.h -- what the header of a .npy says.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef IMPORT_NPY_H
#define IMPORT_NPY_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stdint.h>

enum { NPY_MAX_RANK = 5 };

struct npy_header {
    unsigned item; /* bytes of a float: 2, 4, 8 */
    bool swapped;  /* big-endian */
    bool fortran;
    int rank;
    uint64_t dims[NPY_MAX_RANK];
};

/* The Python literal {'descr': .., 'fortran_order': .., 'shape': ..}, as NumPy
 * reads it: blanks anywhere, both quotes, numbers of Python 2 (12L). `text`
 * ends in a zero byte. KVR_ERR_UNSUPPORTED: another type than a float. */
enum kvr_status kvr__npy_header(struct npy_header *header, const char *text,
                                const char *path,
                                struct kvr_error *err) KVR_MUST_CHECK;

#endif
