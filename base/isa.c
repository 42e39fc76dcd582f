/* isa.c -- what the processor has, and what the user forces.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_isa.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[KVR_N_ISA] = {
    [KVR_ISA_BASE] = "base",
    [KVR_ISA_AVX2] = "avx2",
    [KVR_ISA_AVX512] = "avx512",
};

static atomic_int chosen = -1; /* -1: not looked up yet */

#if defined(__x86_64__)
/* clang 14 does not know it by name: bit 29 of ecx. That the system saves the
 * registers follows from avx2. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;

    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

bool kvr_isa_available(enum kvr_isa isa)
{
#if defined(__x86_64__)
    if (isa == KVR_ISA_AVX2)
        return __builtin_cpu_supports("avx2") && has_f16c() &&
               __builtin_cpu_supports("fma");
    if (isa == KVR_ISA_AVX512)
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512vl") &&
               kvr_isa_available(KVR_ISA_AVX2);
#endif
    return isa == KVR_ISA_BASE;
}

static enum kvr_isa best(void)
{
    if (kvr_isa_available(KVR_ISA_AVX512))
        return KVR_ISA_AVX512;
    return kvr_isa_available(KVR_ISA_AVX2) ? KVR_ISA_AVX2 : KVR_ISA_BASE;
}

enum kvr_isa kvr_isa(void)
{
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (isa < 0) {
        isa = (int)best();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return (enum kvr_isa)isa;
}

enum kvr_status kvr_isa_init(struct kvr_error *err)
{
    const char *wish = getenv("KVREPLAY_ISA");

    if (wish == NULL || wish[0] == '\0') {
        atomic_store(&chosen, (int)best());
        return KVR_OK;
    }
    for (int i = 0; i < KVR_N_ISA; i++) {
        if (strcmp(wish, names[i]) != 0)
            continue;
        if (!kvr_isa_available((enum kvr_isa)i))
            return kvr_fail(err, KVR_ERR_USAGE,
                            "KVREPLAY_ISA=%s: this processor lacks it", wish);
        atomic_store(&chosen, i);
        return KVR_OK;
    }
    return kvr_fail(err, KVR_ERR_USAGE,
                    "KVREPLAY_ISA=%s: expected base, avx2 or avx512", wish);
}

const char *kvr_isa_name(enum kvr_isa isa)
{
    return names[isa];
}
