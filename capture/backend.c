/* backend.c -- which back end a capture runs on.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "backend.h"

enum kvr_status kvr_backend_choose(const struct kvr_backend **out,
                                   const char **why,
                                   enum kvr_backend_choice choice,
                                   struct kvr_error *err)
{
    if (choice == KVR_BACKEND_CUDA)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "--backend cuda: this build has no CUDA module; use "
                        "--backend cpu");
    *out = &kvr_backend_cpu;
    *why = choice == KVR_BACKEND_CPU ? "asked for"
                                     : "this build has no CUDA module";
    return KVR_OK;
}
