/* registry.c -- the list of policies: built-in rows, then plug-ins.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_registry.h"

#include "kvr_memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define KVR_POLICY(symbol) extern const struct kvr_policy kvr__policy_##symbol;
#include "registry.def"
#undef KVR_POLICY

static const struct kvr_policy *const built_in[] = {
#define KVR_POLICY(symbol) &kvr__policy_##symbol,
#include "registry.def"
#undef KVR_POLICY
};

enum { N_BUILT_IN = sizeof built_in / sizeof built_in[0] };

struct plugin {
    void *handle;
    const struct kvr_policy *policy;
};

struct kvr_registry {
    struct plugin *plugin;
    size_t n_plugin, capacity;
};

enum kvr_status kvr_registry_new(struct kvr_registry **out,
                                 struct kvr_error *err)
{
    *out = kvr_calloc(1, sizeof **out);
    if (*out == NULL)
        return kvr_no_memory(err, "the policies", sizeof **out);
    return KVR_OK;
}

void kvr_registry_free(struct kvr_registry *registry)
{
    if (registry == NULL)
        return;
    for (size_t i = 0; i < registry->n_plugin; i++)
        dlclose(registry->plugin[i].handle);
    free(registry->plugin);
    free(registry);
}

size_t kvr_registry_size(const struct kvr_registry *registry)
{
    return N_BUILT_IN + registry->n_plugin;
}

const struct kvr_policy *kvr_registry_at(const struct kvr_registry *registry,
                                         size_t i)
{
    return i < N_BUILT_IN ? built_in[i]
                          : registry->plugin[i - N_BUILT_IN].policy;
}

const struct kvr_policy *kvr_registry_find(const struct kvr_registry *registry,
                                           const char *name, size_t n)
{
    for (size_t i = 0; i < kvr_registry_size(registry); i++) {
        const struct kvr_policy *p = kvr_registry_at(registry, i);
        if (strlen(p->name) == n && memcmp(p->name, name, n) == 0)
            return p;
    }
    return NULL;
}

bool kvr_policy_built_in(const struct kvr_policy *policy)
{
    for (size_t i = 0; i < N_BUILT_IN; i++)
        if (built_in[i] == policy)
            return true;
    return false;
}

/* Every parameter's default, read as a user's value would be. */
static enum kvr_status check_defaults(const struct kvr_policy *policy,
                                      struct kvr_error *err)
{
    const struct kvr_policy_spec spec = {.policy = policy};
    struct kvr_arg args[KVR_MAX_PARAM];
    bool clamped;
    const enum kvr_status status =
        kvr_policy_args(args, &clamped, &spec, 1024, err);

    if (status == KVR_OK)
        return KVR_OK;
    kvr_error_prefix(err, "policy %s: a default", policy->name);
    return KVR_ERR_POLICY;
}

static enum kvr_status add(struct kvr_registry *registry, void *handle,
                           const struct kvr_policy *policy,
                           struct kvr_error *err)
{
    if (policy == NULL)
        return kvr_fail(err, KVR_ERR_POLICY, "it hands out no policy");
    enum kvr_status status = kvr_policy_valid(policy, err);
    if (status == KVR_OK)
        status = check_defaults(policy, err);
    if (status != KVR_OK)
        return status;
    if ((policy->needs & KVR_NEEDS_SCHEDULE) != 0)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: only a built-in row may name a schedule",
                        policy->name);
    if (kvr_registry_find(registry, policy->name, strlen(policy->name)) != NULL)
        return kvr_fail(err, KVR_ERR_USAGE, "policy %s exists already",
                        policy->name);
    if (!kvr_grow((void **)&registry->plugin, &registry->capacity,
                  registry->n_plugin + 1, sizeof *registry->plugin))
        return kvr_no_memory(err, "a plug-in", sizeof *registry->plugin);
    registry->plugin[registry->n_plugin++] =
        (struct plugin){.handle = handle, .policy = policy};
    return KVR_OK;
}

enum kvr_status kvr_registry_load(struct kvr_registry *registry,
                                  const char *path, struct kvr_error *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    kvr_plugin_fn entry;

    if (handle == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "plug-in %s: %s", path, dlerror());
    void *symbol = dlsym(handle, KVR_PLUGIN_SYMBOL);
    if (symbol == NULL) {
        dlclose(handle);
        return kvr_fail(err, KVR_ERR_INPUT,
                        "plug-in %s: the symbol %s is missing", path,
                        KVR_PLUGIN_SYMBOL);
    }
    memcpy(&entry, &symbol, sizeof entry);
    const enum kvr_status status = add(registry, handle, entry(), err);
    if (status != KVR_OK) {
        dlclose(handle);
        kvr_error_prefix(err, "plug-in %s", path);
    }
    return status;
}
