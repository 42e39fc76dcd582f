/* cmd_sparsity.c -- kvreplay sparsity: how much of attention is nothing.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "heads.h"

#include "kvr_memory.h"
#include "kvr_sparsity.h"

#include <math.h>
#include <stdlib.h>

struct sparsity_command {
    struct cli_common common; /* first: see cli.h */
    uint32_t prompt_len;
};

static const struct kvr_option own_options[] = {
    {.name = "prompt-len",
     .type = KVR_OPTION_U32,
     .offset = offsetof(struct sparsity_command, prompt_len),
     .argument = "N",
     .min = 1,
     .max = UINT32_MAX,
     .help = "decode rows are those from N on (default: the trace's)"},
    {.name = NULL},
};

/* Members of struct kvr_sparsity as fields of an item. */
static const struct sparsity_field {
    const char *name;
    size_t offset;
    const char *reason; /* why it may be null */
} fields[] = {
#define FIELD(member, why) \
    { \
#member, offsetof(struct kvr_sparsity, member), why \
    }
    FIELD(row_mean, "no rows"),
    FIELD(decode_row_mean, "no decode rows"),
    FIELD(pooled_causal, "no rows"),
    FIELD(pooled_square, "no rows"),
    FIELD(zeros, "no rows"),
    FIELD(effective_support, "no decode row with mass"),
    FIELD(keys95, "no decode row with mass"),
    FIELD(visible, "no decode rows"),
    FIELD(mass_first, "no decode rows"),
    FIELD(mass_first4, "no decode rows"),
    FIELD(argmax_first, "no decode rows"),
    FIELD(empty_rows, "no rows"),
    FIELD(gini, "no mass"),
    FIELD(top5, "no mass"),
    FIELD(top20, "no mass"),
    FIELD(null_gini, "no rows"),
    FIELD(null_top5, "no rows"),
    FIELD(null_top20, "no rows"),
#undef FIELD
};

static const struct cli_column columns[] = {
    {.path = "trace"},
    {.path = "trace_path", .title = "trace", .optional = true},
    {.path = "scope", .title = "scope"},
    {.path = "layer", .title = "layer"},
    {.path = "head", .title = "head"},
    {.path = "row_mean", .title = "row mean", .digits = 2, .percent = true},
    {.path = "pooled_causal", .title = "causal", .digits = 2, .percent = true},
    {.path = "pooled_square", .title = "square", .digits = 2, .percent = true},
    {.path = "decode_row_mean",
     .title = "decode",
     .digits = 2,
     .percent = true},
    {.path = "zeros", .title = "zeros", .digits = 2, .percent = true},
    {.path = "effective_support", .title = "support", .digits = 1},
    {.path = "keys95", .title = "keys 95%", .digits = 1},
    {.path = "visible", .title = "visible", .digits = 1},
    {.path = "mass_first", .title = "on 1st", .digits = 1, .percent = true},
    {.path = "mass_first4", .title = "on 1st 4", .digits = 1, .percent = true},
    {.path = "argmax_first",
     .title = "1st is max",
     .digits = 1,
     .percent = true},
    {.path = "gini", .title = "Gini", .digits = 3},
    {.path = "null_gini", .title = "(null)", .digits = 3},
    {.path = "top5", .title = "top 5%", .digits = 1, .percent = true},
    {.path = "null_top5", .title = "(null)", .digits = 1, .percent = true},
    {.path = "top20", .title = "top 20%", .digits = 1, .percent = true},
    {.path = "null_top20", .title = "(null)", .digits = 1, .percent = true},
    {.path = "empty_rows"},
    {.path = NULL},
};

static const char *const lines[] = {
    "",
    "Sparsity: entries below 1% of the largest in their row. row mean, causal "
    "and decode count",
    "entries that the mask lets a row see; square counts masked ones as "
    "zeros.",
    "support = exp(entropy), keys 95% = keys that hold 95% of a row, over "
    "decode rows.",
    "Gini and top shares are of attention summed over all rows; (null): the "
    "same if every row",
    "spread evenly over what it sees. Rows are as recorded, not divided by "
    "their sum.",
    NULL,
};

struct sparsity_run {
    const struct sparsity_command *options;
    json_t *results;
    bool many; /* traces: each item has its index */
};

