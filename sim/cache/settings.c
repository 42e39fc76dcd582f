/* settings.c -- budgets, access rules and the like, from text.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_cache.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct budget_parser {
    struct kvr_budget **out;
    size_t *n;
    uint32_t base;   /* what 100 % is */
    uint32_t prompt; /* P */
    struct kvr_error *err;
};

static enum kvr_status bad_budget(const struct budget_parser *p,
                                  const char *item, size_t n, const char *why)
{
    return kvr_fail(p->err, KVR_ERR_USAGE, "--budget: '%.*s': %s",
                    (int)(n < 60 ? n : 60), item, why);
}

static enum kvr_status append(struct budget_parser *p, const char *spec,
                              uint32_t tokens)
{
    struct kvr_budget *grown = realloc(*p->out, (*p->n + 1) * sizeof **p->out);

    if (grown == NULL)
        return kvr_no_memory(p->err, "budgets", *p->n);
    *p->out = grown;
    struct kvr_budget *b = &grown[(*p->n)++];
    *b = (struct kvr_budget){.tokens = tokens};
    snprintf(b->spec, sizeof b->spec, "%s", spec);
    return KVR_OK;
}

/* Round half up, at least 1. */
static uint32_t percent_of(double percent, uint32_t base)
{
    const double tokens = floor(percent * base / 100 + 0.5);

    return tokens < 1 ? 1 : (uint32_t)tokens;
}

/* "64" or "20%". */
static bool read_amount(double *value, bool *percent, const char *text,
                        size_t n)
{
    *percent = n > 0 && text[n - 1] == '%';
    return kvr_parse_real(value, text, *percent ? n - 1 : n) && *value >= 0 &&
           (*percent ? *value <= 100 : *value <= 4294967294.0);
}

static enum kvr_status one(struct budget_parser *p, const char *item, size_t n)
{
    double value;
    bool percent;
    char spec[32];

    if (n >= sizeof spec)
        return bad_budget(p, item, n, "too long");
    memcpy(spec, item, n);
    spec[n] = '\0';
    if (n > 5 && memcmp(item, "drop:", 5) == 0) {
        if (!kvr_parse_real(&value, item + 5, n - 5) || value < 0 || value >= 1)
            return bad_budget(p, item, n,
                              "expected a ratio removed, 0 to below 1");
        return append(p, spec, percent_of(100 * (1 - value), p->prompt));
    }
    if (!read_amount(&value, &percent, item, n) ||
        (!percent && value != floor(value)))
        return bad_budget(p, item, n,
                          "expected tokens (64), a share (20%), or a range "
                          "(5%..40%x2, 10..50+10)");
    if (value == 0)
        return bad_budget(p, item, n, "a cache of no tokens");
    return append(p, spec,
                  percent ? percent_of(value, p->base) : (uint32_t)value);
}

/* "a..b+s" or "a..bxf". */
static enum kvr_status range(struct budget_parser *p, const char *item,
                             size_t n, const char *dots)
{
    const size_t left = (size_t)(dots - item);
    const char *right = dots + 2;
    const size_t rest = n - left - 2;
    const size_t end = strcspn(right, "+x,");
    double from, to, by;
    bool percent, percent_to;

    if (end >= rest || !read_amount(&from, &percent, item, left) ||
        !read_amount(&to, &percent_to, right, end) || percent != percent_to)
        return bad_budget(p, item, n, "expected a..b+step or a..bxfactor");
    const bool times = right[end] == 'x';
    size_t step = rest - end - 1;
    if (percent && !times && step > 0 && right[end + step] == '%')
        step--;
    if (!kvr_parse_real(&by, right + end + 1, step) || from <= 0 || to < from ||
        (times ? by <= 1 : by <= 0))
        return bad_budget(p, item, n, "it does not rise from a to b");
    double v = from;
    for (uint32_t i = 1; v <= to * (1 + 1e-12); i++) {
        char spec[32];
        if (*p->n >= 4096)
            return bad_budget(p, item, n, "more than 4096 budgets");
        snprintf(spec, sizeof spec, percent ? "%.10g%%" : "%.0f", v);
        const enum kvr_status status = one(p, spec, strlen(spec));
        if (status != KVR_OK)
            return status;
        v = times ? v * by : from + i * by;
    }
    return KVR_OK;
}

