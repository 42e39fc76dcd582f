/* check_tiny.c -- the decoder on every family, against tests/golden/tiny.
 *
 * KVR_TINY_REPORT=1 prints the largest differences.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_memory.h"

#include <math.h>
#include <string.h>

static const char *const models[] = {
    "llama_gqa_tied",
    "llama_mqa_untied_legacycfg",
    "llama_headdim",
    "llama_rope_llama3",
    "llama_bf16",
    "llama_f16",
    "llama_sharded",
    "mistral_swa8",
    "qwen2",
    "qwen3",
    "phi3",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "opt",
    "gpt_neox_parallel",
    "gpt_neox_sequential",
};
static const uint32_t chunks[] = {1u << 20, 1, 3, 7};

enum {
    N_MODELS = sizeof models / sizeof models[0],
    N_CHUNKS = sizeof chunks / sizeof chunks[0],
};

struct reference {
    struct golden *file;
    char folder[512];
    int32_t *ids;
    size_t T;
    float *logits, *hidden;
    size_t n_logits, n_hidden;
};

static void open_reference(struct reference *r, const char *name)
{
    char path[600];

    snprintf(r->folder, sizeof r->folder, "%s/golden/tiny/%s", KVR_TEST_DATA,
             name);
    snprintf(path, sizeof path, "%s/reference.h5", r->folder);
    r->file = golden_open(path);
    r->ids = golden_i32(r->file, "tokens", &r->T);
    r->logits = golden_f32(r->file, "logits", &r->n_logits);
    r->hidden = golden_f32(r->file, "hidden", &r->n_hidden);
}

static void close_reference(struct reference *r)
{
    golden_close(r->file);
    free(r->ids);
    free(r->logits);
    free(r->hidden);
}

static double check_attention(const struct golden_run *run,
                              const struct reference *r)
{
    const struct kvr_config *c = &run->model.config;
    const size_t layer = (size_t)c->n_head * r->T * r->T;
    float *all = kvr_calloc(c->n_layer * layer, sizeof *all);
    char name[64];

    for (uint32_t l = 0; l < c->n_layer; l++) {
        size_t n;
        snprintf(name, sizeof name, "layer_%02u/attention", l);
        float *one = golden_f32(r->file, name, &n);
        ck_assert_uint_eq(n, layer);
        memcpy(all + l * layer, one, layer * sizeof *all);
        free(one);
    }
    const double diff = golden_check_attention(run, all, 2e-5);
    free(all);
    return diff;
}

/* Layer outputs; the last entry of the file is after the final norm. */
static double check_hidden(const struct golden_run *run,
                           const struct reference *r)
{
    const struct kvr_config *c = &run->model.config;
    double most = 0;

    ck_assert_uint_eq(r->n_hidden, (c->n_layer + 1) * r->T * c->hidden);
    for (uint32_t l = 0; l <= c->n_layer; l++)
        for (size_t t = 0; t < r->T; t++) {
            const uint32_t own = l < c->n_layer ? l : l + 1;
            const float *found = run->hidden + (own * r->T + t) * c->hidden;
            const float *expected = r->hidden + (l * r->T + t) * c->hidden;
            double largest = 0;
            for (uint32_t k = 0; k < c->hidden; k++)
                largest = fmax(largest, fabs((double)expected[k]));
            const double diff = golden_max_diff(found, expected, c->hidden);
            ck_assert_msg(diff <= 2e-5 * largest,
                          "hidden %u of token %zu is off by %g of %g", l, t,
                          diff, largest);
            most = fmax(most, diff / largest);
        }
    return most;
}

static double check_mlp(const struct golden_run *run, const struct reference *r)
{
    const struct kvr_config *c = &run->model.config;
    double most = 0;
    char name[64];

    for (uint32_t l = 0; l < c->n_layer; l++) {
        size_t n;
        snprintf(name, sizeof name, "layer_%02u/mlp_abs_sum", l);
        double *expected = golden_f64(r->file, name, &n);
        ck_assert_uint_eq(n, c->n_ff);
        for (size_t k = 0; k < n; k++) {
            const double diff = fabs(run->mlp[l * n + k] - expected[k]);
            ck_assert_msg(diff <= fmax(2e-5 * expected[k], 1e-6),
                          "layer %u neuron %zu is off by %g of %g", l, k, diff,
                          expected[k]);
            most = fmax(most, diff / fmax(expected[k], 0.05));
        }
        free(expected);
    }
    return most;
}

