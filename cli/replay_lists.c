/* replay_lists.c -- --evictions and --steps as CSV files.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "replay_json.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct lines {
    char *bytes;
    size_t n, capacity;
    bool failed;
};

static void put(struct lines *l, const char *format, ...) KVR_PRINTF(2, 3);

static void put(struct lines *l, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 ||
        !kvr_grow((void **)&l->bytes, &l->capacity, l->n + (size_t)n + 1, 1)) {
        l->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(l->bytes + l->n, (size_t)n + 1, format, args);
    va_end(args);
    l->n += (size_t)n;
}

/* "policy,budget,layer,kv_head," with the policy quoted if it needs it. */
static void put_key(struct lines *l, const struct kvr_run_result *run,
                    const struct kvr_cache_result *cache)
{
    const char *text = run->spec->text;
    bool quote = false;

    for (const char *c = text; *c != '\0'; c++)
        quote = quote || *c == ',';
    put(l, quote ? "\"%s\",%s,%u,%u," : "%s,%s,%u,%u,", text, run->budget->spec,
        cache->layer, cache->kv_head);
}

static enum kvr_status finish(struct lines *l, const char *path,
                              const struct replay_options *o,
                              struct kvr_error *err)
{
    enum kvr_status status =
        l->failed ? kvr_no_memory(err, path, l->n)
                  : kvr_file_write(path, l->bytes, l->n, o->common.force, err);
    free(l->bytes);
    return status;
}

enum kvr_status kvr__replay_write_evictions(const struct replay_options *o,
                                            const struct kvr_sim *sim,
                                            struct kvr_error *err)
{
    struct lines l = {0};

    put(&l, "policy,budget,layer,kv_head,step,position\n");
    for (size_t i = 0; i < sim->n_run; i++) {
        if (sim->runs[i].status != KVR_OK)
            continue;
        for (uint32_t c = 0; c < sim->n_cache; c++) {
            size_t n;
            const struct kvr_eviction *e = kvr_sim_evictions(sim, i, c, &n);
            for (size_t k = 0; k < n; k++) {
                put_key(&l, &sim->runs[i], &sim->runs[i].caches[c]);
                put(&l, "%u,%u\n", e[k].step, e[k].position);
            }
        }
    }
    return finish(&l, o->evictions, o, err);
}

enum kvr_status kvr__replay_write_steps(const struct replay_options *o,
                                        const struct kvr_sim *sim,
                                        struct kvr_error *err)
{
    struct lines l = {0};

    put(&l, "policy,budget,layer,kv_head,step,visible,miss,evicted\n");
    for (size_t i = 0; i < sim->n_run; i++) {
        if (sim->runs[i].status != KVR_OK)
            continue;
        for (uint32_t c = 0; c < sim->n_cache; c++) {
            size_t n;
            const struct kvr_step_row *s = kvr_sim_steps(sim, i, c, &n);
            for (size_t k = 0; k < n; k++) {
                put_key(&l, &sim->runs[i], &sim->runs[i].caches[c]);
                put(&l, "%u,%u,%.17g,%u\n", s[k].step, s[k].visible, s[k].miss,
                    s[k].evicted);
            }
        }
    }
    return finish(&l, o->steps, o, err);
}
