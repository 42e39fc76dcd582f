/* cmd_powerlaw.c -- kvreplay powerlaw: is accumulated attention a power law.
 *
 * p-values and alternatives are null here, with the reason; without them no
 * fit says that the data follow a power law.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "heads.h"
#include "powerlaw_summary.h"

#include "kvr_file.h"
#include "kvr_log.h"
#include "kvr_memory.h"
#include "kvr_powerlaw.h"
#include "kvr_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tail of fewer values, or of fewer distinct ones, says little about any law:
 * the row has a caution. */
enum { FEW_POINTS = 50, FEW_DISTINCT = 10, MANY_VALUES = 100000 };

static const size_t largest_file = (size_t)1 << 31;

struct powerlaw_command {
    struct cli_common common; /* first: see cli.h */
    const char *values;
    double xmin;
    uint32_t min_tail, min_points, skip_first, prompt_len;
    int ks, kind, rows;
    bool per_row;
};

static const char *const ks_names[] = {"sup", "left-sample", "left-unique"};
static const char *const kind_names[] = {"auto", "continuous", "discrete"};
static const char *const rows_names[] = {"all", "decode"};

#define AT(member) offsetof(struct powerlaw_command, member)

static const struct kvr_option own_options[] = {
    {.name = "values",
     .type = KVR_OPTION_TEXT,
     .offset = AT(values),
     .argument = "FILE",
     .help = "fit the numbers of a text file, one a line, not a trace"},
    {.name = "xmin",
     .type = KVR_OPTION_REAL,
     .offset = AT(xmin),
     .argument = "X",
     .min = 4.9406564584124654e-324,
     .max = 1.7976931348623157e308,
     .help = "the tail starts at X (default: the best of all values)"},
    {.name = "min-tail",
     .type = KVR_OPTION_U32,
     .offset = AT(min_tail),
     .argument = "N",
     .min = 2,
     .max = UINT32_MAX,
     .help = "a tail has at least N values (default 2)"},
    {.name = "min-points",
     .type = KVR_OPTION_U32,
     .offset = AT(min_points),
     .argument = "N",
     .min = 2,
     .max = UINT32_MAX,
     .help = "do not fit fewer values above 0 (default 5)"},
    {.name = "ks",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(ks),
     .choices = "sup|left-sample|left-unique",
     .help = "distance: both sides of each jump (default), or as the "
             "authors' script, or as the Python package"},
    {.name = "kind",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(kind),
     .choices = "auto|continuous|discrete",
     .help = "auto: discrete if all values are integers of at least 1"},
    {.name = "rows",
     .type = KVR_OPTION_CHOICE,
     .offset = AT(rows),
     .choices = "all|decode",
     .help = "rows whose attention is summed (default all)"},
    {.name = "per-row",
     .type = KVR_OPTION_FLAG,
     .offset = AT(per_row),
     .help = "divide each token's sum by the rows that could see it"},
    {.name = "skip-first",
     .type = KVR_OPTION_U32,
     .offset = AT(skip_first),
     .argument = "N",
     .max = UINT32_MAX,
     .help = "leave the first N tokens out (sinks)"},
    {.name = "prompt-len",
     .type = KVR_OPTION_U32,
     .offset = AT(prompt_len),
     .argument = "N",
     .min = 1,
     .max = UINT32_MAX,
     .help = "decode rows are those from N on (default: the trace's)"},
    {.name = NULL},
};

static const struct cli_column columns[] = {
    {.path = "trace"},
    {.path = "trace_path", .title = "trace", .optional = true},
    {.path = "layer", .title = "layer"},
    {.path = "head", .title = "head"},
    {.path = "n"},
    {.path = "zeros_dropped", .title = "zeros"},
    {.path = "n_used", .title = "n"},
    {.path = "kind", .title = "kind"},
    {.path = "alpha", .title = "alpha", .digits = 3},
    {.path = "sigma", .title = "sigma", .digits = 3},
    {.path = "xmin", .title = "xmin", .digits = 6, .significant = true},
    {.path = "n_tail", .title = "tail"},
    {.path = "n_distinct"},
    {.path = "tail_fraction", .title = "of n", .digits = 1, .percent = true},
    {.path = "ks", .title = "KS", .digits = 4},
    {.path = "cv2", .title = "CV2", .digits = 3},
    {.path = "loglik"},
    {.path = "p", .title = "p", .digits = 3},
    {.path = "p_error"},
    {.path = "estimator"},
    {.path = "ks_convention"},
    {.path = "caution", .title = "caution", .optional = true},
    {.path = "not_fitted", .title = "not fitted", .optional = true},
    {.path = NULL},
};

