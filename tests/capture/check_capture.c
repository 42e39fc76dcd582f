/* check_capture.c -- whole captures of a tiny model: what lands in the trace.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_capture.h"
#include "kvr_file.h"
#include "kvr_memory.h"
#include "quant.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define TINY KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf"

static char folder[64], out[128];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-capture-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/out.kvt.h5", folder);
}

static void teardown(void)
{
    char path[192];

    unlink(out);
    snprintf(path, sizeof path, "%s.part", out);
    unlink(path);
    snprintf(path, sizeof path, "%s/in", folder);
    unlink(path);
    rmdir(folder);
}

static struct kvr_capture_options usual(void)
{
    return (struct kvr_capture_options){
        .model = TINY,
        .output = out,
        .prompt = "hello the end, he ran in the rain",
        .n_generate = 5,
        .ignore_eos = true,
        .dtype = KVR_F32,
        .threads = 2,
        .force = true,
    };
}

static struct kvr_capture_result capture(struct kvr_capture_options o)
{
    struct kvr_capture *c;
    struct kvr_capture_result result;
    struct kvr_error err = {0};

    must(kvr_capture_new(&c, &o, &err));
    must(kvr_capture_run(c, &result, NULL, NULL, &err));
    kvr_capture_free(c);
    return result;
}

static struct kvr_trace *open_trace(void)
{
    struct kvr_trace *trace;
    struct kvr_error err = {0};

    must(kvr_trace_open(&trace, out, &err));
    return trace;
}

static float *read_rows(const struct kvr_trace *trace, uint32_t layer,
                        uint32_t head)
{
    const uint32_t T = kvr_trace_shape(trace)->n_token;
    struct kvr_trace_scratch *scratch;
    struct kvr_error err = {0};
    float *rows = kvr_calloc((size_t)T * T, sizeof *rows);

    must(kvr_trace_scratch_new(&scratch, trace, &err));
    must(kvr_trace_read_rows(trace, layer, head, 0, T, rows, T, scratch, &err));
    kvr_trace_scratch_free(scratch);
    return rows;
}

static const float *read_array(const struct kvr_trace *trace, uint32_t layer,
                               enum kvr_array array, uint32_t rows)
{
    const float *values;
    uint32_t found;
    struct kvr_error err = {0};

    must(kvr_trace_array(&values, &found, trace, layer, array, &err));
    ck_assert_uint_eq(found, rows);
    return values;
}

/* A fresh decoder over the trace's own ids gives the stored rows, the log
 * probabilities and the norms. */
static void check_against_decoder(const struct kvr_trace *trace,
                                  const struct golden_run *run)
{
    const uint32_t T = kvr_trace_shape(trace)->n_token;

    for (uint32_t l = 0; l < 2; l++) {
        const float *lse = read_array(trace, l, KVR_LSE, 4);
        const float *mass = read_array(trace, l, KVR_ROW_MASS, 4);
        for (uint32_t h = 0; h < 4; h++) {
            const size_t at = ((size_t)l * 4 + h) * T;
            float *rows = read_rows(trace, l, h);
            ck_assert(golden_max_diff(rows, run->attention + at * T,
                                      (size_t)T * T) <= 2e-5);
            ck_assert(golden_max_diff(lse + (size_t)h * T, run->lse + at, T) <=
                      1e-4);
            for (uint32_t t = 0; t < T; t++)
                ck_assert(fabsf(mass[(size_t)h * T + t] - 1) <= 1e-5f);
            free(rows);
        }
    }
}

static void check_key_norms(const struct kvr_trace *trace,
                            const struct golden_run *run)
{
    const uint32_t T = kvr_trace_shape(trace)->n_token;

    for (uint32_t l = 0; l < 2; l++) {
        const float *norm = read_array(trace, l, KVR_KEY_NORM, 2);
        for (uint32_t g = 0; g < 2; g++)
            for (uint32_t t = 0; t < T; t++) {
                const float *key = run->key + (((size_t)l * T + t) * 2 + g) * 8;
                double sum = 0;
                for (int k = 0; k < 8; k++)
                    sum += (double)key[k] * (double)key[k];
                ck_assert(fabs(sqrt(sum) - (double)norm[g * T + t]) <=
                          1e-5 * sqrt(sum));
            }
    }
}

