/* limits.c -- how many tokens a unit holds, which it may not let go, and what
 * it takes in memory.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t kvr__unit_capacity(const struct plan *plan,
                            const struct kvr_policy *policy, uint32_t budget)
{
    const struct kvr_sim_options *o = plan->options;
    uint32_t most = budget;

    if (o->when.kind == KVR_WHEN_PROMPT_END || budget >= plan->T ||
        (policy->needs & KVR_KEEPS_ALL) != 0 || policy->mask != NULL)
        return plan->T;
    most += o->budget_is_floor ? min_u32(batch_of(o), plan->T) : 1;
    return min_u32(max_u32(most, plan->P), plan->T);
}

/* Tokens that the mask ever leaves in a cache between steps. */
static uint32_t most_held(const struct layer_work *w)
{
    const uint32_t span = w->shape->span;

    return w->shape->mask == KVR_MASK_CAUSAL || span == 0 ? w->plan->T
                                                          : span - 1;
}

/* Where the mask alone keeps a cache within its budget nothing is evicted, at
 * any schedule: room for n more is room that nobody needs. */
void kvr__unit_set_limits(struct unit *u, const struct layer_work *w)
{
    const struct kvr_sim_options *o = w->plan->options;
    const uint32_t n = batch_of(o), budget = u->setting.budget;
    const uint32_t first = kvr_protect_tokens(&o->protect_first, budget);
    const uint32_t last = kvr_protect_tokens(&o->protect_last, budget);

    if (u->run->budget->tokens >= most_held(w)) {
        u->target = u->cap = budget;
    } else if (o->when.kind == KVR_WHEN_PROMPT_END || o->budget_is_floor) {
        u->target = budget;
        u->cap = n - 1 < UINT32_MAX - budget ? budget + n - 1 : UINT32_MAX;
    } else {
        u->target = budget >= n ? budget - n + 1 : 1;
        u->cap = budget;
    }
    /* In a narrow window layer the windows may exceed the places. */
    u->protect_last = min_u32(max_u32(last, u->window.last), u->target);
    u->protect_first =
        min_u32(max_u32(first, u->window.first), u->target - u->protect_last);
}

size_t kvr__unit_bytes(const struct plan *plan, const struct run *run,
                       uint32_t n_head)
{
    const struct kvr_setting setting = {
        .n_token = plan->T,
        .prompt_len = plan->P,
        .budget = run->budget->tokens,
        .capacity = kvr__unit_capacity(plan, run->policy, run->budget->tokens),
        .group_size = n_head,
        .arg = run->arg};
    const size_t rows = plan->score_last - plan->score_first + 1;
    size_t bytes = plan->stride * (sizeof(kvr_real) + sizeof(int32_t)) +
                   plan->words * sizeof(uint64_t) +
                   plan->T * 3 * sizeof(uint32_t) + sizeof(struct kvr_tally);

    bytes += (size_t)n_head * rows * sizeof(double);
    if (run->policy->state_size != NULL)
        bytes += run->policy->state_size(&setting);
    if (plan->needs_optimum)
        bytes += plan->T * sizeof(uint32_t);
    if (plan->options->schedules)
        bytes += plan->T * sizeof(struct kvr_eviction);
    if (plan->options->steps)
        bytes += rows * sizeof(struct kvr_step_row);
    return bytes;
}
