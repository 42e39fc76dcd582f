/* h5_tree.h -- do the names in a file's groups end?
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_TREE_H
#define H5_TREE_H

#include "h5.h"

/* False: below the root a name does not end within its heap, which HDF5 1.10
 * would read past, or there are more than 4 million objects. To be asked once,
 * before anything is looked for. */
bool kvr__h5_tree_whole(hid_t file);

#endif
