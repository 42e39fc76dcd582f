/* round.h -- weights on their way to storage and back: summed and rounded.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef ROUND_H
#define ROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* To multiples of 2^-30. */
void kvr__round_f32(float *value, uint32_t n);

/* False: a weight is no number from 0 to `most`. *sum: of all, as doubles. */
bool kvr__sum_weights(double *sum, const float *in, size_t n, float most);

#endif
