/* kvr_isa.h -- which instruction set the hot loops use.
 *
 * All give the same bits. KVREPLAY_ISA=base|avx2|avx512 in the environment
 * forces one that the processor has; asking for one it lacks is an error.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_ISA_H
#define KVR_ISA_H

#include "kvr_error.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kvr_isa { KVR_ISA_BASE, KVR_ISA_AVX2, KVR_ISA_AVX512, KVR_N_ISA };

/* The best the processor has, or the one that kvr_isa_init was told. */
enum kvr_isa kvr_isa(void);

/* Reads KVREPLAY_ISA. Call once, before any thread is started. Fails with
 * KVR_ERR_USAGE for an unknown name or one that this processor lacks. */
enum kvr_status kvr_isa_init(struct kvr_error *err) KVR_MUST_CHECK;

/* "base", "avx2", "avx512". */
const char *kvr_isa_name(enum kvr_isa isa);
bool kvr_isa_available(enum kvr_isa isa);

#ifdef __cplusplus
}
#endif

#endif
