/* kvr_elementwise.h -- makes a rule's loops for every instruction set.
 *
 * A rule is plain C; these macros expand it once for each instruction set and
 * the engine picks one at start. Contraction to FMA is off and no loop here
 * reduces, so every instruction set gives the same bits. A rule that sums must
 * fix the order of its sum itself (submodular_greedy.c shows how). This is the
 * one place for compiler attributes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_ELEMENTWISE_H
#define KVR_ELEMENTWISE_H

#include "kvr_policy.h"

#if defined(__x86_64__)
#define KVR_TARGET_AVX2 __attribute__((target("avx2")))
#if defined(__clang__) /* which knows no preference per function */
#define KVR_TARGET_AVX512 __attribute__((target("avx512f,avx512vl")))
#else
#define KVR_TARGET_AVX512 \
    __attribute__((target("avx512f,avx512vl,prefer-vector-width=512")))
#endif
#else /* one build for the machine: NEON is part of AArch64's base */
#define KVR_TARGET_AVX2
#define KVR_TARGET_AVX512
#endif
#define KVR_INLINE static inline __attribute__((always_inline))
#define KVR_ALIGNED(pointer) __builtin_assume_aligned(pointer, 64)

#define KVR__UPDATE(target, name, rule) \
    target static void name(kvr_real *score, const kvr_real *weight, \
                            uint32_t n, uint32_t step, \
                            const kvr_real *constant) \
    { \
        kvr_real *restrict s = (kvr_real *)KVR_ALIGNED(score); \
        const kvr_real *restrict w = (const kvr_real *)KVR_ALIGNED(weight); \
        const kvr_real c = constant[0]; \
        n = (n + 15) & ~15u; \
        for (uint32_t i = 0; i < n; i++) \
            s[i] = rule(s[i], w[i], step, c); \
    }

/* rule(score, weight, step, constant[0]) -> score; makes rule_update. */
#define KVR_ELEMENTWISE(rule) \
    KVR__UPDATE(, rule##_base, rule) \
    KVR__UPDATE(KVR_TARGET_AVX2, rule##_avx2, rule) \
    KVR__UPDATE(KVR_TARGET_AVX512, rule##_avx512, rule) \
    static const kvr_update_fn rule##_update[KVR_ISA_SLOTS] = { \
        rule##_base, rule##_avx2, rule##_avx512};

#define KVR__RANK(target, name, rule) \
    target static void name(kvr_real *key, const kvr_real *score, uint32_t n, \
                            uint32_t step) \
    { \
        kvr_real *restrict k = (kvr_real *)KVR_ALIGNED(key); \
        const kvr_real *restrict s = (const kvr_real *)KVR_ALIGNED(score); \
        n = (n + 15) & ~15u; \
        for (uint32_t i = 0; i < n; i++) \
            k[i] = rule(s[i], (kvr_real)(int32_t)(step - i + 1)); \
    }

/* rule(score, rows that could see the position) -> key; makes rule_rank. */
#define KVR_RANK(rule) \
    KVR__RANK(, rule##_rank_base, rule) \
    KVR__RANK(KVR_TARGET_AVX2, rule##_rank_avx2, rule) \
    KVR__RANK(KVR_TARGET_AVX512, rule##_rank_avx512, rule) \
    static const kvr_rank_fn rule##_rank[KVR_ISA_SLOTS] = { \
        rule##_rank_base, rule##_rank_avx2, rule##_rank_avx512};

/* A KVR_INLINE function as a table of KVR_ISA_SLOTS functions of type `fn`,
 * called name_isa; `body` calls it. The macros below are the ready forms. */
#define KVR_EACH_ISA(fn, type, name, parameters, body) \
    static type name##_base parameters \
    { \
        body; \
    } \
    KVR_TARGET_AVX2 static type name##_avx2 parameters \
    { \
        body; \
    } \
    KVR_TARGET_AVX512 static type name##_avx512 parameters \
    { \
        body; \
    } \
    static const fn name##_isa[KVR_ISA_SLOTS] = {name##_base, name##_avx2, \
                                                 name##_avx512};

#define KVR_OBSERVED(name) \
    KVR_EACH_ISA(kvr_observe_fn, void, name, \
                 (void *state, const struct kvr_view *view), \
                 name(state, view))
#define KVR_SCORE(name) \
    KVR_EACH_ISA(kvr_score_fn, void, name, \
                 (const void *state, const struct kvr_view *view, \
                  kvr_real *score, kvr_real *second), \
                 name(state, view, score, second))
#define KVR_VICTIM(name) \
    KVR_EACH_ISA(kvr_victim_fn, uint32_t, name, \
                 (void *state, const struct kvr_view *view), \
                 return name(state, view))
#define KVR_MASK(name) \
    KVR_EACH_ISA(kvr_mask_fn, void, name, \
                 (void *state, const struct kvr_view *view, int32_t *visible), \
                 name(state, view, visible))

#endif