static void check_log_prob(const struct kvr_trace *trace,
                           struct golden_run *run, const int32_t *ids)
{
    const uint32_t T = kvr_trace_shape(trace)->n_token;
    const struct kvr_trace_tokens *tokens = kvr_trace_tokens(trace);
    float found[512];
    struct kvr_error err = {0};

    ck_assert(isnan(tokens->logprob[0]));
    must(kvr__decoder_log_prob(run->decoder, found, ids + 1, T - 1, &err));
    ck_assert(golden_max_diff(found, tokens->logprob + 1, T - 1) <= 1e-4);
}

START_TEST(trace_holds_what_was_decoded)
{
    const struct kvr_capture_result result = capture(usual());
    struct kvr_trace *trace = open_trace();
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    const uint32_t T = shape->n_token;
    struct golden_run run;

    ck_assert_uint_eq(result.n_token, T);
    ck_assert_uint_eq(result.n_generated, 5);
    ck_assert_uint_eq(shape->prompt_len, T - 5);
    ck_assert_uint_eq(shape->n_layer, 2);
    ck_assert_int_eq(shape->source, KVR_SOURCE_CAPTURE);
    ck_assert_str_eq(shape->cache, "full");
    ck_assert_str_eq(shape->architecture, "llama");
    ck_assert_str_eq(shape->backend, golden_backend()->name);
    ck_assert_ptr_nonnull(strstr(shape->bos, "added id 1"));
    ck_assert_uint_eq(strlen(shape->model_hash), 32);
    ck_assert_uint_eq(shape->layers[1].layer, 1);
    ck_assert_uint_eq(shape->layers[1].key_dim, 8);
    ck_assert(fabs(shape->layers[0].scale - 1 / sqrt(8)) < 1e-12);
    golden_run_init(&run, TINY, T, T, 1);
    golden_feed(&run, kvr_trace_tokens(trace)->id, T, T);
    check_against_decoder(trace, &run);
    check_key_norms(trace, &run);
    check_log_prob(trace, &run, kvr_trace_tokens(trace)->id);
    golden_run_fini(&run);
    kvr_trace_close(trace);
}
END_TEST

/* ---- value norms against a product written out here ---- */

struct values {
    const float *norm1, *norm2, *out1; /* of layer 0, [2|2|4][T] */
    const struct kvr_gguf *gguf;
    uint32_t T;
};

static float *expand(const struct kvr_gguf *gguf, const char *name)
{
    const struct kvr_gguf_tensor *t = kvr__gguf_tensor_named(gguf, name);
    const size_t n = (size_t)(t->rows * t->dims[0]);
    float *values = kvr_calloc(n, sizeof *values);

    kvr__quant_find(t->type)->expand(values, t->data, n);
    return values;
}

/* Value vectors of layer 0 for one token: norm(embedding) times W_V. */
static void value_of(double out_v[16], const struct kvr_gguf *gguf, int32_t id)
{
    float *embedding = expand(gguf, "token_embd.weight");
    float *gain = expand(gguf, "blk.0.attn_norm.weight");
    float *w = expand(gguf, "blk.0.attn_v.weight");
    const float *x = embedding + (size_t)id * 32;
    double sum = 0;

    for (int k = 0; k < 32; k++)
        sum += (double)x[k] * (double)x[k];
    const double factor = 1 / sqrt(sum / 32 + 1e-5);
    for (int r = 0; r < 16; r++) {
        out_v[r] = 0;
        for (int k = 0; k < 32; k++)
            out_v[r] +=
                (double)w[r * 32 + k] * (double)x[k] * factor * (double)gain[k];
    }
    free(embedding);
    free(gain);
    free(w);
}

