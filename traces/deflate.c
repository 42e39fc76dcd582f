/* deflate.c -- zlib streams of Huffman codes and runs (RFC 1950, 1951).
 *
 * The bytes of shuffled attention are noise with a skewed distribution: a
 * search for repetitions costs ten times what coding does, and what it finds
 * takes more room than the literals. Only runs of one byte pay, above all the
 * zeros above the diagonal. So a block is: runs found word by word, the rest
 * counted, Huffman codes for both; or its bytes as they are, where that is no
 * longer.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "deflate.h"

#include <libdeflate.h>
#include <stdbool.h>
#include <string.h>

enum {
    BLOCK = 1 << 15, /* at most; a plane is cut evenly */
    MIN_RUN = 16,
    END = 256, /* symbols */
    FIRST_LENGTH = 257,
    LONGEST = 285, /* length 258 */
    N_SYMBOL = HUFFMAN_MAX_SYMBOLS,
    N_CODE_LENGTH = 19,
    ZEROS_3 = 17, /* code lengths: 3 to 10 zeros, 11 to 138 zeros */
    ZEROS_11 = 18,
    HEADER = 2,
    TRAILER = 4,
    SLACK = 16, /* per block: headers, and the last 8 bytes that are stored */
};

struct run {
    uint16_t at, n;
};

struct block {
    const uint8_t *in;
    uint32_t n, n_run;
    uint32_t count[N_SYMBOL];
    uint8_t bits[N_SYMBOL + 1]; /* then the code length of distance 1 */
    uint16_t code[N_SYMBOL];
    struct run run[BLOCK / MIN_RUN];
};

struct writer {
    uint64_t bits; /* not yet stored, the next one lowest */
    uint32_t n;
    uint8_t *at;
};

static inline uint64_t word_at(const uint8_t *in)
{
    uint64_t word;

    memcpy(&word, in, sizeof word);
    return word;
}

/* Room for 56 bits afterwards. Needs a little-endian machine, like the rest of
 * this folder, and 8 bytes of room. */
static inline void flush(struct writer *w)
{
    memcpy(w->at, &w->bits, sizeof w->bits);
    w->at += w->n >> 3;
    w->bits >>= w->n & ~7u;
    w->n &= 7;
}

static inline void put(struct writer *w, uint32_t value, uint32_t n)
{
    w->bits |= (uint64_t)value << w->n;
    w->n += n;
    flush(w);
}

/* End of the run of in[from]'s byte. */
static uint32_t run_end(const uint8_t *in, uint32_t from, uint32_t n)
{
    const uint64_t same = in[from] * 0x0101010101010101u;
    uint32_t i = from + 1;

    while (i + 8 <= n && word_at(in + i) == same)
        i += 8;
    while (i < n && in[i] == in[from])
        i++;
    return i;
}

static void find_runs(struct block *b)
{
    uint32_t done = 0;

    b->n_run = 0;
    for (uint32_t i = 0; i + 8 <= b->n;) {
        const uint64_t word = word_at(b->in + i);
        if (word != (word & 255) * 0x0101010101010101u) {
            i += 8;
            continue;
        }
        uint32_t from = i;
        while (from > done && b->in[from - 1] == b->in[i])
            from--;
        const uint32_t end = run_end(b->in, i, b->n);
        if (end - from >= MIN_RUN)
            b->run[b->n_run++] =
                (struct run){(uint16_t)from, (uint16_t)(end - from)};
        i = done = end;
    }
}

/* The symbol of a length from 3 to 257 and its extra bits. */
static uint32_t length_symbol(uint32_t length, uint32_t *extra,
                              uint32_t *n_extra)
{
    const uint32_t l = length - 3;
    uint32_t bits = 0;

    while (l >> (bits + 3) != 0)
        bits++;
    *n_extra = bits;
    *extra = l & ((1u << bits) - 1);
    return bits == 0 ? FIRST_LENGTH + l : FIRST_LENGTH + 4 * bits + (l >> bits);
}

/* A run is one literal, matches of 258 at distance 1, and a shorter match or
 * one or two literals. */
static uint32_t rest_of(const struct run *run)
{
    return (run->n - 1u) % 258;
}

static void count_literals(uint32_t count[4][256], const uint8_t *in,
                           uint32_t from, uint32_t to)
{
    uint32_t i = from;

    for (; i + 4 <= to; i += 4)
        for (uint32_t k = 0; k < 4; k++)
            count[k][in[i + k]]++;
    for (; i < to; i++)
        count[0][in[i]]++;
}

