/* kvr_parallel.h -- the one place where threads are started.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_PARALLEL_H
#define KVR_PARALLEL_H

#include "kvr_error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Does item `item` in worker `worker` (0 <= worker < threads: an index for
 * scratch memory). A failing item fills err and returns its status. */
typedef enum kvr_status (*kvr_item_fn)(uint32_t item, uint32_t worker, void *ud,
                                       struct kvr_error *err);

/* Calls fn for the items 0..n-1. Items are independent: each writes only its
 * own place, so no result depends on the number of threads or on which worker
 * took it. threads 0 means one per online processor; 1 runs in the caller.
 * After a failure no further item is started; the failure of the lowest item
 * that failed is reported. */
enum kvr_status kvr_parallel_for(uint32_t n, uint32_t threads, kvr_item_fn fn,
                                 void *ud,
                                 struct kvr_error *err) KVR_MUST_CHECK;

/* Workers that kvr_parallel_for(n, threads) will use: size scratch by it. */
uint32_t kvr_parallel_workers(uint32_t n, uint32_t threads);

/* Online processors, at least 1. */
uint32_t kvr_processors(void);

#ifdef __cplusplus
}
#endif

#endif