static void progress(void *ud, uint64_t done, uint64_t total)
{
    kvr__cli_progress(ud, "xmin", done, total);
}

static struct kvr_powerlaw_options
fit_options(const struct powerlaw_command *options)
{
    return (struct kvr_powerlaw_options){
        .kind = (enum kvr_powerlaw_kind)options->kind,
        .ks = (enum kvr_ks)options->ks,
        .min_tail = options->min_tail,
        .xmin = options->xmin,
        .progress = options->values != NULL ? progress : NULL,
        .progress_ud = (void *)(uintptr_t)&options->common,
    };
}

/* A fit of n values, refused where fewer than --min-points are above 0. */
static enum kvr_status fit_values(struct kvr_powerlaw *fit,
                                  const double *values, size_t n,
                                  const struct powerlaw_command *options,
                                  struct kvr_error *err)
{
    const struct kvr_powerlaw_options how = fit_options(options);
    size_t positive = 0;

    for (size_t i = 0; i < n; i++)
        positive += values[i] > 0;
    if (positive < options->min_points)
        return kvr_fail(err, KVR_ERR_NOTHING,
                        "cannot fit: %zu values above 0, a fit needs at least "
                        "%u (--min-points)",
                        positive, options->min_points);
    return kvr_powerlaw_fit(fit, values, n, &how, err);
}

/* ---- items ---- */

static void set_count(json_t *item, const char *key, uint64_t value)
{
    kvr__cli_set(item, key, json_integer((json_int_t)value));
}

/* What every fit lacks in this command. */
static void set_not_computed(json_t *item)
{
    kvr__cli_null(item, "p", "not computed: this version has no bootstrap");
    kvr__cli_set(item, "p_error", json_null());
    kvr__cli_null(item, "alternatives", "not computed");
}

/* What a reader of the row must know before the exponent. */
static void set_caution(json_t *item, const struct kvr_powerlaw *fit)
{
    char text[128];

    if (fit->n_distinct < 3)
        snprintf(text, sizeof text,
                 "%" PRIu64 " distinct values in the tail: any law fits them",
                 fit->n_distinct);
    else if (fit->n_tail < FEW_POINTS)
        snprintf(text, sizeof text, "%" PRIu64 " values in the tail, below %d",
                 fit->n_tail, FEW_POINTS);
    else if (fit->n_distinct < FEW_DISTINCT)
        snprintf(text, sizeof text,
                 "%" PRIu64 " distinct values in the tail, below %d",
                 fit->n_distinct, FEW_DISTINCT);
    else
        return;
    kvr__cli_set(item, "caution", kvr__cli_text(text));
}

static void set_fit(json_t *item, const struct kvr_powerlaw *fit, int ks)
{
    set_count(item, "n", fit->n + fit->n_dropped);
    set_count(item, "zeros_dropped", fit->n_dropped);
    set_count(item, "n_used", fit->n);
    kvr__cli_set(item, "kind",
                 kvr__cli_text(kind_names[fit->discrete ? 2 : 1]));
    kvr__cli_set(item, "alpha", kvr__cli_real(fit->alpha));
    kvr__cli_set(item, "sigma", kvr__cli_real(fit->sigma));
    kvr__cli_set(item, "xmin", kvr__cli_real(fit->xmin));
    set_count(item, "n_tail", fit->n_tail);
    set_count(item, "n_distinct", fit->n_distinct);
    kvr__cli_set(item, "tail_fraction",
                 kvr__cli_real((double)fit->n_tail / (double)fit->n));
    kvr__cli_set(item, "ks", kvr__cli_real(fit->ks));
    kvr__cli_set(item, "ks_convention", kvr__cli_text(ks_names[ks]));
    kvr__cli_set(item, "loglik", kvr__cli_real(fit->loglik));
    kvr__cli_set_real(item, "cv2", fit->cv2, "for continuous data only");
    kvr__cli_set(item, "estimator",
                 kvr__cli_text(fit->discrete
                                   ? "maximum likelihood, zeta law on integers"
                                   : "maximum likelihood, continuous"));
    set_caution(item, fit);
    set_not_computed(item);
}

