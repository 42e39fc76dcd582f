/* expand.cu -- one thread a value: stores are coalesced, and the bytes of a
 * block, read by neighbouring lanes, come from the first-level cache. Done
 * once per weight, so that memory, not arithmetic, is what it waits for.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "expand.cuh"

#include "launch.cuh"
#include "stored.cuh"

enum { BLOCK = 256 };

template <class Out, class Stored>
static __global__ void expand(Out *out, const uint8_t *in, uint64_t n)
{
    for (uint64_t i = kvr_grid_thread(); i < n; i += kvr_grid_threads()) {
        const uint8_t *block = in + i / Stored::BLOCK * Stored::BYTES;
        kvr_round(&out[i], Stored::at(block, (int)(i % Stored::BLOCK)));
    }
}

/* What a stored type asks of `Use`, a struct with of<Stored>(); false: no
 * such type. The numbers are those of quant.c's table. */
template <class Use> static bool with_type(uint32_t stored_type, Use &use)
{
    switch (stored_type) {
    case 0:
        return use.template of<kvr_f32>();
    case 1:
        return use.template of<kvr_f16>();
    case 2:
        return use.template of<kvr_q4_0>();
    case 3:
        return use.template of<kvr_q4_1>();
    case 6:
        return use.template of<kvr_q5_0>();
    case 7:
        return use.template of<kvr_q5_1>();
    case 8:
        return use.template of<kvr_q8_0>();
    case 10:
        return use.template of<kvr_q2_k>();
    case 11:
        return use.template of<kvr_q3_k>();
    case 12:
        return use.template of<kvr_q4_k>();
    case 13:
        return use.template of<kvr_q5_k>();
    case 14:
        return use.template of<kvr_q6_k>();
    case 20:
        return use.template of<kvr_iq4_nl>();
    case 23:
        return use.template of<kvr_iq4_xs>();
    case 30:
        return use.template of<kvr_bf16>();
    default:
        return false;
    }
}

struct nothing {
    template <class Stored> bool of()
    {
        return true;
    }
};

bool kvr_cuda_expands(uint32_t stored_type)
{
    struct nothing use;

    return with_type(stored_type, use);
}

template <class Out> struct expansion {
    Out *out;
    const uint8_t *in;
    uint64_t n;
    cudaStream_t stream;
    cudaError_t error;

    template <class Stored> bool of()
    {
        error = kvr_launch(expand<Out, Stored>, kvr_blocks(n, BLOCK), BLOCK, 0,
                           stream, out, in, n);
        return true;
    }
};

template <class Out>
static cudaError_t expand_to(void *out, const uint8_t *in, uint32_t stored_type,
                             uint64_t n, cudaStream_t stream)
{
    struct expansion<Out> use = {
        (Out *)out, in, n, stream, cudaSuccess
    };

    return with_type(stored_type, use) ? use.error : cudaErrorInvalidValue;
}

cudaError_t kvr_cuda_expand(void *out, enum kvr_cuda_type type,
                            const uint8_t *in, uint32_t stored_type, uint64_t n,
                            cudaStream_t stream)
{
    switch (type) {
    case KVR_CUDA_F32:
        return expand_to<float>(out, in, stored_type, n, stream);
    case KVR_CUDA_F16:
        return expand_to<__half>(out, in, stored_type, n, stream);
    case KVR_CUDA_BF16:
        return expand_to<__nv_bfloat16>(out, in, stored_type, n, stream);
    }
    return cudaErrorInvalidValue;
}

template <class Out>
static __global__ void narrow(Out *out, const float *in, uint64_t n)
{
    for (uint64_t i = kvr_grid_thread(); i < n; i += kvr_grid_threads())
        kvr_round(&out[i], in[i]);
}

cudaError_t kvr_cuda_narrow(void *out, enum kvr_cuda_type type, const float *in,
                            uint64_t n, cudaStream_t stream)
{
    const dim3 grid = kvr_blocks(n, BLOCK);

    switch (type) {
    case KVR_CUDA_F32:
        return kvr_launch(narrow<float>, grid, BLOCK, 0, stream, (float *)out,
                          in, n);
    case KVR_CUDA_F16:
        return kvr_launch(narrow<__half>, grid, BLOCK, 0, stream, (__half *)out,
                          in, n);
    case KVR_CUDA_BF16:
        return kvr_launch(narrow<__nv_bfloat16>, grid, BLOCK, 0, stream,
                          (__nv_bfloat16 *)out, in, n);
    }
    return cudaErrorInvalidValue;
}
