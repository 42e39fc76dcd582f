/* check_factored_replay.c -- a run recorded as attention and one recorded as
 * queries and keys replay alike.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_capture.h"
#include "made_rows.h"
#include "suite.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define TINY KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf"

enum { WORDS = 9 };
static const char phrase[] = "hello the end, he ran in the rain ";
static char folder[64], out[128], text[WORDS * sizeof phrase];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-factored-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/out.kvt.h5", folder);
    for (size_t i = 0, n = strlen(phrase); i < WORDS; i++)
        memcpy(text + i * n, phrase, n + 1);
}

static void teardown(void)
{
    unlink(out);
    rmdir(folder);
}

/* Records the text and replays it at 20 %. */
static struct replay replay_of(enum kvr_capture_store store,
                               enum kvr_dtype dtype)
{
    const struct kvr_capture_options options = {.model = TINY,
                                                .output = out,
                                                .prompt = text,
                                                .prompt_len = 40,
                                                .store = store,
                                                .dtype = dtype,
                                                .threads = 1,
                                                .force = true};
    struct kvr_capture *capture;
    struct kvr_capture_result result;
    struct kvr_trace *trace;
    struct kvr_rows *rows;
    struct kvr_error err = {0};

    must(kvr_capture_new(&capture, &options, &err));
    must(kvr_capture_run(capture, &result, NULL, NULL, &err));
    kvr_capture_free(capture);
    must(kvr_trace_open(&trace, out, &err));
    must(kvr_rows_open(&rows, trace, 0, 2, &err));
    struct kvr_budget budget = budget_of(result.n_token / 5);
    struct kvr_sim_options o = plain_options(&budget, 1);
    struct replay r = {0};
    o.threads = 2;
    must(kvr_registry_new(&r.registry, &err));
    must(kvr_policy_specs_parse(&r.specs, &r.n_spec, r.registry,
                                "h2o,window,tova,topk", &err));
    o.specs = r.specs;
    o.n_spec = r.n_spec;
    must(kvr_sim_run(&r.sim, rows, &o, &err));
    kvr_rows_close(rows);
    kvr_trace_close(trace);
    return r;
}

/* Largest difference in the retained mass of a cache, over the first n runs. */
static double farthest(const struct replay *a, const struct replay *b, size_t n)
{
    double most = 0;

    ck_assert_uint_eq(a->sim->n_run, b->sim->n_run);
    ck_assert_uint_eq(a->sim->n_cache, 4);
    for (size_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < a->sim->n_cache; c++) {
            const struct kvr_tally *x = &a->sim->runs[i].caches[c].tally;
            const struct kvr_tally *y = &b->sim->runs[i].caches[c].tally;
            ck_assert_uint_eq(x->rows, y->rows);
            ck_assert_double_gt(x->missed, 0);
            most = fmax(
                most, fabs(x->missed / x->recorded - y->missed / y->recorded));
        }
    return most;
}

START_TEST(queries_and_keys_replay_as_attention_does)
{
    struct replay attention = replay_of(KVR_CAPTURE_ATTENTION, KVR_F32);
    struct replay pair = replay_of(KVR_CAPTURE_QK, KVR_F32);
    struct replay half = replay_of(KVR_CAPTURE_QK, KVR_F16);
    struct replay both = replay_of(KVR_CAPTURE_BOTH, KVR_F32);

    ck_assert_double_le(farthest(&attention, &pair, 4), 1e-6);
    /* f16 may turn an eviction; the bound was measured for h2o */
    ck_assert_double_le(farthest(&attention, &half, 1), 5e-4);
    ck_assert_double_gt(farthest(&attention, &half, 1), 0);
    assert_same_sim(attention.sim, both.sim, "both are read as attention");
    replay_free(&attention);
    replay_free(&pair);
    replay_free(&half);
    replay_free(&both);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("factored_replay");
    TCase *tc = tcase_create("factored_replay");

    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, queries_and_keys_replay_as_attention_does);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
