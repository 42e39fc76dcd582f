/* check_gguf_golden.c -- dequantisation bit for bit, and the decoder on each
 * stored type, against tests/golden/gguf.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_isa.h"
#include "kvr_memory.h"
#include "quant.h"
#include "sha256.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {
    "f32",  "f16",  "bf16", "q8_0", "q4_0", "q4_1",   "q5_0",   "q5_1",
    "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mixed_tied",
};

struct one_case {
    struct golden *golden;
    struct kvr_gguf *gguf;
    size_t checked;
};

static void open_case(struct one_case *c, char path[512], const char *name)
{
    struct kvr_error err = {0};

    snprintf(path, 512, "%s/golden/gguf/%s.h5", KVR_TEST_DATA, name);
    c->golden = golden_open(path);
    snprintf(path, 512, "%s/golden/gguf/%s.gguf", KVR_TEST_DATA, name);
    must(kvr__gguf_open(&c->gguf, path, &err));
}

static void close_case(struct one_case *c)
{
    kvr__gguf_close(c->gguf);
    golden_close(c->golden);
}

static void check_sums(struct one_case *c, const char *object,
                       const float *values, size_t n)
{
    char found[65], expected[128];
    double sum = 0, squares = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    golden_text(c->golden, object, "sha256_f32le", expected, sizeof expected);
    sha256_hex(found, values, n * sizeof *values);
    ck_assert_str_eq(found, expected);
    const double sum_expected = golden_number(c->golden, object, "sum_f64");
    const double squares_expected =
        golden_number(c->golden, object, "sumsq_f64");
    ck_assert(fabs(sum - sum_expected) <= 1e-9 * squares_expected);
    ck_assert(fabs(squares - squares_expected) <= 1e-12 * squares_expected);
}

static void check_tensor(const char *name, void *ud)
{
    struct one_case *c = ud;
    const struct kvr_gguf_tensor *tensor =
        kvr__gguf_tensor_named(c->gguf, name);
    char object[256], type[64];
    size_t n_rows;

    ck_assert_msg(tensor != NULL, "no tensor %s", name);
    const struct kvr_quant_row *row = kvr__quant_find(tensor->type);
    const size_t n = (size_t)(tensor->rows * tensor->dims[0]);
    float *values = kvr_calloc(n, sizeof *values);
    row->expand(values, tensor->data, n);
    snprintf(object, sizeof object, "dequant/%s", name);
    golden_text(c->golden, object, "type", type, sizeof type);
    ck_assert_str_eq(type, row->name);
    check_sums(c, object, values, n);
    snprintf(object, sizeof object, "dequant/%s/rows", name);
    float *rows = golden_f32(c->golden, object, &n_rows);
    ck_assert_uint_le(n_rows, n);
    ck_assert_mem_eq(values, rows, n_rows * sizeof *rows);
    free(rows);
    free(values);
    c->checked++;
}

/* With the plain loops, and with the best that the processor has. */
START_TEST(expands_to_the_same_bits)
{
    struct one_case c = {0};
    struct kvr_error err = {0};
    char path[512];

    open_case(&c, path, names[_i]);
    setenv("KVREPLAY_ISA", "base", 1);
    must(kvr_isa_init(&err));
    golden_members(c.golden, "dequant", check_tensor, &c);
    unsetenv("KVREPLAY_ISA");
    must(kvr_isa_init(&err));
    golden_members(c.golden, "dequant", check_tensor, &c);
    ck_assert_uint_ge(c.checked, 16);
    close_case(&c);
}
END_TEST

static void check_pass(struct one_case *c, const char *path, uint32_t chunk)
{
    struct golden_run run;
    struct kvr_error err = {0};
    size_t n, n_attention, n_logits;
    int32_t *ids = golden_i32(c->golden, "tokens", &n);
    float *attention =
        golden_f32(c->golden, "layer_00/attention", &n_attention);
    float *logits = golden_f32(c->golden, "logits", &n_logits);
    float *found = kvr_calloc(n_logits, sizeof *found);
    const size_t n_vocab = n_logits / n;

    golden_run_init(&run, path, (uint32_t)n, chunk, 2);
    for (uint32_t i = 0; i < n; i += chunk) {
        const uint32_t some = (uint32_t)n - i < chunk ? (uint32_t)n - i : chunk;
        golden_feed(&run, ids + i, some, some);
        for (uint32_t r = 0; r < some; r++)
            must(kvr__decoder_logits(run.decoder, found + (i + r) * n_vocab, r,
                                     &err));
    }
    golden_check_attention(&run, attention, 2e-5);
    const double diff = golden_max_diff(found, logits, n_logits);
    ck_assert_msg(diff <= 2e-4, "logits are off by %g", diff);
    golden_run_fini(&run);
    free(ids);
    free(attention);
    free(logits);
    free(found);
}

START_TEST(decodes_within_tolerance)
{
    struct one_case c = {0};
    char path[512];

    open_case(&c, path, names[_i]);
    check_pass(&c, path, 28);
    check_pass(&c, path, 5);
    check_pass(&c, path, 1);
    close_case(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_golden");
    TCase *tc = tcase_create("gguf_golden");
    tcase_set_timeout(tc, 120);
    const int n = sizeof names / sizeof names[0];
    tcase_add_loop_test(tc, expands_to_the_same_bits, 0, n);
    tcase_add_loop_test(tc, decodes_within_tolerance, 0, n);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
