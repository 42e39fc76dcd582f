/* check_hf_config.c -- config.json, old style and new: what is stated is
 * applied or refused by name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static void in_folder(char out[128], const char *name)
{
    snprintf(out, 128, "%s/%s", folder, name);
}

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-config-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    char path[128];

    in_folder(path, "config.json");
    unlink(path);
    in_folder(path, "model.safetensors");
    unlink(path);
    rmdir(folder);
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    char path[128];
    struct kvr_error err = {0};

    in_folder(path, name);
    must(kvr_file_write(path, bytes, size, true, &err));
}

/* A golden model's weights under its config with `change` on top: members of
 * it replace, and those that are "-" are taken out. */
static void make(const char *name, const char *change)
{
    char from[512], to[128];
    json_error_t why;
    const char *key;
    json_t *value;

    snprintf(from, sizeof from, "%s/golden/tiny/%s/config.json", KVR_TEST_DATA,
             name);
    json_t *config = json_load_file(from, 0, &why);
    json_t *patch = json_loads(change, 0, &why);
    ck_assert_msg(config != NULL && patch != NULL, "%s", why.text);
    json_object_foreach(patch, key, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), "-") == 0)
            json_object_del(config, key);
        else
            json_object_set(config, key, value);
    }
    char *text = json_dumps(config, 0);
    write_file("config.json", text, strlen(text));
    free(text);
    json_decref(config);
    json_decref(patch);
    snprintf(from, sizeof from, "%s/golden/tiny/%s/model.safetensors",
             KVR_TEST_DATA, name);
    in_folder(to, "model.safetensors");
    unlink(to);
    ck_assert_int_eq(symlink(from, to), 0);
}

