/* foreign.c -- rules from plug-ins, watched.
 *
 * A built-in rule is tested with this program; one from a plug-in may slip.
 * What it did not ask for it is shown as poison, its state lies between two
 * guards, and its answers are judged. A slip is an error that names the rule,
 * its head and its step; the other rules go on.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 4096, GUARD_BYTE = 0xa5 };

/* Poison for what a view shows: reals are no number, positions and flags have
 * values that no step gives. */
struct poison {
    double *mass;
    kvr_real *weight;
    uint32_t *next;
    int32_t *flags;
};

enum kvr_status kvr__poison_new(struct poison **out, size_t stride,
                                struct kvr_error *err)
{
    struct poison *p = kvr_calloc(1, sizeof *p);

    *out = p;
    if (p != NULL) {
        p->mass = kvr_aligned_calloc(stride, sizeof *p->mass);
        p->weight = kvr_aligned_calloc(stride, sizeof *p->weight);
        p->next = kvr_aligned_calloc(stride, sizeof *p->next);
        p->flags = kvr_aligned_calloc(stride, sizeof *p->flags);
    }
    if (p == NULL || !p->mass || !p->weight || !p->next || !p->flags)
        return kvr_no_memory(err, "a plug-in's inputs", stride);
    for (size_t i = 0; i < stride; i++) {
        p->mass[i] = NAN;
        p->weight[i] = (kvr_real)NAN;
        p->next[i] = 0xdeadbeef;
        p->flags[i] = 0x5a5a5a5a;
    }
    return KVR_OK;
}

void kvr__poison_free(struct poison *p)
{
    if (p == NULL)
        return;
    free(p->mass);
    free(p->weight);
    free(p->next);
    free(p->flags);
    free(p);
}

void kvr__foreign_hide(const struct unit *u, const struct plan *plan,
                       struct kvr_view *view)
{
    const uint32_t needs = u->run->policy->needs;
    const struct poison *p = plan->poison;

    if ((needs & KVR_NEEDS_NEXT_ACCESS) == 0)
        view->next_access = p->next;
    if ((needs & KVR_NEEDS_FUTURE_MASS) == 0)
        view->future_mass = p->mass;
    if ((needs & KVR_NEEDS_COLUMN_MASS) == 0)
        view->column_mass = p->mass;
    if ((needs & KVR_NEEDS_TOP) == 0) {
        view->recorded = p->mass;
        view->top_least = NAN;
    }
    view->weight = p->weight; /* until its row was reduced */
    view->accessed = p->flags;
}

uint8_t *kvr__foreign_state(size_t size)
{
    uint8_t *all = size > SIZE_MAX - 3 * GUARD
                       ? NULL
                       : kvr_aligned_calloc(size + 2 * GUARD, 1);

    if (all == NULL)
        return NULL;
    memset(all, GUARD_BYTE, GUARD);
    memset(all + GUARD + size, GUARD_BYTE, GUARD);
    return all + GUARD;
}

void kvr__foreign_state_free(void *state)
{
    if (state != NULL)
        free((uint8_t *)state - GUARD);
}

const char *kvr__foreign_slip(const struct unit *u)
{
    const uint8_t *state = u->state;

    if (u->drew_unasked)
        return "it draws random numbers without KVR_NEEDS_RANDOM";
    if (state == NULL)
        return NULL;
    for (size_t i = 0; i < GUARD; i++)
        if (state[u->state_size + i] != GUARD_BYTE ||
            state[-1 - (long)i] != GUARD_BYTE)
            return "it wrote outside of its state (state_size is too small)";
    return NULL;
}

uint32_t kvr__foreign_no_number(const struct unit *u,
                                const struct kvr_view *view,
                                const kvr_real *key, const kvr_real *second)
{
    for (uint32_t i = view->first; i < view->last; i++)
        if (u->resident[i] != 0 &&
            (isnan(key[i]) || (second != NULL && isnan(second[i]))))
            return i;
    return UINT32_MAX;
}

bool kvr__foreign_constant(kvr_real out[4], const struct kvr_policy *policy,
                           const struct kvr_setting *setting)
{
    /* room behind the four, in case it takes them for more */
    kvr_real written[64];

    for (size_t i = 0; i < 64; i++)
        written[i] = (kvr_real)-1.5;
    written[0] = 0;
    policy->constants(setting, written);
    for (size_t i = 1; i < 64; i++)
        if (written[i] != (kvr_real)-1.5)
            return false;
    out[0] = written[0];
    return true;
}
