/* cpu_kernels.h -- the inner loops of the CPU back end.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "backend.h"

#include <stddef.h>
#include <stdint.h>

struct kvr_cpu_kernels {
    float (*dot)(const float *a, const float *b, size_t n);
    /* Products of a stored row with x, expanded value by value in f32. */
    float (*dot_q4_1)(const uint8_t *row, const float *x, size_t n);
    float (*dot_q8_0)(const uint8_t *row, const float *x, size_t n);
    /* gate = activation(gate) * up; up may be NULL */
    void (*activate)(float *gate, const float *up, size_t n,
                     enum kvr_activation activation);
    /* row = cap * tanh(row / cap) */
    void (*soft_cap)(float *row, size_t n, float cap);
};

/* Those of the instruction set in use (kvr_isa). */
const struct kvr_cpu_kernels *kvr__cpu_kernels(void);

#endif
