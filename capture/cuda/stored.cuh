/* stored.cuh -- one value of a block of each stored type, as a float.
 *
 * The layouts are told in quant_32.c, quant_k.c and quant_iq4.c. Here every
 * thread finds its own value: at(in, j) is value j of the block at `in`. The
 * products are exact and one rounding decides a value, so the bits are the
 * CPU's, with or without fused multiply-add.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_STORED_CUH
#define KVR_CUDA_STORED_CUH

#include "device.cuh"

/* Blocks lie at odd addresses. */
inline __device__ unsigned kvr_stored_16(const uint8_t *in)
{
    return in[0] | in[1] << 8;
}

inline __device__ unsigned kvr_stored_32(const uint8_t *in)
{
    return kvr_stored_16(in) | kvr_stored_16(in + 2) << 16;
}

inline __device__ float kvr_stored_half(const uint8_t *in)
{
    return __half2float(__ushort_as_half((unsigned short)kvr_stored_16(in)));
}

/* Nibble of value j of 32: low ones first, of 16 bytes. */
inline __device__ int kvr_nibble(const uint8_t *in, int j)
{
    return in[j % 16] >> j / 16 * 4 & 15;
}

struct kvr_f32 {
    enum { BLOCK = 1, BYTES = 4 };
    static __device__ float at(const uint8_t *in, int)
    {
        return __uint_as_float(kvr_stored_32(in));
    }
};

struct kvr_f16 {
    enum { BLOCK = 1, BYTES = 2 };
    static __device__ float at(const uint8_t *in, int)
    {
        return kvr_stored_half(in);
    }
};

struct kvr_bf16 {
    enum { BLOCK = 1, BYTES = 2 };
    static __device__ float at(const uint8_t *in, int)
    {
        return __uint_as_float(kvr_stored_16(in) << 16);
    }
};

struct kvr_q4_0 {
    enum { BLOCK = 32, BYTES = 18 };
    static __device__ float at(const uint8_t *in, int j)
    {
        return (float)(kvr_nibble(in + 2, j) - 8) * kvr_stored_half(in);
    }
};

struct kvr_q4_1 {
    enum { BLOCK = 32, BYTES = 20 };
    static __device__ float at(const uint8_t *in, int j)
    {
        return (float)kvr_nibble(in + 4, j) * kvr_stored_half(in) +
               kvr_stored_half(in + 2);
    }
};

/* A fifth bit from the mask in front of the nibbles. */
inline __device__ int kvr_five_bits(const uint8_t *in, int j)
{
    return kvr_nibble(in + 4, j) | (int)(kvr_stored_32(in) >> j & 1) << 4;
}

struct kvr_q5_0 {
    enum { BLOCK = 32, BYTES = 22 };
    static __device__ float at(const uint8_t *in, int j)
    {
        return (float)(kvr_five_bits(in + 2, j) - 16) * kvr_stored_half(in);
    }
};

struct kvr_q5_1 {
    enum { BLOCK = 32, BYTES = 24 };
    static __device__ float at(const uint8_t *in, int j)
    {
        return (float)kvr_five_bits(in + 4, j) * kvr_stored_half(in) +
               kvr_stored_half(in + 2);
    }
};

struct kvr_q8_0 {
    enum { BLOCK = 32, BYTES = 34 };
    static __device__ float at(const uint8_t *in, int j)
    {
        return (float)(int8_t)in[2 + j] * kvr_stored_half(in);
    }
};

