/* cmd_capture.c -- kvreplay capture: record the attention of a model's run.
 *
 * stdout gets a summary (with --show-tokens the tokens too); the trace goes
 * to -o.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cli.h"

#include "kvr_capture.h"
#include "kvr_log.h"
#include "kvr_memory.h"
#include "kvr_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct capture_command {
    struct cli_common common;
    const char *model, *prompt, *file, *ids, *text, *tokenizer, *chat;
    uint32_t n_generate, prompt_len, round_bits, prompt_chunk;
    bool generate_given, top_p_given;
    int backend, compute, dtype, store;
    const char *with;
    double temperature, top_p;
    bool no_special, ignore_eos, sync, dry_run, show_tokens;
};

#define FIELD(member) offsetof(struct capture_command, member)

static const struct kvr_option rows[] = {
    {.name = "model",
     .letter = 'm',
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(model),
     .argument = "MODEL",
     .help = "a GGUF file, or a Hugging Face folder"},
    {.name = "prompt",
     .letter = 'p',
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(prompt),
     .argument = "TEXT",
     .help = "the prompt"},
    {.name = "file",
     .letter = 'f',
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(file),
     .argument = "FILE",
     .help = "the prompt is this file's bytes (-: standard input)"},
    {.name = "ids",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(ids),
     .argument = "FILE",
     .help = "token ids in place of text, apart by blanks or commas"},
    {.name = "text",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(text),
     .argument = "FILE",
     .help = "teacher-forced text: -f FILE -n 0"},
    {.name = "generate",
     .letter = 'n',
     .type = KVR_OPTION_U32,
     .offset = FIELD(n_generate),
     .given = FIELD(generate_given),
     .argument = "N",
     .help = "tokens to generate (default 0)"},
    {.name = "prompt-len",
     .type = KVR_OPTION_U32,
     .offset = FIELD(prompt_len),
     .argument = "N",
     .min = 1,
     .max = 2147483647,
     .help = "tokens that count as the prompt; the rest is teacher-forced "
             "(default: all that are given)"},
    {.name = "backend",
     .type = KVR_OPTION_CHOICE,
     .offset = FIELD(backend),
     .choices = "auto|cpu|cuda",
     .help = "where to compute (default auto)"},
    {.name = "compute",
     .type = KVR_OPTION_CHOICE,
     .offset = FIELD(compute),
     .choices = "auto|f32|f16|bf16",
     .help = "what products are computed from (default auto: f32 where that "
             "fits on the device)"},
    {.name = "dtype",
     .type = KVR_OPTION_CHOICE,
     .offset = FIELD(dtype),
     .choices = "f16|f32",
     .help = "of the stored rows, queries and keys (default f16)"},
    {.name = "store",
     .type = KVR_OPTION_CHOICE,
     .offset = FIELD(store),
     .choices = "attention|qk|both",
     .help = "rows as they are, or queries and keys to make them from: the "
             "way to long contexts (default attention)"},
    {.name = "with",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(with),
     .argument = "LIST",
     .help = "also store: norms (always, unless 'none'), values, mlp, logits"},
    {.name = "round-bits",
     .type = KVR_OPTION_U32,
     .offset = FIELD(round_bits),
     .argument = "N",
     .min = 1,
     .max = 10,
     .help = "keep N mantissa bits of f16: smaller, and stated in the file"},
    {.name = "temp",
     .type = KVR_OPTION_REAL,
     .offset = FIELD(temperature),
     .argument = "X",
     .min = 0,
     .max = 1000,
     .help = "sample at this temperature (default 0: greedy)"},
    {.name = "top-p",
     .type = KVR_OPTION_REAL,
     .offset = FIELD(top_p),
     .given = FIELD(top_p_given),
     .argument = "P",
     .min = 0,
     .max = 1,
     .help = "sample from the smallest set that reaches P; needs --temp"},
    {.name = "prompt-chunk",
     .type = KVR_OPTION_U32,
     .offset = FIELD(prompt_chunk),
     .argument = "N",
     .min = 1,
     .max = 65536,
     .help = "prompt tokens computed at a time (default 256)"},
    {.name = "tokenizer",
     .type = KVR_OPTION_TEXT,
     .offset = FIELD(tokenizer),
     .argument = "FILE",
     .help = "a tokenizer.json in place of the model's own"},
    {.name = "chat",
     .type = KVR_OPTION_MAYBE,
     .offset = FIELD(chat),
     .argument = "FORM",
     .choices = "auto",
     .help = "the text is a message: chatml, llama-2, llama-3, gemma, phi-3, "
             "zephyr (default: by the model's template)"},
    {.name = "no-special",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(no_special),
     .help = "special-token strings in the text are plain text"},
    {.name = "ignore-eos",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(ignore_eos),
     .help = "go on after the end token"},
    {.name = "show-tokens",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(show_tokens),
     .help = "print ids and pieces"},
    {.name = "sync",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(sync),
     .help = "sync the disk after every step"},
    {.name = "dry-run",
     .type = KVR_OPTION_FLAG,
     .offset = FIELD(dry_run),
     .help = "print tokens, sizes, memory and disk; compute nothing"},
    {.name = NULL},
};

static const struct cli_column plan_columns[] = {
    {.path = "tokens_given", .title = "given"},
    {.path = "prompt_len", .title = "prompt"},
    {.path = "tokens_max", .title = "tokens"},
    {.path = "layers", .title = "layers"},
    {.path = "heads", .title = "heads"},
    {.path = "trace_bytes", .title = "trace bytes"},
    {.path = "raw_bytes"},
    {.path = "logits_bytes"},
    {.path = "memory_bytes", .title = "memory"},
    {.path = "disk_bytes", .title = "disk"},
    {.path = "disk_free", .title = "disk free"},
    {.path = NULL},
};

static const struct cli_column done_columns[] = {
    {.path = "output", .title = "trace"},
    {.path = "n_token", .title = "tokens"},
    {.path = "prompt_len", .title = "prompt"},
    {.path = "generated", .title = "generated"},
    {.path = "ended", .title = "ended"},
    {.path = "layers", .title = "layers"},
    {.path = "heads", .title = "heads"},
    {.path = "given_per_second", .title = "given/s", .digits = 1},
    {.path = "generated_per_second", .title = "generated/s", .digits = 1},
    {.path = NULL},
};

static enum kvr_status check_usage(const struct capture_command *o,
                                   struct kvr_error *err)
{
    if (o->model == NULL)
        return kvr_fail(err, KVR_ERR_USAGE, "capture: expected -m MODEL");
    if ((o->prompt != NULL) + (o->file != NULL) + (o->ids != NULL) +
            (o->text != NULL) !=
        1)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "capture: expected exactly one of -p TEXT, -f FILE, "
                        "--ids FILE and --text FILE");
    if (o->text != NULL && o->generate_given && o->n_generate > 0)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--text generates nothing; -f FILE -n %" PRIu32
                        " goes on after the text",
                        o->n_generate);
    if (o->top_p_given && o->top_p == 0)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--top-p: expected above 0 and at most 1, found 0");
    if (o->top_p_given && o->temperature == 0)
        return kvr_fail(err, KVR_ERR_USAGE, "--top-p needs --temp above 0");
    if (o->ids != NULL && o->no_special)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--no-special is about text; --ids gives tokens");
    if (o->common.output == NULL && !o->dry_run)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "capture: expected -o OUT.kvt.h5 (or --dry-run)");
    const char *const inputs[] = {o->model, o->file, o->text, o->ids,
                                  o->tokenizer};
    return kvr__cli_check_outputs(&o->common, &o->common.output, 1, inputs,
                                  sizeof inputs / sizeof inputs[0], err);
}

/* --with LIST into what the library takes. */
static enum kvr_status read_with(struct kvr_capture_options *out,
                                 const char *list, struct kvr_error *err)
{
    static const struct {
        const char *name;
        uint32_t bit;
        bool no_norms;
    } known[] = {{"norms", 0, false},
                 {"none", 0, true},
                 {"values", KVR_CAPTURE_VALUES, false},
                 {"mlp", KVR_CAPTURE_MLP, false},
                 {"logits", KVR_CAPTURE_LOGITS, false}};
    const size_t n_known = sizeof known / sizeof known[0];

    while (list != NULL && *list != '\0') {
        const size_t n = strcspn(list, ",");
        size_t i = 0;
        while (i < n_known && (strlen(known[i].name) != n ||
                               strncmp(known[i].name, list, n) != 0))
            i++;
        if (i == n_known)
            return kvr_fail(err, KVR_ERR_USAGE,
                            "--with: '%.*s': expected norms, values, mlp, "
                            "logits or none",
                            (int)n, list);
        out->with |= known[i].bit;
        out->no_norms = out->no_norms || known[i].no_norms;
        list += n + (list[n] == ',');
    }
    return KVR_OK;
}

