/* cli.h -- what the commands of kvreplay share.
 *
 * One file per command (cmd_*.c) with one row in main.c. A command parses its
 * options, calls the rooms below, fills a report and returns a status; the
 * exit code follows from it. stdout is data, stderr is talk.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CLI_H
#define CLI_H

#include "kvr_error.h"
#include "kvr_options.h"
#include "kvr_trace.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVREPLAY_VERSION KVR_VERSION_TEXT

enum cli_format { CLI_TABLE, CLI_CSV, CLI_JSON };

/* Options that mean the same everywhere: the first member of each command's
 * own options struct. */
struct cli_common {
    uint32_t threads; /* 0: all processors */
    uint64_t memory;  /* bytes; 0: half of the machine's */
    uint64_t seed;
    int format;                  /* enum cli_format */
    const char *output;          /* NULL: stdout */
    struct kvr_option_list save; /* more copies, format by their ending */
    bool quiet, verbose, force, no_provenance, help;
    const char *layers, *heads; /* lists, NULL: all */
};
extern const struct kvr_option kvr__cli_common_options[];

/* The common options that a command obeys. -q, -v and -h hold for all; another
 * one is refused, and does not stand in the command's help. */
enum cli_obeys {
    CLI_THREADS = 1 << 0,
    CLI_MEMORY = 1 << 1,
    CLI_SEED = 1 << 2,
    CLI_OUTPUT = 1 << 3, /* with --force and --no-provenance */
    CLI_REPORT = 1 << 4, /* --format and --save */
    CLI_PICKS = 1 << 5,  /* --layers and --heads */
};

struct cli_command {
    const char *name;
    const char *group;    /* heading in the overview */
    const char *operands; /* "TRACE..", for the usage */
    const char *summary;
    const struct kvr_option *options; /* its own rows, may be NULL */
    unsigned obeys;                   /* enum cli_obeys */
    /* argv without the program's and the command's name. */
    enum kvr_status (*run)(const struct cli_command *self, int argc,
                           char **argv, struct kvr_error *err);
};

/* Parses the command's rows and the common ones into `options`, applies -q
 * and -v, prints the usage for --help. *operands: malloc'ed array; free() it.
 * *done: true after --help (return KVR_OK then). Limits the number of
 * operands to least..most. */
enum kvr_status kvr__cli_parse(const struct cli_command *self, int argc,
                               char **argv, void *options,
                               const char ***operands, size_t *n_operand,
                               size_t least, size_t most, bool *done,
                               struct kvr_error *err) KVR_MUST_CHECK;
void kvr__cli_parse_free(const struct cli_command *self, void *options,
                         const char **operands);

/* Refuses outputs that cannot be meant, before any work is done: one file for
 * two of them, an input, a folder that is not there (usage or input errors),
 * or a file that exists without --force. NULL entries are skipped; "-" is
 * standard output. */
enum kvr_status kvr__cli_check_outputs(const struct cli_common *common,
                                       const char *const *outputs,
                                       size_t n_output,
                                       const char *const *inputs,
                                       size_t n_input,
                                       struct kvr_error *err) KVR_MUST_CHECK;

/* Memory a command may use: common->memory or half of the machine's. */
uint64_t kvr__cli_memory(const struct cli_common *common);

/* Progress on a terminal: a rewritten line with rate and time left; nothing
 * otherwise. done == total ends the line. Call from one thread. */
void kvr__cli_progress(const struct cli_common *common, const char *what,
                       uint64_t done, uint64_t total);

/* ---- report: the one way results leave ---- */

/* A column of the table and of the CSV. path names the JSON field in a result
 * item, dots for nesting: "miss_mass.mean". */
struct cli_column {
    const char *path;
    const char *title; /* in the table; NULL: only in the CSV */
    int digits;        /* after the point, for reals in the table */
    bool significant;  /* digits are significant ones */
    bool percent;      /* the table shows 100 times the value */
    bool optional;     /* in the table only where some item has it */
};

/* {schema, version, command, trace|traces, settings, results}. `settings`
 * and `results` are taken over (json_decref at free). */
struct cli_report {
    const char *command;              /* "replay" */
    json_t *trace;                    /* object, or NULL */
    json_t *traces;                   /* list, or NULL */
    json_t *settings;                 /* object */
    json_t *results;                  /* list of objects */
    json_t *csv_rows;                 /* flat rows for the CSV; NULL: results */
    const struct cli_column *columns; /* path NULL ends */
    const char *const *lines;         /* text after the table, NULL ends */
};

/* Prints or writes the report as asked: aligned table, CSV with a header, or
 * one JSON object with 17 significant digits. A field that is null with a
 * reason beside it ("oracle": null, "oracle_reason": "not computed") shows as
 * "-". With --no-provenance, command line and version are left out. */
enum kvr_status kvr__cli_report(const struct cli_common *common,
                                const struct cli_report *report,
                                struct kvr_error *err) KVR_MUST_CHECK;
void kvr__cli_report_free(struct cli_report *report);
/* The format that a file name asks for by its ending. */
enum kvr_status kvr__cli_format_of(enum cli_format *format, const char *path,
                                   struct kvr_error *err) KVR_MUST_CHECK;

/* ---- json.c: what reports are built with ----
 *
 * Values are taken over. What fails (no memory) is remembered: cli_report then
 * prints nothing and fails, as a result with a field left out is a wrong one.
 * NULL as a value counts as a failure that happened when it was made. */
void kvr__cli_set(json_t *object, const char *key, json_t *value);
void kvr__cli_add(json_t *list, json_t *value);
/* to[key] = from[key], where it is there. */
void kvr__cli_copy(json_t *to, const json_t *from, const char *key);
bool kvr__cli_json_failed(void);

/* A number, or null when it is not finite (JSON has no NaN). */
json_t *kvr__cli_real(double value);
/* A string; bytes that are no UTF-8 become U+FFFD. NULL: null. */
json_t *kvr__cli_text(const char *text);
json_t *kvr__cli_text_of(const char *text, size_t n);
/* Sets object[key] = null and object[key + "_reason"] = reason. */
void kvr__cli_null(json_t *object, const char *key, const char *reason);
/* Which of several traces an item is about: `trace`, its index in `traces`, and
 * `trace_path`. index negative: there is one. */
void kvr__cli_name_trace(json_t *item, int index,
                         const struct kvr_trace *trace);
/* {path, hash, model, n_layer, n_head, n_kv_head, n_token, prompt_len}. */
json_t *kvr__cli_trace_json(const struct kvr_trace *trace);

/* The program's command line, for provenance, quoted for a shell where it must
 * be. */
const char *kvr__cli_command_line(void);

/* Follows a path of names with dots; NULL where something is missing. */
const json_t *kvr__cli_field(const json_t *item, const char *path);

#endif
