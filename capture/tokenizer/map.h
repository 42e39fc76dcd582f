/* map.h -- the two look-up tables of the tokenizers.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MAP_H
#define MAP_H

#include "kvr_error.h"
#include "slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Text to id. The texts are borrowed. */
struct kvr_text_map {
    struct kvr_text_slot {
        struct kvr_slice text; /* bytes NULL: free */
        int32_t id;
    } * slots;
    size_t mask; /* slots - 1, a power of two */
};

/* Room for n texts. */
enum kvr_status kvr__text_map_init(struct kvr_text_map *map, size_t n,
                                   struct kvr_error *err) KVR_MUST_CHECK;
void kvr__text_map_fini(struct kvr_text_map *map);
/* False, and the first id stays, where the text is there already. */
bool kvr__text_map_add(struct kvr_text_map *map, struct kvr_slice text,
                       int32_t id);
/* -1: not there. */
int32_t kvr__text_map_find(const struct kvr_text_map *map,
                           struct kvr_slice text);

/* A pair of ids to what they merge into, and how early. */
struct kvr_pair_map {
    struct kvr_pair_slot {
        int32_t left, right, id; /* left -1: free */
        uint32_t rank;
    } * slots;
    size_t mask;
};

enum kvr_status kvr__pair_map_init(struct kvr_pair_map *map, size_t n,
                                   struct kvr_error *err) KVR_MUST_CHECK;
void kvr__pair_map_fini(struct kvr_pair_map *map);
bool kvr__pair_map_add(struct kvr_pair_map *map, int32_t left, int32_t right,
                       int32_t id, uint32_t rank);
/* NULL: the pair does not merge. */
const struct kvr_pair_slot *kvr__pair_map_find(const struct kvr_pair_map *map,
                                               int32_t left, int32_t right);

#endif
