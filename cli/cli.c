/* cli.c -- options, progress and provenance that all commands share.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cli.h"

#include "kvr_file.h"
#include "kvr_log.h"
#include "kvr_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIELD(member) offsetof(struct cli_common, member)

const struct kvr_option kvr__cli_common_options[] = {
    {.name = "threads",
     .type = KVR_OPTION_U32,
     .offset = FIELD(threads),
     .argument = "N",
     .min = 1,
     .max = 1024,
     .help = "worker threads (default: one per processor)"},
    {.name = "memory",
     .type = KVR_OPTION_BYTES,
     .offset = FIELD(memory),
     .argument = "SIZE",
     .help = "refuse to use more (default: half of the machine's)"},
    {.name = "seed",
     .type = KVR_OPTION_U64,
     .offset = FIELD(seed),
     .argument = "N",
     .max = 9223372036854775807.0, /* what JSON's integers hold here */
     .help = "seed of everything random (default 0)"},
    {.name = "format",
     .type = KVR_OPTION_CHOICE,
     .offset = FIELD(format),
     .choices = "table|csv|json",
     .help = "what is printed (default table)"},
    {.name = "output",
     .letter = 'o',
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(output),
     .argument = "FILE",
     .help = "write there instead of standard output"},
    {.name = "save",
     .type = KVR_OPTION_MANY,
     .offset = FIELD(save),
     .argument = "FILE",
     .help = "also write .json, .csv or .txt there; may repeat"},
    {.name = "layers",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(layers),
     .argument = "LIST",
     .help = "only these layers: 0,4-7"},
    {.name = "heads",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(heads),
     .argument = "LIST",
     .help = "only these heads"},
    {.name = "force",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(force),
     .help = "overwrite an existing output"},
    {.name = "no-provenance",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(no_provenance),
     .help = "leave out version, time and command line"},
    {.name = "quiet",
     .letter = 'q',
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(quiet),
     .help = "warnings only on standard error"},
    {.name = "verbose",
     .letter = 'v',
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(verbose),
     .help = "more on standard error"},
    {.name = "help",
     .letter = 'h',
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(help),
     .help = "this text"},
    {.name = NULL},
};

static enum kvr_log_level shown = KVR_LOG_NOTE;

static void print_line(enum kvr_log_level level, const char *line, void *ud)
{
    (void)ud;
    if (level <= shown)
        fprintf(stderr, "kvreplay: %s%s\n",
                level == KVR_LOG_WARNING ? "warning: " : "", line);
}

enum {
    N_COMMON =
        sizeof kvr__cli_common_options / sizeof kvr__cli_common_options[0],
};

static bool obeys(const struct cli_command *self, const struct kvr_option *o)
{
    static const struct {
        size_t offset;
        unsigned flag;
    } needed[] = {
        {FIELD(threads), CLI_THREADS}, {FIELD(memory), CLI_MEMORY},
        {FIELD(seed), CLI_SEED},       {FIELD(output), CLI_OUTPUT},
        {FIELD(force), CLI_OUTPUT},    {FIELD(no_provenance), CLI_OUTPUT},
        {FIELD(format), CLI_REPORT},   {FIELD(save), CLI_REPORT},
        {FIELD(layers), CLI_PICKS},    {FIELD(heads), CLI_PICKS}};

    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (needed[i].offset == o->offset)
            return (self->obeys & needed[i].flag) != 0;
    return true;
}

/* A command's rows: its own, and of the common ones those that it obeys. */
struct rows {
    const struct kvr_option *list[3];
    struct kvr_option common[N_COMMON];
};

static void rows_of(const struct cli_command *self, struct rows *rows)
{
    size_t n = 0, m = 0;

    if (self->options != NULL)
        rows->list[n++] = self->options;
    rows->list[n++] = rows->common;
    rows->list[n] = NULL;
    for (const struct kvr_option *o = kvr__cli_common_options; o->name != NULL;
         o++)
        if (obeys(self, o))
            rows->common[m++] = *o;
    rows->common[m] = (struct kvr_option){.name = NULL};
}

