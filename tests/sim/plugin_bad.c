/* plugin_bad.c -- plug-ins with one fault each, given by definitions:
 * PLUGIN_SYMBOL, PLUGIN_ABI, PLUGIN_NAME, PLUGIN_NEEDS, PLUGIN_TABLE.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

KVR_INLINE uint32_t first(void *state, const struct kvr_view *view)
{
    (void)state;
    return kvr_oldest(view);
}
KVR_VICTIM(first)

extern const struct kvr_policy bad_policy;
const struct kvr_policy bad_policy = {
    .abi = PLUGIN_ABI,
    .name = PLUGIN_NAME,
    .summary = "the oldest token leaves",
    .cite = "test",
    .needs = PLUGIN_NEEDS,
    .victim = PLUGIN_NEEDS == 0 ? first_isa : NULL,
};

const struct kvr_policy *PLUGIN_SYMBOL(void);
const struct kvr_policy *PLUGIN_SYMBOL(void)
{
    return PLUGIN_TABLE;
}
