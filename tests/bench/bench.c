/* bench.c -- our speed as ratios against named opponents, in one run.
 *
 * bench TRACE prints one JSON line a figure: what, ours, the opponent's, the
 * ratio, and the bar. Times are CPU seconds of this process on one thread, the
 * least of a few rounds in which the two sides take turns, so that a busy
 * machine slows both.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_half.h"
#include "kvr_isa.h"
#include "kvr_registry.h"
#include "kvr_rows.h"
#include "kvr_sim.h"
#include "kvr_trace.h"

#include <hdf5.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { ROUNDS = 2 };

struct bench {
    const char *path;
    struct kvr_trace *trace;
    struct kvr_rows *rows;
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs;
    struct kvr_budget *budgets;
    size_t n_spec, n_budget;
    enum kvr_isa isa;
    struct kvr_error err;
};

static double cpu(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(struct bench *b, enum kvr_status status)
{
    if (status != KVR_OK) {
        fprintf(stderr, "bench: %s\n", b->err.message);
        exit(kvr_status_exit_code(status));
    }
}

/* Every row of every head, decoded to f32. */
static void read_rows(struct bench *b)
{
    const struct kvr_trace_shape *s = kvr_trace_shape(b->trace);
    const size_t stride = ((size_t)s->n_token + 63) / 64 * 64;
    float *out = malloc(KVR_TILE_ROWS * stride * sizeof *out);

    for (uint32_t l = 0; l < s->n_layer; l++)
        for (uint32_t h = 0; h < s->layers[l].n_head; h++)
            for (uint32_t t = 0; t < s->n_token; t += KVR_TILE_ROWS) {
                const uint32_t left = s->n_token - t;
                check(b,
                      b->rows->read(b->rows->ud, l, h, t,
                                    left < KVR_TILE_ROWS ? left : KVR_TILE_ROWS,
                                    out, stride, 0, &b->err));
            }
    free(out);
}

/* The same rows through H5Dread (libhdf5 and zlib) as stored, then to f32 by
 * our own conversion: HDF5's own from f16 is ten times slower still. */
static void read_by_hdf5(struct bench *b)
{
    const struct kvr_trace_shape *s = kvr_trace_shape(b->trace);
    const hid_t file = H5Fopen(b->path, H5F_ACC_RDONLY, H5P_DEFAULT);
    const size_t cells = (size_t)KVR_TILE_ROWS * s->n_token;
    float *out = malloc(cells * sizeof *out), *wide = malloc(cells * 4);

    for (uint32_t l = 0; l < s->n_layer; l++) {
        char name[64];
        snprintf(name, sizeof name, "/layers/%02u/attention",
                 s->layers[l].layer);
        const hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
        const hid_t space = H5Dget_space(set), type = H5Dget_type(set);
        for (uint32_t h = 0; h < s->layers[l].n_head; h++)
            for (uint32_t t = 0; t < s->n_token; t += KVR_TILE_ROWS) {
                const uint32_t left = s->n_token - t;
                const hsize_t from[3] = {h, t, 0};
                const hsize_t size[3] = {
                    1, left < KVR_TILE_ROWS ? left : KVR_TILE_ROWS, s->n_token};
                const hid_t memory = H5Screate_simple(3, size, NULL);
                H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, size,
                                    NULL);
                if (H5Dread(set, type, memory, space, H5P_DEFAULT, out) < 0)
                    exit(4);
                H5Sclose(memory);
                if (s->dtype == KVR_F16)
                    kvr_f16_to_f32_n(wide, (const uint16_t *)(void *)out,
                                     (size_t)size[1] * s->n_token);
            }
        H5Tclose(type);
        H5Sclose(space);
        H5Dclose(set);
    }
    H5Fclose(file);
    free(wide);
    free(out);
}

