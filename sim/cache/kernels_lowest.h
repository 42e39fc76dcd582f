/* kernels_lowest.h -- the lowest key among the residents, its equals and the
 * first of them. Private to kernels.c.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KERNELS_LOWEST_H
#define KERNELS_LOWEST_H

#include "kernels.h"
#include "kernels_lanes.h"

/* -1 for the lanes from `first` up to `end` of the block at `i`. */
KVR_INLINE lvec within(uint32_t i, uint32_t first, uint32_t end)
{
    lvec lane = {0, 1, 2, 3, 4, 5, 6, 7};

    lane += (lane_int)i;
    return (lane >= (lane_int)first) & (lane < (lane_int)end);
}

/* What a search for the lowest key is over: residents in [first, end), of
 * those only that score `low`, where scores are given. */
struct field {
    const kvr_real *key, *score;
    const int32_t *resident;
    uint32_t first, end;
    kvr_real low;
};

/* Eight lanes of candidates; edge: the block crosses first or end. */
KVR_INLINE lvec candidates(const struct field *f, size_t i, int edge)
{
    lvec mask = mask_at(f->resident, i);

    if (edge)
        mask &= within((uint32_t)i, f->first, f->end);
    if (f->score != NULL)
        mask &= *(const vec *)(f->score + i) == f->low;
    return mask;
}

KVR_INLINE void least_of(const struct field *f, vec least[2], size_t i,
                         int edge)
{
    for (size_t k = 0; k < BLOCK / LANES; k++, i += LANES) {
        const vec v = *(const vec *)(f->key + i);
        const lvec less = candidates(f, i, edge) & (v < least[k % 2]);
        least[k % 2] = (vec)pick(less, (lvec)v, (lvec)least[k % 2]);
    }
}

/* The candidates that equal low, lane by lane: how many, whether there was
 * one yet, and for how many vectors; all counts below 0. */
struct match {
    lvec n, seen, since;
};

KVR_INLINE void match_of(const struct field *f, kvr_real low, struct match *m,
                         size_t i, int edge)
{
    for (size_t k = 0; k < BLOCK / LANES; k++, i += LANES) {
        const lvec hit =
            candidates(f, i, edge) & (*(const vec *)(f->key + i) == low);
        m->n += hit;
        m->seen |= hit;
        m->since += m->seen;
    }
}

/* The first position that matched, of vectors up to `end`. */
KVR_INLINE uint32_t first_of(const struct match *m, uint32_t end)
{
    const lvec lane = {0, 1, 2, 3, 4, 5, 6, 7};
    lvec at = m->since * LANES + lane + (lane_int)end;

    return (uint32_t)least_index(at);
}

/* The lowest key among the candidates, then how many equal it and the first
 * of them: two passes and no branch to mispredict. */
KVR_INLINE struct lowest lowest_of(const struct field *f)
{
    const size_t from = f->first / BLOCK * BLOCK;
    const size_t inner = (f->first + BLOCK - 1) / BLOCK * BLOCK;
    const size_t outer = f->end / BLOCK * BLOCK;
    const bool head = from < inner && from < f->end;
    const bool tail = outer >= inner && outer < f->end;
    const vec none = (vec){0} + KVR_HUGE;
    vec least[2] = {none, none};
    struct match m = {{0}, {0}, {0}};
    struct lowest found = {KVR_HUGE, INT32_MAX, 0};

    if (head)
        least_of(f, least, from, 1);
    for (size_t i = inner; i < outer; i += BLOCK)
        least_of(f, least, i, 0);
    if (tail)
        least_of(f, least, outer, 1);
    found.low = least_across(lower(least[0], least[1]));
    if (head)
        match_of(f, found.low, &m, from, 1);
    for (size_t i = inner; i < outer; i += BLOCK)
        match_of(f, found.low, &m, i, 0);
    if (tail)
        match_of(f, found.low, &m, outer, 1);
    found.n = (uint32_t)-add_across(m.n);
    if (found.n > 0)
        found.oldest =
            first_of(&m, (uint32_t)(tail                    ? outer + BLOCK
                                    : head && outer < inner ? inner
                                                            : outer));
    return found;
}

#endif
