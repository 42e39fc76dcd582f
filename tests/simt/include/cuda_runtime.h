/* cuda_runtime.h -- stands in for the toolkit's header when the host compiler
 * builds the kernels and those who call them.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_CUDA_RUNTIME_H
#define SIMT_CUDA_RUNTIME_H

#include "simt_runtime.h"

#include "simt_device.h"

#endif
