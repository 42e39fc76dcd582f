/* huffman.c -- Huffman codes of limited length.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "deflate.h"

#include <string.h>

struct leaf {
    uint16_t count, symbol;
};

/* The symbols that occur, rarest first, equal ones by number. */
static uint32_t sort_leaves(struct leaf *leaf, const uint32_t *count,
                            uint32_t n)
{
    struct leaf other[HUFFMAN_MAX_SYMBOLS];
    uint32_t start[2][257] = {{0}}, used = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (count[i] == 0)
            continue;
        other[used++] = (struct leaf){(uint16_t)count[i], (uint16_t)i};
        start[0][(count[i] & 255) + 1]++;
        start[1][(count[i] >> 8 & 255) + 1]++;
    }
    for (uint32_t i = 1; i < 256; i++) {
        start[0][i] += start[0][i - 1];
        start[1][i] += start[1][i - 1];
    }
    for (uint32_t i = 0; i < used; i++)
        leaf[start[0][other[i].count & 255]++] = other[i];
    memcpy(other, leaf, used * sizeof *leaf);
    for (uint32_t i = 0; i < used; i++)
        leaf[start[1][other[i].count >> 8]++] = other[i];
    return used;
}

/* Huffman's algorithm over sorted leaves: inner nodes come up in ascending
 * order, so that the two rarest are at the heads of two queues. depth[d]: how
 * many leaves are d below the root. */
static void count_depths(uint32_t *depth, const struct leaf *leaf, uint32_t n)
{
    uint32_t weight[2 * HUFFMAN_MAX_SYMBOLS];
    uint16_t parent[2 * HUFFMAN_MAX_SYMBOLS], at[2 * HUFFMAN_MAX_SYMBOLS];
    uint32_t next_leaf = 0, next_inner = n;

    for (uint32_t i = 0; i < n; i++)
        weight[i] = leaf[i].count;
    for (uint32_t node = n; node < 2 * n - 1; node++) {
        weight[node] = 0;
        for (int child = 0; child < 2; child++) {
            const uint32_t take =
                next_leaf < n && (next_inner >= node ||
                                  weight[next_leaf] <= weight[next_inner])
                    ? next_leaf++
                    : next_inner++;
            weight[node] += weight[take];
            parent[take] = (uint16_t)node;
        }
    }
    at[2 * n - 2] = 0;
    for (uint32_t node = 2 * n - 2; node-- > 0;) {
        at[node] = (uint16_t)(at[parent[node]] + 1);
        if (node < n)
            depth[at[node]]++;
    }
}

/* Longer codes become `most` bits long; what that takes too much of the code
 * space is given back by making shorter ones longer, the longest first. */
static void limit(uint32_t *depth, uint32_t deepest, uint32_t most)
{
    uint64_t space = 0; /* in codes of `most` bits */

    for (uint32_t d = most + 1; d <= deepest; d++) {
        depth[most] += depth[d];
        depth[d] = 0;
    }
    for (uint32_t d = 1; d <= most; d++)
        space += (uint64_t)depth[d] << (most - d);
    for (; space > 1u << most; space--) {
        uint32_t d = most - 1;
        while (depth[d] == 0)
            d--;
        depth[d]--;
        depth[d + 1] += 2;
        depth[most]--;
    }
}

void kvr__huffman_lengths(uint8_t *bits, const uint32_t *count, uint32_t n,
                          uint32_t most)
{
    struct leaf leaf[HUFFMAN_MAX_SYMBOLS];
    uint32_t depth[HUFFMAN_MAX_SYMBOLS] = {0};
    const uint32_t used = sort_leaves(leaf, count, n);

    memset(bits, 0, n);
    if (used == 1)
        bits[leaf[0].symbol] = 1;
    if (used < 2)
        return;
    count_depths(depth, leaf, used);
    limit(depth, used - 1, most);
    uint32_t next = 0; /* the rarest get the longest */
    for (uint32_t d = most; d > 0; d--)
        for (uint32_t i = 0; i < depth[d]; i++)
            bits[leaf[next++].symbol] = (uint8_t)d;
}

static uint32_t reverse(uint32_t code, uint32_t bits)
{
    uint32_t out = 0;

    for (uint32_t i = 0; i < bits; i++)
        out |= (code >> i & 1u) << (bits - 1 - i);
    return out;
}

void kvr__huffman_codes(uint16_t *code, const uint8_t *bits, uint32_t n)
{
    uint32_t next[HUFFMAN_MAX_BITS + 2] = {0};

    for (uint32_t i = 0; i < n; i++)
        next[bits[i] + 1]++;
    next[1] = 0; /* symbols without a code */
    for (uint32_t d = 1; d <= HUFFMAN_MAX_BITS; d++)
        next[d] = (next[d - 1] + next[d]) << 1;
    for (uint32_t i = 0; i < n; i++)
        code[i] =
            bits[i] != 0 ? (uint16_t)reverse(next[bits[i]]++, bits[i]) : 0;
}