/* Bit pair of value j of 256, of the 64 bytes of Q2_K and Q3_K. */
inline __device__ int kvr_pair(const uint8_t *in, int j)
{
    return in[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3;
}

struct kvr_q2_k {
    enum { BLOCK = 256, BYTES = 84 };
    static __device__ float at(const uint8_t *in, int j)
    {
        const int both = in[j / 16];
        const float scale = kvr_stored_half(in + 80) * (float)(both & 15);
        const float minimum = kvr_stored_half(in + 82) * (float)(both >> 4);
        return scale * (float)kvr_pair(in + 16, j) - minimum;
    }
};

struct kvr_q3_k {
    enum { BLOCK = 256, BYTES = 110 };
    static __device__ int group_scale(const uint8_t *s, int g)
    {
        const int low = s[g % 8] >> g / 8 * 4 & 15;
        return (low | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32;
    }
    static __device__ float at(const uint8_t *in, int j)
    {
        const int high = in[j % 32] >> j / 32 & 1;
        const float scale =
            kvr_stored_half(in + 108) * (float)group_scale(in + 96, j / 16);
        return scale * (float)(kvr_pair(in + 32, j) + 4 * high - 4);
    }
};

/* Of group g of 8 in the 12 bytes of Q4_K and Q5_K. */
inline __device__ int kvr_six_bit_scale(const uint8_t *s, int g)
{
    return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
}

inline __device__ int kvr_six_bit_minimum(const uint8_t *s, int g)
{
    return g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
}

/* The value of `bits` in group g of a block that begins with d, dmin and 12
 * bytes of scales. */
inline __device__ float kvr_scaled(const uint8_t *in, int g, int bits)
{
    const float scale =
        kvr_stored_half(in) * (float)kvr_six_bit_scale(in + 4, g);
    const float minimum =
        kvr_stored_half(in + 2) * (float)kvr_six_bit_minimum(in + 4, g);

    return scale * (float)bits - minimum;
}

struct kvr_q4_k {
    enum { BLOCK = 256, BYTES = 144 };
    static __device__ float at(const uint8_t *in, int j)
    {
        const int low = in[16 + j / 64 * 32 + j % 32] >> j / 32 % 2 * 4 & 15;
        return kvr_scaled(in, j / 32, low);
    }
};

struct kvr_q5_k {
    enum { BLOCK = 256, BYTES = 176 };
    static __device__ float at(const uint8_t *in, int j)
    {
        const int low = in[48 + j / 64 * 32 + j % 32] >> j / 32 % 2 * 4 & 15;
        const int high = in[16 + j % 32] >> j / 32 & 1;
        return kvr_scaled(in, j / 32, low | high << 4);
    }
};

struct kvr_q6_k {
    enum { BLOCK = 256, BYTES = 210 };
    static __device__ float at(const uint8_t *in, int j)
    {
        const int part = j / 128, run = j % 128 / 32;
        const int low = in[part * 64 + run % 2 * 32 + j % 32] >> run / 2 * 4;
        const int high = in[128 + part * 32 + j % 32] >> run * 2;
        const float scale =
            kvr_stored_half(in + 208) * (float)(int8_t)in[192 + j / 16];
        return scale * (float)(((low & 15) | (high & 3) << 4) - 32);
    }
};

/* The 16 values of the IQ4 types, four to a word. */
inline __device__ float kvr_uneven(int q)
{
    constexpr uint32_t values[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u,
                                    0x71594535u};

    return (float)(int8_t)(values[q / 4] >> q % 4 * 8);
}

struct kvr_iq4_nl {
    enum { BLOCK = 32, BYTES = 18 };
    static __device__ float at(const uint8_t *in, int j)
    {
        return kvr_stored_half(in) * kvr_uneven(kvr_nibble(in + 2, j));
    }
};

struct kvr_iq4_xs {
    enum { BLOCK = 256, BYTES = 136 };
    static __device__ float at(const uint8_t *in, int j)
    {
        const int g = j / 32;
        const int low = in[4 + g / 2] >> g % 2 * 4 & 15;
        const int high = kvr_stored_16(in + 2) >> 2 * g & 3;
        const float scale =
            kvr_stored_half(in) * (float)((low | high << 4) - 32);
        return scale * kvr_uneven(kvr_nibble(in + 8 + 16 * g, j % 32));
    }
};

#endif
