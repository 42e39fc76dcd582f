/* spec.c -- "h2o:recent=10%,decay=0.9,lru" as policies and values.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_registry.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void clear(struct kvr_policy_spec *spec)
{
    free(spec->text);
    for (size_t i = 0; i < KVR_MAX_PARAM; i++)
        free(spec->value[i]);
}

void kvr_policy_specs_free(struct kvr_policy_spec *specs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        clear(&specs[i]);
    free(specs);
}

static enum kvr_status unknown_param(const struct kvr_policy *policy,
                                     const char *key, size_t n,
                                     struct kvr_error *err)
{
    char known[512] = "";
    size_t used = 0;

    for (const struct kvr_param *p = policy->params;
         p != NULL && p->name != NULL; p++) {
        const size_t length = strlen(p->name);
        if (used + length + 2 >= sizeof known)
            break;
        known[used++] = ' ';
        memcpy(known + used, p->name, length + 1);
        used += length;
    }
    return kvr_fail(err, KVR_ERR_USAGE,
                    "policy %s has no parameter '%.*s'; it has:%s",
                    policy->name, (int)n, key, used != 0 ? known : " none");
}

/* Takes "key=value" of n bytes into the spec. */
static enum kvr_status take_value(struct kvr_policy_spec *spec,
                                  const char *item, size_t n,
                                  struct kvr_error *err)
{
    const struct kvr_policy *policy = spec->policy;
    const char *equals = memchr(item, '=', n);

    if (equals == NULL)
        return kvr_fail(err, KVR_ERR_USAGE, "policy %s: '%.*s' is no key=value",
                        policy->name, (int)n, item);
    const size_t key = (size_t)(equals - item);
    for (size_t i = 0; policy->params != NULL && i < KVR_MAX_PARAM &&
                       policy->params[i].name != NULL;
         i++) {
        const char *name = policy->params[i].name;
        if (strlen(name) != key || memcmp(name, item, key) != 0)
            continue;
        if (spec->value[i] != NULL)
            return kvr_fail(err, KVR_ERR_USAGE, "policy %s: %s is given twice",
                            policy->name, name);
        spec->value[i] = kvr_strndup(equals + 1, n - key - 1);
        return spec->value[i] != NULL ? KVR_OK
                                      : kvr_no_memory(err, "a parameter", n);
    }
    return unknown_param(policy, item, key, err);
}

static enum kvr_status unknown_policy(const struct kvr_registry *registry,
                                      const char *name, size_t n,
                                      struct kvr_error *err)
{
    char known[768] = "";
    size_t used = 0;

    for (size_t i = 0; i < kvr_registry_size(registry); i++) {
        const char *other = kvr_registry_at(registry, i)->name;
        const size_t length = strlen(other);
        if (used + length + 2 >= sizeof known)
            break;
        known[used++] = ' ';
        memcpy(known + used, other, length + 1);
        used += length;
    }
    return kvr_fail(err, KVR_ERR_USAGE, "unknown policy '%.*s'; there are:%s",
                    (int)n, name, known);
}

/* Appends a spec for "name" or "name:key=value". */
static enum kvr_status open_spec(struct kvr_policy_spec **specs, size_t *n,
                                 const struct kvr_registry *registry,
                                 const char *item, size_t length,
                                 struct kvr_error *err)
{
    const char *colon = memchr(item, ':', length);
    const size_t name = colon != NULL ? (size_t)(colon - item) : length;
    const struct kvr_policy *policy = kvr_registry_find(registry, item, name);

    if (policy == NULL)
        return unknown_policy(registry, item, name, err);
    struct kvr_policy_spec *grown = realloc(*specs, (*n + 1) * sizeof **specs);
    if (grown == NULL)
        return kvr_no_memory(err, "policies", (*n + 1) * sizeof **specs);
    *specs = grown;
    struct kvr_policy_spec *spec = &grown[(*n)++];
    *spec = (struct kvr_policy_spec){.policy = policy};
    spec->text = kvr_strndup(item, length);
    if (spec->text == NULL)
        return kvr_no_memory(err, "a policy", length);
    if (colon == NULL)
        return KVR_OK;
    return take_value(spec, colon + 1, length - name - 1, err);
}

/* Adds ",key=value" to the last spec and to its text. */
static enum kvr_status extend_spec(struct kvr_policy_spec *spec,
                                   const char *item, size_t length,
                                   struct kvr_error *err)
{
    const size_t old = strlen(spec->text);
    char *text = malloc(old + length + 2);

    if (text == NULL)
        return kvr_no_memory(err, "a policy", old + length);
    memcpy(text, spec->text, old);
    text[old] = strchr(spec->text, ':') != NULL ? ',' : ':';
    memcpy(text + old + 1, item, length);
    text[old + 1 + length] = '\0';
    free(spec->text);
    spec->text = text;
    return take_value(spec, item, length, err);
}

