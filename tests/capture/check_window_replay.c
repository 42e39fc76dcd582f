/* check_window_replay.c -- from a model with window layers to a replay: what
 * leaves the window leaves the cache by itself, without eviction or miss.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "suite.h"

#include "kvr_capture.h"
#include "kvr_file.h"
#include "kvr_memory.h"
#include "kvr_sim.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { N_TOKEN = 40, N_PROMPT = 12, SPAN = 8 };

/* Which of mistral_swa8's and gemma2's layers slide. */
static const struct {
    const char *name;
    uint32_t n_layer;
    bool slides[4];
    double scale, softcap;
} models[] = {
    {"mistral_swa8", 2, {true, true}, 0.35355339059327373, 0},
    {"gemma2", 4, {true, false, true, false}, 0.20412414523193154, 50},
};

static char folder[64], out[128], ids[128];
static struct kvr_trace *trace;
static struct kvr_rows *rows;
static struct kvr_registry *registry;

static void write_ids(void)
{
    char text[8 * N_TOKEN];
    size_t used = 0;
    struct kvr_error err = {0};

    for (int i = 0; i < N_TOKEN; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d ",
                                 (i * 31 + 5) % 97);
    must(kvr_file_write(ids, text, used, true, &err));
}

static void record(const char *name)
{
    char model[512];
    struct kvr_capture *capture;
    struct kvr_capture_result result;
    struct kvr_error err = {0};

    snprintf(folder, sizeof folder, "/tmp/kvr-window-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/out.kvt.h5", folder);
    snprintf(ids, sizeof ids, "%s/ids", folder);
    snprintf(model, sizeof model, "%s/golden/tiny/%s", KVR_TEST_DATA, name);
    write_ids();
    const struct kvr_capture_options options = {
        .model = model,
        .output = out,
        .ids_file = ids,
        .prompt_len = N_PROMPT,
        .prompt_chunk = 7,
        .dtype = KVR_F32,
        .threads = 2,
    };
    must(kvr_capture_new(&capture, &options, &err));
    ck_assert_str_eq(kvr_capture_plan(capture)->model_name, name);
    must(kvr_capture_run(capture, &result, NULL, NULL, &err));
    kvr_capture_free(capture);
    must(kvr_trace_open(&trace, out, &err));
    must(kvr_rows_open(&rows, trace, 0, 2, &err));
}

static void discard(void)
{
    kvr_rows_close(rows);
    kvr_trace_close(trace);
    unlink(out);
    unlink(ids);
    rmdir(folder);
}

static const struct kvr_layer_shape *shape_of(uint32_t layer)
{
    return &kvr_trace_shape(trace)->layers[layer];
}

/* One head's rows; free() them. */
static kvr_real *read_head(uint32_t layer, uint32_t head)
{
    struct kvr_error err = {0};
    kvr_real *cell = kvr_calloc((size_t)N_TOKEN * N_TOKEN, sizeof *cell);

    must(rows->read(rows->ud, layer, head, 0, N_TOKEN, cell, N_TOKEN, 0, &err));
    return cell;
}

START_TEST(trace_says_what_the_mask_is)
{
    record(models[_i].name);
    ck_assert_uint_eq(kvr_trace_shape(trace)->n_layer, models[_i].n_layer);
    for (uint32_t l = 0; l < models[_i].n_layer; l++) {
        const bool slides = models[_i].slides[l];
        const struct kvr_layer_shape *s = shape_of(l);
        ck_assert_int_eq(s->mask, slides ? KVR_MASK_WINDOW : KVR_MASK_CAUSAL);
        ck_assert_uint_eq(s->span, slides ? SPAN : 0);
        ck_assert(fabs(s->scale - models[_i].scale) < 1e-12);
        ck_assert(s->softcap == models[_i].softcap);
        bool beyond = false;
        for (uint32_t h = 0; h < s->n_head; h++) {
            kvr_real *cell = read_head(l, h);
            for (uint32_t t = 0; t < N_TOKEN; t++)
                for (uint32_t i = 0; i + SPAN <= t; i++)
                    beyond = beyond || cell[t * N_TOKEN + i] != 0;
            free(cell);
        }
        ck_assert_int_eq(beyond, !slides);
    }
    discard();
}
END_TEST