static void set_no_fit(json_t *item, size_t n, size_t zeros, const char *reason,
                       int ks)
{
    static const char *const nulls[] = {"alpha",  "sigma",      "xmin",
                                        "n_tail", "n_distinct", "tail_fraction",
                                        "ks",     "loglik",     "cv2"};

    set_count(item, "n", n);
    set_count(item, "zeros_dropped", zeros);
    set_count(item, "n_used", n - zeros);
    kvr__cli_set(item, "kind", json_null());
    for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
        kvr__cli_set(item, nulls[i], json_null());
    kvr__cli_set(item, "estimator", json_null());
    kvr__cli_set(item, "ks_convention", kvr__cli_text(ks_names[ks]));
    kvr__cli_set(item, "not_fitted", kvr__cli_text(reason));
    set_not_computed(item);
}

/* ---- a file of values ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* One number a line, white space around it and empty lines allowed. */
static enum kvr_status parse_values(double **values, size_t *n,
                                    const char *text, const char *path,
                                    struct kvr_error *err)
{
    size_t capacity = 0;

    for (size_t line = 1; *text != '\0'; line++) {
        size_t length = strcspn(text, "\n");
        const char *next = text + length + (text[length] == '\n');
        double value;
        for (; length > 0 && is_blank(*text); length--)
            text++;
        while (length > 0 && is_blank(text[length - 1]))
            length--;
        if (length > 0) {
            if (!kvr_parse_real(&value, text, length) || value < 0)
                return kvr_fail(err, KVR_ERR_INPUT,
                                "%s: line %zu: '%.*s', expected a finite "
                                "number of at least 0",
                                path, line, (int)(length < 40 ? length : 40),
                                text);
            if (!kvr_grow((void **)values, &capacity, *n + 1, sizeof value))
                return kvr_no_memory(err, "values", *n * sizeof value);
            (*values)[(*n)++] = value;
        }
        text = next;
    }
    return KVR_OK;
}

static enum kvr_status fit_file(json_t *results,
                                const struct powerlaw_command *options,
                                struct kvr_error *err)
{
    const char *path = options->values;
    uint8_t *text = NULL;
    double *values = NULL;
    size_t size, n = 0;
    struct kvr_powerlaw fit;
    enum kvr_status status =
        kvr_file_read(&text, &size, path, largest_file, err);

    if (status != KVR_OK)
        return status;
    if (memchr(text, '\0', size) != NULL)
        status = kvr_fail(err, KVR_ERR_INPUT, "%s: not a text file of numbers",
                          path);
    if (status == KVR_OK)
        status = parse_values(&values, &n, (const char *)text, path, err);
    free(text);
    if (status == KVR_OK && n > MANY_VALUES && options->xmin == 0)
        kvr_log(KVR_LOG_NOTE,
                "%s: %zu values: each distinct one is tried as xmin, which "
                "may take minutes where no power law fits; --xmin X tries one",
                path, n);
    if (status == KVR_OK) {
        status = fit_values(&fit, values, n, options, err);
        if (status != KVR_OK)
            kvr_error_prefix(err, "%s", path);
    }
    free(values);
    if (status != KVR_OK)
        return status;
    json_t *item = json_object();
    kvr__cli_null(item, "layer", "values of a file");
    kvr__cli_null(item, "head", "values of a file");
    set_fit(item, &fit, options->ks);
    kvr__cli_add(results, item);
    if (fit.n_tail < FEW_POINTS)
        kvr_log(KVR_LOG_WARNING,
                "%s: %" PRIu64 " values in the tail; below %d the exponent "
                "says little",
                path, fit.n_tail, FEW_POINTS);
    return KVR_OK;
}

/* ---- heads of traces ---- */

struct powerlaw_run {
    const struct powerlaw_command *options;
    json_t *results;
    bool many; /* traces: each item has its index */
};

