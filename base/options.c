/* options.c -- reads a command line by its rows.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_options.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <stdlib.h>
#include <string.h>

static const struct kvr_option *find(const struct kvr_option *const *rows,
                                     const char *name, size_t n, char letter)
{
    for (; *rows != NULL; rows++)
        for (const struct kvr_option *o = *rows; o->name != NULL; o++) {
            if (letter != 0 && o->letter == letter)
                return o;
            if (letter == 0 && strlen(o->name) == n &&
                memcmp(o->name, name, n) == 0)
                return o;
        }
    return NULL;
}

static enum kvr_status bad(const struct kvr_option *o, const char *expected,
                           const char *found, struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_USAGE, "--%s: expected %s, found '%s'",
                    o->name, expected, found);
}

static bool in_range(const struct kvr_option *o, double value)
{
    return (o->min == 0 && o->max == 0) || (value >= o->min && value <= o->max);
}

static enum kvr_status out_of_range(const struct kvr_option *o,
                                    const char *found, struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_USAGE,
                    "--%s: expected a value from %.15g to %.15g, found '%s'",
                    o->name, o->min, o->max, found);
}

static enum kvr_status choose(const struct kvr_option *o, const char *text,
                              int *value, struct kvr_error *err)
{
    const size_t n = strlen(text);
    const char *c = o->choices;

    for (int i = 0;; i++) {
        const size_t length = strcspn(c, "|");
        if (length == n && memcmp(c, text, n) == 0) {
            *value = i;
            return KVR_OK;
        }
        if (c[length] == '\0')
            return bad(o, o->choices, text, err);
        c += length + 1;
    }
}

static enum kvr_status store_number(const struct kvr_option *o,
                                    const char *text, void *to,
                                    struct kvr_error *err)
{
    const size_t n = strlen(text);
    uint32_t u32;
    uint64_t u64;
    double real;

    if (o->type == KVR_OPTION_U32) {
        if (!kvr_parse_u32(&u32, text, n))
            return bad(o, "a number", text, err);
        if (!in_range(o, u32))
            return out_of_range(o, text, err);
        memcpy(to, &u32, sizeof u32);
    } else if (o->type == KVR_OPTION_REAL) {
        if (!kvr_parse_real(&real, text, n))
            return bad(o, "a number", text, err);
        if (!in_range(o, real))
            return out_of_range(o, text, err);
        memcpy(to, &real, sizeof real);
    } else {
        const bool ok = o->type == KVR_OPTION_BYTES
                            ? kvr_parse_bytes(&u64, text)
                            : kvr_parse_u64(&u64, text, n);
        if (!ok)
            return bad(o,
                       o->type == KVR_OPTION_BYTES ? "a size such as 512M"
                                                   : "a number",
                       text, err);
        if (o->max > 0 && (u64 >> 63) != 0)
            return bad(o, "a number up to 9223372036854775807", text, err);
        memcpy(to, &u64, sizeof u64);
    }
    return KVR_OK;
}

static enum kvr_status store(const struct kvr_option *o, const char *text,
                             void *into, struct kvr_error *err)
{
    char *to = (char *)into + o->offset;

    if (o->given != 0)
        *(bool *)((char *)into + o->given) = true;
    switch (o->type) {
    case KVR_OPTION_FLAG:
        *(bool *)to = true;
        return KVR_OK;
    case KVR_OPTION_TEXT:
    case KVR_OPTION_MAYBE:
        memcpy(to, &text, sizeof text);
        return KVR_OK;
    case KVR_OPTION_CHOICE:
        return choose(o, text, (int *)(void *)to, err);
    case KVR_OPTION_MANY: {
        struct kvr_option_list *list = (void *)to;
        if (!kvr_grow((void **)&list->item, &list->capacity, list->n + 1,
                      sizeof *list->item))
            return kvr_no_memory(err, "options", list->n);
        list->item[list->n++] = text;
        return KVR_OK;
    }
    default:
        return store_number(o, text, to, err);
    }
}

/* Takes argv[*i], an option, and its argument. */
static enum kvr_status take(const struct kvr_option *const *rows, int argc,
                            char **argv, int *i, void *into,
                            struct kvr_error *err)
{
    const char *word = argv[*i], *value = NULL;
    const struct kvr_option *o;

    if (word[1] == '-') {
        const size_t n = strcspn(word + 2, "=");
        o = find(rows, word + 2, n, 0);
        if (word[2 + n] == '=')
            value = word + 3 + n;
    } else {
        o = find(rows, NULL, 0, word[1]);
        if (word[2] != '\0')
            value = word + 2;
    }
    if (o == NULL)
        return kvr_fail(err, KVR_ERR_USAGE, "unknown option '%s'", word);
    if (o->type == KVR_OPTION_FLAG) {
        if (value != NULL)
            return kvr_fail(err, KVR_ERR_USAGE,
                            "--%s takes no argument, found '%s'", o->name,
                            value);
        return store(o, NULL, into, err);
    }
    if (value == NULL && o->type == KVR_OPTION_MAYBE)
        return store(o, o->choices, into, err);
    if (value == NULL) {
        if (*i + 1 >= argc)
            return kvr_fail(err, KVR_ERR_USAGE, "--%s needs its %s", o->name,
                            o->argument);
        value = argv[++*i];
    }
    return store(o, value, into, err);
}

enum kvr_status kvr_options_parse(const struct kvr_option *const *rows,
                                  int argc, char **argv, void *into,
                                  const char **operands, size_t *n_operand,
                                  struct kvr_error *err)
{
    *n_operand = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc)
                operands[(*n_operand)++] = argv[i];
            break;
        }
        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            operands[(*n_operand)++] = argv[i];
            continue;
        }
        const enum kvr_status status = take(rows, argc, argv, &i, into, err);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

void kvr_options_free(const struct kvr_option *const *rows, void *into)
{
    for (; *rows != NULL; rows++)
        for (const struct kvr_option *o = *rows; o->name != NULL; o++)
            if (o->type == KVR_OPTION_MANY) {
                struct kvr_option_list *list =
                    (void *)((char *)into + o->offset);
                free(list->item);
                *list = (struct kvr_option_list){0};
            }
}

static void print_row(const struct kvr_option *o, FILE *out)
{
    char left[128];
    const char *argument = o->argument != NULL ? o->argument : "";
    char letter[8] = "    ";

    if (o->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    if (o->type == KVR_OPTION_CHOICE)
        argument = o->choices;
    if (o->type == KVR_OPTION_MAYBE)
        snprintf(left, sizeof left, "%s--%s[=%s]", letter, o->name, argument);
    else
        snprintf(left, sizeof left, "%s--%s %s", letter, o->name, argument);
    if (strlen(left) > 28)
        fprintf(out, "  %s\n  %-28s  %s\n", left, "", o->help);
    else
        fprintf(out, "  %-28s  %s\n", left, o->help);
}

void kvr_options_print(const struct kvr_option *const *rows, FILE *out)
{
    for (; *rows != NULL; rows++)
        for (const struct kvr_option *o = *rows; o->name != NULL; o++)
            print_row(o, out);
}