/* Mass that the newest `budget` tokens and the row's own do not hold. */
static double mass_before(uint32_t layer, uint32_t budget)
{
    double missed = 0;

    for (uint32_t h = 0; h < shape_of(layer)->n_head; h++) {
        kvr_real *cell = read_head(layer, h);
        for (uint32_t t = N_PROMPT; t < N_TOKEN; t++)
            for (uint32_t i = 0; i + budget < t; i++)
                missed += (double)cell[t * N_TOKEN + i];
        free(cell);
    }
    return missed;
}

static const uint32_t budgets[] = {3, SPAN - 1, 20};

enum { N_BUDGETS = 3 };

static struct kvr_sim *replay(struct kvr_policy_spec **specs, size_t *n_spec)
{
    struct kvr_budget list[N_BUDGETS] = {0};
    struct kvr_sim *sim;
    struct kvr_error err = {0};

    for (int b = 0; b < N_BUDGETS; b++)
        list[b].tokens = budgets[b];
    must(kvr_registry_new(&registry, &err));
    must(kvr_policy_specs_parse(specs, n_spec, registry, "window,h2o,oracle",
                                &err));
    const struct kvr_sim_options options = {
        .specs = *specs,
        .n_spec = *n_spec,
        .budgets = list,
        .n_budget = N_BUDGETS,
        .observe = -1,
        .group = -1,
        .when = {.kind = KVR_WHEN_STEP, .n = 1},
        .bounds = true,
        .threads = 2,
    };
    must(kvr_sim_run(&sim, rows, &options, &err));
    return sim;
}

static void check_window_layer(const struct kvr_run_result *run, uint32_t l,
                               uint32_t budget)
{
    const struct kvr_tally *tally = &run->layers[l];

    /* the budget is min(B, span - 1): a row sees one more */
    const uint32_t most = budget < SPAN - 1 ? budget : SPAN - 1;
    ck_assert_uint_eq(tally->peak, most + 1);
    if (budget < SPAN - 1)
        return;
    ck_assert(tally->missed == 0);
    ck_assert_uint_eq(tally->evictions, 0);
}

START_TEST(nothing_is_missed_that_left_the_window)
{
    struct kvr_policy_spec *specs = NULL;
    size_t n_spec = 0;
    bool global = false;

    record(models[_i].name);
    struct kvr_sim *sim = replay(&specs, &n_spec);
    ck_assert(sim->has_local);
    ck_assert_uint_eq(sim->n_run, n_spec * N_BUDGETS);
    for (size_t r = 0; r < sim->n_run; r++) {
        const struct kvr_run_result *run = &sim->runs[r];
        const uint32_t budget = budgets[r % N_BUDGETS];
        ck_assert_msg(run->status == KVR_OK, "%s", run->error);
        for (uint32_t l = 0; l < models[_i].n_layer; l++) {
            const double newest = mass_before(l, budget);
            if (models[_i].slides[l])
                check_window_layer(run, l, budget);
            global = global || !models[_i].slides[l];
            ck_assert(run->layers[l].oracle <= run->layers[l].missed);
            if (r < N_BUDGETS) /* the policy `window` keeps the newest */
                ck_assert(fabs(run->layers[l].missed - newest) <= 1e-9);
        }
        ck_assert_int_eq(run->global.rows > 0, global);
    }
    kvr_sim_free(sim);
    kvr_policy_specs_free(specs, n_spec);
    kvr_registry_free(registry);
    discard();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("window_replay");
    TCase *tc = tcase_create("window_replay");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, trace_says_what_the_mask_is, 0, 2);
    tcase_add_loop_test(tc, nothing_is_missed_that_left_the_window, 0, 2);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
