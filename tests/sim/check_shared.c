/* check_shared.c -- a layer that reads another layer's cache adds its heads.
 *
 * The same rows twice: as two layers of which the second reads the first's
 * cache, and as one layer with the groups put together by hand.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_random.h"
#include "kvr_sim.h"

#include "suite.h"

#include <string.h>
#include <unistd.h>

enum { T = 70, P = 20, HEADS = 4, KV = 2 };

static float cell[2 * HEADS][T][T];

static void fill(void)
{
    const struct kvr_random dice = {.purpose = KVR_RANDOM_TEST};

    for (uint32_t h = 0; h < 2 * HEADS; h++)
        for (uint32_t t = 0; t < T; t++) {
            double sum = 0;
            for (uint32_t i = 0; i <= t; i++) {
                const double x = kvr_random_real(&dice, t, h, i);
                cell[h][t][i] = (float)(x * x * x);
                sum += cell[h][t][i];
            }
            for (uint32_t i = 0; i <= t; i++)
                cell[h][t][i] = (float)(cell[h][t][i] / sum);
        }
}

static void write_layers(const char *path, const struct kvr_layer_shape *layers,
                         uint32_t n_layer, uint32_t n_head,
                         const uint32_t *order)
{
    struct kvr_error err = {0};
    struct kvr_writer *writer;
    const struct kvr_trace_shape shape = {.n_layer = n_layer,
                                          .n_head = n_head,
                                          .n_kv_head = KV,
                                          .n_token = T,
                                          .prompt_len = P,
                                          .dtype = KVR_F16,
                                          .source = KVR_SOURCE_IMPORT,
                                          .layers = layers,
                                          .cache = "full"};
    const struct kvr_writer_options options = {
        .deflate = -1, .threads = 1, .force = true};
    uint32_t n = 0;

    must(kvr_writer_open(&writer, path, &shape, &options, &err));
    for (uint32_t l = 0; l < n_layer; l++)
        for (uint32_t h = 0; h < n_head; h++)
            must(kvr_writer_rows(writer, l, h, 0, T, cell[order[n++]][0], T,
                                 &err));
    must(kvr_writer_commit(writer, T, &err));
    must(kvr_writer_finish(writer, &err));
}

static double replay(const char *path, struct kvr_eviction *out, size_t *n)
{
    struct kvr_error err = {0};
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs = NULL;
    struct kvr_trace *trace;
    struct kvr_rows *rows;
    struct kvr_sim *sim;
    size_t n_spec = 0;
    const struct kvr_budget budget = {.spec = "12", .tokens = 12};

    must(kvr_registry_new(&registry, &err));
    must(kvr_policy_specs_parse(&specs, &n_spec, registry, "h2o", &err));
    must(kvr_trace_open(&trace, path, &err));
    must(kvr_rows_open(&rows, trace, 0, 1, &err));
    const struct kvr_sim_options options = {.specs = specs,
                                            .n_spec = n_spec,
                                            .budgets = &budget,
                                            .n_budget = 1,
                                            .observe = -1,
                                            .group = -1,
                                            .when = {.n = 1},
                                            .schedules = true,
                                            .bounds = true,
                                            .threads = 1};
    must(kvr_sim_run(&sim, rows, &options, &err));
    ck_assert_uint_eq(sim->n_cache, KV);
    ck_assert_uint_eq(sim->runs[0].caches[1].kv_head, 1);
    const struct kvr_eviction *e = kvr_sim_evictions(sim, 0, 1, n);
    memcpy(out, e, *n * sizeof *e);
    const double missed = sim->runs[0].model.missed;
    kvr_sim_free(sim);
    kvr_rows_close(rows);
    kvr_trace_close(trace);
    kvr_policy_specs_free(specs, n_spec);
    kvr_registry_free(registry);
    return missed;
}

START_TEST(readers_join_the_groups_of_their_source)
{
    static const uint32_t apart[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint32_t joined[] = {0, 1, 4, 5, 2, 3, 6, 7};
    static const uint32_t index[2 * HEADS] = {0, 1, 2, 3, 4, 5, 6, 7};
    const struct kvr_layer_shape two[2] = {{.layer = 3,
                                            .n_head = HEADS,
                                            .n_kv_head = KV,
                                            .kv_source = -1,
                                            .head_index = index},
                                           {.layer = 5,
                                            .n_head = HEADS,
                                            .n_kv_head = KV,
                                            .kv_source = 3,
                                            .head_index = index}};
    const struct kvr_layer_shape one = {.layer = 3,
                                        .n_head = 2 * HEADS,
                                        .n_kv_head = KV,
                                        .kv_source = -1,
                                        .head_index = index};
    struct kvr_eviction a[T], b[T];
    char path[128];
    size_t n_a, n_b;

    fill();
    snprintf(path, sizeof path, "/tmp/kvr-shared-%ld.kvt.h5", (long)getpid());
    write_layers(path, two, 2, HEADS, apart);
    const double lost_apart = replay(path, a, &n_a);
    write_layers(path, &one, 1, 2 * HEADS, joined);
    const double lost_joined = replay(path, b, &n_b);
    unlink(path);
    ck_assert(lost_apart == lost_joined && lost_apart > 0);
    ck_assert_uint_eq(n_a, T - 12);
    ck_assert_uint_eq(n_a, n_b);
    ck_assert_int_eq(memcmp(a, b, n_a * sizeof *a), 0);
}
END_TEST

KVR_SUITE("shared caches", readers_join_the_groups_of_their_source)
