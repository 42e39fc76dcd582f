/* check_decoder_smollm2.c -- the decoder on a real model against independent
 * engines, within the tolerances of tests/golden/README.md.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_memory.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"prose", "code", "mixed"};

static struct golden *open_case(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/golden/smollm2/%s.h5", KVR_TEST_DATA, name);
    return golden_open(path);
}

static void check_hidden(const struct golden_run *run, struct golden *golden)
{
    size_t n;
    float *expected = golden_f32(golden, "hidden_last", &n);
    const size_t width = run->model.config.hidden;

    ck_assert_uint_eq(n, (run->model.config.n_layer + 2) * width);
    for (size_t i = 0; i < n / width; i++) {
        const float *e = expected + i * width;
        const float *a =
            run->hidden + (i * run->n_token + run->n_token - 1) * width;
        double largest = 0;
        for (size_t k = 0; k < width; k++)
            largest = fmax(largest, fabs((double)e[k]));
        const double diff = golden_max_diff(a, e, width);
        ck_assert_msg(diff <= 2e-5 * largest,
                      "hidden %zu is off by %g, allowed %g", i, diff,
                      2e-5 * largest);
    }
    free(expected);
}

static double check_mlp(const struct golden_run *run, struct golden *golden)
{
    size_t n;
    double *expected = golden_f64(golden, "mlp_abs_sum", &n), worst = 0;

    ck_assert_uint_eq(n, (size_t)run->model.config.n_layer *
                             run->model.config.n_ff);
    for (size_t i = 0; i < n; i++) {
        const double diff = fabs(run->mlp[i] - expected[i]);
        ck_assert_msg(diff <= fmax(2e-5 * expected[i], 1e-6),
                      "neuron %zu: %.9g, expected %.9g", i, run->mlp[i],
                      expected[i]);
        worst = fmax(worst, diff / fmax(expected[i], 1e-9));
    }
    free(expected);
    return worst;
}

/* Golden [head][T][dim] against the run's [T][head][dim]. */
static void check_vectors(const float *expected, size_t n, const float *found,
                          uint32_t heads, uint32_t T, const char *what)
{
    const size_t dim = n / heads / T;
    double largest = 0;

    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)expected[i]));
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t t = 0; t < T; t++) {
            const double diff =
                golden_max_diff(expected + ((size_t)h * T + t) * dim,
                                found + ((size_t)t * heads + h) * dim, dim);
            ck_assert_msg(diff <= 2e-5 * largest,
                          "%s head %u token %u is off by %g", what, h, t, diff);
        }
}

static void check_rotated(const struct golden_run *run, struct golden *golden,
                          uint32_t layer)
{
    const struct kvr_config *c = &run->model.config;
    const size_t at = (size_t)layer * run->n_token;
    char name[64];
    size_t n;

    snprintf(name, sizeof name, "layer_%02u/q_rope", layer);
    float *q = golden_f32(golden, name, &n);
    check_vectors(q, n, run->query + at * c->n_head * c->key_dim, c->n_head,
                  run->n_token, name);
    snprintf(name, sizeof name, "layer_%02u/k_rope", layer);
    float *k = golden_f32(golden, name, &n);
    check_vectors(k, n, run->key + at * c->n_kv_head * c->key_dim, c->n_kv_head,
                  run->n_token, name);
    free(q);
    free(k);
}

/* Logits of every row of the last feed, at the golden top 20; and all of the
 * last row. Needs one feed of the whole prompt. */
static double check_logits(struct golden_run *run, struct golden *golden)
{
    struct kvr_error err = {0};
    size_t n;
    float *values = golden_f32(golden, "top20_values", &n);
    int32_t *ids = golden_i32(golden, "top20_ids", &n);
    float *last = golden_f32(golden, "logits_last", &n);
    float *logits = kvr_calloc(n, sizeof *logits);
    double worst = 0;

    for (uint32_t t = 0; t < run->n_token; t++) {
        must(kvr__decoder_logits(run->decoder, logits, t, &err));
        for (size_t i = 0; i < 20; i++)
            worst = fmax(worst, fabs((double)logits[ids[t * 20 + i]] -
                                     (double)values[t * 20 + i]));
    }
    worst = fmax(worst, golden_max_diff(logits, last, n));
    ck_assert_msg(worst <= 5e-4, "logits are off by %g", worst);
    free(values);
    free(ids);
    free(last);
    free(logits);
    return worst;
}

/* Log probabilities of the prompt agree with those from its logits. */
static void check_log_prob(struct golden_run *run, const int32_t *ids)
{
    struct kvr_error err = {0};
    const size_t n_vocab = run->model.config.n_vocab;
    const uint32_t n = run->n_token - 1;
    float *logits = kvr_calloc(n_vocab, sizeof *logits);
    float *scores = kvr_calloc(n, sizeof *scores);

    must(kvr__decoder_log_prob(run->decoder, scores, ids + 1, n, &err));
    for (uint32_t t = 0; t < n; t++) {
        double sum = 0;
        must(kvr__decoder_logits(run->decoder, logits, t, &err));
        for (size_t i = 0; i < n_vocab; i++)
            sum += exp((double)logits[i]);
        const double expected = (double)logits[ids[t + 1]] - log(sum);
        ck_assert_msg(fabs((double)scores[t] - expected) <= 5e-5,
                      "token %u: %g, expected %g", t + 1, (double)scores[t],
                      expected);
    }
    free(logits);
    free(scores);
}