static json_t *item_new(const struct sparsity_run *run,
                        const struct cli_heads *heads, const char *scope,
                        const struct kvr_sparsity *s)
{
    json_t *item = json_object();

    kvr__cli_name_trace(item, run->many ? (int)heads->trace_index : -1,
                        heads->trace);
    kvr__cli_set(item, "scope", kvr__cli_text(scope));
    kvr__cli_set(item, "layer", json_null());
    kvr__cli_set(item, "head", json_null());
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const double *value =
            (const double *)(const void *)((const char *)s + fields[i].offset);
        kvr__cli_set_real(item, fields[i].name, *value, fields[i].reason);
    }
    kvr__cli_add(run->results, item);
    return item;
}

static enum kvr_status analyse(uint32_t item, const struct kvr_head *head,
                               void *ud, struct kvr_error *err)
{
    struct kvr_sparsity *all = ud;

    return kvr_sparsity_of(&all[item], head, err);
}

/* Items of each layer's heads, the layer's mean, and last the model's. */
static void add_items(const struct sparsity_run *run,
                      const struct cli_heads *heads,
                      const struct kvr_sparsity *all)
{
    struct kvr_sparsity mean;

    for (uint32_t i = 0, end; i < heads->n; i = end) {
        const uint32_t layer = kvr__cli_layer_number(heads, i);
        for (end = i;
             end < heads->n && kvr__cli_layer_number(heads, end) == layer;
             end++) {
            json_t *item = item_new(run, heads, "head", &all[end]);
            kvr__cli_set(item, "layer", json_integer(layer));
            kvr__cli_set(item, "head",
                         json_integer(kvr__cli_head_number(heads, end)));
        }
        kvr_sparsity_mean(&mean, &all[i], end - i);
        json_t *item = item_new(run, heads, "layer", &mean);
        kvr__cli_set(item, "layer", json_integer(layer));
    }
    kvr_sparsity_mean(&mean, all, heads->n);
    item_new(run, heads, "model", &mean);
}

static enum kvr_status do_heads(const struct cli_heads *heads, void *ud,
                                struct kvr_error *err)
{
    const struct sparsity_run *run = ud;
    struct kvr_sparsity *all = kvr_calloc(heads->n, sizeof *all);

    if (all == NULL)
        return kvr_no_memory(err, "sparsity", heads->n * sizeof *all);
    const enum kvr_status status = kvr_heads_run(
        heads->trace, heads->items, heads->n, run->options->prompt_len,
        run->options->common.threads, analyse, all, err);
    if (status == KVR_OK)
        add_items(run, heads, all);
    free(all);
    return status;
}

static enum kvr_status run_sparsity(const struct cli_command *self, int argc,
                                    char **argv, struct kvr_error *err)
{
    struct sparsity_command options = {0};
    const char **paths;
    size_t n_path;
    bool done;
    enum kvr_status status = kvr__cli_parse(self, argc, argv, &options, &paths,
                                            &n_path, 1, SIZE_MAX, &done, err);

    if (status != KVR_OK || done)
        goto out;
    struct cli_report report = {
        .command = self->name,
        .settings = json_pack("{s:f, s:s}", "threshold", 0.01, "compare",
                              "strictly below"),
        .results = json_array(),
        .columns = columns,
        .lines = lines,
    };
    struct sparsity_run run = {
        .options = &options, .results = report.results, .many = n_path > 1};
    if (options.prompt_len != 0)
        kvr__cli_set(report.settings, "prompt_len",
                     json_integer(options.prompt_len));
    status = kvr__cli_each_trace(&report, &options.common, paths, n_path,
                                 do_heads, &run, err);
    if (status == KVR_OK)
        status = kvr__cli_report(&options.common, &report, err);
    kvr__cli_report_free(&report);
out:
    kvr__cli_parse_free(self, &options, paths);
    return status;
}

const struct cli_command kvr__cmd_sparsity = {
    .name = "sparsity",
    .group = "Statistics",
    .operands = "TRACE..",
    .summary = "near-zero attention, sinks, concentration, per head",
    .options = own_options,
    .obeys = CLI_THREADS | CLI_MEMORY | CLI_OUTPUT | CLI_REPORT | CLI_PICKS,
    .run = run_sparsity,
};
