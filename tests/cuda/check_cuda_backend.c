/* check_cuda_backend.c -- captures on the emulated device against those of the
 * CPU: what is stored, in whatever way, within the tolerances of the golden
 * data; and a ring that is full waits.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "suite.h"

#include "decoder.h"
#include "kvr_capture.h"
#include "kvr_memory.h"
#include "kvr_trace.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define MODELS KVR_TEST_DATA "/golden/tiny/"

static char folder[64], ids[96], out[2][96];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-cuda-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(ids, sizeof ids, "%s/ids", folder);
    for (int i = 0; i < 2; i++)
        snprintf(out[i], sizeof out[i], "%s/%d.kvt.h5", folder, i);
    FILE *file = fopen(ids, "w");
    ck_assert_ptr_nonnull(file);
    for (unsigned i = 0; i < 71; i++)
        fprintf(file, "%u ", (i * 7 + i * i) % 29);
    fclose(file);
}

static void teardown(void)
{
    unlink(ids);
    unlink(out[0]);
    unlink(out[1]);
    rmdir(folder);
}

static struct kvr_trace *captured(struct kvr_capture_options o, int which)
{
    struct kvr_capture *c;
    struct kvr_capture_result result;
    struct kvr_trace *trace;
    struct kvr_error err = {0};

    o.output = out[which];
    o.ids_file = ids;
    o.force = true;
    o.backend = which == 0 ? KVR_CAPTURE_CPU : KVR_CAPTURE_CUDA;
    must(kvr_capture_new(&c, &o, &err));
    must(kvr_capture_run(c, &result, NULL, NULL, &err));
    kvr_capture_free(c);
    must(kvr_trace_open(&trace, out[which], &err));
    return trace;
}

static double largest(const float *a, const float *b, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++) {
        const double diff =
            fabs((double)a[i] - (double)b[i]) / fmax(1, fabs((double)a[i]));
        most = diff <= most ? most : diff; /* a NaN is the largest */
        if (isnan(diff) && !(isnan(a[i]) && isnan(b[i])))
            return NAN;
    }
    return most;
}

/* Rows of all heads, and every array that is there. */
static void compare(const struct kvr_trace *a, const struct kvr_trace *b,
                    double rows_bound, double array_bound)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(a);
    const uint32_t T = shape->n_token;
    struct kvr_trace_scratch *one, *two;
    struct kvr_error err = {0};
    float *x = kvr_calloc((size_t)T * T, sizeof *x);
    float *y = kvr_calloc((size_t)T * T, sizeof *y);

    ck_assert_uint_eq(kvr_trace_shape(b)->n_token, T);
    ck_assert_str_eq(shape->backend, "cpu");
    ck_assert_str_eq(kvr_trace_shape(b)->backend, "cuda");
    must(kvr_trace_scratch_new(&one, a, &err));
    must(kvr_trace_scratch_new(&two, b, &err));
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        for (uint32_t h = 0; h < shape->layers[l].n_head; h++) {
            must(kvr_trace_read_rows(a, l, h, 0, T, x, T, one, &err));
            must(kvr_trace_read_rows(b, l, h, 0, T, y, T, two, &err));
            const double diff = largest(x, y, (size_t)T * T);
            ck_assert_msg(diff <= rows_bound, "layer %u head %u: %g", l, h,
                          diff);
        }
        for (int i = 0; i < KVR_N_ARRAY; i++) {
            const float *p, *q;
            uint32_t n, m;
            must(kvr_trace_array(&p, &n, a, l, (enum kvr_array)i, &err));
            must(kvr_trace_array(&q, &m, b, l, (enum kvr_array)i, &err));
            ck_assert_uint_eq(n, m);
            const double diff = n > 0 ? largest(p, q, (size_t)n * T) : 0;
            ck_assert_msg(diff <= array_bound, "layer %u %s: %g", l,
                          kvr_array_name((enum kvr_array)i), diff);
        }
    }
    const float *p = kvr_trace_tokens(a)->logprob;
    const double diff = largest(p, kvr_trace_tokens(b)->logprob, T);
    ck_assert_msg(diff <= 20 * array_bound, "logprob: %g", diff);
    kvr_trace_scratch_free(one);
    kvr_trace_scratch_free(two);
    free(x);
    free(y);
}