static const struct {
    const char *model, *change;
    enum kvr_status status;
    const char *words[3];
} refused[] = {
    {"llama_gqa_tied",
     "{\"model_type\":\"mamba\"}",
     KVR_ERR_UNSUPPORTED,
     {"'mamba'", "supported: llama mistral qwen2", "gpt_neox"}},
    {"llama_gqa_tied", "{\"model_type\":\"-\"}", KVR_ERR_INPUT, {"model_type"}},
    {"llama_gqa_tied",
     "{\"hidden_size\":\"-\"}",
     KVR_ERR_INPUT,
     {"has no hidden_size"}},
    {"llama_gqa_tied",
     "{\"hidden_size\":48.5}",
     KVR_ERR_INPUT,
     {"hidden_size is not a whole number"}},
    {"llama_gqa_tied",
     "{\"num_attention_heads\":0}",
     KVR_ERR_INPUT,
     {"num_attention_heads is 0"}},
    {"llama_gqa_tied",
     "{\"head_dim\":16}",
     KVR_ERR_INPUT,
     {"q_proj.weight", "[48, 48]", "[96, 48]"}},
    {"llama_gqa_tied",
     "{\"num_key_value_heads\":3}",
     KVR_ERR_INPUT,
     {"k_proj.weight", "num_key_value_heads 3 x head_dim 8", "[16, 48]"}},
    {"llama_gqa_tied",
     "{\"num_key_value_heads\":4}",
     KVR_ERR_INPUT,
     {"6 query heads", "4 KV heads"}},
    {"llama_gqa_tied",
     "{\"vocab_size\":96}",
     KVR_ERR_INPUT,
     {"embed_tokens", "vocab_size 96"}},
    {"llama_gqa_tied",
     "{\"attention_bias\":true}",
     KVR_ERR_INPUT,
     {"q_proj.bias", "missing"}},
    {"llama_headdim",
     "{\"attention_bias\":false}",
     KVR_ERR_UNSUPPORTED,
     {".bias", "not known"}},
    {"llama_gqa_tied",
     "{\"tie_word_embeddings\":false}",
     KVR_ERR_INPUT,
     {"lm_head.weight", "missing"}},
    {"llama_f16",
     "{\"tie_word_embeddings\":true}",
     KVR_ERR_INPUT,
     {"lm_head.weight", "differs"}},
    {"llama_gqa_tied",
     "{\"hidden_act\":\"xielu\"}",
     KVR_ERR_UNSUPPORTED,
     {"'xielu'", "silu"}},
    {"llama_gqa_tied",
     "{\"sliding_window\":4}",
     KVR_ERR_UNSUPPORTED,
     {"sliding_window", "llama"}},
    {"llama_gqa_tied",
     "{\"attn_logit_softcapping\":50.0}",
     KVR_ERR_UNSUPPORTED,
     {"attn_logit_softcapping"}},
    {"llama_gqa_tied",
     "{\"quantization_config\":{\"bits\":4}}",
     KVR_ERR_UNSUPPORTED,
     {"quantization_config"}},
    {"llama_rope_llama3",
     "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}}",
     KVR_ERR_UNSUPPORTED,
     {"'yarn'", "default linear llama3"}},
    {"llama_rope_llama3",
     "{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}}",
     KVR_ERR_UNSUPPORTED,
     {"'dynamic'"}},
    {"llama_rope_llama3",
     "{\"rope_scaling\":{\"type\":\"linear\"}}",
     KVR_ERR_INPUT,
     {"without a factor"}},
    {"llama_rope_llama3",
     "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":-1}}",
     KVR_ERR_INPUT,
     {"factor", "above 0"}},
    {"llama_rope_llama3",
     "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0}}",
     KVR_ERR_INPUT,
     {"low_freq_factor"}},
    {"llama_rope_llama3",
     "{\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[1]}}",
     KVR_ERR_UNSUPPORTED,
     {"mrope_section"}},
    {"phi3",
     "{\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1.0]}}",
     KVR_ERR_UNSUPPORTED,
     {"'longrope'"}},
    {"gemma2",
     "{\"layer_types\":[\"full_attention\"]}",
     KVR_ERR_INPUT,
     {"layer_types has 1", "4"}},
    {"qwen2",
     "{\"layer_types\":[\"full_attention\",\"linear_attention\"]}",
     KVR_ERR_UNSUPPORTED,
     {"'linear_attention'"}},
    {"qwen2",
     "{\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
     KVR_ERR_INPUT,
     {"no sliding_window"}},
    {"gemma2",
     "{\"sliding_window\":null,\"layer_types\":\"-\"}",
     KVR_ERR_INPUT,
     {"layer 0", "not stated"}},
    {"gemma3_text",
     "{\"use_bidirectional_attention\":true}",
     KVR_ERR_UNSUPPORTED,
     {"use_bidirectional_attention"}},
    {"gpt2",
     "{\"scale_attn_by_inverse_layer_idx\":true}",
     KVR_ERR_UNSUPPORTED,
     {"scale_attn_by_inverse_layer_idx"}},
    {"gpt2",
     "{\"scale_attn_weights\":false}",
     KVR_ERR_UNSUPPORTED,
     {"scale_attn_weights"}},
    {"gpt2",
     "{\"n_inner\":96}",
     KVR_ERR_INPUT,
     {"c_fc.weight", "[48, 192]", "[48, 96]"}},
    {"opt",
     "{\"do_layer_norm_before\":false}",
     KVR_ERR_UNSUPPORTED,
     {"do_layer_norm_before"}},
    {"opt",
     "{\"word_embed_proj_dim\":24}",
     KVR_ERR_UNSUPPORTED,
     {"word_embed_proj_dim"}},
    {"opt",
     "{\"max_position_embeddings\":60}",
     KVR_ERR_INPUT,
     {"embed_positions", "[66, 48]", "[62, 48]"}},
    {"gpt_neox_parallel",
     "{\"rope_parameters\":{\"partial_rotary_factor\":1.5}}",
     KVR_ERR_INPUT,
     {"1.5"}},
    {"llama_gqa_tied",
     "{\"is_causal\":false}",
     KVR_ERR_UNSUPPORTED,
     {"'is_causal' is false", "llama"}},
    {"opt",
     "{\"is_causal\":null}",
     KVR_ERR_UNSUPPORTED,
     {"'is_causal' is null"}},
    {"qwen2",
     "{\"layer_norm_elementwise_affine\":0}",
     KVR_ERR_UNSUPPORTED,
     {"'layer_norm_elementwise_affine' is 0"}},
    {"llama_gqa_tied",
     "{\"use_novelty\":false}",
     KVR_ERR_UNSUPPORTED,
     {"'use_novelty' is false"}},
    {"llama_gqa_tied",
     "{\"novelty\":\"\"}",
     KVR_ERR_UNSUPPORTED,
     {"'novelty' is \"\""}},
    {"llama_gqa_tied",
     "{\"rms_norm_eps\":null}",
     KVR_ERR_INPUT,
     {"rms_norm_eps is not a number"}},
    {"llama_gqa_tied",
     "{\"tie_word_embeddings\":null}",
     KVR_ERR_INPUT,
     {"tie_word_embeddings is not true or false"}},
    {"llama_gqa_tied",
     "{\"rope_scaling\":false}",
     KVR_ERR_INPUT,
     {"rope_scaling is not an object"}},
    {"llama_gqa_tied",
     "{\"rope_scaling\":{\"factor\":2.0}}",
     KVR_ERR_INPUT,
     {"a factor, but no rope_type"}},
    {"llama_gqa_tied",
     "{\"rope_theta\":0,\"rope_parameters\":\"-\"}",
     KVR_ERR_INPUT,
     {"rope_theta is no number above 0"}},
    {"llama_gqa_tied",
     "{\"rope_theta\":7.0}",
     KVR_ERR_INPUT,
     {"rope_theta is 7, but rope_parameters.rope_theta is"}},
    {"llama_gqa_tied",
     "{\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.0}}",
     KVR_ERR_INPUT,
     {"rope_scaling and rope_parameters differ"}},
    {"llama_rope_llama3",
     "{\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"default\"}}",
     KVR_ERR_INPUT,
     {"rope_type and type differ"}},
    {"gpt_neox_parallel",
     "{\"rope_parameters\":\"-\",\"rotary_pct\":0}",
     KVR_ERR_INPUT,
     {"rotary_pct is 0, expected above 0"}},
    {"gpt_neox_parallel",
     "{\"rope_parameters\":\"-\",\"rotary_emb_base\":100,\"rope_theta\":200}",
     KVR_ERR_INPUT,
     {"rope_theta is 200", "rotary_emb_base is 100"}},
    {"gemma2",
     "{\"attn_logit_softcapping\":0}",
     KVR_ERR_INPUT,
     {"attn_logit_softcapping is 0, expected above 0"}},
    {"gemma2",
     "{\"query_pre_attn_scalar\":0}",
     KVR_ERR_INPUT,
     {"query_pre_attn_scalar is 0, expected above 0"}},
    {"gemma2",
     "{\"hidden_act\":\"relu\"}",
     KVR_ERR_INPUT,
     {"hidden_activation and hidden_act"}},
    {"gemma3_text",
     "{\"_sliding_window_pattern\":2}",
     KVR_ERR_INPUT,
     {"layer_types and _sliding_window_pattern"}},
    {"gpt2", "{\"n_ctx\":32}", KVR_ERR_INPUT, {"n_positions and n_ctx"}},
    {"qwen2",
     "{\"max_window_layers\":null}",
     KVR_ERR_INPUT,
     {"max_window_layers is not a whole number"}},
    {"qwen2",
     "{\"layer_types\":0}",
     KVR_ERR_INPUT,
     {"layer_types is not a list"}},
};

