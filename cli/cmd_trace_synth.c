/* cmd_trace_synth.c -- kvreplay trace synth: a trace from a formula.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "trace_commands.h"

#include "kvr_log.h"
#include "kvr_synth.h"

enum { MAX_TOKENS = 1 << 24, MAX_HEADS = 16384, MAX_LAYERS = 4096 };

struct synth_command {
    struct cli_common common; /* first: see cli.h */
    int kind, dtype;
    uint32_t n_token, n_layer, n_head, n_kv_head, prompt_len, round_bits;
};

#define FIELD(member) offsetof(struct synth_command, member)

/* --layers and --heads are counts here: these rows come before the common
 * ones, which are lists. */
static const struct kvr_option own_options[] = {
    {.name = "kind",
     .type = KVR_OPTION_CHOICE,
     .offset = FIELD(kind),
     .choices = "zipf",
     .help = "heavy hitters by Zipf's law, recency, sink, topics"},
    {.name = "tokens",
     .letter = 'T',
     .type = KVR_OPTION_U32,
     .offset = FIELD(n_token),
     .argument = "T",
     .min = 1,
     .max = MAX_TOKENS,
     .help = "tokens (default 512)"},
    {.name = "layers",
     .type = KVR_OPTION_U32,
     .offset = FIELD(n_layer),
     .argument = "L",
     .min = 1,
     .max = MAX_LAYERS,
     .help = "layers (default 2)"},
    {.name = "heads",
     .type = KVR_OPTION_U32,
     .offset = FIELD(n_head),
     .argument = "H",
     .min = 1,
     .max = MAX_HEADS,
     .help = "query heads of a layer (default 4)"},
    {.name = "kv-heads",
     .type = KVR_OPTION_U32,
     .offset = FIELD(n_kv_head),
     .argument = "G",
     .min = 1,
     .max = MAX_HEADS,
     .help = "kv heads of a layer (default: as many as heads)"},
    {.name = "prompt-len",
     .type = KVR_OPTION_U32,
     .offset = FIELD(prompt_len),
     .argument = "P",
     .min = 1,
     .max = MAX_TOKENS,
     .help = "tokens of the prompt (default: a quarter of T, at least 1)"},
    {.name = "dtype",
     .type = KVR_OPTION_CHOICE,
     .offset = FIELD(dtype),
     .choices = "f16|f32",
     .help = "stored type (default f16)"},
    {.name = "round-bits",
     .type = KVR_OPTION_U32,
     .offset = FIELD(round_bits),
     .argument = "N",
     .min = 1,
     .max = 10,
     .help = "keep N bits of each f16 mantissa"},
    {.name = NULL},
};

static enum kvr_status synth(const struct synth_command *o,
                             struct kvr_error *err)
{
    const uint32_t quarter = o->n_token >= 4 ? o->n_token / 4 : 1;
    struct trace_provenance provenance;

    kvr__trace_provenance_init(&provenance, &o->common);
    const struct kvr_synth_options options = {
        .n_token = o->n_token,
        .n_layer = o->n_layer,
        .n_head = o->n_head,
        .n_kv_head = o->n_kv_head != 0 ? o->n_kv_head : o->n_head,
        .prompt_len = o->prompt_len != 0 ? o->prompt_len : quarter,
        .seed = o->common.seed,
        .dtype = (enum kvr_dtype)o->dtype,
        .round_bits = o->round_bits,
        .threads = o->common.threads,
        .memory = kvr__cli_memory(&o->common),
        .force = o->common.force,
        .writer = provenance.writer,
        .created = provenance.created,
        .options = provenance.options};
    if (options.n_head % options.n_kv_head != 0)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "trace synth: %u heads over %u kv heads: expected "
                        "whole groups",
                        options.n_head, options.n_kv_head);
    if (options.prompt_len > options.n_token)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "trace synth: a prompt of %u in %u tokens",
                        options.prompt_len, options.n_token);
    const enum kvr_status status =
        kvr_synth_zipf(o->common.output, &options, err);
    if (status == KVR_OK)
        kvr_log(KVR_LOG_NOTE, "wrote %s", o->common.output);
    return status;
}

static enum kvr_status run(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err)
{
    struct synth_command options = {.n_token = 512, .n_layer = 2, .n_head = 4};
    const char **operands = NULL;
    size_t n = 0;
    bool done = false;

    enum kvr_status status = kvr__cli_parse(self, argc, argv, &options,
                                            &operands, &n, 0, 0, &done, err);
    if (status == KVR_OK && !done)
        status = kvr__trace_need_output(self, &options.common, err);
    if (status == KVR_OK && !done)
        status = synth(&options, err);
    kvr__cli_parse_free(self, &options, operands);
    return status;
}

const struct cli_command kvr__cmd_trace_synth = {
    .name = "trace synth",
    .group = "Traces",
    .operands = "-o OUT",
    .summary = "a synthetic trace, the same for the same seed",
    .options = own_options,
    .obeys = CLI_THREADS | CLI_MEMORY | CLI_SEED | CLI_OUTPUT,
    .run = run,
};