static void both(struct kvr_capture_options o, double rows, double arrays)
{
    struct kvr_trace *a = captured(o, 0), *b = captured(o, 1);

    compare(a, b, rows, arrays);
    kvr_trace_close(a);
    kvr_trace_close(b);
}

static const char *const models[] = {
    MODELS "llama_gqa_tied", MODELS "mistral_swa8", MODELS "gemma2",
    MODELS "llama_headdim", MODELS "gpt_neox_parallel"};
/* gpt2 and opt: learned positions, too few for these ids */

START_TEST(agrees_with_the_cpu)
{
    static const uint32_t chunks[] = {256, 5, 13, 64, 1};
    struct kvr_capture_options o = {.model = models[_i], .dtype = KVR_F32};

    o.prompt_chunk = chunks[_i];
    o.n_generate = 4;
    o.ignore_eos = true;
    both(o, 2e-5, 2e-5);
}
END_TEST

START_TEST(agrees_in_f16)
{
    struct kvr_capture_options o = {.model = models[1], .prompt_chunk = 17};

    both(o, 5e-4, 2e-5); /* one unit of f16 below 1 */
    o.round_bits = 6;
    both(o, 8e-3, 2e-5);
}
END_TEST

START_TEST(agrees_through_queries_and_keys)
{
    struct kvr_capture_options o = {.model = models[_i % 3],
                                    .dtype = KVR_F32,
                                    .store = KVR_CAPTURE_QK,
                                    .prompt_chunk = 9};

    both(o, 2e-5, 2e-5);
    o.store = KVR_CAPTURE_BOTH;
    o.with = KVR_CAPTURE_VALUES | KVR_CAPTURE_MLP | KVR_CAPTURE_LOGITS;
    o.layers = "1";
    both(o, 2e-5, 2e-5);
}
END_TEST

/* Half products: bounds for these random models, whose attention is peaked. */
START_TEST(half_products_are_near)
{
    static const struct {
        enum kvr_capture_compute compute;
        const char *says;
        double bound;
    } cases[] = {{KVR_CAPTURE_COMPUTE_F16, "f16 products", 2e-2},
                 {KVR_CAPTURE_COMPUTE_BF16, "bf16 products", 1.5e-1}};
    struct kvr_capture_options o = {.model = models[0], .dtype = KVR_F32};
    struct kvr_trace *a = captured(o, 0), *b;

    o.compute = cases[_i].compute;
    b = captured(o, 1);
    ck_assert_ptr_nonnull(strstr(kvr_trace_shape(b)->compute, cases[_i].says));
    compare(a, b, cases[_i].bound, cases[_i].bound);
    kvr_trace_close(a);
    kvr_trace_close(b);
}
END_TEST

/* Parts of a block, items that wrap around, and a ring that has to grow. */
START_TEST(small_staging_changes_nothing)
{
    static const char *const sizes[] = {"16384", "40000", "300000"};
    struct kvr_capture_options o = {.model = models[0],
                                    .dtype = KVR_F32,
                                    .store = KVR_CAPTURE_BOTH,
                                    .with = KVR_CAPTURE_MLP,
                                    .prompt_chunk = 33,
                                    .n_generate = 30,
                                    .ignore_eos = true};

    setenv("KVREPLAY_CUDA_STAGING", sizes[_i], 1);
    both(o, 2e-5, 2e-5);
    unsetenv("KVREPLAY_CUDA_STAGING");
}
END_TEST

/* ---- back-pressure ---- */

enum { STAGING = 64 << 10, STEPS = 60 };

struct slow {
    atomic_uint fed; /* steps that the feeder has asked for */
    uint32_t next, most_ahead, n_deferred;
    struct kvr_config config;
};

/* Slow: gives way many times before it takes the rows, and for the first until
 * the decoder is ahead, which it must be able to be. */
static enum kvr_status take_slowly(void *ud,
                                   const struct kvr_attention_rows *rows,
                                   struct kvr_error *err)
{
    struct slow *s = ud;

    (void)err;
    for (uint64_t i = 0; i < 100000000 && rows->first == 0; i++) {
        if (atomic_load(&s->fed) > 2)
            break;
        sched_yield();
    }
    for (int i = 0; i < 200; i++) {
        const uint32_t fed = atomic_load(&s->fed);
        if (fed > rows->first && fed - rows->first > s->most_ahead)
            s->most_ahead = fed - rows->first;
        sched_yield();
    }
    ck_assert_uint_ge(rows->first + 1, s->next);
    s->next = rows->first + 1;
    return KVR_OK;
}

