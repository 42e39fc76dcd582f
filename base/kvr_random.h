/* kvr_random.h -- counter-based random numbers: Philox4x32-10 (Salmon et al.,
 * SC 2011, doi 10.1145/2063384.2063405), through Random123.
 *
 * A stream is keyed by what it is for; a draw by where it is used. So no
 * result depends on the order in which draws are made.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_RANDOM_H
#define KVR_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kvr_purpose {
    KVR_RANDOM_POLICY = 1, /* a policy's own choices */
    KVR_RANDOM_TIES,       /* --ties random */
    KVR_RANDOM_SAMPLING,   /* capture --temp */
    KVR_RANDOM_SYNTH,      /* trace synth */
    KVR_RANDOM_BOOTSTRAP,  /* intervals, p-values */
    KVR_RANDOM_TEST,
};

/* Key (seed, purpose, layer, head); plain data. */
struct kvr_random {
    uint64_t seed;
    uint32_t purpose, layer, head;
};

/* 4 x 32 bits for counter (step, replicate, index). */
void kvr_random_bits(uint32_t out[4], const struct kvr_random *stream,
                     uint32_t step, uint32_t replicate, uint32_t index);

/* Uniform in [0, 1), 53 bits. */
double kvr_random_real(const struct kvr_random *stream, uint32_t step,
                       uint32_t replicate, uint32_t index);

/* Uniform in 0..n-1 without bias worth naming (64-bit multiply); n > 0. */
uint32_t kvr_random_below(const struct kvr_random *stream, uint32_t step,
                          uint32_t replicate, uint32_t index, uint32_t n);

#ifdef __cplusplus
}
#endif

#endif
