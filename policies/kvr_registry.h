/* kvr_registry.h -- which policies there are, and what the user asked for.
 *
 * Room: policies. Rules see kvr_policy.h only; the simulator finds them here.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_REGISTRY_H
#define KVR_REGISTRY_H

#include "kvr_error.h"
#include "kvr_policy.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { KVR_MAX_PARAM = 16 };

/* Built-in policies and those of loaded plug-ins. */
struct kvr_registry;

enum kvr_status kvr_registry_new(struct kvr_registry **out,
                                 struct kvr_error *err) KVR_MUST_CHECK;
void kvr_registry_free(struct kvr_registry *registry); /* unloads plug-ins */

/* Loads `path`, checks its ABI number (both are named when they differ) and
 * its table, and adds it. A name that is taken is refused. */
enum kvr_status kvr_registry_load(struct kvr_registry *registry,
                                  const char *path,
                                  struct kvr_error *err) KVR_MUST_CHECK;

size_t kvr_registry_size(const struct kvr_registry *registry);
const struct kvr_policy *kvr_registry_at(const struct kvr_registry *registry,
                                         size_t i);
/* NULL where there is none. */
const struct kvr_policy *kvr_registry_find(const struct kvr_registry *registry,
                                           const char *name, size_t n);

/* Whether the table is whole: enums in range, known flags, a function in every
 * slot, one decision form, parameters with names of their own. */
enum kvr_status kvr_policy_valid(const struct kvr_policy *policy,
                                 struct kvr_error *err) KVR_MUST_CHECK;

/* The class that a valid table's needs allow: what it says itself, unless it
 * reads what comes (offline, look-ahead), the whole recorded row (bound), or
 * hides tokens that it keeps (mask). */
enum kvr_class kvr_policy_class(const struct kvr_policy *policy);

/* A row of this program, not of a plug-in. */
bool kvr_policy_built_in(const struct kvr_policy *policy);

/* "name:key=value,..." as the user wrote it. */
struct kvr_policy_spec {
    const struct kvr_policy *policy;
    char *text;                 /* what tables print; owned */
    char *value[KVR_MAX_PARAM]; /* owned; NULL: the default */
};

/* Parses a list of policies: "h2o:recent=10,decay=0.9,lru". An item that has
 * '=' and no ':' before it belongs to the rule before it. Appends to *specs
 * (grown with realloc; kvr_policy_specs_free). */
enum kvr_status kvr_policy_specs_parse(struct kvr_policy_spec **specs,
                                       size_t *n,
                                       const struct kvr_registry *registry,
                                       const char *text,
                                       struct kvr_error *err) KVR_MUST_CHECK;
void kvr_policy_specs_free(struct kvr_policy_spec *specs, size_t n);

/* The values of a spec at budget B, in the order of the rows. *clamped is set
 * when a count of tokens was above B and became B. */
enum kvr_status kvr_policy_args(struct kvr_arg args[KVR_MAX_PARAM],
                                bool *clamped,
                                const struct kvr_policy_spec *spec,
                                uint32_t budget,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* Words of the enums, as tables print them. */
const char *kvr_class_name(enum kvr_class class_of);
const char *kvr_observe_name(enum kvr_observe observe);
const char *kvr_group_name(enum kvr_group group);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
