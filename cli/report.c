/* report.c -- results as an aligned table, CSV or one JSON object.
 *
 * All three are read from the same JSON items by the same field paths, so
 * they cannot say different things.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cli.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

const json_t *kvr__cli_field(const json_t *item, const char *path)
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
static void add_value(struct text *t, const json_t *value)
{
    if (json_is_real(value))
        add(t, "%.17g", json_real_value(value));
    else if (json_is_integer(value))
        add(t, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        add(t, "%d", json_is_true(value));
    else if (json_is_string(value))
        add(t, "%s", json_string_value(value));
}

static void add_table_value(struct text *t, const json_t *value,
                            const struct cli_column *column)
{
    if (json_is_number(value) && (json_is_real(value) || column->percent)) {
        const double v = json_number_value(value);
        add(t, column->significant ? "%.*g%s" : "%.*f%s", column->digits,
            column->percent ? 100 * v : v, column->percent ? "%" : "");
    } else if (json_is_null(value) || value == NULL) {
        add(t, "-");
    } else {
        add_value(t, value);
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

/* Empties a text for its next use; ends what it holds. */
static const char *taken(struct text *cell)
{
    if (!kvr_grow((void **)&cell->bytes, &cell->capacity, cell->n + 1, 1)) {
        cell->failed = true;
        return "";
    }
    cell->bytes[cell->n] = '\0';
    cell->n = 0;
    return cell->bytes;
}

static void write_csv(struct text *t, const struct cli_report *report)
{
    const json_t *rows =
        report->csv_rows != NULL ? report->csv_rows : report->results;
    struct text cell = {0};
    size_t i;
    json_t *item;

    for (const struct cli_column *c = report->columns; c->path != NULL; c++) {
        add(t, "%s", c == report->columns ? "" : ",");
        for (const char *at = c->path; *at != '\0'; at++)
            add(t, "%c", *at == '.' ? '_' : *at);
    }
    add(t, "\n");
    json_array_foreach(rows, i, item)
    {
        for (const struct cli_column *c = report->columns; c->path != NULL;
             c++) {
            add_value(&cell, kvr__cli_field(item, c->path));
            add(t, "%s", c == report->columns ? "" : ",");
            add_csv(t, taken(&cell));
        }
        add(t, "\n");
    }
    t->failed = t->failed || cell.failed;
    free(cell.bytes);
}

