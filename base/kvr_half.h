/* kvr_half.h -- IEEE binary16 and bfloat16 to float, and back.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_HALF_H
#define KVR_HALF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exact for every input, NaN payloads aside. */
float kvr_f16_to_f32(uint16_t half);
float kvr_bf16_to_f32(uint16_t half);

/* Round to nearest, ties to even; overflow gives an infinity. */
uint16_t kvr_f32_to_f16(float value);

/* Arrays, as above; with F16C where the processor has it, the same bits. */
void kvr_f16_to_f32_n(float *out, const uint16_t *in, size_t n);
void kvr_f32_to_f16_n(uint16_t *out, const float *in, size_t n);

#ifdef __cplusplus
}
#endif

#endif