static void count_symbols(struct block *b)
{
    uint32_t count[4][256] = {{0}}, from = 0, extra, n_extra;

    memset(b->count, 0, sizeof b->count);
    for (uint32_t i = 0; i < b->n_run; i++) {
        const struct run *run = &b->run[i];
        const uint32_t rest = rest_of(run);
        count_literals(count, b->in, from, run->at);
        from = (uint32_t)run->at + run->n;
        count[0][b->in[run->at]] += rest < 3 ? 1 + rest : 1;
        b->count[LONGEST] += (run->n - 1u) / 258;
        if (rest >= 3)
            b->count[length_symbol(rest, &extra, &n_extra)]++;
    }
    count_literals(count, b->in, from, b->n);
    for (uint32_t i = 0; i < 256; i++)
        b->count[i] = count[0][i] + count[1][i] + count[2][i] + count[3][i];
    b->count[END] = 1;
}

/* Code lengths, zeros in runs: symbols, and with each 8 bits more how many
 * zeros it stands for. Returns how many. */
static uint32_t pack_lengths(uint16_t *out, const uint8_t *bits, uint32_t n)
{
    uint32_t n_out = 0;

    for (uint32_t i = 0; i < n;) {
        uint32_t zeros = 0;
        while (i + zeros < n && zeros < 138 && bits[i + zeros] == 0)
            zeros++;
        if (zeros < 3) {
            out[n_out++] = bits[i++];
            continue;
        }
        out[n_out++] = (uint16_t)(zeros < 11 ? ZEROS_3 | (zeros - 3) << 8
                                             : ZEROS_11 | (zeros - 11) << 8);
        i += zeros;
    }
    return n_out;
}

struct head {
    uint16_t item[N_SYMBOL + 1]; /* of pack_lengths */
    uint32_t n_item, n_symbol, n_length, size_bits;
    uint8_t bits[N_CODE_LENGTH];
};

