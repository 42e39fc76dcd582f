/* backend.c -- which back end a capture runs on, and why.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "backend.h"

#include <stdio.h>

enum kvr_status kvr__backend_choose(const struct kvr_backend **out, char *why,
                                    enum kvr_backend_choice choice,
                                    struct kvr_error *err)
{
    struct kvr_error failure = {0};
    const struct kvr_backend *cuda = NULL;
    char device[KVR_DEVICE_NAME] = "";
    enum kvr_status status;

    *out = &kvr__backend_cpu;
    if (choice == KVR_BACKEND_CPU) {
        snprintf(why, KVR_BACKEND_WHY, "asked for");
        return KVR_OK;
    }
    status = kvr__backend_load(&cuda, &failure);
    if (status == KVR_OK && cuda->probe != NULL)
        status = cuda->probe(device, &failure);
    if (status == KVR_OK) {
        *out = cuda;
        snprintf(why, KVR_BACKEND_WHY, "%s, %s",
                 choice == KVR_BACKEND_CUDA ? "asked for" : "there is a device",
                 device);
        return KVR_OK;
    }
    if (choice == KVR_BACKEND_CUDA)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "--backend cuda: %s; --backend cpu works everywhere",
                        failure.message);
    snprintf(why, KVR_BACKEND_WHY, "no CUDA: %s", failure.message);
    return KVR_OK;
}
