/* cmd_policies.c -- which rules there are, and what each one says of itself.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cli.h"

#include "kvr_registry.h"

#include <stdio.h>
#include <string.h>

struct policies_command {
    struct cli_common common;
    struct kvr_option_list plugin;
};

static const struct kvr_option rows[] = {
    {.name = "plugin",
     .type = KVR_OPTION_MANY,
     .offset = offsetof(struct policies_command, plugin),
     .argument = "SO",
     .help = "load a policy from a shared object; may repeat"},
    {.name = NULL},
};

static json_t *needs_json(const struct kvr_policy *p)
{
    static const struct {
        uint32_t need;
        const char *word;
    } words[] = {
        {KVR_NEEDS_ACCESS, "access"},      {KVR_NEEDS_RANDOM, "randomness"},
        {KVR_NEEDS_NEXT_ACCESS, "future"}, {KVR_NEEDS_FUTURE_MASS, "future"},
        {KVR_NEEDS_COLUMN_MASS, "future"}, {KVR_NEEDS_SCHEDULE, "schedule"}};
    json_t *list = json_array();

    if (p->observe != KVR_OBSERVE_NONE)
        kvr__cli_add(list, kvr__cli_text("rows"));
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if ((p->needs & words[i].need) != 0)
            kvr__cli_add(list, kvr__cli_text(words[i].word));
    return list;
}

static json_t *params_json(const struct kvr_policy *p)
{
    json_t *list = json_array();

    for (const struct kvr_param *q = p->params; q != NULL && q->name != NULL;
         q++)
        kvr__cli_add(list, json_pack("{s:s, s:s, s:s?, s:s}", "name", q->name,
                                     "default", q->fallback, "choices",
                                     q->choices, "help", q->help));
    return list;
}

static json_t *policy_json(const struct kvr_policy *p)
{
    json_t *item =
        json_pack("{s:s, s:s, s:s, s:s?, s:s, s:s}", "policy", p->name,
                  "summary", p->summary, "cite", p->cite, "budget",
                  p->budget_note, "class", kvr_class_name(kvr_policy_class(p)),
                  "observe", kvr_observe_name(p->observe));

    kvr__cli_set(item, "group",
                 kvr__cli_text(p->observe == KVR_OBSERVE_NONE
                                   ? "none"
                                   : kvr_group_name(p->group)));
    kvr__cli_set(
        item, "scope",
        kvr__cli_text(p->scope == KVR_SCOPE_LAYER ? "layer" : "cache"));
    kvr__cli_set(item, "needs", needs_json(p));
    kvr__cli_set(item, "params", params_json(p));
    return item;
}

static void print_needs(const struct kvr_policy *p)
{
    json_t *needs = needs_json(p);
    size_t i;
    json_t *word;

    printf("needs      %s", json_array_size(needs) == 0 ? "nothing" : "");
    json_array_foreach(needs, i, word)
    {
        printf("%s%s", i == 0 ? "" : ", ", json_string_value(word));
    }
    printf("\n");
    json_decref(needs);
}

static void print_one(const struct kvr_policy *p)
{
    printf("%s -- %s\n\n", p->name, p->summary);
    printf("source     %s\n", p->cite);
    printf("class      %s\n", kvr_class_name(kvr_policy_class(p)));
    printf("observes   %s\n", kvr_observe_name(p->observe));
    if (p->observe != KVR_OBSERVE_NONE)
        printf("reduction  %s over %s\n", kvr_group_name(p->group),
               p->scope == KVR_SCOPE_LAYER ? "all query heads of the layer"
                                           : "the query heads of a cache");
    print_needs(p);
    if (p->budget_note != NULL)
        printf("budget     %s\n", p->budget_note);
    if (p->params == NULL || p->params->name == NULL) {
        printf("parameters none\n");
        return;
    }
    printf("\nparameters (%s:key=value,..)\n", p->name);
    for (const struct kvr_param *q = p->params; q->name != NULL; q++)
        printf("  %-12s default %-8s %s%s%s%s\n", q->name, q->fallback, q->help,
               q->choices != NULL ? " [" : "",
               q->choices != NULL ? q->choices : "",
               q->choices != NULL ? "]" : "");
}

static enum kvr_status list_all(const struct policies_command *o,
                                const struct kvr_registry *registry,
                                struct kvr_error *err)
{
    static const struct cli_column columns[] = {
        {.path = "policy", .title = "policy"},
        {.path = "class", .title = "class"},
        {.path = "observe", .title = "observe"},
        {.path = "group", .title = "group"},
        {.path = "summary", .title = "summary"},
        {.path = NULL},
    };
    struct cli_report report = {.command = "policies",
                                .settings = json_object(),
                                .results = json_array(),
                                .columns = columns};

    for (size_t i = 0; i < kvr_registry_size(registry); i++)
        kvr__cli_add(report.results, policy_json(kvr_registry_at(registry, i)));
    const enum kvr_status status = kvr__cli_report(&o->common, &report, err);
    kvr__cli_report_free(&report);
    return status;
}

static enum kvr_status show(const struct policies_command *o,
                            const struct kvr_registry *registry,
                            const char *name, struct kvr_error *err)
{
    const struct kvr_policy *p =
        kvr_registry_find(registry, name, strlen(name));

    if (p == NULL)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "unknown policy '%s'; kvreplay policies lists them",
                        name);
    if (o->common.format == CLI_TABLE) {
        print_one(p);
        return KVR_OK;
    }
    static const struct cli_column columns[] = {{.path = "policy"},
                                                {.path = "class"},
                                                {.path = "cite"},
                                                {.path = "summary"},
                                                {.path = NULL}};
    struct cli_report report = {.command = "policies",
                                .settings = json_object(),
                                .results = json_array(),
                                .columns = columns};
    kvr__cli_add(report.results, policy_json(p));
    const enum kvr_status status = kvr__cli_report(&o->common, &report, err);
    kvr__cli_report_free(&report);
    return status;
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    struct policies_command o = {0};
    struct kvr_registry *registry = NULL;
    const char **operands;
    size_t n;
    bool done;
    enum kvr_status status =
        kvr__cli_parse(self, argc, argv, &o, &operands, &n, 0, 1, &done, err);

    if (status == KVR_OK && !done)
        status = kvr_registry_new(&registry, err);
    for (size_t i = 0; registry != NULL && i < o.plugin.n && status == KVR_OK;
         i++)
        status = kvr_registry_load(registry, o.plugin.item[i], err);
    if (status == KVR_OK && !done)
        status = n == 0 ? list_all(&o, registry, err)
                        : show(&o, registry, operands[0], err);
    kvr_registry_free(registry);
    kvr__cli_parse_free(self, &o, operands);
    return status;
}

const struct cli_command kvr__cmd_policies = {
    .name = "policies",
    .group = "Policies",
    .operands = "[NAME]",
    .summary = "the eviction rules, or one with its parameters",
    .options = rows,
    .obeys = CLI_OUTPUT | CLI_REPORT,
    .run = run,
};
