/* h5_vlen.h -- is it safe to let HDF5 read this attribute?
 *
 * HDF5 1.10 trusts the place that a variable-length string names in its
 * global heap: an index that is not there makes it read wild memory.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_VLEN_H
#define H5_VLEN_H

#include "h5.h"

/* False: the attribute's heap place was looked up in the file's bytes and is
 * not there, or not as long as it says. True: it is, or the object's header
 * is of a kind that is not looked into. */
bool kvr__h5_vlen_safe(hid_t object, const char *name);

/* False: an attribute of the object says that it is longer than its message,
 * which HDF5 1.10 would read past. To be asked before any attribute is. */
bool kvr__h5_attributes_whole(hid_t object);

#endif