static enum kvr_status count(void *ud, uint32_t first, uint32_t n,
                             struct kvr_error *err)
{
    struct slow *s = ud;

    (void)err;
    ck_assert_uint_eq(first, s->n_deferred);
    ck_assert_uint_eq(s->next, first + n); /* all rows before, none after */
    s->n_deferred++;
    return KVR_OK;
}

START_TEST(slow_recording_holds_the_decoder_back)
{
    const struct kvr_decoder_options options = {
        .max_tokens = STEPS, .max_rows = 1, .threads = 1};
    struct kvr_model model;
    struct kvr_decoder *d;
    struct slow slow = {0};
    struct kvr_observer o = {.ud = &slow, .rows = take_slowly};
    const struct kvr_backend *backend;
    char why[KVR_BACKEND_WHY];
    struct kvr_error err = {0};

    setenv("KVREPLAY_CUDA_STAGING", "65536", 1);
    must(kvr__model_init(&model, models[0], &err));
    must(kvr__backend_choose(&backend, why, KVR_BACKEND_CUDA, &err));
    must(kvr__decoder_new(&d, &model, backend, &options, &err));
    for (uint32_t t = 0; t < STEPS; t++) {
        const int32_t id = (int32_t)(t % 20);
        must(kvr__decoder_feed(d, &id, 1, &o, &err));
        must(kvr__decoder_defer(d, count, &slow, t, 1, &err));
        atomic_store(&slow.fed, t + 1);
    }
    must(kvr__decoder_drain(d, &err));
    ck_assert_uint_eq(slow.n_deferred, STEPS);
    /* the decoder does go ahead, but never by more than the ring holds: a
     * step has at least 256 bytes for each layer */
    ck_assert_uint_gt(slow.most_ahead, 1);
    ck_assert_uint_le(slow.most_ahead,
                      STAGING / (256 * model.config.n_layer) + 1);
    kvr__decoder_free(d);
    kvr__model_fini(&model);
    unsetenv("KVREPLAY_CUDA_STAGING");
}
END_TEST

static enum kvr_status refuse(void *ud, const struct kvr_attention_rows *rows,
                              struct kvr_error *err)
{
    (void)ud;
    if (rows->first < 3)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT, "row %u is not wanted", rows->first);
}

/* A callback's failure reaches the caller, in the same call or a later one. */
START_TEST(failure_of_the_recording_ends_the_decoding)
{
    const struct kvr_decoder_options options = {
        .max_tokens = STEPS, .max_rows = 1, .threads = 2};
    struct kvr_model model;
    struct kvr_decoder *d;
    struct kvr_observer o = {.rows = refuse};
    const struct kvr_backend *backend;
    char why[KVR_BACKEND_WHY];
    struct kvr_error err = {0};
    enum kvr_status status = KVR_OK;

    must(kvr__model_init(&model, models[1], &err));
    must(kvr__backend_choose(&backend, why, KVR_BACKEND_CUDA, &err));
    must(kvr__decoder_new(&d, &model, backend, &options, &err));
    for (int32_t t = 0; t < STEPS && status == KVR_OK; t++)
        status = kvr__decoder_feed(d, &t, 1, &o, &err);
    if (status == KVR_OK)
        status = kvr__decoder_drain(d, &err);
    ck_assert_int_eq(status, KVR_ERR_INPUT);
    ck_assert_str_eq(err.message, "row 3 is not wanted");
    kvr__decoder_free(d);
    kvr__model_fini(&model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda_backend");
    TCase *tc = tcase_create("cuda_backend");

    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, agrees_with_the_cpu, 0, 5);
    tcase_add_test(tc, agrees_in_f16);
    tcase_add_loop_test(tc, agrees_through_queries_and_keys, 0, 3);
    tcase_add_loop_test(tc, half_products_are_near, 0, 2);
    tcase_add_loop_test(tc, small_staging_changes_nothing, 0, 3);
    tcase_add_test(tc, slow_recording_holds_the_decoder_back);
    tcase_add_test(tc, failure_of_the_recording_ends_the_decoding);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