/* A head's fit, or why there is none. */
struct head_fit {
    struct kvr_powerlaw fit;
    size_t n, zeros;
    char *not_fitted; /* owned; NULL: fitted */
};

struct powerlaw_job {
    const struct powerlaw_command *options;
    struct head_fit *fits;
};

static enum kvr_status fit_sums(struct head_fit *out, const double *sums,
                                size_t n,
                                const struct powerlaw_command *options,
                                struct kvr_error *err)
{
    struct kvr_error why = {0};

    out->n = n;
    for (size_t i = 0; i < n; i++)
        out->zeros += sums[i] == 0;
    const enum kvr_status status =
        fit_values(&out->fit, sums, n, options, &why);
    if (status == KVR_OK)
        return KVR_OK;
    if (status != KVR_ERR_NOTHING)
        return kvr_fail(err, status, "%s", why.message);
    out->not_fitted = kvr_strdup(why.message);
    return out->not_fitted != NULL ? KVR_OK : kvr_no_memory(err, "text", 1);
}

static enum kvr_status analyse(uint32_t item, const struct kvr_head *head,
                               void *ud, struct kvr_error *err)
{
    const struct powerlaw_job *job = ud;
    const struct powerlaw_command *options = job->options;
    const size_t n = head->n_token;
    const size_t skip = options->skip_first < n ? options->skip_first : n;
    double *sums = kvr_calloc(n, sizeof *sums);
    uint32_t *seen = kvr_calloc(n, sizeof *seen);
    enum kvr_status status;

    if (sums == NULL || seen == NULL)
        status = kvr_no_memory(err, "accumulated attention", n * sizeof *sums);
    else
        status = kvr_head_sums(sums, seen, head,
                               options->rows == 1 ? head->prompt_len : 0, err);
    if (status == KVR_OK && options->per_row)
        for (size_t i = 0; i < n; i++)
            sums[i] /= seen[i] > 0 ? seen[i] : 1;
    if (status == KVR_OK)
        status =
            fit_sums(&job->fits[item], sums + skip, n - skip, options, err);
    free(sums);
    free(seen);
    return status;
}

static void add_items(const struct powerlaw_run *run,
                      const struct cli_heads *heads,
                      const struct head_fit *fits)
{
    uint32_t few = 0, none = 0;

    for (uint32_t i = 0; i < heads->n; i++) {
        json_t *item = json_object();
        kvr__cli_name_trace(item, run->many ? (int)heads->trace_index : -1,
                            heads->trace);
        kvr__cli_set(item, "layer",
                     json_integer(kvr__cli_layer_number(heads, i)));
        kvr__cli_set(item, "head",
                     json_integer(kvr__cli_head_number(heads, i)));
        if (fits[i].not_fitted != NULL)
            set_no_fit(item, fits[i].n, fits[i].zeros, fits[i].not_fitted,
                       run->options->ks);
        else
            set_fit(item, &fits[i].fit, run->options->ks);
        none += fits[i].not_fitted != NULL;
        few += json_object_get(item, "caution") != NULL;
        kvr__cli_add(run->results, item);
    }
    if (few > 0)
        kvr_log(KVR_LOG_WARNING,
                "%u of %u heads have few tokens in the tail (see caution); "
                "their exponents say little",
                few, heads->n);
    if (none > 0)
        kvr_log(KVR_LOG_WARNING,
                "%u of %u heads could not be fitted; not_fitted says why", none,
                heads->n);
}

static enum kvr_status do_heads(const struct cli_heads *heads, void *ud,
                                struct kvr_error *err)
{
    const struct powerlaw_run *run = ud;
    struct powerlaw_job job = {.options = run->options};

    job.fits = kvr_calloc(heads->n, sizeof *job.fits);
    if (job.fits == NULL)
        return kvr_no_memory(err, "fits", heads->n * sizeof *job.fits);
    const enum kvr_status status = kvr_heads_run(
        heads->trace, heads->items, heads->n, run->options->prompt_len,
        run->options->common.threads, analyse, &job, err);
    if (status == KVR_OK)
        add_items(run, heads, job.fits);
    for (uint32_t i = 0; i < heads->n; i++)
        free(job.fits[i].not_fitted);
    free(job.fits);
    return status;
}

