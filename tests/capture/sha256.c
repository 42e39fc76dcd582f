/* sha256.c -- written after FIPS 180-4. The constants are the fractional
 * parts of square and cube roots of primes, computed when first needed.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "sha256.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t fraction(long double root)
{
    return (uint32_t)((root - floorl(root)) * 4294967296.0L);
}

static void constants(uint32_t start[8], uint32_t k[64])
{
    int found = 0;

    for (int p = 2; found < 64; p++) {
        int d = 2;
        while (d * d <= p && p % d != 0)
            d++;
        if (d * d <= p)
            continue;
        if (found < 8)
            start[found] = fraction(sqrtl(p));
        k[found++] = fraction(cbrtl(p));
    }
}

static void block(uint32_t h[8], const uint32_t k[64], const uint8_t *in)
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)in[4 * i] << 24 | (uint32_t)in[4 * i + 1] << 16 |
               (uint32_t)in[4 * i + 2] << 8 | in[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t t1 =
            s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
            ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        const uint32_t t2 =
            (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
            ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
}

void sha256_hex(char out[65], const void *data, size_t size)
{
    const uint8_t *in = data;
    uint32_t h[8], k[64];
    uint8_t last[128] = {0};
    const size_t whole = size / 64 * 64, rest = size - whole;
    const size_t tail = rest < 56 ? 64 : 128;

    constants(h, k);
    for (size_t i = 0; i < whole; i += 64)
        block(h, k, in + i);
    memcpy(last, in + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[tail - 1 - i] = (uint8_t)((uint64_t)size * 8 >> (8 * i));
    for (size_t i = 0; i < tail; i += 64)
        block(h, k, last + i);
    for (int i = 0; i < 8; i++)
        snprintf(out + 8 * i, 9, "%08x", h[i]);
}