static void check_values(const struct values *v, uint32_t t, int32_t id)
{
    double value[16];
    float *w = expand(v->gguf, "blk.0.attn_output.weight");

    value_of(value, v->gguf, id);
    for (uint32_t g = 0; g < 2; g++) {
        double one = 0, two = 0;
        for (int k = 0; k < 8; k++) {
            one += fabs(value[g * 8 + k]);
            two += value[g * 8 + k] * value[g * 8 + k];
        }
        ck_assert(fabs(one - (double)v->norm1[g * v->T + t]) <= 1e-5 * one);
        ck_assert(fabs(sqrt(two) - (double)v->norm2[g * v->T + t]) <=
                  1e-5 * sqrt(two));
    }
    for (uint32_t h = 0; h < 4; h++) {
        double sum = 0;
        for (int r = 0; r < 32; r++) {
            double cell = 0;
            for (int k = 0; k < 8; k++)
                cell += (double)w[r * 32 + (int)h * 8 + k] *
                        value[h / 2 * 8 + (uint32_t)k];
            sum += fabs(cell);
        }
        ck_assert(fabs(sum - (double)v->out1[h * v->T + t]) <= 1e-5 * sum);
    }
    free(w);
}

START_TEST(value_norms_are_those_of_the_weights)
{
    struct kvr_error err = {0};
    struct kvr_gguf *gguf;

    capture(usual());
    struct kvr_trace *trace = open_trace();
    must(kvr__gguf_open(&gguf, TINY, &err));
    const struct values v = {
        .norm1 = read_array(trace, 0, KVR_VALUE_NORM1, 2),
        .norm2 = read_array(trace, 0, KVR_VALUE_NORM2, 2),
        .out1 = read_array(trace, 0, KVR_VALUE_OUT_NORM1, 4),
        .gguf = gguf,
        .T = kvr_trace_shape(trace)->n_token,
    };
    for (uint32_t t = 0; t < v.T; t++)
        check_values(&v, t, kvr_trace_tokens(trace)->id[t]);
    kvr__gguf_close(gguf);
    kvr_trace_close(trace);
}
END_TEST

START_TEST(any_chunk_gives_the_same_rows)
{
    struct kvr_capture_options o = usual();
    float *expected[8];

    capture(o);
    struct kvr_trace *trace = open_trace();
    const uint32_t T = kvr_trace_shape(trace)->n_token;
    for (uint32_t i = 0; i < 8; i++)
        expected[i] = read_rows(trace, i / 4, i % 4);
    kvr_trace_close(trace);
    for (uint32_t chunk = 1; chunk < 6; chunk++) {
        o.prompt_chunk = chunk;
        capture(o);
        trace = open_trace();
        for (uint32_t i = 0; i < 8; i++) {
            float *rows = read_rows(trace, i / 4, i % 4);
            ck_assert(golden_max_diff(rows, expected[i], (size_t)T * T) <=
                      1e-5);
            free(rows);
        }
        kvr_trace_close(trace);
    }
    for (uint32_t i = 0; i < 8; i++)
        free(expected[i]);
}
END_TEST

START_TEST(chosen_layers_and_heads_are_stored)
{
    struct kvr_capture_options o = usual();

    capture(o);
    struct kvr_trace *trace = open_trace();
    const uint32_t T = kvr_trace_shape(trace)->n_token;
    float *expected = read_rows(trace, 1, 3);
    float norm[256];
    memcpy(norm, read_array(trace, 1, KVR_KEY_NORM, 2) + T, T * sizeof *norm);
    kvr_trace_close(trace);
    o.layers = "1";
    o.heads = "2-3";
    capture(o);
    trace = open_trace();
    const struct kvr_layer_shape *layer = kvr_trace_shape(trace)->layers;
    ck_assert_uint_eq(kvr_trace_shape(trace)->n_layer, 1);
    ck_assert_uint_eq(layer->layer, 1);
    ck_assert_uint_eq(layer->n_head, 2);
    ck_assert_uint_eq(layer->n_kv_head, 1);
    ck_assert_uint_eq(layer->head_index[1], 3);
    float *rows = read_rows(trace, 0, 1);
    /* a device may compute a layer in another way where nobody looks */
    const double bound = golden_backend() == &kvr__backend_cpu ? 0 : 5e-4;
    ck_assert_double_le(golden_max_diff(rows, expected, (size_t)T * T), bound);
    ck_assert_double_le(
        golden_max_diff(read_array(trace, 0, KVR_KEY_NORM, 1), norm, T), bound);
    free(rows);
    free(expected);
    kvr_trace_close(trace);
}
END_TEST

