/* h5_filters.h -- a chunk out of its filters.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_FILTERS_H
#define H5_FILTERS_H

#include "h5_data.h"

/* Buffers of the codec; FILTER_STORED is the caller's. */
enum { FILTER_STORED, FILTER_ONE, FILTER_OTHER };

/* `size` stored bytes through the set's filters from the last to the first.
 * KVR_ERR_INPUT: they do not give exactly `bytes`, or a checksum is wrong; or
 * KVR_ERR_MEMORY. */
enum kvr_status kvr__h5_unfilter(uint8_t *out, uint64_t bytes,
                                 const struct h5_set *set, uint64_t skipped,
                                 const uint8_t *stored, uint64_t size,
                                 struct codec *codec);

#endif