static struct kvr_capture_options
capture_options(const struct capture_command *o, const char *created)
{
    const bool record = !o->common.no_provenance;

    return (struct kvr_capture_options){
        .model = o->model,
        .output = o->common.output,
        .prompt = o->prompt,
        .prompt_file = o->text != NULL ? o->text : o->file,
        .ids_file = o->ids,
        .n_generate = o->n_generate,
        .prompt_len = o->prompt_len,
        .tokenizer = o->tokenizer,
        .chat = o->chat,
        .no_special = o->no_special,
        .ignore_eos = o->ignore_eos,
        .temperature = o->temperature,
        .top_p = o->top_p,
        .seed = o->common.seed,
        .backend = (enum kvr_capture_backend)o->backend,
        .compute = (enum kvr_capture_compute)o->compute,
        .layers = o->common.layers,
        .heads = o->common.heads,
        .dtype = (enum kvr_dtype)o->dtype,
        .store = (enum kvr_capture_store)o->store,
        .round_bits = o->round_bits,
        .prompt_chunk = o->prompt_chunk,
        .threads = o->common.threads,
        .memory = kvr__cli_memory(&o->common),
        .force = o->common.force,
        .sync = o->sync,
        .writer = record ? "kvreplay " KVREPLAY_VERSION : NULL,
        .created = record && created[0] != '\0' ? created : NULL,
        .command_line = record ? kvr__cli_command_line() : NULL,
    };
}

