/* h5_chunks.h -- chunks that come out of their filters whole.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_CHUNKS_H
#define H5_CHUNKS_H

#include "h5.h"

/* Refuses a chunked dataset with a chunk that is longer or shorter than its
 * place, stored or inflated: HDF5 1.10 takes its word and reads past the
 * buffer. Every chunk is read and inflated for that. Others pass. */
enum kvr_status kvr__h5_check_chunks(hid_t set, const char *path,
                                     const char *where, struct kvr_error *err);

/* Filters whose output can be checked: shuffle, deflate, fletcher32. */
bool kvr__h5_filter_is_known(H5Z_filter_t filter);

#endif
