/* h5_tree.c -- walks over the groups of a file, from the root down.
 *
 * HDF5 file format specification: III.A.1 B-trees (version 1), III.B symbol
 * table nodes, III.D local heaps, IV.A.2.r symbol table messages.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_tree.h"

#include "h5_bytes.h"
#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    MESSAGE_GROUP = 0x11,
    SOFT_LINK = 2,
    ENTRY = 40,            /* bytes of a symbol table entry */
    MAX_LEVEL = 16,        /* of a B-tree */
    MAX_OBJECTS = 1 << 22, /* over it a file is refused: a maze */
};

/* Objects whose headers are still to be looked at. */
struct tree {
    uint64_t *object;
    size_t n, capacity;
    uint32_t n_node; /* of B-trees, and of tables, looked at */
    bool overflows;  /* more than MAX_OBJECTS, or than memory holds */
};

/* A group's names. */
struct names {
    struct tree *tree;
    uint8_t *heap;
    uint64_t size;
};

static uint64_t u64_at(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return value;
}

static bool name_ends(const struct names *names, uint64_t at)
{
    return at < names->size &&
           memchr(names->heap + at, 0, names->size - at) != NULL;
}

static void remember(struct tree *tree, uint64_t object)
{
    if (tree->n >= MAX_OBJECTS ||
        !kvr_grow((void **)&tree->object, &tree->capacity, tree->n + 1,
                  sizeof *tree->object))
        tree->overflows = true;
    else
        tree->object[tree->n++] = object;
}

static enum answer look_at_entries(const struct file_bytes *file,
                                   const struct names *names, uint64_t at)
{
    uint8_t *head = kvr__h5_load(file, at, 8);
    const bool known = head != NULL && memcmp(head, "SNOD", 4) == 0;
    const uint32_t n = known ? head[6] | (uint32_t)head[7] << 8 : 0;
    uint8_t *entries =
        known ? kvr__h5_load(file, at + 8, (uint64_t)n * ENTRY) : NULL;
    enum answer answer =
        known && (entries == NULL || names->tree->n_node++ >= MAX_OBJECTS)
            ? UNSAFE
            : UNKNOWN;

    for (uint32_t i = 0; i < n && answer == UNKNOWN; i++) {
        const uint8_t *entry = entries + (size_t)i * ENTRY;
        uint32_t kind, link;
        memcpy(&kind, entry + 16, sizeof kind);
        memcpy(&link, entry + 24, sizeof link);
        if (!name_ends(names, u64_at(entry)) ||
            (kind == SOFT_LINK && !name_ends(names, link)))
            answer = UNSAFE;
        else if (kind != SOFT_LINK)
            remember(names->tree, u64_at(entry + 8));
    }
    free(entries);
    free(head);
    return answer;
}

/* Keys are names too: one before each child, and one after the last. */
static enum answer look_at_node(const struct file_bytes *file,
                                const struct names *names, uint64_t at,
                                unsigned most)
{
    uint8_t *head = kvr__h5_load(file, at, 24);
    const bool known =
        head != NULL && memcmp(head, "TREE", 4) == 0 && head[4] == 0;
    const unsigned level = known ? head[5] : 0;
    const uint32_t n = known ? head[6] | (uint32_t)head[7] << 8 : 0;
    uint8_t *body =
        known ? kvr__h5_load(file, at + 24, (uint64_t)n * 16 + 8) : NULL;
    enum answer answer = known && (body == NULL || level > most ||
                                   names->tree->n_node++ >= MAX_OBJECTS)
                             ? UNSAFE
                             : UNKNOWN;

    for (uint32_t i = 0; n > 0 && i <= n && answer == UNKNOWN; i++)
        if (!name_ends(names, u64_at(body + (size_t)i * 16)))
            answer = UNSAFE;
    for (uint32_t i = 0; i < n && answer == UNKNOWN; i++) {
        const uint64_t child = u64_at(body + (size_t)i * 16 + 8);
        answer = level == 0 ? look_at_entries(file, names, child)
                            : look_at_node(file, names, child, level - 1);
    }
    free(body);
    free(head);
    return answer;
}

static enum answer look_at_group(const struct file_bytes *file,
                                 struct cursor message, struct tree *tree)
{
    const uint64_t root = kvr__take_u64(&message);
    const uint64_t at = kvr__take_u64(&message);
    uint8_t *head = message.bad ? NULL : kvr__h5_load(file, at, 32);
    struct names names = {.tree = tree};

    if (head == NULL || memcmp(head, "HEAP", 4) != 0) {
        free(head);
        return UNKNOWN; /* HDF5 refuses it */
    }
    names.size = u64_at(head + 8);
    names.heap = kvr__h5_load(file, u64_at(head + 24), names.size);
    const enum answer answer =
        names.heap == NULL ? UNSAFE
                           : look_at_node(file, &names, root, MAX_LEVEL);
    free(names.heap);
    free(head);
    return answer;
}

static enum answer look_at_message(const struct file_bytes *file, uint32_t type,
                                   struct cursor message, void *ud)
{
    return type == MESSAGE_GROUP ? look_at_group(file, message, ud) : UNKNOWN;
}

bool kvr__h5_tree_whole(hid_t file)
{
    struct tree tree = {0};
    struct file_bytes bytes;
    H5O_info_t info;
    bool whole = true;

    /* basic only: the rest it would take from the groups themselves */
    if (!kvr__h5_bytes_of(&bytes, file) ||
        H5Oget_info2(file, &info, H5O_INFO_BASIC) < 0)
        return true;
    remember(&tree, info.addr);
    for (size_t i = 0; whole && !tree.overflows && i < tree.n; i++)
        whole = kvr__h5_each_message_at(&bytes, tree.object[i], look_at_message,
                                        &tree) != UNSAFE;
    free(tree.object);
    return whole && !tree.overflows;
}