static const char *const store_names[] = {"attention", "qk", "both"};

static json_t *settings_json(const struct capture_command *o,
                             const struct kvr_capture_plan *plan)
{
    return json_pack(
        "{s:o, s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:I, s:i, "
        "s:o, s:s?, s:s, s:s}",
        "model", kvr__cli_text(o->model), "name",
        kvr__cli_text(plan->model_name), "architecture",
        kvr__cli_text(plan->architecture), "quantisation", plan->quantisation,
        "backend", plan->backend, "backend_why", plan->backend_why, "compute",
        plan->compute, "bos", plan->bos, "dtype",
        o->dtype == KVR_F32 ? "f32" : "f16", "temperature", o->temperature,
        "top_p", o->top_p_given ? o->top_p : 1.0, "seed",
        (json_int_t)o->common.seed, "round_bits", (int)o->round_bits,
        "tokenizer", kvr__cli_text(o->tokenizer), "chat", plan->chat, "store",
        store_names[o->store], "with", o->with != NULL ? o->with : "norms");
}

/* object[key] = text, or null with a reason where it is not UTF-8. */
static void set_text(json_t *object, const char *key, const uint8_t *text,
                     size_t size)
{
    size_t bad;

    if (text == NULL)
        kvr__cli_null(object, key, "the model has no tokenizer");
    else if (!kvr_utf8_valid(text, size, &bad))
        kvr__cli_null(object, key, "not UTF-8");
    else
        kvr__cli_set(object, key, kvr__cli_text_of((const char *)text, size));
}

static json_t *tokens_json(struct kvr_capture *capture)
{
    static const char *const classes[] = {
        [KVR_TOKEN_TEXT] = "text",
        [KVR_TOKEN_SPECIAL] = "special",
        [KVR_TOKEN_PUNCTUATION] = "punctuation",
        [KVR_TOKEN_SPACE] = "space",
        [KVR_TOKEN_DIGIT] = "digit",
    };
    json_t *list = json_array();

    for (uint32_t i = 0; i < kvr_capture_n_token(capture); i++) {
        const struct kvr_capture_token t = kvr_capture_token(capture, i);
        json_t *item =
            json_pack("{s:I, s:I, s:s}", "index", (json_int_t)i, "id",
                      (json_int_t)t.id, "class", classes[t.class_of]);
        set_text(item, "text", t.text, t.text_size);
        kvr__cli_add(list, item);
    }
    return list;
}

