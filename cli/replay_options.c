/* replay_options.c -- rows of replay's and gap's options, and their meaning.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "replay_options.h"

#include "kvr_memory.h"
#include "kvr_parallel.h"
#include "kvr_text.h"

#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct replay_options, member)

const struct kvr_option kvr__replay_option_rows[] = {
    {.name = "policy",
     .letter = 'p',
     .type = KVR_OPTION_MANY,
     .offset = AT(policy),
     .argument = "LIST",
     .help = "h2o:recent=10%,lru,..; may repeat (kvreplay policies)"},
    {.name = "budget",
     .letter = 'b',
     .type = KVR_OPTION_MANY,
     .offset = AT(budget),
     .argument = "LIST",
     .help = "tokens held between steps: 64, 20%, 5%..40%x2, drop:0.8"},
    {.name = "budget-of",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(budget_of),
     .choices = "total|prompt|visible",
     .help = "what a percentage is of (default total: T)"},
    {.name = "budget-is",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(budget_is),
     .choices = "cap|floor",
     .help = "with --when: shrink below B and grow to it, or shrink to B"},
    {.name = "when",
     .type = KVR_OPTION_TEXT,
     .offset = AT(when),
     .argument = "RULE",
     .help = "step (default), every:N, overflow:N, prompt-end"},
    {.name = "prefill",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(prefill),
     .choices = "whole|stream",
     .help = "stream: evict from the first prompt row on"},
    {.name = "prompt-len",
     .type = KVR_OPTION_U32,
     .offset = AT(prompt_len),
     .argument = "N",
     .min = 1,
     .max = 4294967295.0,
     .help = "tokens that are prompt (default: the trace's)"},
    {.name = "score-rows",
     .type = KVR_OPTION_TEXT,
     .offset = AT(score_rows),
     .argument = "A..B",
     .help = "count these decode rows only"},
    {.name = "observe",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(observe),
     .choices = "renorm|raw",
     .given = AT(observe_given),
     .help = "what rules see (default: each rule's published one)"},
    {.name = "group",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(group),
     .choices = "mean|max|sum|per-query-head",
     .given = AT(group_given),
     .help = "how query heads of a cache are reduced (default: published)"},
    {.name = "access",
     .type = KVR_OPTION_TEXT,
     .offset = AT(access),
     .argument = "RULE",
     .help = "above-uniform (default), relmax:R, abs:X, topm:N, mass:P"},
    {.name = "ties",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(ties),
     .choices = "oldest|newest|random",
     .help = "which of equal tokens leaves (default oldest)"},
    {.name = "protect-first",
     .type = KVR_OPTION_TEXT,
     .offset = AT(protect_first),
     .argument = "N",
     .help = "first tokens no rule may evict: 4, 10% of B"},
    {.name = "protect-last",
     .type = KVR_OPTION_TEXT,
     .offset = AT(protect_last),
     .argument = "N",
     .help = "newest tokens no rule may evict: 16, 10% of B"},
    {.name = "loss",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(loss),
     .choices = "mass|value",
     .help = "value: weights times the norm of the value (value_norm2)"},
    {.name = "hit-scope",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(hit_scope),
     .choices = "all|prompt",
     .help = "tokens that the hit ratio counts (prompt: as SnapKV)"},
    {.name = "seeds",
     .type = KVR_OPTION_U32,
     .offset = AT(seeds),
     .argument = "N",
     .min = 1,
     .max = 1000,
     .help = "replicates of rules with randomness (default 1)"},
    {.name = "bounds",
     .type = KVR_OPTION_FLAG,
     .offset = AT(bounds),
     .help = "compute the exact optimum and assert it against every rule"},
    {.name = "evictions",
     .type = KVR_OPTION_TEXT,
     .offset = AT(evictions),
     .argument = "FILE",
     .help = "write every eviction as CSV"},
    {.name = "steps",
     .type = KVR_OPTION_TEXT,
     .offset = AT(steps),
     .argument = "FILE",
     .help = "write every counted row as CSV"},
    {.name = "plugin",
     .type = KVR_OPTION_MANY,
     .offset = AT(plugin),
     .argument = "SO",
     .help = "load a policy from a shared object"},
    {.name = NULL},
};

void kvr__replay_options_init(struct replay_options *options)
{
    *options = (struct replay_options){.access = "above-uniform",
                                       .when = "step",
                                       .protect_first = "0",
                                       .protect_last = "0",
                                       .seeds = 1};
}

static enum kvr_status load_policies(struct replay_setup *s,
                                     const struct replay_options *o,
                                     struct kvr_error *err)
{
    enum kvr_status status = kvr_registry_new(&s->registry, err);

    for (size_t i = 0; i < o->plugin.n && status == KVR_OK; i++)
        status = kvr_registry_load(s->registry, o->plugin.item[i], err);
    for (size_t i = 0; i < o->policy.n && status == KVR_OK; i++)
        status = kvr_policy_specs_parse(&s->specs, &s->n_spec, s->registry,
                                        o->policy.item[i], err);
    return status;
}

/* "A..B" */
static enum kvr_status parse_span(uint32_t *first, uint32_t *last,
                                  const char *text, struct kvr_error *err)
{
    const char *dots = strstr(text, "..");

    if (dots == NULL || !kvr_parse_u32(first, text, (size_t)(dots - text)) ||
        !kvr_parse_u32(last, dots + 2, strlen(dots + 2)))
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--score-rows: expected A..B, found '%s'", text);
    return KVR_OK;
}