START_TEST(part_of_a_group_is_refused)
{
    struct kvr_capture_options o = usual();
    struct kvr_capture *c;
    struct kvr_error err = {0};

    o.heads = "0-2";
    must_fail(kvr_capture_new(&c, &o, &err), KVR_ERR_USAGE, "KV head 1");
    o.heads = NULL;
    o.layers = "2";
    must_fail(kvr_capture_new(&c, &o, &err), KVR_ERR_USAGE, "layer");
}
END_TEST

START_TEST(texts_and_classes_are_stored)
{
    struct kvr_capture_options o = usual();
    char text[64] = "";

    o.prompt = "the end .";
    o.n_generate = 0;
    capture(o);
    struct kvr_trace *trace = open_trace();
    const struct kvr_trace_tokens *tokens = kvr_trace_tokens(trace);
    const uint32_t T = kvr_trace_shape(trace)->n_token;
    memcpy(text, tokens->text, tokens->text_offset[T]);
    ck_assert_str_eq(text, o.prompt);
    ck_assert_int_eq(tokens->class_of[0], KVR_TOKEN_SPECIAL);
    ck_assert_int_eq(tokens->class_of[1], KVR_TOKEN_TEXT);
    ck_assert_int_eq(tokens->class_of[T - 1], KVR_TOKEN_PUNCTUATION);
    kvr_trace_close(trace);
}
END_TEST

static void write_file(char path[192], const void *data, size_t size)
{
    struct kvr_error err = {0};

    snprintf(path, 192, "%s/in", folder);
    must(kvr_file_write(path, data, size, true, &err));
}

START_TEST(ids_need_no_tokenizer)
{
    static const char ids[] = "1, 281\n275\t264 282,271 260";
    struct kvr_capture_options o = usual();
    struct kvr_capture *c;
    struct kvr_error err = {0};
    char path[192];

    write_file(path, ids, strlen(ids));
    o.model = KVR_TEST_DATA "/awkward/gguf_no_tokenizer.gguf";
    o.prompt = NULL;
    o.ids_file = path;
    o.prompt_len = 4;
    capture(o);
    struct kvr_trace *trace = open_trace();
    ck_assert_uint_eq(kvr_trace_shape(trace)->n_token, 12);
    ck_assert_uint_eq(kvr_trace_shape(trace)->prompt_len, 4);
    ck_assert_int_eq(kvr_trace_tokens(trace)->id[6], 260);
    ck_assert_int_eq(kvr_trace_tokens(trace)->id[7], 45); /* greedy */
    kvr_trace_close(trace);
    write_file(path, "1 288", 5);
    must_fail(kvr_capture_new(&c, &o, &err), KVR_ERR_INPUT, "0 to 287");
    write_file(path, "1 -2", 4);
    must_fail(kvr_capture_new(&c, &o, &err), KVR_ERR_INPUT, "'-2'");
    write_file(path, " ", 1);
    must_fail(kvr_capture_new(&c, &o, &err), KVR_ERR_INPUT, "empty prompt");
    o.prompt_len = 8;
    write_file(path, "1 2", 3);
    must_fail(kvr_capture_new(&c, &o, &err), KVR_ERR_USAGE, "2 tokens");
}
END_TEST

START_TEST(one_token_is_a_trace)
{
    struct kvr_capture_options o = usual();

    o.prompt = "";
    o.n_generate = 0;
    ck_assert_uint_eq(capture(o).n_token, 1);
    o.n_generate = 1;
    ck_assert_uint_eq(capture(o).n_token, 2);
    struct kvr_trace *trace = open_trace();
    ck_assert_uint_eq(kvr_trace_shape(trace)->prompt_len, 1);
    kvr_trace_close(trace);
}
END_TEST

