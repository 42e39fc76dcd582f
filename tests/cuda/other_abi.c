/* other_abi.c -- a module of another ABI: whatever else is in its table must
 * not be looked at. SPDX-License-Identifier: GPL-3.0-or-later */
#include "backend.h"

const struct kvr_backend *kvr_backend_module(void);

const struct kvr_backend *kvr_backend_module(void)
{
    static const struct {
        uint32_t abi;
    } old = {KVR_BACKEND_ABI - 1};

    return (const struct kvr_backend *)(const void *)&old;
}