/* ---- the command ---- */

static json_t *settings_of(const struct powerlaw_command *options)
{
    json_t *out = json_pack("{s:s, s:s, s:I, s:I}", "ks", ks_names[options->ks],
                            "kind", kind_names[options->kind], "min_tail",
                            (json_int_t)options->min_tail, "min_points",
                            (json_int_t)options->min_points);

    if (options->xmin > 0)
        kvr__cli_set(out, "xmin", kvr__cli_real(options->xmin));
    if (options->values != NULL) {
        kvr__cli_set(out, "values", kvr__cli_text(options->values));
        return out;
    }
    kvr__cli_set(out, "rows", kvr__cli_text(rows_names[options->rows]));
    kvr__cli_set(out, "per_row", json_boolean(options->per_row));
    set_count(out, "skip_first", options->skip_first);
    if (options->prompt_len != 0)
        set_count(out, "prompt_len", options->prompt_len);
    return out;
}

static enum kvr_status report_all(struct cli_report *report,
                                  const struct cli_common *common,
                                  struct kvr_error *err)
{
    char summary[160];
    const char *const lines[] = {
        "",
        "xmin: the value whose tail is nearest to its own fit (KS). CV2 of "
        "ln(x/xmin) below 1: a",
        "lognormal fits the tail better. A best fit need not be a good one: "
        "without p nothing here",
        "says that the data follow a power law.",
        json_array_size(report->results) > 1 ? summary : NULL,
        NULL,
    };

    enum kvr_status status = kvr__cli_powerlaw_summary(summary, sizeof summary,
                                                       report->results, err);
    if (status != KVR_OK)
        return status;
    report->lines = lines;
    status = kvr__cli_report(common, report, err);
    report->lines = NULL;
    return status;
}

static bool of_traces(const struct powerlaw_command *o)
{
    return o->common.layers != NULL || o->common.heads != NULL ||
           o->common.threads != 0 || o->rows != 0 || o->per_row ||
           o->skip_first != 0 || o->prompt_len != 0;
}

static enum kvr_status run_powerlaw(const struct cli_command *self, int argc,
                                    char **argv, struct kvr_error *err)
{
    struct powerlaw_command options = {.min_tail = 2, .min_points = 5};
    const char **paths;
    size_t n_path;
    bool done;
    enum kvr_status status = kvr__cli_parse(self, argc, argv, &options, &paths,
                                            &n_path, 0, SIZE_MAX, &done, err);

    if (status != KVR_OK || done)
        goto out;
    if ((options.values != NULL) == (n_path > 0)) {
        status = kvr_fail(err, KVR_ERR_USAGE,
                          "powerlaw: expected %s; kvreplay powerlaw --help "
                          "shows how",
                          n_path > 0 ? "either traces or --values, not both"
                                     : "a trace, or --values FILE");
        goto out;
    }
    if (options.values != NULL && of_traces(&options)) {
        status = kvr_fail(err, KVR_ERR_USAGE,
                          "powerlaw: --layers, --heads, --rows, --per-row, "
                          "--skip-first, --prompt-len and --threads are about "
                          "traces, not --values");
        goto out;
    }
    struct cli_report report = {.command = self->name,
                                .settings = settings_of(&options),
                                .results = json_array(),
                                .columns = columns};
    struct powerlaw_run run = {
        .options = &options, .results = report.results, .many = n_path > 1};
    if (options.values != NULL)
        status = fit_file(report.results, &options, err);
    else
        status = kvr__cli_each_trace(&report, &options.common, paths, n_path,
                                     do_heads, &run, err);
    if (status == KVR_OK)
        status = report_all(&report, &options.common, err);
    kvr__cli_report_free(&report);
out:
    kvr__cli_parse_free(self, &options, paths);
    return status;
}

const struct cli_command kvr__cmd_powerlaw = {
    .name = "powerlaw",
    .group = "Statistics",
    .operands = "TRACE.. | --values FILE",
    .summary = "power-law fits of accumulated attention, per head",
    .options = own_options,
    .obeys = CLI_THREADS | CLI_MEMORY | CLI_OUTPUT | CLI_REPORT | CLI_PICKS,
    .run = run_powerlaw,
};