START_TEST(same_run_gives_the_same_file)
{
    struct kvr_capture_options o = usual();
    struct kvr_error err = {0};
    uint8_t *first, *second;
    size_t n, m;

    o.temperature = 1.5;
    o.top_p = 0.9;
    o.seed = 7;
    capture(o);
    must(kvr_file_read(&first, &n, out, 1 << 24, &err));
    o.threads = 1;
    capture(o);
    must(kvr_file_read(&second, &m, out, 1 << 24, &err));
    ck_assert_uint_eq(n, m);
    ck_assert_mem_eq(first, second, n);
    free(second);
    o.seed = 8;
    capture(o);
    must(kvr_file_read(&second, &m, out, 1 << 24, &err));
    ck_assert(n != m || memcmp(first, second, n) != 0);
    free(first);
    free(second);
}
END_TEST

START_TEST(refuses_before_the_first_token)
{
    struct kvr_capture_options o = usual();
    struct kvr_capture *c;
    struct kvr_capture_result result;
    struct kvr_error err = {0};

    o.memory = 1000;
    must(kvr_capture_new(&c, &o, &err));
    must_fail(kvr_capture_run(c, &result, NULL, NULL, &err), KVR_ERR_LIMIT,
              "--memory");
    kvr_capture_free(c);
    ck_assert(!kvr_file_exists(out));
    o.memory = 0;
    capture(o);
    o.force = false;
    must(kvr_capture_new(&c, &o, &err));
    must_fail(kvr_capture_run(c, &result, NULL, NULL, &err), KVR_ERR_EXISTS,
              "out.kvt.h5");
    kvr_capture_free(c);
}
END_TEST

/* A NaN in the model shows in the first row that it reaches. */
START_TEST(not_finite_is_named)
{
    struct kvr_capture_options o = usual();
    struct kvr_capture *c;
    struct kvr_capture_result result;
    struct kvr_error err = {0};
    struct kvr_gguf *gguf;
    uint8_t *bytes;
    size_t size;
    char path[192];
    const float nan_value = NAN;

    must(kvr_file_read(&bytes, &size, TINY, 1 << 20, &err));
    must(kvr__gguf_open(&gguf, TINY, &err));
    const struct kvr_gguf_tensor *norm =
        kvr__gguf_tensor_named(gguf, "blk.1.attn_norm.weight");
    const uint8_t *base =
        kvr__gguf_tensor_named(gguf, "token_embd.weight")->data;
    /* data begins at 8320, the header's end rounded up to the alignment */
    memcpy(bytes + 8320 + (norm->data - base), &nan_value, 4);
    kvr__gguf_close(gguf);
    write_file(path, bytes, size);
    free(bytes);
    o.model = path;
    must(kvr_capture_new(&c, &o, &err));
    must_fail(kvr_capture_run(c, &result, NULL, NULL, &err), KVR_ERR_INPUT,
              "layer 1 head");
    ck_assert_ptr_nonnull(strstr(err.message, "step 0"));
    kvr_capture_free(c);
    ck_assert(!kvr_file_exists(out));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("capture");
    TCase *tc = tcase_create("capture");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, trace_holds_what_was_decoded);
    tcase_add_test(tc, value_norms_are_those_of_the_weights);
    tcase_add_test(tc, any_chunk_gives_the_same_rows);
    tcase_add_test(tc, chosen_layers_and_heads_are_stored);
    tcase_add_test(tc, part_of_a_group_is_refused);
    tcase_add_test(tc, texts_and_classes_are_stored);
    tcase_add_test(tc, ids_need_no_tokenizer);
    tcase_add_test(tc, one_token_is_a_trace);
    tcase_add_test(tc, same_run_gives_the_same_file);
    tcase_add_test(tc, refuses_before_the_first_token);
    tcase_add_test(tc, not_finite_is_named);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
