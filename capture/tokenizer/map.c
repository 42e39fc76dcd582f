/* map.c -- open addressing, at most half full.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "map.h"

#include "kvr_hash.h"
#include "kvr_memory.h"

#include <stdlib.h>

/* A power of two of at least 2 n; 0 where it does not fit. */
static size_t room_for(size_t n)
{
    size_t room = 16;

    while (room / 2 < n && room <= SIZE_MAX / 4)
        room *= 2;
    return room / 2 < n ? 0 : room;
}

enum kvr_status kvr__text_map_init(struct kvr_text_map *map, size_t n,
                                   struct kvr_error *err)
{
    const size_t room = room_for(n);

    map->mask = room - 1;
    map->slots = room > 0 ? kvr_calloc(room, sizeof *map->slots) : NULL;
    if (map->slots == NULL)
        return kvr_no_memory(err, "the vocabulary", n * sizeof *map->slots);
    return KVR_OK;
}

void kvr__text_map_fini(struct kvr_text_map *map)
{
    free(map->slots);
    map->slots = NULL;
}

/* Its slot, or the free one where it belongs. */
static struct kvr_text_slot *text_slot(const struct kvr_text_map *map,
                                       struct kvr_slice text)
{
    size_t at = (size_t)kvr_hash64(text.bytes, text.size) & map->mask;

    while (map->slots[at].text.bytes != NULL &&
           kvr_slice_compare(map->slots[at].text, text) != 0)
        at = (at + 1) & map->mask;
    return &map->slots[at];
}

bool kvr__text_map_add(struct kvr_text_map *map, struct kvr_slice text,
                       int32_t id)
{
    struct kvr_text_slot *slot = text_slot(map, text);

    if (slot->text.bytes != NULL)
        return false;
    slot->text = text;
    slot->id = id;
    return true;
}

int32_t kvr__text_map_find(const struct kvr_text_map *map,
                           struct kvr_slice text)
{
    const struct kvr_text_slot *slot = text_slot(map, text);

    return slot->text.bytes != NULL ? slot->id : -1;
}

enum kvr_status kvr__pair_map_init(struct kvr_pair_map *map, size_t n,
                                   struct kvr_error *err)
{
    const size_t room = room_for(n);

    map->mask = room - 1;
    map->slots = room > 0 ? kvr_calloc(room, sizeof *map->slots) : NULL;
    if (map->slots == NULL)
        return kvr_no_memory(err, "the merges", n * sizeof *map->slots);
    for (size_t i = 0; i < room; i++)
        map->slots[i].left = -1;
    return KVR_OK;
}

void kvr__pair_map_fini(struct kvr_pair_map *map)
{
    free(map->slots);
    map->slots = NULL;
}

static struct kvr_pair_slot *pair_slot(const struct kvr_pair_map *map,
                                       int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    /* Fibonacci hashing: the high bits of the product are well mixed */
    size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & map->mask;

    while (map->slots[at].left >= 0 &&
           (map->slots[at].left != left || map->slots[at].right != right))
        at = (at + 1) & map->mask;
    return &map->slots[at];
}

bool kvr__pair_map_add(struct kvr_pair_map *map, int32_t left, int32_t right,
                       int32_t id, uint32_t rank)
{
    struct kvr_pair_slot *slot = pair_slot(map, left, right);

    if (slot->left >= 0)
        return false;
    *slot = (struct kvr_pair_slot){
        .left = left, .right = right, .id = id, .rank = rank};
    return true;
}

const struct kvr_pair_slot *kvr__pair_map_find(const struct kvr_pair_map *map,
                                               int32_t left, int32_t right)
{
    const struct kvr_pair_slot *slot = pair_slot(map, left, right);

    return slot->left >= 0 ? slot : NULL;
}
