/* plan.c -- what a call will do: runs, refusals, and how much memory.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_log.h"
#include "kvr_memory.h"
#include "kvr_parallel.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that are left after an eviction of n at once. */
static uint32_t least_held(uint32_t budget, const struct kvr_sim_options *o)
{
    const uint32_t n = batch_of(o);

    return o->budget_is_floor ? budget : n <= budget ? budget - n + 1 : 0;
}

static enum kvr_status check_budget(const struct run *run,
                                    const struct kvr_sim_options *o,
                                    struct kvr_error *err)
{
    const uint32_t budget = run->budget->tokens;
    const uint32_t first = kvr_protect_tokens(&o->protect_first, budget);
    const uint32_t last = kvr_protect_tokens(&o->protect_last, budget);
    const uint32_t held = least_held(budget, o);

    if (budget == 0)
        return kvr_fail(err, KVR_ERR_USAGE, "--budget: 0 tokens");
    if (held == 0)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "budget %s is %u tokens: evicting %u at once leaves "
                        "none",
                        run->budget->spec, budget, o->when.n);
    if ((uint64_t)first + last > held)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "budget %s is %u tokens%s, less than the %u protected "
                        "ones (first %u, last %u)",
                        run->budget->spec, held,
                        held < budget ? " after an eviction" : "", first + last,
                        first, last);
    const uint32_t own_first =
        first > run->window.first ? first : run->window.first;
    const uint32_t own_last = last > run->window.last ? last : run->window.last;
    if ((uint64_t)own_first + own_last > held)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "policy %s, budget %s: %u tokens%s cannot hold the "
                        "first %u and the newest %u",
                        run->spec->text, run->budget->spec, held,
                        held < budget ? " after an eviction" : "", own_first,
                        own_last);
    return KVR_OK;
}

/* Settings under which a rule has no meaning. */
static enum kvr_status check_rule(const struct run *run,
                                  const struct kvr_sim_options *o,
                                  struct kvr_error *err)
{
    const struct kvr_policy *p = run->policy;

    if (o->stream_prefill && kvr_policy_class(p) == KVR_CLASS_PROMPT_WINDOW)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "policy %s decides at the end of the prompt: not "
                        "with --prefill stream",
                        p->name);
    if (o->stream_prefill && o->when.kind == KVR_WHEN_PROMPT_END)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--when prompt-end evicts at the end of the prompt: "
                        "not with --prefill stream");
    if ((p->needs & KVR_NEEDS_SCHEDULE) != 0 &&
        (o->stream_prefill || o->when.kind != KVR_WHEN_STEP))
        return kvr_fail(err, KVR_ERR_USAGE,
                        "policy %s schedules one eviction a step after a "
                        "whole prompt: not with --prefill stream or --when",
                        p->name);
    return KVR_OK;
}

static enum kvr_status fill_run(struct run *run, const struct plan *plan,
                                struct kvr_error *err)
{
    const struct kvr_sim_options *o = plan->options;
    const struct kvr_policy *base = run->spec->policy;
    struct kvr_setting setting = {
        .n_token = plan->T,
        .prompt_len = plan->P,
        .budget = run->budget->tokens,
        .capacity = kvr__unit_capacity(plan, base, run->budget->tokens),
        .n_layer = plan->rows->n_layer,
        .n_kv_head = 1,
        .group_size = 1,
        .arg = run->arg};
    enum kvr_status status = kvr_policy_args(run->arg, &run->clamped, run->spec,
                                             run->budget->tokens, err);

