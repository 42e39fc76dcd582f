/* kernels.h -- the reductions of a replay step, one set per instruction set.
 *
 * Private to sim. All sets give the same bits: sums are exact or run over 32
 * fixed lanes (lane = position mod 32), a minimum has the same value in any
 * order.
 * Lengths are multiples of 64, arrays are 64-byte aligned.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KERNELS_H
#define KERNELS_H

#include "kvr_isa.h"
#include "kvr_policy.h"

#include <stddef.h>
#include <stdint.h>

/* What is found at the bottom of a ranking. */
struct lowest {
    kvr_real low;    /* +inf: no candidate is finite */
    uint32_t oldest; /* of those that are lowest */
    uint32_t n;      /* how many are */
};

enum { KVR_CUTS = 4 }; /* thresholds that one pass over a row serves */

/* Counts over sets of positions. */
struct overlap {
    uint32_t over;     /* positions above the B-th weight */
    uint32_t ties;     /* residents that equal it */
    uint32_t at_least; /* residents that reach it */
    uint32_t accessed; /* residents that the row accessed */
};

struct kernels {
    /* out[h] = sum of row[h][i] * scale over residents: whole units, and
     * exact, in the float build; a plain double sum in the double build. bits:
     * the residents as a set; words without any are skipped. */
    void (*mass)(double *out, const int32_t *resident, const uint64_t *bits,
                 const kvr_real *const *row, uint32_t n_row, kvr_real scale,
                 uint32_t n);
    /* Sum of row[i] in kvr_real, over 32 lanes (lane = position mod 32). */
    kvr_real (*sum)(const int32_t *resident, const uint64_t *bits,
                    const kvr_real *row, uint32_t n);
    /* out = (row[0]*by[0] + row[1]*by[1] + ..) * last, heads in order. */
    void (*weigh)(kvr_real *out, const kvr_real *const *row, const kvr_real *by,
                  uint32_t n_row, kvr_real last, uint32_t n);
    /* out = max over rows of row*by. */
    void (*weigh_max)(kvr_real *out, const kvr_real *const *row,
                      const kvr_real *by, uint32_t n_row, uint32_t n);
    /* Lowest resident score in [first, end). */
    struct lowest (*lowest)(const kvr_real *score, const int32_t *resident,
                            uint32_t first, uint32_t end);
    /* The same among those whose score equals `low`, by second. */
    struct lowest (*lowest_second)(const kvr_real *score, kvr_real low,
                                   const kvr_real *second,
                                   const int32_t *resident, uint32_t first,
                                   uint32_t end);
    /* out[i] = -1 where weight > least (or >=, if inclusive), else 0. */
    void (*above)(int32_t *out, const kvr_real *weight, kvr_real least,
                  int inclusive, uint32_t n);
    /* out[i] = (anew ? 0 : out[i]) + row[i] * scale: whole units. */
    void (*add_units)(double *out, const kvr_real *row, double scale, int anew,
                      uint32_t n);
    /* count[j]: how many are above at[j], for KVR_CUTS of them at once. */
    void (*count_row)(uint32_t *count, const kvr_real *row, const kvr_real *at,
                      uint32_t n);
    void (*count_wide)(uint32_t *count, const double *value, const double *at,
                       uint32_t n);
    /* The sum of those in units (exact in the float build). */
    void (*sum_row)(double *sum, const kvr_real *row, const kvr_real *at,
                    kvr_real scale, uint32_t n);
    /* The same, and the least of them, +inf where there is none. */
    void (*sum_wide)(double *sum, double *least, const double *value,
                     const double *at, uint32_t n);
    /* Counts `words` words of sets. */
    struct overlap (*overlap)(const uint64_t *over, const uint64_t *at_least,
                              const uint64_t *accessed,
                              const uint64_t *resident, uint32_t words);
    /* out += value where it is above least. */
    void (*add_above)(double *out, const double *value, double least,
                      uint32_t n);
    /* Bit i: weight[i] > least (or >=, if inclusive). */
    void (*bits_of_row)(uint64_t *out, const kvr_real *weight, kvr_real least,
                        int inclusive, uint32_t n);
    /* Bit i: value[i] > least, and value[i] >= least. */
    void (*bits_above)(uint64_t *over, uint64_t *at_least, const double *value,
                       double least, uint32_t n);
};

const struct kernels *kvr__kernels_for(enum kvr_isa isa);

#endif