START_TEST(what_cannot_be_applied_is_named)
{
    struct kvr_model model;
    struct kvr_error err = {0};

    make(refused[_i].model, refused[_i].change);
    const enum kvr_status status = kvr__model_init(&model, folder, &err);
    kvr__model_fini(&model);
    ck_assert_msg(status == refused[_i].status, "%s: status %d, %s",
                  refused[_i].change, (int)status, err.message);
    ck_assert_ptr_nonnull(strstr(err.message, "config.json"));
    for (int k = 0; k < 3 && refused[_i].words[k] != NULL; k++)
        ck_assert_msg(strstr(err.message, refused[_i].words[k]) != NULL,
                      "'%s' lacks '%s'", err.message, refused[_i].words[k]);
}
END_TEST

START_TEST(text_that_is_no_config_is_refused)
{
    static const struct {
        const char *text, *words;
    } texts[] = {
        {"{", "not JSON"},
        {"[]", "not a JSON object"},
        {"{\"model_type\":\"llama\",\"model_type\":\"opt\"}", "duplicate"},
    };
    struct kvr_model model;
    struct kvr_error err = {0};

    make("llama_gqa_tied", "{}");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_file("config.json", texts[i].text, strlen(texts[i].text));
        must_fail(kvr__model_init(&model, folder, &err), KVR_ERR_INPUT,
                  texts[i].words);
        kvr__model_fini(&model);
    }
}
END_TEST