START_TEST(agrees_in_one_pass)
{
    struct golden *golden = open_case(names[_i]);
    struct golden_run run;
    size_t n, n_attention;
    int32_t *ids = golden_i32(golden, "tokens", &n);
    float *attention = golden_f32(golden, "attention", &n_attention);
    const bool half = strcmp(names[_i], "code") == 0;

    golden_run_init(&run, golden_model(), (uint32_t)n, (uint32_t)n, 2);
    golden_feed(&run, ids, (uint32_t)n, (uint32_t)n);
    const double diff =
        golden_check_attention(&run, attention, half ? 3e-4 : 2e-5);
    const double logits = check_logits(&run, golden);
    const double mlp = check_mlp(&run, golden);
    check_hidden(&run, golden);
    check_rotated(&run, golden, 0);
    check_rotated(&run, golden, 29);
    if (strcmp(names[_i], "prose") == 0)
        check_rotated(&run, golden, 15);
    check_log_prob(&run, ids);
    printf("%s: attention %.2g, logits %.2g, mlp %.2g\n", names[_i], diff,
           logits, mlp);
    golden_run_fini(&run);
    free(ids);
    free(attention);
    golden_close(golden);
}
END_TEST

static void check_chunked(const char *name, uint32_t chunk)
{
    struct golden *golden = open_case(name);
    struct golden_run run;
    size_t n, n_attention;
    int32_t *ids = golden_i32(golden, "tokens", &n);
    float *attention = golden_f32(golden, "attention", &n_attention);
    const bool half = strcmp(name, "code") == 0;

    golden_run_init(&run, golden_model(), (uint32_t)n, chunk, 1);
    golden_feed(&run, ids, (uint32_t)n, chunk);
    const double diff =
        golden_check_attention(&run, attention, half ? 3e-4 : 2e-5);
    check_hidden(&run, golden);
    check_mlp(&run, golden);
    printf("%s in chunks of %u: attention %.2g\n", name, chunk, diff);
    golden_run_fini(&run);
    free(ids);
    free(attention);
    golden_close(golden);
}

START_TEST(agrees_in_chunks)
{
    static const uint32_t chunks[] = {7, 64, 2};

    check_chunked(names[_i], chunks[_i]);
}
END_TEST

START_TEST(agrees_step_by_step)
{
    check_chunked(names[_i], 1);
}
END_TEST

START_TEST(generates_the_same_ids)
{
    struct golden *golden = open_case(names[_i]);
    struct golden_run run;
    struct kvr_error err = {0};
    size_t n, n_new, n_vocab;
    int32_t *ids = golden_i32(golden, "tokens", &n);
    int32_t *greedy = golden_i32(golden, "greedy_ids", &n_new);
    float *margin = golden_f32(golden, "greedy_margin", &n_new);

    golden_run_init(&run, golden_model(), (uint32_t)(n + n_new), 16, 2);
    n_vocab = run.model.config.n_vocab;
    float *logits = kvr_calloc(n_vocab, sizeof *logits);
    golden_feed(&run, ids, (uint32_t)n, 16);
    uint32_t last = (uint32_t)((n - 1) % 16);
    for (size_t i = 0; i < n_new; i++, last = 0) {
        int32_t best = 0;
        must(kvr__decoder_logits(run.decoder, logits, last, &err));
        for (size_t k = 1; k < n_vocab; k++)
            best = logits[k] > logits[best] ? (int32_t)k : best;
        ck_assert_msg(best == greedy[i] || margin[i] <= 1e-3f,
                      "step %zu: id %d, expected %d", i, best, greedy[i]);
        golden_feed(&run, &greedy[i], 1, 1);
    }
    free(logits);
    golden_run_fini(&run);
    free(ids);
    free(greedy);
    free(margin);
    golden_close(golden);
}
END_TEST

/* The same bits for any number of threads. */
START_TEST(threads_change_nothing)
{
    struct golden *golden = open_case("mixed");
    struct golden_run one, two;
    size_t n;
    int32_t *ids = golden_i32(golden, "tokens", &n);

    golden_run_init(&one, golden_model(), (uint32_t)n, 32, 1);
    golden_run_init(&two, golden_model(), (uint32_t)n, 32, 3);
    golden_feed(&one, ids, (uint32_t)n, 32);
    golden_feed(&two, ids, (uint32_t)n, 32);
    ck_assert_mem_eq(one.attention, two.attention,
                     (size_t)30 * 9 * n * n * sizeof(float));
    ck_assert_mem_eq(one.hidden, two.hidden,
                     (size_t)32 * n * 576 * sizeof(float));
    golden_run_fini(&one);
    golden_run_fini(&two);
    free(ids);
    golden_close(golden);
}
END_TEST

int main(void)
{
    if (golden_model() == NULL) {
        puts("skipped: no SmolLM2 model (./run model obtains it; "
             "KVREPLAY_MODEL names another place)");
        return 77;
    }
    Suite *suite = suite_create("decoder_smollm2");
    TCase *tc = tcase_create("decoder_smollm2");
    tcase_set_timeout(tc, 300);
    /* an emulated device is slow: without the longest text and the slowest
     * ways through it */
    const bool brief = getenv("KVR_TEST_BRIEF") != NULL;
    tcase_add_loop_test(tc, agrees_in_one_pass, brief, 3);
    tcase_add_loop_test(tc, agrees_in_chunks, brief ? 1 : 0, brief ? 2 : 3);
    if (!brief) {
        tcase_add_loop_test(tc, agrees_step_by_step, 0, 3);
        tcase_add_test(tc, threads_change_nothing);
    }
    tcase_add_loop_test(tc, generates_the_same_ids, brief ? 2 : 0, 3);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