/* "    12   4093  ' user'" with what does not print spelt out. */
static char *token_line(const struct kvr_capture_token *t, uint32_t index)
{
    const size_t room = 48 + 4 * t->text_size;
    char *line = malloc(room);

    if (line == NULL)
        return NULL;
    size_t used = (size_t)snprintf(line, room, "%6" PRIu32 " %7" PRId32 "  '",
                                   index, t->id);
    size_t bad;
    const bool valid =
        t->text != NULL && kvr_utf8_valid(t->text, t->text_size, &bad);
    for (size_t i = 0; t->text != NULL && i < t->text_size; i++) {
        const uint8_t c = t->text[i];
        const bool plain = c >= 0x20 && c != 0x7f && c != '\\' && c != '\'' &&
                           (c < 0x80 || valid);
        used += (size_t)snprintf(line + used, room - used,
                                 plain ? "%c" : "\\x%02x", c);
    }
    snprintf(line + used, room - used, "'");
    return line;
}

/* One line per token, NULL at the end. */
static char **token_lines(struct kvr_capture *capture)
{
    const uint32_t n = kvr_capture_n_token(capture);
    char **lines = kvr_calloc((size_t)n + 1, sizeof *lines);

    for (uint32_t i = 0; lines != NULL && i < n; i++) {
        const struct kvr_capture_token t = kvr_capture_token(capture, i);
        lines[i] = token_line(&t, i);
        if (lines[i] == NULL)
            break;
    }
    return lines;
}

static void free_lines(char **lines)
{
    for (size_t i = 0; lines != NULL && lines[i] != NULL; i++)
        free(lines[i]);
    free(lines);
}

static json_t *plan_json(const struct kvr_capture_plan *plan)
{
    json_t *item = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                             "tokens_given", (json_int_t)plan->n_given,
                             "prompt_len", (json_int_t)plan->prompt_len,
                             "tokens_max", (json_int_t)plan->n_token_max,
                             "layers", (json_int_t)plan->stored_layers, "heads",
                             (json_int_t)plan->stored_heads, "trace_bytes",
                             (json_int_t)plan->expected_bytes, "raw_bytes",
                             (json_int_t)plan->raw_bytes, "memory_bytes",
                             (json_int_t)plan->memory_bytes, "disk_bytes",
                             (json_int_t)plan->disk_bytes);

    if (plan->logits_bytes > 0)
        kvr__cli_set(item, "logits_bytes",
                     json_integer((json_int_t)plan->logits_bytes));
    if (plan->device_bytes == 0)
        kvr__cli_null(item, "device_bytes",
                      "the back end has no memory of its own");
    else
        kvr__cli_set(item, "device_bytes",
                     json_integer((json_int_t)plan->device_bytes));
    if (plan->disk_free == UINT64_MAX)
        kvr__cli_null(item, "disk_free", "not known");
    else
        kvr__cli_set(item, "disk_free",
                     json_integer((json_int_t)plan->disk_free));
    return item;
}

static void set_rate(json_t *item, const char *key, uint32_t n, double seconds)
{
    if (n > 0 && seconds > 0)
        kvr__cli_set(item, key, kvr__cli_real(n / seconds));
    else
        kvr__cli_null(item, key, "no tokens");
}

/* Text of the generated tokens, as far as there is any. */
static void set_generated(json_t *item, struct kvr_capture *capture,
                          uint32_t first)
{
    uint8_t *text = NULL;
    size_t n = 0, capacity = 0;
    bool has_text = true;

    for (uint32_t i = first; i < kvr_capture_n_token(capture); i++) {
        const struct kvr_capture_token t = kvr_capture_token(capture, i);
        has_text = has_text && t.text != NULL;
        if (!has_text ||
            !kvr_grow((void **)&text, &capacity, n + t.text_size + 1, 1))
            break;
        memcpy(text + n, t.text, t.text_size);
        n += t.text_size;
    }
    set_text(item, "generated_text",
             !has_text ? NULL
             : n > 0   ? text
                       : (const uint8_t *)"",
             n);
    free(text);
}

static json_t *done_json(const struct capture_command *o,
                         struct kvr_capture *capture,
                         const struct kvr_capture_result *result)
{
    const struct kvr_capture_plan *plan = kvr_capture_plan(capture);
    json_t *item = json_pack(
        "{s:o, s:I, s:I, s:I, s:b, s:I, s:I}", "output",
        kvr__cli_text(o->common.output), "n_token", (json_int_t)result->n_token,
        "prompt_len", (json_int_t)plan->prompt_len, "generated",
        (json_int_t)result->n_generated, "ended", (int)result->ended, "layers",
        (json_int_t)plan->stored_layers, "heads",
        (json_int_t)plan->stored_heads);

    set_rate(item, "given_per_second", plan->n_given, result->prompt_seconds);
    set_rate(item, "generated_per_second", result->n_generated,
             result->decode_seconds);
    set_generated(item, capture, plan->n_given);
    return item;
}