static const uint8_t length_order[N_CODE_LENGTH] = {
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

static uint32_t item_extra(uint32_t symbol)
{
    return symbol == ZEROS_11 ? 7 : symbol == ZEROS_3 ? 3 : 0;
}

static void make_head(struct head *h, const struct block *b)
{
    uint8_t bits[N_SYMBOL + 1];
    uint32_t count[N_CODE_LENGTH] = {0};

    h->n_symbol = N_SYMBOL;
    while (h->n_symbol > FIRST_LENGTH && b->bits[h->n_symbol - 1] == 0)
        h->n_symbol--;
    memcpy(bits, b->bits, h->n_symbol);
    bits[h->n_symbol] = 1; /* distance 1, the only one */
    h->n_item = pack_lengths(h->item, bits, h->n_symbol + 1);
    for (uint32_t i = 0; i < h->n_item; i++)
        count[h->item[i] & 255]++;
    kvr__huffman_lengths(h->bits, count, N_CODE_LENGTH, 7);
    h->n_length = N_CODE_LENGTH;
    while (h->n_length > 4 && h->bits[length_order[h->n_length - 1]] == 0)
        h->n_length--;
    h->size_bits = 3 + 5 + 5 + 4 + 3 * h->n_length;
    for (uint32_t i = 0; i < N_CODE_LENGTH; i++)
        h->size_bits += count[i] * (h->bits[i] + item_extra(i));
}

static void write_head(struct writer *w, const struct head *h, bool last)
{
    uint16_t code[N_CODE_LENGTH];

    put(w, last | 2u << 1, 3);
    put(w, h->n_symbol - FIRST_LENGTH, 5);
    put(w, 0, 5);
    put(w, h->n_length - 4, 4);
    for (uint32_t i = 0; i < h->n_length; i++)
        put(w, h->bits[length_order[i]], 3);
    kvr__huffman_codes(code, h->bits, N_CODE_LENGTH);
    for (uint32_t i = 0; i < h->n_item; i++) {
        const uint32_t symbol = h->item[i] & 255;
        put(w, code[symbol], h->bits[symbol]);
        put(w, h->item[i] >> 8, item_extra(symbol));
    }
}

/* Four codes have at most 48 bits, and at most 7 wait. */
static void write_literals(struct writer *w, const struct block *b,
                           uint32_t from, uint32_t to)
{
    const uint8_t *in = b->in;
    struct writer at = *w;
    uint32_t i = from;

    for (; i + 4 <= to; i += 4) {
        const uint32_t n0 = b->bits[in[i]];
        const uint32_t n1 = n0 + b->bits[in[i + 1]];
        const uint32_t n2 = b->bits[in[i + 2]];
        const uint64_t low = b->code[in[i]] | (uint64_t)b->code[in[i + 1]]
                                                  << n0;
        const uint64_t high = b->code[in[i + 2]] | (uint64_t)b->code[in[i + 3]]
                                                       << n2;
        at.bits |= (low | high << n1) << at.n;
        at.n += n1 + n2 + b->bits[in[i + 3]];
        flush(&at);
    }
    for (; i < to; i++)
        put(&at, b->code[in[i]], b->bits[in[i]]);
    *w = at;
}

static void write_run(struct writer *w, const struct block *b,
                      const struct run *run)
{
    const uint32_t rest = rest_of(run), byte = b->in[run->at];
    uint32_t extra, n_extra;

    put(w, b->code[byte], b->bits[byte]);
    for (uint32_t i = 0; i < (run->n - 1u) / 258; i++)
        put(w, b->code[LONGEST], b->bits[LONGEST] + 1u); /* distance: 0 */
    for (uint32_t i = 0; rest < 3 && i < rest; i++)
        put(w, b->code[byte], b->bits[byte]);
    if (rest < 3)
        return;
    const uint32_t symbol = length_symbol(rest, &extra, &n_extra);
    put(w, b->code[symbol], b->bits[symbol]);
    put(w, extra, n_extra + 1);
}

static uint64_t body_bits(const struct block *b)
{
    uint64_t bits = 0;

    for (uint32_t i = 0; i < N_SYMBOL; i++)
        bits += (uint64_t)b->count[i] * b->bits[i];
    for (uint32_t i = FIRST_LENGTH; i < N_SYMBOL; i++) { /* distance, extra */
        const uint32_t group = (i - FIRST_LENGTH) / 4;
        bits += (uint64_t)b->count[i] *
                (1 + (i == LONGEST || group < 2 ? 0 : group - 1));
    }
    return bits;
}

static void write_stored(struct writer *w, const struct block *b, bool last)
{
    put(w, last, 3);
    put(w, 0, (8 - w->n) & 7);
    put(w, b->n | (~b->n & 0xffffu) << 16, 32);
    memcpy(w->at, b->in, b->n);
    w->at += b->n;
}

static void write_block(struct writer *w, struct block *b, bool last)
{
    struct head head;
    uint32_t from = 0;

    find_runs(b);
    count_symbols(b);
    kvr__huffman_lengths(b->bits, b->count, N_SYMBOL, HUFFMAN_MAX_BITS);
    make_head(&head, b);
    if (head.size_bits + body_bits(b) >= 8 * (uint64_t)b->n + 40) {
        write_stored(w, b, last);
        return;
    }
    kvr__huffman_codes(b->code, b->bits, N_SYMBOL);
    write_head(w, &head, last);
    for (uint32_t i = 0; i < b->n_run; i++) {
        write_literals(w, b, from, b->run[i].at);
        write_run(w, b, &b->run[i]);
        from = (uint32_t)b->run[i].at + b->run[i].n;
    }
    write_literals(w, b, from, b->n);
    put(w, b->code[END], b->bits[END]);
}

/* Blocks of a plane: none is empty but that of an empty stream. */
static size_t n_blocks(size_t plane)
{
    return plane / BLOCK + (plane % BLOCK != 0);
}

size_t kvr__deflate_bound(size_t n, size_t plane)
{
    const size_t each = plane == 0 || plane > n ? n : plane;
    const size_t planes = each == 0 ? 1 : n / each + 1;

    return HEADER + n + planes * (n_blocks(each) + 1) * SLACK + TRAILER;
}

size_t kvr__deflate(uint8_t *out, const uint8_t *in, size_t n, size_t plane)
{
    static const uint8_t header[HEADER] = {0x78, 0x01};
    const uint32_t sum = libdeflate_adler32(1, in, n);
    struct writer w = {.at = out + HEADER};
    struct block b;

    memcpy(out, header, HEADER);
    if (n == 0) {
        put(&w, 1 | 1 << 1, 3); /* fixed codes: the end, seven zeros */
        put(&w, 0, 7);
    }
    for (size_t done = 0; done < n;) {
        size_t left = plane != 0 ? plane - done % plane : n - done;
        left = left < n - done ? left : n - done;
        b.in = in + done;
        b.n = (uint32_t)(left / n_blocks(left));
        write_block(&w, &b, done + b.n == n);
        done += b.n;
    }
    put(&w, 0, (8 - w.n) & 7);
    for (int i = 0; i < TRAILER; i++)
        *w.at++ = (uint8_t)(sum >> (24 - 8 * i));
    return (size_t)(w.at - out);
}
