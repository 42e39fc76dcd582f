/* random.c -- Philox4x32-10 under our keys and counters.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_random.h"

#include <Random123/philox.h>

/* The key takes the seed; purpose, layer and head go into the counter with
 * the step, so that all of them separate streams. */
void kvr_random_bits(uint32_t out[4], const struct kvr_random *stream,
                     uint32_t step, uint32_t replicate, uint32_t index)
{
    const philox4x32_key_t key = {
        {(uint32_t)stream->seed, (uint32_t)(stream->seed >> 32)}};
    const philox4x32_ctr_t counter = {
        {step, replicate,
         stream->purpose << 28 ^ stream->layer << 14 ^ stream->head, index}};
    const philox4x32_ctr_t r = philox4x32_R(10, counter, key);

    for (int i = 0; i < 4; i++)
        out[i] = r.v[i];
}

double kvr_random_real(const struct kvr_random *stream, uint32_t step,
                       uint32_t replicate, uint32_t index)
{
    uint32_t bits[4];

    kvr_random_bits(bits, stream, step, replicate, index);
    const uint64_t m = (uint64_t)bits[0] << 21 ^ bits[1] >> 11;
    return (double)m * 0x1p-53;
}

uint32_t kvr_random_below(const struct kvr_random *stream, uint32_t step,
                          uint32_t replicate, uint32_t index, uint32_t n)
{
    uint32_t bits[4];

    kvr_random_bits(bits, stream, step, replicate, index);
    const uint64_t m = (uint64_t)bits[0] << 31 ^ bits[1] >> 1;
    return (uint32_t)(((m >> 32) * n + (((m & 0xffffffffu) * n) >> 32)) >> 31);
}
