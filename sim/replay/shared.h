/* shared.h -- layers that read another layer's cache, as one layer.
 *
 * Such a layer's query heads attend to the cache of its source, so they have a
 * say in what is evicted there, and lose by it: its heads are added to the
 * groups of the source's KV heads, and the layer itself has no cache left.
 * Private to sim.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SHARED_H
#define SHARED_H

#include "kvr_trace.h"

/* Where a head of a merged layer is stored. */
struct place {
    uint32_t layer, head;
};

struct shared {
    uint32_t n_layer;               /* layers with a cache of their own */
    struct kvr_layer_shape *layers; /* [n_layer] */
    struct place **place;           /* [n_layer][n_head of the layer] */
    uint32_t **number;              /* [n_layer][n_head]: head_index */
};

/* KVR_ERR_INPUT: a source that is not stored, or other KV heads than its
 * reader's. Call shared_fini also after a failure. */
enum kvr_status kvr__shared_init(struct shared *out,
                                 const struct kvr_trace_shape *shape,
                                 struct kvr_error *err) KVR_MUST_CHECK;
void kvr__shared_fini(struct shared *shared);

#endif
