/* report.c -- results as an aligned table, CSV or one JSON object.
 *
 * All three are read from the same JSON items by the same field paths, so
 * they cannot say different things.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cli.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 256 };

struct text {
    char *bytes;
    size_t n, capacity;
    bool failed;
};

static void add(struct text *t, const char *format, ...) KVR_PRINTF(2, 3);

static void add(struct text *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 ||
        !kvr_grow((void **)&t->bytes, &t->capacity, t->n + (size_t)n + 1, 1)) {
        t->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(t->bytes + t->n, (size_t)n + 1, format, args);
    va_end(args);
    t->n += (size_t)n;
}

json_t *cli_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void cli_null(json_t *object, const char *key, const char *reason)
{
    char name[128];

    json_object_set_new(object, key, json_null());
    snprintf(name, sizeof name, "%s_reason", key);
    json_object_set_new(object, name, json_string(reason));
}

const json_t *cli_field(const json_t *item, const char *path)
{
    char name[128];

    while (item != NULL) {
        const size_t n = strcspn(path, ".");
        if (n >= sizeof name)
            return NULL;
        memcpy(name, path, n);
        name[n] = '\0';
        item = json_object_get(item, name);
        if (path[n] == '\0')
            return item;
        path += n + 1;
    }
    return NULL;
}

/* A value in the CSV: as in the JSON, empty where null. */
static void csv_cell(char out[CELL], const json_t *value)
{
    if (json_is_real(value))
        snprintf(out, CELL, "%.17g", json_real_value(value));
    else if (json_is_integer(value))
        snprintf(out, CELL, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        snprintf(out, CELL, "%d", json_is_true(value));
    else if (json_is_string(value))
        snprintf(out, CELL, "%s", json_string_value(value));
    else
        out[0] = '\0';
}

static void table_cell(char out[CELL], const json_t *value,
                       const struct cli_column *column)
{
    if (json_is_number(value) && (json_is_real(value) || column->percent)) {
        const double v = json_number_value(value);
        snprintf(out, CELL, "%.*f%s", column->digits,
                 column->percent ? 100 * v : v, column->percent ? "%" : "");
    } else if (json_is_null(value) || value == NULL) {
        snprintf(out, CELL, "-");
    } else {
        csv_cell(out, value);
    }
}

/* Quoted where RFC 4180 asks for it. */
static void add_csv(struct text *t, const char *cell)
{
    if (strpbrk(cell, ",\"\r\n") == NULL) {
        add(t, "%s", cell);
        return;
    }
    add(t, "\"");
    for (; *cell != '\0'; cell++)
        add(t, *cell == '"' ? "\"\"" : "%c", *cell);
    add(t, "\"");
}

static void write_csv(struct text *t, const struct cli_report *report)
{
    const json_t *rows =
        report->csv_rows != NULL ? report->csv_rows : report->results;
    char cell[CELL];
    size_t i;
    json_t *item;

    for (const struct cli_column *c = report->columns; c->path != NULL; c++) {
        char name[CELL];
        snprintf(name, sizeof name, "%s", c->path);
        for (char *dot = name; (dot = strchr(dot, '.')) != NULL;)
            *dot = '_';
        add(t, "%s%s", c == report->columns ? "" : ",", name);
    }
    add(t, "\n");
    json_array_foreach(rows, i, item)
    {
        for (const struct cli_column *c = report->columns; c->path != NULL;
             c++) {
            csv_cell(cell, cli_field(item, c->path));
            add(t, "%s", c == report->columns ? "" : ",");
            add_csv(t, cell);
        }
        add(t, "\n");
    }
}

/* Columns on the screen, not bytes: continuation bytes take none. */
static size_t width_of(const char *text)
{
    size_t n = 0;

    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static size_t column_width(const struct cli_report *report,
                           const struct cli_column *column)
{
    size_t width = width_of(column->title), i;
    char cell[CELL];
    json_t *item;

    json_array_foreach(report->results, i, item)
    {
        table_cell(cell, cli_field(item, column->path), column);
        const size_t w = width_of(cell);
        width = w > width ? w : width;
    }
    return width;
}

/* Text to the left, numbers to the right. */
static bool is_text(const struct cli_report *report,
                    const struct cli_column *column)
{
    size_t i;
    json_t *item;

    json_array_foreach(report->results, i, item)
    {
        if (json_is_string(cli_field(item, column->path)))
            return true;
    }
    return false;
}

static void add_row(struct text *t, const struct cli_report *report,
                    const json_t *item)
{
    bool first = true;
    char cell[CELL];

    for (const struct cli_column *c = report->columns; c->path != NULL; c++) {
        if (c->title == NULL)
            continue;
        if (item != NULL)
            table_cell(cell, cli_field(item, c->path), c);
        else
            snprintf(cell, sizeof cell, "%s", c->title);
        const int pad = (int)(column_width(report, c) - width_of(cell));
        if (is_text(report, c))
            add(t, "%s%s%*s", first ? "" : "  ", cell, pad, "");
        else
            add(t, "%s%*s%s", first ? "" : "  ", pad, "", cell);
        first = false;
    }
    while (t->n > 0 && t->bytes[t->n - 1] == ' ')
        t->n--;
    add(t, "\n");
}

static void write_table(struct text *t, const struct cli_report *report)
{
    size_t i;
    json_t *item;

    add_row(t, report, NULL);
    json_array_foreach(report->results, i, item)
    {
        if (json_is_string(json_object_get(item, "error"))) {
            const char *name =
                json_string_value(json_object_get(item, "policy"));
            add(t, "%s: failed: %s\n", name != NULL ? name : "?",
                json_string_value(json_object_get(item, "error")));
        } else {
            add_row(t, report, item);
        }
    }
    if (report->lines != NULL)
        for (const char *const *line = report->lines; *line != NULL; line++)
            add(t, "%s\n", *line);
}

static bool write_json(struct text *t, const struct cli_common *common,
                       const struct cli_report *report)
{
    char schema[64];
    json_t *root = json_object();

    snprintf(schema, sizeof schema, "kvreplay.%s/1", report->command);
    json_object_set_new(root, "schema", json_string(schema));
    if (!common->no_provenance) {
        json_object_set_new(root, "version", json_string(KVREPLAY_VERSION));
        json_object_set_new(root, "command", json_string(cli_command_line()));
    }
    if (report->trace != NULL)
        json_object_set(root, "trace", report->trace);
    if (report->traces != NULL)
        json_object_set(root, "traces", report->traces);
    json_object_set(root, "settings", report->settings);
    json_object_set(root, "results", report->results);
    char *dump = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (dump == NULL)
        return false;
    add(t, "%s\n", dump);
    free(dump);
    return true;
}

static enum kvr_status to_stdout(const struct text *t, struct kvr_error *err)
{
    if (fwrite(t->bytes, 1, t->n, stdout) != t->n || fflush(stdout) != 0)
        return kvr_fail(err, KVR_ERR_IO, "standard output: %s",
                        strerror(errno));
    return KVR_OK;
}

/* Builds the report in one format and puts it where `path` says; NULL or "-":
 * standard output. */
static enum kvr_status deliver(const struct cli_common *common,
                               const struct cli_report *report,
                               enum cli_format format, const char *path,
                               struct kvr_error *err)
{
    struct text t = {0};
    bool ok = true;
    enum kvr_status status;

    if (format == CLI_JSON)
        ok = write_json(&t, common, report);
    else if (format == CLI_CSV)
        write_csv(&t, report);
    else
        write_table(&t, report);
    if (!ok || t.failed)
        status = kvr_fail(err, KVR_ERR_INTERNAL,
                          "%s: the report could not be built", report->command);
    else if (path == NULL || strcmp(path, "-") == 0)
        status = to_stdout(&t, err);
    else
        status = kvr_file_write(path, t.bytes, t.n, common->force, err);
    free(t.bytes);
    return status;
}

enum kvr_status cli_format_of(enum cli_format *format, const char *path,
                              struct kvr_error *err)
{
    static const struct {
        const char *ending;
        enum cli_format format;
    } known[] = {{".json", CLI_JSON}, {".csv", CLI_CSV}, {".txt", CLI_TABLE}};
    const size_t n = strlen(path);

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t e = strlen(known[i].ending);
        if (n > e && strcmp(path + n - e, known[i].ending) == 0) {
            *format = known[i].format;
            return KVR_OK;
        }
    }
    return kvr_fail(err, KVR_ERR_USAGE,
                    "--save %s: expected a name that ends in .json, .csv or "
                    ".txt",
                    path);
}

enum kvr_status cli_report(const struct cli_common *common,
                           const struct cli_report *report,
                           struct kvr_error *err)
{
    enum kvr_status status = deliver(
        common, report, (enum cli_format)common->format, common->output, err);

    for (size_t i = 0; i < common->save.n && status == KVR_OK; i++) {
        enum cli_format format = CLI_TABLE;
        status = cli_format_of(&format, common->save.item[i], err);
        if (status == KVR_OK)
            status = deliver(common, report, format, common->save.item[i], err);
    }
    return status;
}

void cli_report_free(struct cli_report *report)
{
    json_decref(report->trace);
    json_decref(report->traces);
    json_decref(report->settings);
    json_decref(report->results);
    json_decref(report->csv_rows);
}
