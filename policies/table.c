/* table.c -- is a policy's table whole, and what does it make of the rule?
 *
 * Tables come from plug-ins too: every enum, every slot and every row is judged
 * before it is used.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_registry.h"

#include <string.h>

enum {
    ALL_NEEDS = KVR_NEEDS_ACCESS | KVR_NEEDS_RANDOM | KVR_NEEDS_NEXT_ACCESS |
                KVR_NEEDS_FUTURE_MASS | KVR_NEEDS_COLUMN_MASS | KVR_NEEDS_TOP |
                KVR_NEEDS_SCHEDULE | KVR_KEEPS_ALL,
};

static bool name_valid(const char *name)
{
    const size_t n = name != NULL ? strlen(name) : 0;

    return n > 0 && n < 64 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static enum kvr_status check_param(const struct kvr_policy *policy, size_t n,
                                   struct kvr_error *err)
{
    const struct kvr_param *p = &policy->params[n];

    if (!name_valid(p->name) || p->fallback == NULL || p->help == NULL)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: parameter %zu lacks its name, default or "
                        "help",
                        policy->name, n);
    if ((unsigned)p->type > KVR_PARAM_CHOICE)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: parameter %s is of type %d, expected 0 to "
                        "%d",
                        policy->name, p->name, (int)p->type, KVR_PARAM_CHOICE);
    if (p->type == KVR_PARAM_CHOICE && p->choices == NULL)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: parameter %s has no choices", policy->name,
                        p->name);
    for (size_t i = 0; i < n; i++)
        if (strcmp(policy->params[i].name, p->name) == 0)
            return kvr_fail(err, KVR_ERR_POLICY,
                            "policy %s: parameter %s stands twice",
                            policy->name, p->name);
    return KVR_OK;
}

static enum kvr_status check_params(const struct kvr_policy *policy,
                                    struct kvr_error *err)
{
    for (size_t n = 0; policy->params != NULL && policy->params[n].name != NULL;
         n++) {
        if (n >= KVR_MAX_PARAM)
            return kvr_fail(err, KVR_ERR_POLICY,
                            "policy %s: more than %d parameters", policy->name,
                            KVR_MAX_PARAM);
        const enum kvr_status status = check_param(policy, n, err);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

static enum kvr_status check_range(const struct kvr_policy *policy,
                                   const char *what, unsigned value,
                                   unsigned last, struct kvr_error *err)
{
    if (value <= last)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_POLICY,
                    "policy %s: %s is %d, expected 0 to %u", policy->name, what,
                    (int)value, last);
}

static enum kvr_status check_enums(const struct kvr_policy *policy,
                                   struct kvr_error *err)
{
    const struct {
        const char *what;
        unsigned value, last;
    } enums[] = {{"class_of", (unsigned)policy->class_of, KVR_CLASS_BOUND},
                 {"observe", (unsigned)policy->observe, KVR_OBSERVE_RAW},
                 {"group", (unsigned)policy->group, KVR_GROUP_PER_QUERY_HEAD},
                 {"scope", (unsigned)policy->scope, KVR_SCOPE_LAYER}};

    for (size_t i = 0; i < sizeof enums / sizeof enums[0]; i++) {
        const enum kvr_status status = check_range(
            policy, enums[i].what, enums[i].value, enums[i].last, err);
        if (status != KVR_OK)
            return status;
    }
    if ((policy->needs & ~(uint32_t)ALL_NEEDS) != 0)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: needs 0x%x, of which 0x%x is not known",
                        policy->name, policy->needs,
                        policy->needs & ~(uint32_t)ALL_NEEDS);
    return KVR_OK;
}

/* Tables of functions, one for each instruction set. */
static enum kvr_status check_slots(const struct kvr_policy *policy,
                                   struct kvr_error *err)
{
    const char *what = NULL;
    int slot = 0;

    for (int i = 0; i < KVR_ISA_SLOTS && what == NULL; i++) {
        slot = i;
        if (policy->update != NULL && policy->update[i] == NULL)
            what = "update";
        else if (policy->score != NULL && policy->score[i] == NULL)
            what = "score";
        else if (policy->victim != NULL && policy->victim[i] == NULL)
            what = "victim";
        else if (policy->mask != NULL && policy->mask[i] == NULL)
            what = "mask";
        else if (policy->observed != NULL && policy->observed[i] == NULL)
            what = "observed";
        else if (policy->rank != NULL && policy->rank[i] == NULL)
            what = "rank";
    }
    if (what == NULL)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_POLICY,
                    "policy %s: %s has no function for instruction set %d",
                    policy->name, what, slot);
}

static enum kvr_status check_forms(const struct kvr_policy *policy,
                                   struct kvr_error *err)
{
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
    if ((policy->rank != NULL || policy->constants != NULL) &&
        policy->update == NULL)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: rank and constants belong to update, "
                        "which it has not",
                        policy->name);
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
    enum kvr_status status = check_enums(policy, err);
    if (status == KVR_OK)
        status = check_slots(policy, err);
    if (status == KVR_OK)
        status = check_forms(policy, err);
    return status == KVR_OK ? check_params(policy, err) : status;
}

enum kvr_class kvr_policy_class(const struct kvr_policy *policy)
{
    const uint32_t future =
        KVR_NEEDS_NEXT_ACCESS | KVR_NEEDS_FUTURE_MASS | KVR_NEEDS_SCHEDULE;

    if (policy->class_of == KVR_CLASS_BOUND)
        return KVR_CLASS_BOUND;
    if ((policy->needs & future) != 0)
        return KVR_CLASS_OFFLINE;
    if (policy->class_of == KVR_CLASS_OFFLINE)
        return KVR_CLASS_OFFLINE;
    if ((policy->needs & KVR_NEEDS_COLUMN_MASS) != 0)
        return KVR_CLASS_LOOK_AHEAD;
    if ((policy->needs & KVR_NEEDS_TOP) != 0)
        return KVR_CLASS_BOUND;
    if (policy->mask != NULL && (policy->class_of == KVR_CLASS_ONLINE ||
                                 policy->class_of == KVR_CLASS_PROMPT_WINDOW))
        return KVR_CLASS_MASK;
    return policy->class_of;
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
    return (size_t)class_of < sizeof names / sizeof names[0] ? names[class_of]
                                                             : "?";
}

const char *kvr_observe_name(enum kvr_observe observe)
{
    static const char *const names[] = {
        [KVR_OBSERVE_NONE] = "none",
        [KVR_OBSERVE_RENORM] = "renorm",
        [KVR_OBSERVE_RAW] = "raw",
    };
    return (size_t)observe < sizeof names / sizeof names[0] ? names[observe]
                                                            : "?";
}

const char *kvr_group_name(enum kvr_group group)
{
    static const char *const names[] = {
        [KVR_GROUP_MEAN] = "mean",
        [KVR_GROUP_MAX] = "max",
        [KVR_GROUP_SUM] = "sum",
        [KVR_GROUP_PER_QUERY_HEAD] = "per-query-head",
    };
    return (size_t)group < sizeof names / sizeof names[0] ? names[group] : "?";
}
