/* backend_module.c -- the CUDA back end, a module opened at run time: the
 * program itself depends on nothing of CUDA and starts anywhere.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "backend.h"

#include "kvr_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

/* Looked for from the program's own folder, in this order. */
static const char *const places[] = {"kvr_cuda.so",
                                     "../" KVR_MODULE_FOLDER "/kvr_cuda.so"};

/* The program's folder with its last slash, "" where it is not known. */
static void own_folder(char *out, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", out, size - 1);

    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash != NULL)
        slash[1] = '\0';
}

static enum kvr_status find_module(char *path, struct kvr_error *err)
{
    const char *named = getenv("KVREPLAY_CUDA_MODULE");
    char folder[PATH_SIZE];

    if (named != NULL && named[0] != '\0') {
        if (strlen(named) >= PATH_SIZE || strchr(named, '/') == NULL)
            return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                            "KVREPLAY_CUDA_MODULE=%s: expected a path with a "
                            "slash",
                            named);
        snprintf(path, PATH_SIZE, "%s", named);
        return KVR_OK;
    }
    own_folder(folder, sizeof folder);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int n = snprintf(path, PATH_SIZE, "%s%s", folder, places[i]);
        if (n > 0 && n < PATH_SIZE && kvr_file_exists(path))
            return KVR_OK;
    }
    return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                    "there is no CUDA module (kvr_cuda.so) beside the program; "
                    "build with -DKVR_CUDA=ON");
}

/* dlsym's object pointer as the function that it is. */
static kvr_backend_module_fn entry_of(void *library)
{
    void *symbol = dlsym(library, KVR_BACKEND_SYMBOL);
    kvr_backend_module_fn entry = NULL;

    memcpy(&entry, &symbol, sizeof entry);
    return entry;
}

enum kvr_status kvr__backend_load(const struct kvr_backend **out,
                                  struct kvr_error *err)
{
    char path[PATH_SIZE];
    enum kvr_status status = find_module(path, err);

    if (status != KVR_OK)
        return status;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "the CUDA module cannot be opened: %s",
                        reason != NULL ? reason : path);
    }
    const kvr_backend_module_fn entry = entry_of(library);
    const struct kvr_backend *table = entry != NULL ? entry() : NULL;
    if (table == NULL)
        status = kvr_fail(err, KVR_ERR_UNSUPPORTED,
                          "%s: is no CUDA module: it lacks " KVR_BACKEND_SYMBOL,
                          path);
    else if (table->abi != KVR_BACKEND_ABI)
        status = kvr_fail(err, KVR_ERR_UNSUPPORTED,
                          "%s: the module has ABI %u, this program %d; they "
                          "are built together",
                          path, table->abi, KVR_BACKEND_ABI);
    if (status != KVR_OK) {
        dlclose(library);
        return status;
    }
    *out = table;
    return KVR_OK;
}
