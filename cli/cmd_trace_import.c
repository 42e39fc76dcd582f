/* cmd_trace_import.c -- kvreplay trace import: a dump becomes a trace.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "trace_commands.h"

#include "import_config.h"
#include "kvr_import.h"
#include "kvr_log.h"

struct import_command {
    struct cli_common common; /* first: see cli.h */
    const char *dataset, *axes, *config;
    uint32_t batch_item, pad, prompt_len, n_kv_head, window;
    bool batch_given, dtype_given, not_causal, sink, renormalise;
    int dtype;
};

#define FIELD(member) offsetof(struct import_command, member)

static const struct kvr_option own_options[] = {
    {.name = "dataset",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(dataset),
     .argument = "PATH",
     .help = "dataset of an HDF5 file; %d or %02d stands for the layer, and "
             "behind step_ for the step (default: the only one that fits, or "
             "step_N/layer_N groups)"},
    {.name = "axes",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(axes),
     .argument = "LETTERS",
     .help = "axes in order: b batch, l layer, h head, q row, k key; needed "
             "where the first of four axes is above 1"},
    {.name = "batch-item",
     .type = KVR_OPTION_U32,
     .offset = FIELD(batch_item),
     .given = FIELD(batch_given),
     .argument = "N",
     .help = "which item of axis b"},
    {.name = "pad",
     .type = KVR_OPTION_U32,
     .offset = FIELD(pad),
     .argument = "N",
     .help = "left padding: positions count from the first real token"},
    {.name = "prompt-len",
     .type = KVR_OPTION_U32,
     .offset = FIELD(prompt_len),
     .argument = "N",
     .min = 1,
     .max = UINT32_MAX,
     .help = "tokens of the prompt, after the padding (default: as the file "
             "says)"},
    {.name = "n-kv-head",
     .type = KVR_OPTION_U32,
     .offset = FIELD(n_kv_head),
     .argument = "N",
     .min = 1,
     .max = UINT32_MAX,
     .help = "heads of the key/value cache (default: as the file says, else "
             "one for each head)"},
    {.name = "dtype",
     .type = KVR_OPTION_CHOICE,
     .offset = FIELD(dtype),
     .given = FIELD(dtype_given),
     .choices = "f16|f32",
     .help = "stored type (default: the source's; f64 becomes f32)"},
    {.name = "not-causal",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(not_causal),
     .help = "rows may look ahead; replay will refuse the trace"},
    {.name = "sink",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(sink),
     .help = "what a row lacks to 1 went to a sink outside of the tokens"},
    {.name = "renormalise",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(renormalise),
     .help = "divide each row by its sum, which is within 1/8 of 1; said in "
             "the trace"},
    {.name = "window",
     .type = KVR_OPTION_U32,
     .offset = FIELD(window),
     .argument = "N",
     .min = 1,
     .max = UINT32_MAX,
     .help = "every layer has a sliding window of N keys"},
    {.name = "config",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(config),
     .argument = "FILE",
     .help = "the model's config.json: which layers have a sliding window, and "
             "how many KV heads there are"},
    {.name = NULL},
};

static enum kvr_status read_config(struct import_config *config,
                                   const struct import_command *options,
                                   struct kvr_error *err)
{
    if (options->config == NULL)
        return KVR_OK;
    if (options->window != 0)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--window and --config both state windows");
    const enum kvr_status status =
        kvr__cli_import_config(config, options->config, err);
    if (status == KVR_OK && options->n_kv_head != 0 && config->n_kv_head != 0 &&
        options->n_kv_head != config->n_kv_head)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--n-kv-head %u, but %s says num_key_value_heads %u",
                        options->n_kv_head, options->config, config->n_kv_head);
    return status;
}

static enum kvr_status import(const struct import_command *options,
                              const char *from, struct kvr_error *err)
{
    struct trace_provenance provenance;
    struct import_config config = {0};

    enum kvr_status status = read_config(&config, options, err);
    kvr__trace_provenance_init(&provenance, &options->common);
    const struct kvr_import_options import_options = {
        .dataset = options->dataset,
        .axes = options->axes,
        .batch_item = options->batch_given ? (int64_t)options->batch_item : -1,
        .pad = options->pad,
        .prompt_len = options->prompt_len,
        .n_kv_head =
            options->n_kv_head != 0 ? options->n_kv_head : config.n_kv_head,
        .window = options->window,
        .spans = config.spans,
        .n_span = config.n_layer,
        .dtype = options->dtype_given ? options->dtype : -1,
        .not_causal = options->not_causal,
        .sink = options->sink,
        .renormalise = options->renormalise,
        .layers = options->common.layers,
        .heads = options->common.heads,
        .memory = kvr__cli_memory(&options->common),
        .force = options->common.force,
        .writer = provenance.writer,
        .created = provenance.created,
        .options = provenance.options};
    if (status == KVR_OK)
        status = kvr_import(from, options->common.output, &import_options, err);
    kvr__cli_import_config_free(&config);
    if (status == KVR_OK)
        kvr_log(KVR_LOG_NOTE, "wrote %s", options->common.output);
    return status;
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    struct import_command options = {0};
    const char **operands = NULL;
    size_t n = 0;
    bool done = false;

    enum kvr_status status = kvr__cli_parse(self, argc, argv, &options,
                                            &operands, &n, 1, 1, &done, err);
    if (status == KVR_OK && !done)
        status = kvr__trace_need_output(self, &options.common, err);
    if (status == KVR_OK && !done)
        status = import(&options, operands[0], err);
    kvr__cli_parse_free(self, &options, operands);
    return status;
}

const struct cli_command kvr__cmd_trace_import = {
    .name = "trace import",
    .group = "Traces",
    .operands = "IN -o OUT",
    .summary = "attention dumps (.npy, HDF5) become a trace",
    .options = own_options,
    .obeys = CLI_MEMORY | CLI_OUTPUT | CLI_PICKS,
    .run = run,
};
