/* kvr_synth.h -- traces made from a formula and a seed.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_SYNTH_H
#define KVR_SYNTH_H

#include "kvr_error.h"
#include "kvr_trace.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct kvr_synth_options {
    uint32_t n_token, n_layer, n_head, n_kv_head;
    uint32_t prompt_len; /* 1..n_token */
    uint64_t seed;
    enum kvr_dtype dtype;
    uint32_t round_bits; /* as in struct kvr_trace_shape */
    uint32_t threads;    /* 0: all processors; the bytes do not depend on it */
    uint64_t memory;     /* most bytes to take (KVR_ERR_LIMIT); 0: no limit */
    bool force;
    const char *writer, *created, *options; /* provenance; NULL: none */
};

/* Kind "zipf": heavy hitters, recency, a sink and changing topics; the
 * formula stands in synth.c and uses only operations that IEEE 754 rounds
 * exactly, so the same seed gives the same bytes everywhere. */
enum kvr_status kvr_synth_zipf(const char *to,
                               const struct kvr_synth_options *options,
                               struct kvr_error *err) KVR_MUST_CHECK;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