static void sweep(struct bench *b)
{
    const struct kvr_sim_options options = {.specs = b->specs,
                                            .n_spec = b->n_spec,
                                            .budgets = b->budgets,
                                            .n_budget = b->n_budget,
                                            .observe = -1,
                                            .group = -1,
                                            .when = {.n = 1},
                                            .threads = 1};
    struct kvr_sim *sim;

    check(b, kvr_sim_run(&sim, b->rows, &options, &b->err));
    kvr_sim_free(sim);
}

static void sweep_base(struct bench *b)
{
    setenv("KVREPLAY_ISA", "base", 1);
    check(b, kvr_isa_init(&b->err));
    sweep(b);
    setenv("KVREPLAY_ISA", kvr_isa_name(b->isa), 1);
    check(b, kvr_isa_init(&b->err));
}

/* Least CPU seconds of each side over rounds taken in turn. */
static void race(struct bench *b, void (*ours)(struct bench *),
                 void (*theirs)(struct bench *), double out[2])
{
    out[0] = out[1] = 1e300;
    for (int i = 0; i < ROUNDS; i++) {
        void (*const side[2])(struct bench *) = {ours, theirs};
        for (int k = 0; k < 2; k++) {
            const double start = cpu();
            side[k](b);
            const double took = cpu() - start;
            out[k] = took < out[k] ? took : out[k];
        }
    }
}

static void report(const char *what, const char *unit, double ours,
                   const char *opponent, double theirs, double ratio,
                   const char *bar, int pass)
{
    printf("{\"figure\": \"%s\", \"unit\": \"%s\", \"ours\": %.4g, "
           "\"opponent\": \"%s\", \"theirs\": %.4g, \"ratio\": %.3g, "
           "\"bar\": \"%s\", \"pass\": %s}\n",
           what, unit, ours, opponent, theirs, ratio, bar,
           pass ? "true" : "false");
    fflush(stdout);
}

static void open_all(struct bench *b, const char *path)
{
    b->path = path;
    b->isa = kvr_isa();
    check(b, kvr_trace_open(&b->trace, path, &b->err));
    check(b, kvr_rows_open(&b->rows, b->trace, 0, 1, &b->err));
    check(b, kvr_registry_new(&b->registry, &b->err));
    check(b, kvr_policy_specs_parse(
                 &b->specs, &b->n_spec, b->registry,
                 "full,window,random,h2o,lru,lfu,streaming-llm,tova", &b->err));
    check(b, kvr_budgets_parse(&b->budgets, &b->n_budget, "5%,10%,20%,40%",
                               KVR_BUDGET_OF_TOTAL,
                               kvr_trace_shape(b->trace)->n_token,
                               kvr_trace_shape(b->trace)->prompt_len, &b->err));
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct rusage usage;
    double s[2];

    if (argc != 2) {
        fprintf(stderr, "usage: bench TRACE\n");
        return 2;
    }
    open_all(&b, argv[1]);
    race(&b, read_rows, read_by_hdf5, s);
    report("read and decode to f32", "CPU s", s[0], "H5Dread", s[1],
           s[1] / s[0], ">= 2.5", s[1] / s[0] >= 2.5);
    race(&b, sweep, read_rows, s);
    report("replay, 8 rules x 4 budgets, all metrics", "CPU s", s[0],
           "read and decode alone", s[1], s[0] / s[1],
           "<= 4 CPU s at T=1024, 270 heads", s[0] <= 4);
    getrusage(RUSAGE_SELF, &usage);
    report("peak memory of it", "MiB", (double)usage.ru_maxrss / 1024, "none",
           0, 0, "<= 128", usage.ru_maxrss <= 128 * 1024);
    if (b.isa != KVR_ISA_BASE) {
        race(&b, sweep, sweep_base, s);
        report("the same replay", "CPU s", s[0], "its base instruction set",
               s[1], s[1] / s[0], "none", 1);
    }
    kvr_policy_specs_free(b.specs, b.n_spec);
    free(b.budgets);
    kvr_rows_close(b.rows);
    kvr_trace_close(b.trace);
    kvr_registry_free(b.registry);
    return 0;
}