/* Says of an option that others have why this command refuses it. */
static enum kvr_status explain(const struct cli_command *self, int argc,
                               char **argv, enum kvr_status status,
                               struct kvr_error *err)
{
    static const char unknown[] = "unknown option '";

    if (status != KVR_ERR_USAGE || err == NULL ||
        strncmp(err->message, unknown, strlen(unknown)) != 0)
        return status;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        for (const struct kvr_option *o = kvr__cli_common_options;
             o->name != NULL; o++) {
            const char *word = argv[i];
            const size_t n = strlen(o->name);
            if (strncmp(word, "--", 2) == 0 &&
                strncmp(word + 2, o->name, n) == 0 &&
                (word[2 + n] == '\0' || word[2 + n] == '=') && !obeys(self, o))
                return kvr_fail(err, KVR_ERR_USAGE,
                                "%s does not take --%s; kvreplay %s --help "
                                "lists what it takes",
                                self->name, o->name, self->name);
        }
    return status;
}

static void print_usage(const struct cli_command *self,
                        const struct kvr_option *const *rows)
{
    printf("usage: kvreplay %s %s [options]\n\n%s\n\n", self->name,
           self->operands, self->summary);
    kvr_options_print(rows, stdout);
}

static enum kvr_status count(const struct cli_command *self, size_t n,
                             size_t least, size_t most, struct kvr_error *err)
{
    if (n < least)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: expected %s; kvreplay %s --help shows how",
                        self->name, self->operands, self->name);
    if (n > most)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: %zu operands, expected at most %zu", self->name, n,
                        most);
    return KVR_OK;
}

static enum kvr_status check_output(const struct cli_common *common,
                                    const char *path, struct kvr_error *err)
{
    if (path[0] == '\0')
        return kvr_fail(err, KVR_ERR_USAGE, "an output without a name");
    if (!kvr_folder_exists(path))
        return kvr_fail(err, KVR_ERR_IO, "%s: its folder does not exist", path);
    if (kvr_is_folder(path))
        return kvr_fail(err, KVR_ERR_IO, "%s: is a folder, expected a file",
                        path);
    if (!kvr_name_fits(path))
        return kvr_fail(err, KVR_ERR_IO,
                        "%s: its name is too long: with the ending of the "
                        "file that is written first it must fit the file "
                        "system",
                        path);
    if (!common->force && kvr_file_exists(path) && !kvr_is_special(path))
        return kvr_fail(err, KVR_ERR_EXISTS,
                        "%s: exists; --force overwrites it", path);
    return KVR_OK;
}