static enum kvr_status parse_settings(struct kvr_sim_options *sim,
                                      const struct replay_options *o,
                                      struct kvr_error *err)
{
    enum kvr_status status = kvr_access_parse(&sim->access, o->access, err);

    if (status == KVR_OK)
        status = kvr_when_parse(&sim->when, o->when, err);
    if (status == KVR_OK)
        status = kvr_protect_parse(&sim->protect_first, o->protect_first, err);
    if (status == KVR_OK)
        status = kvr_protect_parse(&sim->protect_last, o->protect_last, err);
    if (status == KVR_OK && o->score_rows != NULL)
        status =
            parse_span(&sim->score_first, &sim->score_last, o->score_rows, err);
    /* The choices start at KVR_OBSERVE_RENORM. */
    sim->observe = o->observe_given ? o->observe + KVR_OBSERVE_RENORM : -1;
    sim->group = o->group_given ? o->group : -1;
    sim->ties = (enum kvr_ties)o->ties;
    sim->budget_is_floor = o->budget_is == 1;
    sim->stream_prefill = o->prefill == 1;
    sim->loss = (enum kvr_loss)o->loss;
    sim->hit_prompt_only = o->hit_scope == 1;
    sim->bounds = o->bounds;
    sim->schedules = o->evictions != NULL;
    sim->steps = o->steps != NULL;
    sim->seed = o->common.seed;
    sim->n_seed = o->seeds;
    sim->threads = o->common.threads;
    sim->memory = kvr__cli_memory(&o->common);
    return status;
}

/* --layers are numbers in the model, --heads KV heads (or query heads with
 * --group per-query-head). */
static enum kvr_status pick(struct replay_setup *s,
                            const struct replay_options *o,
                            struct kvr_error *err)
{
    const struct kvr_rows *shape = s->rows; /* layers that have a cache */
    uint32_t most = 0, caches = 0;
    enum kvr_status status = KVR_OK;

    for (uint32_t l = 0; l < shape->n_layer; l++) {
        const struct kvr_layer_shape *layer = &shape->layers[l];
        const uint32_t n = s->sim.group == KVR_GROUP_PER_QUERY_HEAD
                               ? layer->n_head
                               : layer->n_kv_head;
        most = layer->layer >= most ? layer->layer + 1 : most;
        caches = n > caches ? n : caches;
    }
    bool *marks = kvr_calloc(most, sizeof *marks);
    s->layers = kvr_calloc(shape->n_layer, sizeof *s->layers);
    s->heads = kvr_calloc(caches, sizeof *s->heads);
    if (marks == NULL || s->layers == NULL || s->heads == NULL) {
        free(marks);
        return kvr_no_memory(err, "layers", most);
    }
    if (o->common.layers != NULL) {
        status = kvr_parse_list(marks, most, o->common.layers, "layer", err);
        for (uint32_t l = 0; l < shape->n_layer; l++)
            s->layers[l] = marks[shape->layers[l].layer];
        s->sim.layers = s->layers;
    }
    if (status == KVR_OK && o->common.heads != NULL) {
        status =
            kvr_parse_list(s->heads, caches, o->common.heads, "KV head", err);
        s->sim.heads = s->heads;
    }
    free(marks);
    return status;
}

enum kvr_status kvr__replay_setup_open(struct replay_setup *s,
                                       const struct replay_options *o,
                                       const char *path, struct kvr_error *err)
{
    *s = (struct replay_setup){0};
    if (o->policy.n == 0 || o->budget.n == 0)
        return kvr_fail(err, KVR_ERR_USAGE, "--policy and --budget are needed");
    enum kvr_status status = load_policies(s, o, err);
    if (status == KVR_OK)
        status = parse_settings(&s->sim, o, err);
    if (status == KVR_OK)
        status = kvr_trace_open(&s->trace, path, err);
    if (status != KVR_OK)
        return status;
    const struct kvr_trace_shape *shape = kvr_trace_shape(s->trace);
    const uint32_t prompt =
        o->prompt_len != 0 ? o->prompt_len : shape->prompt_len;
    for (size_t i = 0; i < o->budget.n && status == KVR_OK; i++)
        status = kvr_budgets_parse(&s->budgets, &s->n_budget, o->budget.item[i],
                                   (enum kvr_budget_of)o->budget_of,
                                   shape->n_token, prompt, err);
    uint32_t heads = 0; /* no more threads than there are caches */
    for (uint32_t l = 0; l < shape->n_layer; l++)
        heads += shape->layers[l].n_head;
    if (status == KVR_OK)
        status =
            kvr_rows_open(&s->rows, s->trace, prompt,
                          kvr_parallel_workers(heads, o->common.threads), err);
    if (status == KVR_OK)
        status = pick(s, o, err);
    s->sim.specs = s->specs;
    s->sim.n_spec = s->n_spec;
    s->sim.budgets = s->budgets;
    s->sim.n_budget = s->n_budget;
    return status;
}

void kvr__replay_setup_close(struct replay_setup *s)
{
    kvr_rows_close(s->rows);
    kvr_trace_close(s->trace);
    kvr_policy_specs_free(s->specs, s->n_spec);
    kvr_registry_free(s->registry);
    free(s->budgets);
    free(s->layers);
    free(s->heads);
}