/* Columns on the screen, not bytes: continuation bytes take none. */
static size_t width_of(const char *text)
{
    size_t n = 0;

    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* How a column of the table is set: measured once, over all items. */
struct table_layout {
    size_t width;
    bool is_text; /* to the left; numbers to the right */
    bool shown;
};

static void measure(struct table_layout *out, const struct cli_report *report,
                    const struct cli_column *column, struct text *cell)
{
    size_t i;
    json_t *item;

    *out = (struct table_layout){.shown = column->title != NULL &&
                                          !column->optional};
    if (column->title == NULL)
        return;
    out->width = width_of(column->title);
    json_array_foreach(report->results, i, item)
    {
        const json_t *value = kvr__cli_field(item, column->path);
        out->is_text = out->is_text || json_is_string(value);
        out->shown = out->shown || (value != NULL && !json_is_null(value));
        add_table_value(cell, value, column);
        const size_t w = width_of(taken(cell));
        out->width = w > out->width ? w : out->width;
    }
}

/* item NULL: the titles. */
static void add_row(struct text *t, const struct cli_report *report,
                    const struct table_layout *layout, const json_t *item,
                    struct text *cell)
{
    bool first = true;

    for (size_t i = 0; report->columns[i].path != NULL; i++) {
        const struct cli_column *c = &report->columns[i];
        if (!layout[i].shown)
            continue;
        if (item != NULL)
            add_table_value(cell, kvr__cli_field(item, c->path), c);
        else
            add(cell, "%s", c->title);
        const char *text = taken(cell);
        const int pad = (int)(layout[i].width - width_of(text));
        if (layout[i].is_text)
            add(t, "%s%s%*s", first ? "" : "  ", text, pad, "");
        else
            add(t, "%s%*s%s", first ? "" : "  ", pad, "", text);
        first = false;
    }
    while (t->n > 0 && t->bytes[t->n - 1] == ' ')
        t->n--;
    add(t, "\n");
}

static void add_failed(struct text *t, const json_t *item)
{
    const char *name = json_string_value(json_object_get(item, "spec"));

    add(t, "%s: failed: %s\n", name != NULL ? name : "?",
        json_string_value(json_object_get(item, "error")));
}

static void write_table(struct text *t, const struct cli_report *report)
{
    struct text cell = {0};
    size_t i, n = 0;
    json_t *item;

    while (report->columns[n].path != NULL)
        n++;
    struct table_layout *layout = kvr_calloc(n, sizeof *layout);
    t->failed = t->failed || layout == NULL;
    for (size_t c = 0; layout != NULL && c < n; c++)
        measure(&layout[c], report, &report->columns[c], &cell);
    if (layout != NULL)
        add_row(t, report, layout, NULL, &cell);
    json_array_foreach(report->results, i, item)
    {
        if (json_is_string(json_object_get(item, "error")))
            add_failed(t, item);
        else if (layout != NULL)
            add_row(t, report, layout, item, &cell);
    }
    if (report->lines != NULL)
        for (const char *const *line = report->lines; *line != NULL; line++)
            add(t, "%s\n", *line);
    t->failed = t->failed || cell.failed;
    free(cell.bytes);
    free(layout);
}

static bool write_json(struct text *t, const struct cli_common *common,
                       const struct cli_report *report)
{
    char schema[64];
    json_t *root = json_object();

    snprintf(schema, sizeof schema, "kvreplay.%s/1", report->command);
    kvr__cli_set(root, "schema", kvr__cli_text(schema));
    if (!common->no_provenance) {
        kvr__cli_set(root, "version", kvr__cli_text(KVREPLAY_VERSION));
        kvr__cli_set(root, "command", kvr__cli_text(kvr__cli_command_line()));
    }
    if (report->trace != NULL)
        kvr__cli_set(root, "trace", json_incref(report->trace));
    if (report->traces != NULL)
        kvr__cli_set(root, "traces", json_incref(report->traces));
    kvr__cli_set(root, "settings", json_incref(report->settings));
    kvr__cli_set(root, "results", json_incref(report->results));
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
    if (fwrite(t->bytes, 1, t->n, stdout) == t->n && fflush(stdout) == 0)
        return KVR_OK;
    const int code = errno;
    clearerr(stdout); /* this message is the only one */
    return kvr_fail(err, KVR_ERR_IO, "standard output: %s", strerror(code));
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
    if (!ok || t.failed || kvr__cli_json_failed())
        status = kvr_fail(err, KVR_ERR_INTERNAL,
                          "%s: no memory for the report; nothing is printed",
                          report->command);
    else if (path == NULL || strcmp(path, "-") == 0)
        status = to_stdout(&t, err);
    else
        status = kvr_file_write(path, t.bytes, t.n, common->force, err);
    free(t.bytes);
    return status;
}

enum kvr_status kvr__cli_format_of(enum cli_format *format, const char *path,
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

enum kvr_status kvr__cli_report(const struct cli_common *common,
                                const struct cli_report *report,
                                struct kvr_error *err)
{
    enum kvr_status status = deliver(
        common, report, (enum cli_format)common->format, common->output, err);

    for (size_t i = 0; i < common->save.n && status == KVR_OK; i++) {
        enum cli_format format = CLI_TABLE;
        status = kvr__cli_format_of(&format, common->save.item[i], err);
        if (status == KVR_OK)
            status = deliver(common, report, format, common->save.item[i], err);
    }
    return status;
}

void kvr__cli_report_free(struct cli_report *report)
{
    json_decref(report->trace);
    json_decref(report->traces);
    json_decref(report->settings);
    json_decref(report->results);
    json_decref(report->csv_rows);
}
