/* kernels.cuh -- what every launcher of this folder shares.
 *
 * A launcher starts one operation on a stream and returns the launch's error;
 * its pointers are on the device. Matrices are row-major without gaps.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CUDA_KERNELS_CUH
#define KVR_CUDA_KERNELS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* How weights lie on the device, and rows on their way to the host. */
enum kvr_cuda_type {
    KVR_CUDA_F32,
    KVR_CUDA_F16,
    KVR_CUDA_BF16,
};

/* Where the first row that is not finite is noted: 0 where all were, else
 * UINT64_MAX - (layer << 48 | head << 32 | step), kept by atomicMax, so that
 * the lowest layer, head and step win. */
typedef unsigned long long kvr_cuda_bad;

#endif
