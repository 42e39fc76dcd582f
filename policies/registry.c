/* registry.c -- the list of policies: built-in rows, then plug-ins.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_registry.h"

#include "kvr_memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define KVR_POLICY(symbol) extern const struct kvr_policy kvr_policy_##symbol;
#include "registry.def"
#undef KVR_POLICY

static const struct kvr_policy *const built_in[] = {
#define KVR_POLICY(symbol) &kvr_policy_##symbol,
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

static bool name_valid(const char *name)
{
    const size_t n = name != NULL ? strlen(name) : 0;

    return n > 0 && n < 64 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static enum kvr_status check_params(const struct kvr_policy *policy,
                                    struct kvr_error *err)
{
    size_t n = 0;

    for (const struct kvr_param *p = policy->params;
         p != NULL && p->name != NULL; p++, n++) {
        if (!name_valid(p->name) || p->fallback == NULL || p->help == NULL)
            return kvr_fail(err, KVR_ERR_POLICY,
                            "policy %s: parameter %zu lacks its name, "
                            "default or help",
                            policy->name, n);
        if (p->type == KVR_PARAM_CHOICE && p->choices == NULL)
            return kvr_fail(err, KVR_ERR_POLICY,
                            "policy %s: parameter %s has no choices",
                            policy->name, p->name);
    }
    if (n > KVR_MAX_PARAM)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: %zu parameters, at most %d", policy->name,
                        n, KVR_MAX_PARAM);
    return KVR_OK;
}

enum kvr_status kvr_policy_valid(const struct kvr_policy *policy,
                                 struct kvr_error *err)
{
    if (policy->abi != KVR_POLICY_ABI)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "the policy was built for interface %u, this program "
                        "has interface %u",
                        policy->abi, (unsigned)KVR_POLICY_ABI);
    if (!name_valid(policy->name) || policy->summary == NULL ||
        policy->cite == NULL)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "a policy lacks its name (lower-case with hyphens), "
                        "summary or citation");
    const int forms = (policy->update != NULL) + (policy->score != NULL) +
                      (policy->victim != NULL) + (policy->mask != NULL) +
                      ((policy->needs & KVR_NEEDS_SCHEDULE) != 0) +
                      ((policy->needs & KVR_KEEPS_ALL) != 0);
    if (forms != 1)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: %d ways to decide, expected exactly one "
                        "of update, score, victim, mask",
                        policy->name, forms);
    if ((policy->update != NULL || policy->observed != NULL) &&
        policy->observe == KVR_OBSERVE_NONE)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: sees rows but observes none", policy->name);
    return check_params(policy, err);
}

static enum kvr_status add(struct kvr_registry *registry, void *handle,
                           const struct kvr_policy *policy,
                           struct kvr_error *err)
{
    if (policy == NULL)
        return kvr_fail(err, KVR_ERR_POLICY, "it hands out no policy");
    enum kvr_status status = kvr_policy_valid(policy, err);
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
    if (add(registry, handle, entry(), err) != KVR_OK) {
        dlclose(handle);
        return kvr_error_prefix(err, "plug-in %s", path);
    }
    return KVR_OK;
}

const char *kvr_class_name(enum kvr_class class_of)
{
    static const char *const names[] = {
        [KVR_CLASS_ONLINE] = "online",
        [KVR_CLASS_PROMPT_WINDOW] = "prompt-window",
        [KVR_CLASS_LOOK_AHEAD] = "look-ahead",
        [KVR_CLASS_OFFLINE] = "offline",
        [KVR_CLASS_MASK] = "mask",
        [KVR_CLASS_SAMPLE] = "sample",
        [KVR_CLASS_BOUND] = "bound",
    };
    return names[class_of];
}

const char *kvr_observe_name(enum kvr_observe observe)
{
    static const char *const names[] = {
        [KVR_OBSERVE_NONE] = "none",
        [KVR_OBSERVE_RENORM] = "renorm",
        [KVR_OBSERVE_RAW] = "raw",
    };
    return names[observe];
}

const char *kvr_group_name(enum kvr_group group)
{
    static const char *const names[] = {
        [KVR_GROUP_MEAN] = "mean",
        [KVR_GROUP_MAX] = "max",
        [KVR_GROUP_SUM] = "sum",
        [KVR_GROUP_PER_QUERY_HEAD] = "per-query-head",
    };
    return names[group];
}
