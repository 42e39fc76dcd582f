/* import_match.c -- whether a name fits a pattern, and with which numbers.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_match.h"

#include "kvr_memory.h"

#include <ctype.h>
#include <string.h>

static const char digits[] = "0123456789";

static bool is_digit(char c)
{
    return isdigit((unsigned char)c) != 0;
}

/* Behind "%d" or "%02d"; NULL: another conversion. */
static const char *behind_conversion(const char *percent)
{
    const char *at = percent + 1;

    if (*at == '0' && is_digit(at[1]))
        at += 2;
    return *at == 'd' ? at + 1 : NULL;
}

/* Whether the word before a number is step, steps, token or tokens. */
static bool follows_step(const char *text, const char *percent)
{
    static const char *const words[] = {"step", "steps", "token", "tokens"};
    const char *end = percent;

    while (end > text && strchr("_-./", end[-1]) != NULL)
        end--;
    const char *first = end;
    while (first > text && isalpha((unsigned char)first[-1]))
        first--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == (size_t)(end - first) &&
            strncmp(words[i], first, strlen(words[i])) == 0)
            return true;
    return false;
}

bool kvr__pattern_parse(struct kvr__pattern *pattern, const char *text)
{
    const char *at = text + (*text == '/');

    *pattern = (struct kvr__pattern){.text = text, .step = -1, .layer = -1};
    for (;;) {
        const char *percent = strchr(at, '%');
        const size_t n = percent != NULL ? (size_t)(percent - at) : strlen(at);
        if (pattern->n_number > 0 && percent != NULL && n == 0)
            return false;
        pattern->piece[pattern->n_number].at = at;
        pattern->piece[pattern->n_number].n = n;
        if (percent == NULL)
            return pattern->n_number > 0;
        int *which =
            follows_step(text, percent) ? &pattern->step : &pattern->layer;
        if (*which >= 0)
            return false;
        *which = pattern->n_number++;
        at = behind_conversion(percent);
        if (at == NULL)
            return false;
    }
}

static uint64_t number_of(const char *at, size_t n)
{
    uint64_t value = 0;

    for (size_t i = 0; i < n; i++)
        if (!kvr_mul_u64(&value, value, 10) ||
            !kvr_add_u64(&value, value, (uint64_t)(at[i] - '0')))
            return UINT64_MAX;
    return value;
}

bool kvr__pattern_fits(uint64_t number[2], const struct kvr__pattern *pattern,
                       const char *path)
{
    const char *at = path + (*path == '/');

    number[0] = number[1] = 0;
    for (int i = 0;; i++) {
        if (strncmp(at, pattern->piece[i].at, pattern->piece[i].n) != 0)
            return false;
        at += pattern->piece[i].n;
        if (i == pattern->n_number)
            return *at == '\0';
        const size_t n = strspn(at, digits);
        if (n == 0)
            return false;
        number[i == pattern->step ? 0 : 1] = number_of(at, n);
        at += n;
    }
}

bool kvr__pattern_of_groups(struct kvr__pattern *group,
                            const struct kvr__pattern *pattern)
{
    if (pattern->step < 0 || pattern->layer == 0)
        return false;
    const char *slash = strchr(pattern->piece[1].at, '/');
    if (slash == NULL || slash >= pattern->piece[1].at + pattern->piece[1].n)
        return false;
    *group = *pattern;
    group->n_number = 1;
    group->layer = -1;
    group->piece[1].n = (size_t)(slash - pattern->piece[1].at);
    return true;
}

char *kvr__pattern_home(const struct kvr__pattern *pattern)
{
    const char *percent = strchr(pattern->text, '%');
    size_t n = (size_t)(percent - pattern->text);

    while (n > 0 && pattern->text[n - 1] != '/')
        n--;
    return kvr_strndup(pattern->text, n > 0 ? n - 1 : 0);
}

size_t kvr__step_word(const char *name)
{
    size_t n = 4;

    if (strncmp(name, "step", n) != 0)
        return 0;
    n += name[n] == '_';
    return is_digit(name[n]) ? n : 0;
}

bool kvr__layer_in_name(uint32_t *layer, const char *name)
{
    const char *at = strstr(name, "layer");

    if (at == NULL)
        return false;
    at += 5;
    at += *at == 's';
    at += *at != '\0' && strchr("_-./", *at) != NULL;
    const size_t n = strspn(at, digits);
    const uint64_t value = number_of(at, n);
    if (n == 0 || value > KVR__MOST_LAYER)
        return false;
    *layer = (uint32_t)value;
    return true;
}