enum kvr_status kvr__cli_check_outputs(const struct cli_common *common,
                                       const char *const *outputs,
                                       size_t n_output,
                                       const char *const *inputs,
                                       size_t n_input, struct kvr_error *err)
{
    for (size_t i = 0; i < n_output; i++) {
        if (outputs[i] == NULL || strcmp(outputs[i], "-") == 0)
            continue;
        for (size_t k = 0; k < n_input; k++)
            if (inputs[k] != NULL && kvr_same_file(outputs[i], inputs[k]))
                return kvr_fail(err, KVR_ERR_USAGE,
                                "%s: is an input; it would be overwritten",
                                outputs[i]);
        for (size_t k = 0; k < i; k++)
            if (outputs[k] != NULL && (strcmp(outputs[i], outputs[k]) == 0 ||
                                       (kvr_same_file(outputs[i], outputs[k]) &&
                                        !kvr_is_special(outputs[i]))))
                return kvr_fail(err, KVR_ERR_USAGE, "%s: named for two outputs",
                                outputs[i]);
        const enum kvr_status status = check_output(common, outputs[i], err);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

/* -o and --save against the operands. */
static enum kvr_status check_common_outputs(const struct cli_common *common,
                                            const char *const *operands,
                                            size_t n_operand,
                                            struct kvr_error *err)
{
    const char *outputs[34] = {common->output};
    size_t n = 1;

    for (size_t i = 0; i < common->save.n; i++) {
        if (n == sizeof outputs / sizeof outputs[0])
            return kvr_fail(err, KVR_ERR_USAGE, "--save: more than 33 files");
        outputs[n++] = common->save.item[i];
    }
    return kvr__cli_check_outputs(common, outputs, n, operands, n_operand, err);
}

enum kvr_status kvr__cli_parse(const struct cli_command *self, int argc,
                               char **argv, void *options,
                               const char ***operands, size_t *n_operand,
                               size_t least, size_t most, bool *done,
                               struct kvr_error *err)
{
    struct rows rows;
    const struct cli_common *common = options;

    rows_of(self, &rows);
    *done = false;
    *operands = kvr_calloc((size_t)argc + 1, sizeof **operands);
    if (*operands == NULL)
        return kvr_no_memory(err, "operands", (size_t)argc);
    enum kvr_status status = kvr_options_parse(rows.list, argc, argv, options,
                                               *operands, n_operand, err);
    status = explain(self, argc, argv, status, err);
    if (status == KVR_OK && common->help) {
        print_usage(self, rows.list);
        *done = true;
        return KVR_OK;
    }
    if (status == KVR_OK)
        status = count(self, *n_operand, least, most, err);
    for (size_t i = 0; i < common->save.n && status == KVR_OK; i++) {
        enum cli_format format = CLI_TABLE;
        status = kvr__cli_format_of(&format, common->save.item[i], err);
    }
    if (status == KVR_OK)
        status = check_common_outputs(common, *operands, *n_operand, err);
    if (common->verbose)
        shown = KVR_LOG_DETAIL;
    if (common->quiet)
        shown = KVR_LOG_WARNING;
    kvr_log_set_sink(print_line, NULL);
    return status;
}

void kvr__cli_parse_free(const struct cli_command *self, void *options,
                         const char **operands)
{
    struct rows rows;

    rows_of(self, &rows);
    kvr_options_free(rows.list, options);
    free(operands);
}

uint64_t kvr__cli_memory(const struct cli_common *common)
{
    if (common->memory != 0)
        return common->memory;
    const uint64_t all = kvr_physical_memory();
    return all != 0 ? all / 2 : UINT64_MAX;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void kvr__cli_progress(const struct cli_common *common, const char *what,
                       uint64_t done, uint64_t total)
{
    static double start, last;
    const double now = seconds();

    if (common->quiet || !isatty(STDERR_FILENO) || total == 0)
        return;
    if (done == 0 || start == 0) {
        start = now;
        last = 0;
    }
    if (done < total && now - last < 0.2)
        return;
    last = now;
    const double took = now - start;
    const double rate = took > 0 ? (double)done / took : 0;
    const double left = rate > 0 ? (double)(total - done) / rate : 0;
    fprintf(stderr, "\r%s %llu/%llu, %.1f/s, %.0f s left ", what,
            (unsigned long long)done, (unsigned long long)total, rate, left);
    if (done >= total) {
        fputs("\n", stderr);
        start = 0;
    }
    fflush(stderr);
}

void kvr__cli_name_trace(json_t *item, int index, const struct kvr_trace *trace)
{
    if (index < 0)
        return;
    kvr__cli_set(item, "trace", json_integer(index));
    kvr__cli_set(item, "trace_path", kvr__cli_text(kvr_trace_path(trace)));
}

json_t *kvr__cli_trace_json(const struct kvr_trace *trace)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    const struct kvr_trace_facts *facts = kvr_trace_facts(trace);

    return json_pack(
        "{s:o, s:s, s:o, s:I, s:I, s:I, s:I, s:I}", "path",
        kvr__cli_text(kvr_trace_path(trace)), "hash", facts->hash, "model",
        kvr__cli_text(shape->model_name), "n_layer", (json_int_t)shape->n_layer,
        "n_head", (json_int_t)shape->n_head, "n_kv_head",
        (json_int_t)shape->n_kv_head, "n_token", (json_int_t)shape->n_token,
        "prompt_len", (json_int_t)shape->prompt_len);
}