/* Feeds in chunks; the logits of all rows. */
static double check_logits(struct golden_run *run, const struct reference *r,
                           uint32_t chunk)
{
    const size_t n_vocab = run->model.config.n_vocab;
    struct kvr_error err = {0};
    float *found = kvr_calloc(r->n_logits, sizeof *found);

    ck_assert_uint_eq(r->n_logits, r->T * n_vocab);
    for (size_t i = 0; i < r->T;) {
        const uint32_t left = (uint32_t)(r->T - i);
        const uint32_t some = left < chunk ? left : chunk;
        golden_feed(run, r->ids + i, some, some);
        for (uint32_t k = 0; k < some; k++, i++)
            must(kvr__decoder_logits(run->decoder, found + i * n_vocab, k,
                                     &err));
    }
    const double diff = golden_max_diff(found, r->logits, r->n_logits);
    ck_assert_msg(diff <= 2e-4, "logits are off by %g", diff);
    free(found);
    return diff;
}

START_TEST(decodes_within_tolerance)
{
    const char *name = models[_i / N_CHUNKS];
    struct reference r;
    struct golden_run run;

    open_reference(&r, name);
    const uint32_t T = (uint32_t)r.T, chunk = chunks[_i % N_CHUNKS];
    golden_run_init(&run, r.folder, T, chunk < T ? chunk : T, 2);
    const double logits = check_logits(&run, &r, chunk);
    const double attention = check_attention(&run, &r);
    const double hidden = check_hidden(&run, &r);
    const double mlp = check_mlp(&run, &r);
    if (getenv("KVR_TINY_REPORT") != NULL)
        printf("%-28s chunk %2u attention %.2g logits %.2g hidden %.2g mlp "
               "%.2g\n",
               name, chunk < T ? chunk : T, attention, logits, hidden, mlp);
    golden_run_fini(&run);
    close_reference(&r);
}
END_TEST

/* A text of one or two tokens is the beginning of the longer one. */
START_TEST(few_tokens_are_a_text)
{
    struct reference r;
    struct golden_run run;

    open_reference(&r, models[_i]);
    for (uint32_t T = 1; T <= 2; T++) {
        golden_run_init(&run, r.folder, T, T, 1);
        golden_feed(&run, r.ids, T, T);
        const struct kvr_config *c = &run.model.config;
        for (uint32_t l = 0; l < c->n_layer; l++) {
            char name[64];
            size_t n;
            snprintf(name, sizeof name, "layer_%02u/attention", l);
            float *rows = golden_f32(r.file, name, &n);
            for (uint32_t h = 0; h < c->n_head; h++)
                for (uint32_t t = 0; t < T; t++)
                    ck_assert(
                        golden_max_diff(run.attention +
                                            ((l * c->n_head + h) * T + t) * T,
                                        rows + (h * r.T + t) * r.T, T) <= 2e-5);
            free(rows);
        }
        golden_run_fini(&run);
    }
    close_reference(&r);
}
END_TEST

/* log_prob is the softmax of the logits, soft cap and all. */
START_TEST(log_prob_agrees_with_logits)
{
    struct reference r;
    struct golden_run run;
    struct kvr_error err = {0};

    open_reference(&r, models[_i]);
    const uint32_t T = (uint32_t)r.T;
    float *found = kvr_calloc(T, sizeof *found);
    golden_run_init(&run, r.folder, T, T, 2);
    golden_feed(&run, r.ids, T, T);
    must(kvr__decoder_log_prob(run.decoder, found, r.ids + 1, T - 1, &err));
    const size_t V = run.model.config.n_vocab;
    for (uint32_t t = 0; t + 1 < T; t++) {
        double sum = 0;
        for (size_t k = 0; k < V; k++)
            sum += exp((double)r.logits[t * V + k]);
        const double expected =
            (double)r.logits[t * V + (size_t)r.ids[t + 1]] - log(sum);
        ck_assert(fabs((double)found[t] - expected) <= 4e-4);
    }
    free(found);
    golden_run_fini(&run);
    close_reference(&r);
}
END_TEST

/* The masks, caps and scales that the rows were made with. */
START_TEST(windows_are_where_the_config_says)
{
    static const struct {
        const char *name;
        uint32_t spans[6];
    } cases[] = {
        {"mistral_swa8", {8, 8}},
        {"gemma2", {8, 0, 8, 0}},
        {"gemma3_text", {8, 8, 8, 8, 8, 0}},
        {"qwen2", {0, 0}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_model model;
        struct kvr_error err = {0};
        char path[512];
        snprintf(path, sizeof path, "%s/golden/tiny/%s/config.json",
                 KVR_TEST_DATA, cases[i].name);
        must(kvr__model_init(&model, path, &err));
        ck_assert_str_eq(model.name, cases[i].name);
        for (uint32_t l = 0; l < model.config.n_layer; l++)
            ck_assert_uint_eq(model.layers[l].span, cases[i].spans[l]);
        kvr__model_fini(&model);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tiny");
    TCase *tc = tcase_create("tiny");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, decodes_within_tolerance, 0, N_MODELS * N_CHUNKS);
    tcase_add_loop_test(tc, few_tokens_are_a_text, 0, N_MODELS);
    tcase_add_loop_test(tc, log_prob_agrees_with_logits, 0, N_MODELS);
    tcase_add_test(tc, windows_are_where_the_config_says);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