    if (status != KVR_OK)
        return status;
    run->policy = base;
    run->foreign = !kvr_policy_built_in(base);
    if (base->variant != NULL && base->variant(&setting) != NULL)
        run->policy = base->variant(&setting);
    status = kvr_policy_valid(run->policy, err);
    if (status != KVR_OK) {
        kvr_error_prefix(err, "policy %s, its variant", base->name);
        return status;
    }
    if (run->foreign && (run->policy->needs & KVR_NEEDS_SCHEDULE) != 0)
        return kvr_fail(err, KVR_ERR_POLICY,
                        "policy %s: only a built-in row may name a schedule",
                        base->name);
    const char *problem = base->check != NULL ? base->check(&setting) : NULL;
    if (problem != NULL)
        return kvr_fail(err, KVR_ERR_USAGE, "policy %s: %s", base->name,
                        problem);
    run->observe = run->policy->observe;
    if (o->observe >= 0 && run->observe != KVR_OBSERVE_NONE)
        run->observe = (enum kvr_observe)o->observe;
    run->group = run->policy->group;
    if (o->group >= 0)
        run->group = (enum kvr_group)o->group;
    if (run->policy->window != NULL)
        run->policy->window(&setting, &run->window);
    status = check_budget(run, o, err);
    if (status == KVR_OK)
        status = check_rule(run, o, err);
    if (status == KVR_OK && run->clamped)
        kvr_log(KVR_LOG_NOTE,
                "policy %s, budget %s: a parameter above B = %u was "
                "clamped to it",
                run->spec->text, run->budget->spec, run->budget->tokens);
    return status;
}

static void note_needs(struct plan *plan, const struct run *run)
{
    const uint32_t needs = run->policy->needs;

    plan->needs_top |= (needs & KVR_NEEDS_TOP) != 0;
    plan->needs_next |= (needs & KVR_NEEDS_NEXT_ACCESS) != 0;
    plan->needs_future |= (needs & KVR_NEEDS_FUTURE_MASS) != 0;
    plan->needs_column |= (needs & KVR_NEEDS_COLUMN_MASS) != 0;
    plan->needs_optimum |= (needs & KVR_NEEDS_SCHEDULE) != 0;
}

static enum kvr_status make_runs(struct plan *plan, struct kvr_error *err)
{
    const struct kvr_sim_options *o = plan->options;
    const uint32_t seeds = o->n_seed > 0 ? o->n_seed : 1;

    plan->runs =
        kvr_calloc(o->n_spec * o->n_budget * seeds, sizeof *plan->runs);
    if (plan->runs == NULL)
        return kvr_no_memory(err, "runs", o->n_spec * o->n_budget);
    plan->n_result = o->n_spec * o->n_budget;
    for (size_t s = 0; s < o->n_spec; s++)
        for (size_t b = 0; b < o->n_budget; b++) {
            const bool chance =
                (o->specs[s].policy->needs & KVR_NEEDS_RANDOM) != 0 ||
                o->ties == KVR_TIES_RANDOM;
            for (uint32_t r = 0; r < (chance ? seeds : 1); r++) {
                struct run *run = &plan->runs[plan->n_run++];
                *run = (struct run){.spec = &o->specs[s],
                                    .budget = &o->budgets[b],
                                    .budget_index = b,
                                    .result = s * o->n_budget + b,
                                    .replicate = r};
                const enum kvr_status status = fill_run(run, plan, err);
                if (status != KVR_OK)
                    return status;
                note_needs(plan, run);
            }
        }
    return KVR_OK;
}

static enum kvr_status pick_layers(struct plan *plan, struct kvr_error *err)
{
    const struct kvr_rows *rows = plan->rows;
    const struct kvr_sim_options *o = plan->options;