/* ---- two ways to say the same ---- */

static void assert_same_floats(const float *a, const float *b, uint32_t n)
{
    ck_assert_int_eq(a != NULL, b != NULL);
    for (uint32_t i = 0; a != NULL && i < n; i++)
        ck_assert(a[i] == b[i]);
}

static void assert_same_model(const struct kvr_model *a,
                              const struct kvr_model *b)
{
    const struct kvr_config *x = &a->config, *y = &b->config;

    ck_assert_uint_eq(x->key_dim, y->key_dim);
    ck_assert_uint_eq(x->rope_dim, y->rope_dim);
    ck_assert(x->attention_scale == y->attention_scale);
    ck_assert(x->softcap == y->softcap);
    ck_assert(x->logit_softcap == y->logit_softcap);
    ck_assert_int_eq(x->activation, y->activation);
    ck_assert_int_eq(x->parallel, y->parallel);
    assert_same_floats(a->inv_freq, b->inv_freq, x->rope_dim / 2);
    assert_same_floats(a->inv_freq_local, b->inv_freq_local, x->rope_dim / 2);
    for (uint32_t l = 0; l < x->n_layer; l++) {
        ck_assert_uint_eq(a->layers[l].span, b->layers[l].span);
        ck_assert_int_eq(a->layers[l].local, b->layers[l].local);
    }
}