static enum kvr_status print_report(const struct capture_command *o,
                                    struct kvr_capture *capture, json_t *item,
                                    const struct cli_column *columns,
                                    struct kvr_error *err)
{
    struct cli_common common = o->common;
    char **lines = o->show_tokens ? token_lines(capture) : NULL;
    struct cli_report report = {
        .command = "capture",
        .settings = settings_json(o, kvr_capture_plan(capture)),
        .results = json_array(),
        .columns = columns,
        .lines = (const char *const *)lines,
    };

    common.output = NULL; /* -o names the trace */
    if (o->show_tokens)
        kvr__cli_set(item, "tokens", tokens_json(capture));
    kvr__cli_add(report.results, item);
    const enum kvr_status status = kvr__cli_report(&common, &report, err);
    kvr__cli_report_free(&report);
    free_lines(lines);
    return status;
}

static void show_progress(uint32_t done, uint32_t total, void *ud)
{
    kvr__cli_progress(ud, "capture: tokens", done, total);
}

static void announce(const struct kvr_capture_plan *plan)
{
    char trace[32], memory[32];

    kvr_format_bytes(trace, plan->expected_bytes);
    kvr_format_bytes(memory, plan->memory_bytes);
    kvr_log(KVR_LOG_NOTE, "%s (%s, %s) on %s: %s", plan->model_name,
            plan->architecture, plan->quantisation, plan->backend,
            plan->backend_why);
    kvr_log(KVR_LOG_DETAIL, "computed in %s", plan->compute);
    kvr_log(KVR_LOG_NOTE,
            "%" PRIu32 " tokens (prompt %" PRIu32 "), %" PRIu32
            " layers of %" PRIu32 " heads: about %s of trace, %s of memory",
            plan->n_token_max, plan->prompt_len, plan->stored_layers,
            plan->stored_heads, trace, memory);
    if (plan->logits_bytes > 0) {
        kvr_format_bytes(trace, plan->logits_bytes);
        kvr_log(KVR_LOG_NOTE, "of the trace, %s are logits", trace);
    }
}

static enum kvr_status capture_and_report(struct capture_command *o,
                                          struct kvr_capture *capture,
                                          struct kvr_error *err)
{
    const struct kvr_capture_plan *plan = kvr_capture_plan(capture);
    struct kvr_capture_result result;

    announce(plan);
    if (o->dry_run)
        return print_report(o, capture, plan_json(plan), plan_columns, err);
    const enum kvr_status status =
        kvr_capture_run(capture, &result, show_progress, &o->common, err);
    if (status != KVR_OK)
        return status;
    /* an early end leaves the progress line open */
    kvr__cli_progress(&o->common, "capture: tokens", result.n_token,
                      result.n_token);
    return print_report(o, capture, done_json(o, capture, &result),
                        done_columns, err);
}

static enum kvr_status run_capture(const struct cli_command *self, int argc,
                                   char **argv, struct kvr_error *err)
{
    struct capture_command o = {0};
    struct kvr_capture *capture = NULL;
    const char **operands = NULL;
    size_t n_operand = 0;
    bool done = false;
    char created[KVR_TIME_TEXT];
    enum kvr_status status = kvr__cli_parse(self, argc, argv, &o, &operands,
                                            &n_operand, 0, 0, &done, err);

    if (status == KVR_OK && !done)
        status = check_usage(&o, err);
    if (status == KVR_OK && !done)
        status = kvr_trace_time(created, err);
    if (status == KVR_OK && !done) {
        struct kvr_capture_options options = capture_options(&o, created);
        status = read_with(&options, o.with, err);
        if (status == KVR_OK)
            status = kvr_capture_new(&capture, &options, err);
        if (status == KVR_OK)
            status = capture_and_report(&o, capture, err);
        kvr_capture_free(capture);
    }
    kvr__cli_parse_free(self, &o, operands);
    return status;
}

const struct cli_command kvr__cmd_capture = {
    .name = "capture",
    .group = "Traces",
    .operands = "-m MODEL (-p TEXT | -f FILE | --ids FILE | --text FILE) "
                "-o OUT.kvt.h5",
    .summary = "decode with a model and record its attention",
    .options = rows,
    .obeys = CLI_THREADS | CLI_MEMORY | CLI_SEED | CLI_OUTPUT | CLI_REPORT |
             CLI_PICKS,
    .run = run_capture,
};