/* Length of an item: up to a comma outside braces. */
static size_t item_length(const char *text)
{
    size_t n = 0;

    for (int depth = 0; text[n] != '\0'; n++) {
        depth += (text[n] == '{') - (text[n] == '}');
        if (text[n] == ',' && depth <= 0)
            break;
    }
    return n;
}

enum kvr_status kvr_policy_specs_parse(struct kvr_policy_spec **specs,
                                       size_t *n,
                                       const struct kvr_registry *registry,
                                       const char *text, struct kvr_error *err)
{
    const size_t before = *n;

    for (;;) {
        const size_t length = item_length(text);
        const char *equals = memchr(text, '=', length);
        const char *colon = memchr(text, ':', length);
        const bool more = equals != NULL && (colon == NULL || colon > equals);
        enum kvr_status status;
        if (more && *n > before)
            status = extend_spec(&(*specs)[*n - 1], text, length, err);
        else
            status = open_spec(specs, n, registry, text, length, err);
        if (status != KVR_OK || text[length] == '\0')
            return status;
        text += length + 1;
    }
}

/* A count of tokens: "10", "25%", "B/2". */
static bool read_tokens(uint32_t *count, const char *text, uint32_t budget)
{
    const size_t n = strlen(text);
    double percent;
    uint32_t divisor;

    if (n > 2 && text[0] == 'B' && text[1] == '/') {
        if (!kvr_parse_u32(&divisor, text + 2, n - 2) || divisor == 0)
            return false;
        *count = budget / divisor;
        return true;
    }
    if (n > 1 && text[n - 1] == '%') {
        if (!kvr_parse_real(&percent, text, n - 1) || percent < 0 ||
            percent > 100)
            return false;
        const double tokens = floor(percent * budget / 100 + 0.5);
        *count = percent > 0 && tokens < 1 ? 1 : (uint32_t)tokens;
        return true;
    }
    return kvr_parse_u32(count, text, n);
}

static bool read_choice(uint32_t *count, const char *text, const char *choices)
{
    const size_t n = strlen(text);

    for (uint32_t i = 0;; i++) {
        const size_t length = strcspn(choices, "|");
        if (length == n && memcmp(choices, text, n) == 0) {
            *count = i;
            return true;
        }
        if (choices[length] == '\0')
            return false;
        choices += length + 1;
    }
}

static enum kvr_status read_value(struct kvr_arg *arg, bool *clamped,
                                  const struct kvr_policy *policy,
                                  const struct kvr_param *p, const char *text,
                                  uint32_t budget, struct kvr_error *err)
{
    bool ok = false;

    if (p->type == KVR_PARAM_TOKENS) {
        ok = read_tokens(&arg->count, text, budget);
        if (ok && arg->count > budget) {
            arg->count = budget;
            *clamped = true;
        }
    } else if (p->type == KVR_PARAM_CHOICE) {
        if (read_choice(&arg->count, text, p->choices))
            return KVR_OK;
        return kvr_fail(err, KVR_ERR_USAGE, "policy %s: %s=%s, expected %s",
                        policy->name, p->name, text, p->choices);
    } else if (p->type == KVR_PARAM_COUNT) {
        ok = kvr_parse_u32(&arg->count, text, strlen(text));
        arg->real = arg->count;
    } else {
        ok = kvr_parse_real(&arg->real, text, strlen(text));
    }
    if (!ok)
        return kvr_fail(err, KVR_ERR_USAGE, "policy %s: %s=%s is not a number",
                        policy->name, p->name, text);
    if (p->type != KVR_PARAM_TOKENS &&
        (arg->real < p->min || (p->max != 0 && arg->real > p->max)))
        return kvr_fail(err, KVR_ERR_USAGE,
                        "policy %s: %s=%s, expected %.15g to %.15g",
                        policy->name, p->name, text, p->min, p->max);
    return KVR_OK;
}

enum kvr_status kvr_policy_args(struct kvr_arg args[KVR_MAX_PARAM],
                                bool *clamped,
                                const struct kvr_policy_spec *spec,
                                uint32_t budget, struct kvr_error *err)
{
    const struct kvr_policy *policy = spec->policy;

    *clamped = false;
    memset(args, 0, KVR_MAX_PARAM * sizeof *args);
    for (size_t i = 0; policy->params != NULL && i < KVR_MAX_PARAM &&
                       policy->params[i].name != NULL;
         i++) {
        const struct kvr_param *p = &policy->params[i];
        const bool given = spec->value[i] != NULL;
        bool above = false;
        const enum kvr_status status =
            read_value(&args[i], &above, policy, p,
                       given ? spec->value[i] : p->fallback, budget, err);
        if (status != KVR_OK)
            return status;
        *clamped = *clamped || (above && given);
    }
    return KVR_OK;
}