    plan->layer = kvr_calloc(rows->n_layer, sizeof *plan->layer);
    plan->first_cache =
        kvr_calloc((size_t)rows->n_layer + 1, sizeof *plan->first_cache);
    if (plan->layer == NULL || plan->first_cache == NULL)
        return kvr_no_memory(err, "layers", rows->n_layer);
    for (uint32_t l = 0; l < rows->n_layer; l++) {
        const struct kvr_layer_shape *shape = &rows->layers[l];
        if (o->layers != NULL && !o->layers[l])
            continue;
        const uint32_t n =
            plan->per_query_head ? shape->n_head : shape->n_kv_head;
        uint32_t chosen = 0;
        for (uint32_t c = 0; c < n; c++)
            chosen += o->heads == NULL || o->heads[c];
        plan->layer[plan->n_layer] = l;
        plan->first_cache[plan->n_layer + 1] =
            plan->first_cache[plan->n_layer] + chosen;
        plan->n_layer++;
    }
    if (plan->first_cache[plan->n_layer] == 0)
        return kvr_fail(err, KVR_ERR_USAGE, "no layer and head is left");
    return KVR_OK;
}

static enum kvr_status pick_rows(struct plan *plan, struct kvr_error *err)
{
    const struct kvr_sim_options *o = plan->options;

    plan->score_first = plan->P;
    plan->score_last = plan->T - 1;
    if (o->score_first == 0 && o->score_last == 0)
        return KVR_OK;
    if (o->score_first < plan->P || o->score_last < o->score_first ||
        o->score_last >= plan->T)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--score-rows %u..%u: expected decode rows, "
                        "%u..%u",
                        o->score_first, o->score_last, plan->P, plan->T - 1);
    plan->score_first = o->score_first;
    plan->score_last = o->score_last;
    return KVR_OK;
}

/* Which norms weigh the loss: those that every layer has. Weights are put on a
 * grid of 2^-30 of the largest norm of their layer (layer.c). */
static enum kvr_status find_values(struct plan *plan, struct kvr_error *err)
{
    const struct kvr_rows *rows = plan->rows;
    const float *value = NULL;
    uint32_t n = 0, n_head = 0;
    double least = HUGE_VAL, most = 0;

    if (rows->array == NULL)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "--loss value: these rows have no value norms");
    plan->value_array = KVR_VALUE_NORM2;
    for (uint32_t l = 0; l < rows->n_layer; l++) {
        enum kvr_status status =
            rows->array(rows->ud, l, plan->value_array, &value, &n, err);
        if (status == KVR_OK && value == NULL && l == 0) {
            plan->value_array = KVR_VALUE_OUT_NORM1;
            status =
                rows->array(rows->ud, l, plan->value_array, &value, &n, err);
        }
        if (status != KVR_OK)
            return status;
        if (value == NULL || n == 0)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "--loss value: layer %u has no value_norm2 or "
                            "value_out_norm1",
                            rows->layers[l].layer);
        const double scale = kvr__value_scale(value, (size_t)n * plan->T);
        least = fmin(least, scale);
        most = fmax(most, scale);
        n_head += rows->layers[l].n_head;
    }
    plan->scale = 0x1p30;
    /* What spans layers is in whole units of the finest layer, so that layers
     * may be added in any order; in larger ones where a double cannot hold
     * that, see on_grid(). */
    const double fits = exp2(ceil(log2(most * n_head))) * 0x1p-51;
    plan->row_grid = fmax(least / plan->scale, fits);
    return KVR_OK;
}

static enum kvr_status set_units(struct plan *plan, struct kvr_error *err)
{
    const double unit = plan->rows->unit;

    plan->scale = unit > 0 ? 1 / unit : 1;
    plan->unit_mass = unit > 0 ? unit : 1;
    plan->row_grid = 0;
    plan->sums_are_exact =
        unit >= 0x1p-24 && plan->options->loss == KVR_LOSS_MASS;
    plan->whole_units = unit > 0 || plan->options->loss == KVR_LOSS_VALUE;
    if (plan->options->loss == KVR_LOSS_VALUE)
        return find_values(plan, err);
    return KVR_OK;
}

static enum kvr_status sort_budgets(struct plan *plan, struct kvr_error *err)
{
    const struct kvr_sim_options *o = plan->options;

