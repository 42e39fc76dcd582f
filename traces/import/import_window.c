/* import_window.c -- which layers see a window, as stated or as it looks.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import.h"

#include "kvr_log.h"
#include "kvr_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 12 };

/* Window of a layer by its number, 0: none. What an option states and what
 * the shapes of a dump show must be the same. */
static enum kvr_status find_span(uint32_t *span, const struct dump *dump,
                                 uint32_t layer,
                                 const struct kvr_import_options *options,
                                 struct kvr_error *err)
{
    const uint32_t number = kvr__dump_layer(dump, layer);
    const uint32_t shown = dump->spans != NULL ? dump->spans[layer] : 0;
    const bool stated = options->window != 0 || options->spans != NULL;

    *span = shown;
    if (!stated)
        return KVR_OK;
    if (options->spans != NULL && number >= options->n_span)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u, but the configuration has %u layers",
                        dump->path, number, options->n_span);
    *span = options->spans != NULL ? options->spans[number] : options->window;
    if (shown != 0 && shown != *span)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: layer %u: its steps hold %u keys, but a window of "
                        "%u is stated (0: none)",
                        dump->path, number, shown, *span);
    return KVR_OK;
}

enum kvr_status kvr__windows_init(struct windows *w, const struct pick *pick,
                                  const struct dump *dump, uint32_t n_token,
                                  const struct kvr_import_options *options,
                                  struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    if ((options->window != 0 || options->spans != NULL) && options->not_causal)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--not-causal: a window is of causal layers");
    *w = (struct windows){.n_token = n_token};
    w->span = kvr_calloc(pick->n_layer, sizeof *w->span);
    w->looks = kvr_calloc(pick->n_layer, sizeof *w->looks);
    w->oldest = kvr_calloc(n_token, sizeof *w->oldest);
    if (w->span == NULL || w->looks == NULL || w->oldest == NULL)
        return kvr_no_memory(err, "windows", n_token * sizeof *w->oldest);
    for (uint32_t l = 0; status == KVR_OK && l < pick->n_layer; l++)
        status = find_span(&w->span[l], dump, pick->layer[l], options, err);
    return status;
}

void kvr__windows_free(struct windows *w)
{
    free(w->span);
    free(w->looks);
    free(w->oldest);
    *w = (struct windows){0};
}

void kvr__windows_begin(struct windows *w)
{
    for (uint32_t t = 0; t < w->n_token; t++)
        w->oldest[t] = t;
}

void kvr__windows_row(struct windows *w, uint32_t row, const float *weight)
{
    uint32_t key = 0;

    while (key < w->oldest[row] && !(weight[key] > 0))
        key++;
    w->oldest[row] = key;
}

/* A window of n: rows before row n see all keys, the later ones exactly the
 * last n. Two such rows are the least that tell. */
void kvr__windows_end(struct windows *w, uint32_t layer)
{
    const uint32_t last = w->n_token - 1;
    const uint32_t n = last - w->oldest[last] + 1;

    if (w->n_token < n + 2)
        return;
    for (uint32_t t = 0; t <= last; t++)
        if (w->oldest[t] != (t < n ? 0 : t + 1 - n))
            return;
    w->looks[layer] = n;
}

/* Layers that look like a window of n keys. */
static void say(const struct windows *w, const struct pick *pick,
                const struct dump *dump, uint32_t n)
{
    char list[160] = "";
    uint32_t count = 0;

    for (uint32_t l = 0; l < pick->n_layer; l++) {
        if (w->looks[l] != n || ++count > MOST_LISTED)
            continue;
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%u", used > 0 ? "," : "",
                 kvr__dump_layer(dump, pick->layer[l]));
    }
    kvr_log(KVR_LOG_WARNING,
            "%s: layers %s%s: every row sees exactly the last %u keys, as a "
            "sliding window does; the trace says causal unless --window %u "
            "(all layers) or --config config.json states it",
            dump->path, list, count > MOST_LISTED ? ".." : "", n, n);
}

void kvr__windows_say(struct windows *w, const struct pick *pick,
                      const struct dump *dump)
{
    for (uint32_t l = 0; l < pick->n_layer; l++) {
        bool said = w->looks[l] == 0 || w->span[l] != 0;
        for (uint32_t i = 0; i < l; i++)
            said = said || w->looks[i] == w->looks[l];
        if (!said)
            say(w, pick, dump, w->looks[l]);
    }
}