enum kvr_status kvr_budgets_parse(struct kvr_budget **out, size_t *n,
                                  const char *text, enum kvr_budget_of of,
                                  uint32_t n_token, uint32_t prompt_len,
                                  struct kvr_error *err)
{
    struct budget_parser p = {
        .out = out, .n = n, .prompt = prompt_len, .err = err};

    p.base = of == KVR_BUDGET_OF_PROMPT    ? prompt_len
             : of == KVR_BUDGET_OF_VISIBLE ? (n_token > 1 ? n_token - 1 : 1)
                                           : n_token;
    for (;;) {
        const size_t length = strcspn(text, ",");
        const char *dots = strstr(text, "..");
        const bool is_range = dots != NULL && (size_t)(dots - text) < length;
        const enum kvr_status status =
            is_range ? range(&p, text, length, dots) : one(&p, text, length);
        if (status != KVR_OK || text[length] == '\0')
            return status;
        text += length + 1;
    }
}

enum kvr_status kvr_access_parse(struct kvr_access *out, const char *text,
                                 struct kvr_error *err)
{
    static const struct {
        const char *name;
        enum kvr_access_kind kind;
        double max;
    } kinds[] = {{"relmax:", KVR_ACCESS_RELMAX, 1},
                 {"abs:", KVR_ACCESS_ABS, 1},
                 {"topm:", KVR_ACCESS_TOPM, 4294967295.0},
                 {"mass:", KVR_ACCESS_MASS, 1}};

    if (strcmp(text, "above-uniform") == 0) {
        *out = (struct kvr_access){.kind = KVR_ACCESS_ABOVE_UNIFORM};
        return KVR_OK;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t n = strlen(kinds[i].name);
        double x;
        if (strncmp(text, kinds[i].name, n) != 0)
            continue;
        if (!kvr_parse_real(&x, text + n, strlen(text + n)) || x < 0 ||
            x > kinds[i].max ||
            (kinds[i].kind == KVR_ACCESS_TOPM && (x < 1 || x != floor(x))))
            break;
        *out = (struct kvr_access){.kind = kinds[i].kind, .x = x};
        return KVR_OK;
    }
    return kvr_fail(err, KVR_ERR_USAGE,
                    "--access: expected above-uniform, relmax:R, abs:X, "
                    "topm:N or mass:P, found '%s'",
                    text);
}

enum kvr_status kvr_when_parse(struct kvr_when *out, const char *text,
                               struct kvr_error *err)
{
    *out = (struct kvr_when){.n = 1};
    if (strcmp(text, "step") == 0)
        return KVR_OK;
    if (strcmp(text, "prompt-end") == 0) {
        out->kind = KVR_WHEN_PROMPT_END;
        return KVR_OK;
    }
    const char *colon = strchr(text, ':');
    if (colon != NULL && kvr_parse_u32(&out->n, colon + 1, strlen(colon + 1)) &&
        out->n > 0) {
        if (strncmp(text, "every:", 6) == 0) {
            out->kind = KVR_WHEN_EVERY;
            return KVR_OK;
        }
        if (strncmp(text, "overflow:", 9) == 0) {
            out->kind = KVR_WHEN_OVERFLOW;
            return KVR_OK;
        }
    }
    return kvr_fail(err, KVR_ERR_USAGE,
                    "--when: expected step, every:N, overflow:N or "
                    "prompt-end, found '%s'",
                    text);
}

enum kvr_status kvr_protect_parse(struct kvr_protect *out, const char *text,
                                  struct kvr_error *err)
{
    double value;
    bool percent;

    *out = (struct kvr_protect){0};
    if (!read_amount(&value, &percent, text, strlen(text)) ||
        (!percent && value != floor(value)))
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--protect: expected tokens (4) or a share of the "
                        "budget (10%%), found '%s'",
                        text);
    if (percent)
        out->share = value / 100;
    else
        out->tokens = (uint32_t)value;
    return KVR_OK;
}

uint32_t kvr_protect_tokens(const struct kvr_protect *protect, uint32_t budget)
{
    if (protect->share > 0)
        return percent_of(100 * protect->share, budget);
    return protect->tokens;
}