    plan->rising = kvr_calloc(o->n_budget, sizeof *plan->rising);
    if (plan->rising == NULL)
        return kvr_no_memory(err, "budgets", o->n_budget);
    for (size_t i = 0; i < o->n_budget; i++) {
        size_t k = i;
        for (; k > 0 &&
               o->budgets[plan->rising[k - 1]].tokens > o->budgets[i].tokens;
             k--)
            plan->rising[k] = plan->rising[k - 1];
        plan->rising[k] = i;
    }
    return KVR_OK;
}

uint32_t kvr__plan_threads(const struct plan *plan)
{
    const uint32_t wanted =
        kvr_parallel_workers(UINT32_MAX, plan->options->threads);
    const uint32_t most = plan->rows->workers;

    return most != 0 && most < wanted ? most : wanted;
}

/* Parts of a layer of n caches, so that no thread is without one. Sums that are
 * not exact would show the order of the parts. */
static uint32_t parts_of(const struct plan *plan, uint32_t n)
{
    const uint32_t threads = kvr__plan_threads(plan);

    if (!plan->whole_units)
        return 1;
    for (size_t i = 0; i < plan->n_run; i++)
        if (plan->runs[i].policy->scope == KVR_SCOPE_LAYER &&
            !plan->per_query_head)
            return 1;
    const uint32_t wanted = (threads + plan->n_layer - 1) / plan->n_layer;
    return plan->n_layer >= threads ? 1 : wanted < n ? wanted : n;
}

static enum kvr_status make_items(struct plan *plan, struct kvr_error *err)
{
    const bool *heads = plan->options->heads;
    size_t most = 0;

    for (uint32_t l = 0; l < plan->n_layer; l++)
        most += plan->rows->layers[plan->layer[l]].n_head;
    plan->items = kvr_calloc(most, sizeof *plan->items);
    if (plan->items == NULL)
        return kvr_no_memory(err, "layers", most * sizeof *plan->items);
    for (uint32_t l = 0; l < plan->n_layer; l++) {
        const struct kvr_layer_shape *s = &plan->rows->layers[plan->layer[l]];
        const uint32_t n = plan->per_query_head ? s->n_head : s->n_kv_head;
        const uint32_t parts = parts_of(plan, n);
        uint32_t slot = 0;
        for (uint32_t p = 0, c = 0; p < parts; p++) {
            struct work_item *item = &plan->items[plan->n_item++];
            const uint32_t end = (uint32_t)((uint64_t)n * (p + 1) / parts);
            *item = (struct work_item){l, c, end - c, slot, parts};
            for (; c < end; c++)
                slot += heads == NULL || heads[c];
        }
    }
    return KVR_OK;
}

/* What a worker takes for one item. */
static uint64_t item_bytes(const struct plan *plan,
                           const struct work_item *item)
{
    const struct kvr_layer_shape *s =
        &plan->rows->layers[plan->layer[item->index]];
    const uint32_t whole = plan->per_query_head ? s->n_head : s->n_kv_head;
    const uint32_t group = s->n_head / whole, caches = item->n_cache;
    uint64_t sum = (uint64_t)caches * group * (TILE * plan->stride + ASIDE) *
                   sizeof(kvr_real) *
                   (plan->options->loss == KVR_LOSS_VALUE ? 2 : 1);

    sum += (uint64_t)caches * kvr__facts_bytes(plan, group);
    if (plan->looks_ahead)
        sum += kvr__future_bytes(plan, caches);
    sum += kvr__bounds_bytes(plan, caches);
    for (size_t i = 0; i < plan->n_run; i++)
        sum += caches * (uint64_t)kvr__unit_bytes(plan, &plan->runs[i], group) +
               plan->T * sizeof(struct cost);
    return sum + plan->n_result * BINS * sizeof(uint32_t);
}

/* What the parts of layers that are in work add up to. */
static uint64_t sums_bytes(const struct plan *plan)
{
    const uint64_t one = plan->n_run * plan->T * sizeof(struct cost) +
                         plan->n_result * BINS * sizeof(uint32_t);

    return plan->n_item > plan->n_layer ? plan->n_layer * one : 0;
}