static const struct {
    const char *model, *change;
} same[] = {
    {"llama_gqa_tied", "{\"head_dim\":null}"},
    {"llama_gqa_tied", "{\"head_dim\":\"-\",\"sliding_window\":null}"},
    {"llama_gqa_tied",
     "{\"rope_parameters\":\"-\",\"rope_theta\":10000.0,"
     "\"rope_scaling\":null,\"dtype\":\"-\",\"torch_dtype\":\"bfloat16\"}"},
    {"llama_gqa_tied", "{\"rope_parameters\":\"-\"}"},
    {"llama_gqa_tied",
     "{\"is_causal\":true,\"use_sliding_window\":false,\"pruned_heads\":{},"
     "\"logits_scaling\":1.0,\"rope_interleaved\":false}"},
    {"llama_mqa_untied_legacycfg",
     "{\"rope_theta\":\"-\",\"rope_parameters\":{\"rope_theta\":500000.0,"
     "\"rope_type\":\"default\"}}"},
    {"llama_rope_llama3",
     "{\"rope_theta\":\"-\",\"rope_scaling\":\"-\",\"rope_parameters\":{"
     "\"rope_theta\":10000.0,\"factor\":8.0,\"high_freq_factor\":4.0,"
     "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":32,"
     "\"rope_type\":\"llama3\"}}"},
    {"mistral_swa8",
     "{\"rope_parameters\":\"-\",\"rope_theta\":10000,\"head_dim\":\"-\"}"},
    {"qwen2",
     "{\"layer_types\":\"-\",\"rope_parameters\":\"-\",\"rope_theta\":1e6}"},
    {"qwen2", "{\"layer_types\":\"-\",\"sliding_window\":4096}"},
    {"phi3", "{\"rope_parameters\":\"-\",\"rope_theta\":10000.0,\"rope_"
             "scaling\":null}"},
    {"gemma2",
     "{\"layer_types\":\"-\",\"rope_parameters\":\"-\",\"hidden_act\":"
     "\"gelu_pytorch_tanh\",\"attn_logit_softcapping\":\"-\","
     "\"cache_implementation\":\"hybrid\",\"tie_word_embeddings\":\"-\"}"},
    {"gemma3_text",
     "{\"layer_types\":\"-\",\"rope_parameters\":\"-\",\"rope_theta\":1e6,"
     "\"rope_local_base_freq\":1e4,\"rope_scaling\":null,"
     "\"_sliding_window_pattern\":\"-\",\"sliding_window_pattern\":6}"},
    {"gpt2", "{\"n_inner\":192,\"activation_function\":\"-\",\"n_ctx\":64}"},
    {"gpt_neox_parallel",
     "{\"rope_parameters\":\"-\",\"rotary_pct\":0.25,\"rotary_emb_base\":10000,"
     "\"use_parallel_residual\":\"-\",\"attention_bias\":\"-\"}"},
    {"gpt_neox_sequential", "{\"rope_parameters\":\"-\",\"rotary_pct\":1.0}"},
};

START_TEST(old_and_new_styles_mean_the_same)
{
    struct kvr_model a, b;
    struct kvr_error err = {0};
    char path[512];

    make(same[_i].model, same[_i].change);
    snprintf(path, sizeof path, "%s/golden/tiny/%s", KVR_TEST_DATA,
             same[_i].model);
    must(kvr__model_init(&a, path, &err));
    must(kvr__model_init(&b, folder, &err));
    assert_same_model(&a, &b);
    ck_assert_str_eq(a.hash, b.hash);
    kvr__model_fini(&a);
    kvr__model_fini(&b);
}
END_TEST

/* Qwen2's window begins at a layer; a Mistral without a word has 4096. */
START_TEST(windows_follow_the_defaults)
{
    struct kvr_model model;
    struct kvr_error err = {0};

    make("qwen2", "{\"layer_types\":\"-\",\"use_sliding_window\":true,"
                  "\"sliding_window\":5,\"max_window_layers\":1}");
    must(kvr__model_init(&model, folder, &err));
    ck_assert_uint_eq(model.layers[0].span, 0);
    ck_assert_uint_eq(model.layers[1].span, 5);
    kvr__model_fini(&model);
    make("mistral_swa8", "{\"sliding_window\":\"-\"}");
    must(kvr__model_init(&model, folder, &err));
    ck_assert_uint_eq(model.layers[1].span, 4096);
    kvr__model_fini(&model);
    make("mistral_swa8", "{\"sliding_window\":null}");
    must(kvr__model_init(&model, folder, &err));
    ck_assert_uint_eq(model.layers[1].span, 0);
    kvr__model_fini(&model);
}
END_TEST

START_TEST(linear_scaling_slows_all_frequencies)
{
    struct kvr_model a, b;
    struct kvr_error err = {0};

    make("llama_rope_llama3", "{\"rope_scaling\":null}");
    must(kvr__model_init(&a, folder, &err));
    make("llama_rope_llama3",
         "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}}");
    must(kvr__model_init(&b, folder, &err));
    for (uint32_t j = 0; j < a.config.rope_dim / 2; j++)
        ck_assert(a.inv_freq[j] == 4 * b.inv_freq[j]);
    kvr__model_fini(&a);
    kvr__model_fini(&b);
}
END_TEST