uint64_t kvr__plan_bytes(const struct plan *plan)
{
    const struct kvr_sim_options *o = plan->options;
    const uint64_t workers =
        kvr_parallel_workers(plan->n_item, kvr__plan_threads(plan));
    const uint64_t caches = plan->first_cache[plan->n_layer];
    const uint64_t rows = plan->score_last - plan->score_first + 1;
    uint64_t each = 0, of_cache = sizeof(struct kvr_cache_result);

    for (uint32_t i = 0; i < plan->n_item; i++) {
        const uint64_t here = item_bytes(plan, &plan->items[i]);
        each = here > each ? here : each;
    }
    if (o->schedules)
        of_cache += plan->T * sizeof(struct kvr_eviction);
    if (o->steps)
        of_cache += rows * sizeof(struct kvr_step_row);
    return plan->rows->bytes + workers * each + sums_bytes(plan) +
           plan->n_result * (caches * of_cache + 2 * BINS * sizeof(uint32_t) +
                             2 * plan->T * sizeof(double));
}

static enum kvr_status check_memory(const struct plan *plan,
                                    struct kvr_error *err)
{
    const uint64_t need = kvr__plan_bytes(plan), have = plan->options->memory;

    if (have == 0 || need <= have)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_LIMIT,
                    "replay needs about %" PRIu64 " MiB, --memory allows "
                    "%" PRIu64 " MiB; fewer threads, budgets or policies "
                    "need less",
                    need >> 20, have >> 20);
}

enum kvr_status kvr__plan_init(struct plan *plan, const struct kvr_rows *rows,
                               const struct kvr_sim_options *options,
                               struct kvr_error *err)
{
    *plan = (struct plan){.rows = rows,
                          .options = options,
                          .isa = kvr_isa(),
                          .kernels = kvr__kernels_for(kvr_isa()),
                          .T = rows->n_token,
                          .P = rows->prompt_len,
                          .words = (rows->n_token + 63) / 64,
                          .stride = line_of(rows->n_token)};
    plan->per_query_head = options->group == KVR_GROUP_PER_QUERY_HEAD;
    if (options->n_spec == 0 || options->n_budget == 0)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "at least one policy and one budget are needed");
    if (plan->P == 0 || plan->P >= plan->T)
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "prompt of %u of %u tokens: no decode row to count",
                        plan->P, plan->T);
    if (options->when.n == 0 && (options->when.kind == KVR_WHEN_EVERY ||
                                 options->when.kind == KVR_WHEN_OVERFLOW))
        return kvr_fail(err, KVR_ERR_USAGE, "--when: evicting every 0 rows");
    enum kvr_status status = pick_rows(plan, err);
    if (status == KVR_OK)
        status = sort_budgets(plan, err);
    if (status == KVR_OK)
        status = make_runs(plan, err);
    /* Evicting inside the prompt is another problem than the optimum's. */
    plan->needs_optimum =
        (plan->needs_optimum || options->bounds) && !options->stream_prefill;
    plan->looks_ahead =
        plan->needs_next || plan->needs_future || plan->needs_column;
    for (size_t i = 0; status == KVR_OK && i < plan->n_run; i++)
        if (plan->runs[i].foreign && plan->poison == NULL)
            status = kvr__poison_new(&plan->poison, plan->stride, err);
    if (status == KVR_OK)
        status = pick_layers(plan, err);
    if (status == KVR_OK)
        status = set_units(plan, err);
    if (status == KVR_OK)
        status = make_items(plan, err);
    if (status == KVR_OK)
        status = check_memory(plan, err);
    return status;
}

void kvr__plan_fini(struct plan *plan)
{
    kvr__poison_free(plan->poison);
    free(plan->runs);
    free(plan->rising);
    free(plan->layer);
    free(plan->first_cache);
    free(plan->items);
}