/* Of 8 rotary dimensions and base 10000 the frequencies are 1, 0.1, 0.01 and
 * 0.001. In 16 tokens they turn 2.546 times and less: the first lies between
 * low 1 and high 4 and is mixed, the others are below and divided by 8. */
START_TEST(llama3_scaling_mixes_between_the_bounds)
{
    struct kvr_model model;
    struct kvr_error err = {0};
    const double mix = (16 / (2 * 3.14159265358979) - 1) / 3;

    make("llama_rope_llama3",
         "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
         "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
         "\"original_max_position_embeddings\":16}}");
    must(kvr__model_init(&model, folder, &err));
    ck_assert(fabs((double)model.inv_freq[0] - ((1 - mix) / 8 + mix)) < 1e-7);
    ck_assert(fabs((double)model.inv_freq[1] - 0.1 / 8) < 1e-9);
    ck_assert(fabs((double)model.inv_freq[3] - 0.001 / 8) < 1e-11);
    kvr__model_fini(&model);
}
END_TEST

/* Older checkpoints come from the bare model: "h.0..", with buffers. */
START_TEST(names_may_lack_the_prefix)
{
    uint8_t *bytes;
    size_t size;
    char path[512];
    struct golden_run a, b;
    struct kvr_error err = {0};
    static const int32_t ids[] = {3, 14, 15, 9, 26, 5};

    make("gpt2", "{}");
    snprintf(path, sizeof path, "%s/golden/tiny/gpt2/model.safetensors",
             KVR_TEST_DATA);
    must(kvr_file_read(&bytes, &size, path, 1 << 24, &err));
    /* the same length, so that the offsets stay: blanks outside the names */
    for (size_t i = 0; i + 13 < size; i++)
        if (memcmp(bytes + i, "\"transformer.", 13) == 0)
            memcpy(bytes + i, "            \"", 13);
    in_folder(path, "model.safetensors");
    unlink(path);
    write_file("model.safetensors", bytes, size);
    free(bytes);
    snprintf(path, sizeof path, "%s/golden/tiny/gpt2", KVR_TEST_DATA);
    golden_run_init(&a, path, 6, 6, 1);
    golden_run_init(&b, folder, 6, 6, 1);
    golden_feed(&a, ids, 6, 6);
    golden_feed(&b, ids, 6, 6);
    ck_assert(golden_max_diff(a.attention, b.attention, 2 * 4 * 6 * 6) == 0);
    golden_run_fini(&a);
    golden_run_fini(&b);
}
END_TEST

/* GPT-2 and OPT have no position beyond their table. */
START_TEST(positions_end_with_the_table)
{
    int32_t ids[66] = {0};
    struct golden_run run;
    struct kvr_error err = {0};

    make("opt", "{}");
    golden_run_init(&run, folder, 66, 66, 1);
    golden_feed(&run, ids, 64, 64);
    must_fail(kvr__decoder_feed(run.decoder, ids, 1, NULL, &err), KVR_ERR_LIMIT,
              "64 learned positions");
    golden_run_fini(&run);
}
END_TEST

#define COUNT(list) (int)(sizeof(list) / sizeof(list)[0])

int main(void)
{
    Suite *suite = suite_create("hf_config");
    TCase *tc = tcase_create("hf_config");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, what_cannot_be_applied_is_named, 0, COUNT(refused));
    tcase_add_test(tc, text_that_is_no_config_is_refused);
    tcase_add_loop_test(tc, old_and_new_styles_mean_the_same, 0, COUNT(same));
    tcase_add_test(tc, windows_follow_the_defaults);
    tcase_add_test(tc, linear_scaling_slows_all_frequencies);
    tcase_add_test(tc, llama3_scaling_mixes_between_the_bounds);
    tcase_add_test(tc, names_may_lack_the_prefix);
    tcase_add_test(tc, positions_end_with_the_table);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
