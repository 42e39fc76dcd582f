/* check_gguf_families.c -- the same weights as GGUF and as safetensors give
 * the same rows.
 *
 * There are no golden GGUF files of these families. Each is written here from
 * a golden folder, as the format's converter does it: names, sizes in the
 * metadata, norms plus one, matrices [out, in], fused rows one part after
 * another.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "quant.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- names ---- */

enum change { KEEP, PLUS_ONE, TURN, REGROUP };

struct tensor_name {
    const char *hf, *gguf;
    enum change change;
};

static const struct tensor_name plain[] = {
    {"model.embed_tokens.weight", "token_embd.weight", KEEP},
    {"model.norm.weight", "output_norm.weight", KEEP},
    {"lm_head.weight", "output.weight", KEEP},
    {"input_layernorm.weight", "attn_norm.weight", KEEP},
    {"post_attention_layernorm.weight", "ffn_norm.weight", KEEP},
    {"self_attn.q_proj.weight", "attn_q.weight", KEEP},
    {"self_attn.k_proj.weight", "attn_k.weight", KEEP},
    {"self_attn.v_proj.weight", "attn_v.weight", KEEP},
    {"self_attn.q_proj.bias", "attn_q.bias", KEEP},
    {"self_attn.k_proj.bias", "attn_k.bias", KEEP},
    {"self_attn.v_proj.bias", "attn_v.bias", KEEP},
    {"self_attn.o_proj.weight", "attn_output.weight", KEEP},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", KEEP},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", KEEP},
    {"self_attn.qkv_proj.weight", "attn_qkv.weight", KEEP},
    {"mlp.gate_proj.weight", "ffn_gate.weight", KEEP},
    {"mlp.up_proj.weight", "ffn_up.weight", KEEP},
    {"mlp.gate_up_proj.weight", "ffn_up.weight", KEEP},
    {"mlp.down_proj.weight", "ffn_down.weight", KEEP},
    {NULL, NULL, KEEP},
};

static const struct tensor_name gemma[] = {
    {"model.embed_tokens.weight", "token_embd.weight", KEEP},
    {"model.norm.weight", "output_norm.weight", PLUS_ONE},
    {"input_layernorm.weight", "attn_norm.weight", PLUS_ONE},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", PLUS_ONE},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", PLUS_ONE},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", PLUS_ONE},
    {"self_attn.q_proj.weight", "attn_q.weight", KEEP},
    {"self_attn.k_proj.weight", "attn_k.weight", KEEP},
    {"self_attn.v_proj.weight", "attn_v.weight", KEEP},
    {"self_attn.o_proj.weight", "attn_output.weight", KEEP},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", PLUS_ONE},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", PLUS_ONE},
    {"mlp.gate_proj.weight", "ffn_gate.weight", KEEP},
    {"mlp.up_proj.weight", "ffn_up.weight", KEEP},
    {"mlp.down_proj.weight", "ffn_down.weight", KEEP},
    {NULL, NULL, KEEP},
};

static const struct tensor_name gpt2[] = {
    {"transformer.wte.weight", "token_embd.weight", KEEP},
    {"transformer.wpe.weight", "position_embd.weight", KEEP},
    {"transformer.ln_f.weight", "output_norm.weight", KEEP},
    {"transformer.ln_f.bias", "output_norm.bias", KEEP},
    {"ln_1.weight", "attn_norm.weight", KEEP},
    {"ln_1.bias", "attn_norm.bias", KEEP},
    {"ln_2.weight", "ffn_norm.weight", KEEP},
    {"ln_2.bias", "ffn_norm.bias", KEEP},
    {"attn.c_attn.weight", "attn_qkv.weight", TURN},
    {"attn.c_attn.bias", "attn_qkv.bias", KEEP},
    {"attn.c_proj.weight", "attn_output.weight", TURN},
    {"attn.c_proj.bias", "attn_output.bias", KEEP},
    {"mlp.c_fc.weight", "ffn_up.weight", TURN},
    {"mlp.c_fc.bias", "ffn_up.bias", KEEP},
    {"mlp.c_proj.weight", "ffn_down.weight", TURN},
    {"mlp.c_proj.bias", "ffn_down.bias", KEEP},
    {NULL, NULL, KEEP},
};

static const struct tensor_name neox[] = {
    {"gpt_neox.embed_in.weight", "token_embd.weight", KEEP},
    {"gpt_neox.final_layer_norm.weight", "output_norm.weight", KEEP},
    {"gpt_neox.final_layer_norm.bias", "output_norm.bias", KEEP},
    {"embed_out.weight", "output.weight", KEEP},
    {"input_layernorm.weight", "attn_norm.weight", KEEP},
    {"input_layernorm.bias", "attn_norm.bias", KEEP},
    {"post_attention_layernorm.weight", "ffn_norm.weight", KEEP},
    {"post_attention_layernorm.bias", "ffn_norm.bias", KEEP},
    {"attention.query_key_value.weight", "attn_qkv.weight", REGROUP},
    {"attention.query_key_value.bias", "attn_qkv.bias", REGROUP},
    {"attention.dense.weight", "attn_output.weight", KEEP},
    {"attention.dense.bias", "attn_output.bias", KEEP},
    {"mlp.dense_h_to_4h.weight", "ffn_up.weight", KEEP},
    {"mlp.dense_h_to_4h.bias", "ffn_up.bias", KEEP},
    {"mlp.dense_4h_to_h.weight", "ffn_down.weight", KEEP},
    {"mlp.dense_4h_to_h.bias", "ffn_down.bias", KEEP},
    {NULL, NULL, KEEP},
};

static const struct {
    const char *folder, *architecture;
    const struct tensor_name *names;
} cases[] = {
    {"qwen2", "qwen2", plain},
    {"qwen3", "qwen3", plain},
    {"phi3", "phi3", plain},
    {"gemma2", "gemma2", gemma},
    {"gemma3_text", "gemma3", gemma},
    {"gpt2", "gpt2", gpt2},
    {"gpt_neox_parallel", "gptneox", neox},
    {"gpt_neox_sequential", "gptneox", neox},
};

/* ---- writing ---- */

struct made_bytes {
    uint8_t *at;
    size_t n, room;
};

static void put(struct made_bytes *b, const void *from, size_t n)
{
    ck_assert(kvr_grow((void **)&b->at, &b->room, b->n + n, 1));
    memcpy(b->at + b->n, from, n);
    b->n += n;
}

static void put_u32(struct made_bytes *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static void put_u64(struct made_bytes *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static void put_text(struct made_bytes *b, const char *text)
{
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}

static void pad(struct made_bytes *b)
{
    static const uint8_t zeros[32];

    put(b, zeros, (32 - b->n % 32) % 32);
}

struct writer {
    const char *architecture;
    struct made_bytes values, entries, data;
    uint64_t n_values, n_tensors;
};

static void put_key(struct writer *w, const char *name, uint32_t type)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", w->architecture, name);
    put_text(&w->values, key);
    put_u32(&w->values, type);
    w->n_values++;
}

static void say_u32(struct writer *w, const char *name, uint32_t v)
{
    put_key(w, name, KVR_GGUF_U32);
    put_u32(&w->values, v);
}

static void say_f32(struct writer *w, const char *name, double v)
{
    const float narrow = (float)v;

    put_key(w, name, KVR_GGUF_F32);
    put(&w->values, &narrow, sizeof narrow);
}

static void say_sizes(struct writer *w, const struct kvr_model *model)
{
    const struct kvr_config *c = &model->config;

    put_text(&w->values, "general.architecture");
    put_u32(&w->values, KVR_GGUF_STRING);
    put_text(&w->values, w->architecture);
    w->n_values++;
    say_u32(w, "block_count", c->n_layer);
    say_u32(w, "embedding_length", c->hidden);
    say_u32(w, "feed_forward_length", c->n_ff);
    say_u32(w, "context_length", c->n_context);
    say_u32(w, "attention.head_count", c->n_head);
    if (model->family->norm == KVR_RMS_NORM) {
        say_u32(w, "attention.head_count_kv", c->n_kv_head);
        say_u32(w, "attention.key_length", c->key_dim);
        say_u32(w, "attention.value_length", c->value_dim);
        say_f32(w, "attention.layer_norm_rms_epsilon", c->norm_eps);
    } else {
        say_f32(w, "attention.layer_norm_epsilon", c->norm_eps);
    }
}

static void say_rest(struct writer *w, const struct kvr_model *model)
{
    const struct kvr_config *c = &model->config;
    const uint8_t parallel = c->parallel;

    if (c->rope.base > 0) {
        say_u32(w, "rope.dimension_count", c->rope_dim);
        say_f32(w, "rope.freq_base", c->rope.base);
    }
    if (strcmp(w->architecture, "phi3") == 0)
        say_u32(w, "attention.sliding_window", 0); /* as converted: none */
    else if (c->window > 0 && c->use_window)
        say_u32(w, "attention.sliding_window", c->window);
    if (c->softcap > 0)
        say_f32(w, "attn_logit_softcapping", c->softcap);
    if (c->logit_softcap > 0)
        say_f32(w, "final_logit_softcapping", c->logit_softcap);
    if (strcmp(w->architecture, "gptneox") == 0) {
        put_key(w, "use_parallel_residual", KVR_GGUF_BOOL);
        put(&w->values, &parallel, 1);
    }
}

/* "model.layers.3.mlp.up_proj.weight" to "blk.3.ffn_up.weight" */
static const struct tensor_name *
translate(char out[128], const struct tensor_name *names, const char *hf)
{
    const char *layers = strstr(hf, "layers."), *h = strstr(hf, ".h.");
    const char *at = layers != NULL ? layers + 7 : h != NULL ? h + 3 : NULL;
    const char *own = hf;
    char *end = NULL;

    if (at != NULL) {
        snprintf(out, 128, "blk.%lu.", strtoul(at, &end, 10));
        own = end + 1;
    } else {
        out[0] = '\0';
    }
    for (; names->hf != NULL; names++)
        if (strcmp(names->hf, own) == 0) {
            const size_t used = strlen(out);
            snprintf(out + used, 128 - used, "%s", names->gguf);
            return names;
        }
    ck_abort_msg("no name for %s", hf);
    return NULL;
}

/* Values in the order of the GGUF file. */
static void rearrange(float *out, const float *in, uint64_t rows, uint64_t cols,
                      enum change change, const struct kvr_config *c)
{
    /* a bias that is regrouped is a column */
    const uint64_t n = change == REGROUP && rows == 1 ? cols : rows;
    const uint64_t width = rows * cols / n;

    for (uint64_t r = 0; r < n; r++)
        for (uint64_t k = 0; k < width; k++) {
            const float v = in[r * width + k];
            const uint64_t part = r / c->key_dim % 3;
            const uint64_t head = r / c->key_dim / 3;
            if (change == TURN)
                out[k * n + r] = v;
            else if (change == REGROUP)
                out[((part * c->n_head + head) * c->key_dim + r % c->key_dim) *
                        width +
                    k] = v;
            else
                out[r * width + k] = change == PLUS_ONE ? v + 1 : v;
        }
}

static void add_tensor(struct writer *w, const char *name, uint64_t rows,
                       uint64_t cols, const float *values)
{
    put_text(&w->entries, name);
    put_u32(&w->entries, rows > 1 ? 2 : 1);
    put_u64(&w->entries, cols);
    if (rows > 1)
        put_u64(&w->entries, rows);
    put_u32(&w->entries, KVR_QUANT_F32);
    put_u64(&w->entries, w->data.n);
    put(&w->data, values, rows * cols * sizeof *values);
    pad(&w->data);
    w->n_tensors++;
}

static void add_tensors(struct writer *w, const struct kvr_model *model,
                        const struct tensor_name *names, const char *without)
{
    for (size_t i = 0; i < model->n_stored; i++) {
        const struct kvr_stored *t = &model->stored[i];
        char hf[256], name[128];
        snprintf(hf, sizeof hf, "%.*s", (int)t->name.size, t->name.bytes);
        const struct tensor_name *own = translate(name, names, hf);
        const bool turned = own->change == TURN;
        float *values = kvr_calloc(t->rows * t->cols, sizeof *values);
        if (without != NULL && strcmp(name, without) == 0) {
            free(values);
            continue;
        }
        float *in = kvr_calloc(t->rows * t->cols, sizeof *in);
        memcpy(in, t->data, (size_t)t->size);
        rearrange(values, in, t->rows, t->cols, own->change, &model->config);
        add_tensor(w, name, turned ? t->cols : t->rows,
                   turned ? t->rows : t->cols, values);
        free(in);
        free(values);
    }
}

static void finish(struct writer *w, const char *path)
{
    struct made_bytes all = {0};
    struct kvr_error err = {0};

    put(&all, "GGUF", 4);
    put_u32(&all, 3);
    put_u64(&all, w->n_tensors);
    put_u64(&all, w->n_values);
    put(&all, w->values.at, w->values.n);
    put(&all, w->entries.at, w->entries.n);
    pad(&all);
    put(&all, w->data.at, w->data.n);
    must(kvr_file_write(path, all.at, all.n, true, &err));
    free(all.at);
    free(w->values.at);
    free(w->entries.at);
    free(w->data.at);
}

/* ---- the tests ---- */

static char folder[64], gguf_path[128], hf_path[512];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kvr-families-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(gguf_path, sizeof gguf_path, "%s/model.gguf", folder);
}

static void teardown(void)
{
    char path[128];

    unlink(gguf_path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    rmdir(folder);
}

/* GGUF files of Gemma 2 do not say the query scalar: it is that of the size of
 * a head. The golden folder has another one, so its config is changed. */
static void choose_folder(const char *name)
{
    static const char was[] = "\"query_pre_attn_scalar\": 24";
    char path[600], to[128];
    uint8_t *text;
    size_t size;
    struct kvr_error err = {0};

    snprintf(hf_path, sizeof hf_path, "%s/golden/tiny/%s", KVR_TEST_DATA, name);
    if (strcmp(name, "gemma2") != 0)
        return;
    snprintf(path, sizeof path, "%s/config.json", hf_path);
    must(kvr_file_read(&text, &size, path, 1 << 20, &err));
    char *at = strstr((char *)text, was);
    ck_assert_ptr_nonnull(at);
    memcpy(at + sizeof was - 3, "16", 2);
    snprintf(to, sizeof to, "%s/config.json", folder);
    must(kvr_file_write(to, text, size, true, &err));
    free(text);
    snprintf(path, sizeof path, "%s/model.safetensors", hf_path);
    snprintf(to, sizeof to, "%s/model.safetensors", folder);
    ck_assert_int_eq(symlink(path, to), 0);
    snprintf(hf_path, sizeof hf_path, "%s", folder);
}

static void convert(int i, const char *without, const char *with)
{
    struct writer w = {.architecture = cases[i].architecture};
    struct kvr_model model;
    struct kvr_error err = {0};
    static const float ones[4] = {1, 1, 1, 1};

    choose_folder(cases[i].folder);
    must(kvr__model_init(&model, hf_path, &err));
    say_sizes(&w, &model);
    say_rest(&w, &model);
    add_tensors(&w, &model, cases[i].names, without);
    if (with != NULL)
        add_tensor(&w, with, 1, 4, ones);
    finish(&w, gguf_path);
    kvr__model_fini(&model);
}

enum { N = 24 };

START_TEST(both_formats_give_the_same_rows)
{
    struct golden_run hf, gguf;
    struct kvr_error err = {0};
    int32_t ids[N];
    float a[97], b[97];

    convert(_i, NULL, NULL);
    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + 11) % 97;
    golden_run_init(&hf, hf_path, N, N, 1);
    golden_run_init(&gguf, gguf_path, N, N, 1);
    golden_feed(&hf, ids, N, N);
    golden_feed(&gguf, ids, N, N);
    const struct kvr_config *c = &gguf.model.config;
    ck_assert_uint_eq(c->n_vocab, 97);
    ck_assert_uint_eq(c->n_layer, hf.model.config.n_layer);
    const double diff = golden_max_diff(hf.attention, gguf.attention,
                                        (size_t)c->n_layer * c->n_head * N * N);
    ck_assert_msg(diff <= 2e-6, "%s: rows differ by %g", cases[_i].folder,
                  diff);
    must(kvr__decoder_logits(hf.decoder, a, N - 1, &err));
    must(kvr__decoder_logits(gguf.decoder, b, N - 1, &err));
    ck_assert(golden_max_diff(a, b, 97) <= 1e-5);
    for (uint32_t l = 0; l < c->n_layer; l++)
        ck_assert_uint_eq(hf.model.layers[l].span, gguf.model.layers[l].span);
    golden_run_fini(&hf);
    golden_run_fini(&gguf);
}
END_TEST

/* Biases that a family always has are not optional; what a table lacks is
 * named. */
START_TEST(missing_and_unknown_tensors_are_named)
{
    static const struct {
        int model;
        const char *without, *with;
        enum kvr_status status;
        const char *words;
    } odd[] = {
        {0, "blk.0.attn_q.bias", NULL, KVR_ERR_INPUT, "blk.0.attn_q.bias"},
        {4, "blk.2.attn_q_norm.weight", NULL, KVR_ERR_INPUT, "attn_q_norm"},
        {6, "blk.1.attn_qkv.bias", NULL, KVR_ERR_INPUT, "attn_qkv.bias"},
        {2, NULL, "rope_factors_long.weight", KVR_ERR_UNSUPPORTED,
         "rope_factors_long.weight"},
        {1, NULL, "blk.0.attn_sinks.weight", KVR_ERR_UNSUPPORTED, "attn_sinks"},
    };
    struct kvr_model model;
    struct kvr_error err = {0};

    convert(odd[_i].model, odd[_i].without, odd[_i].with);
    must_fail(kvr__model_init(&model, gguf_path, &err), odd[_i].status,
              odd[_i].words);
    kvr__model_fini(&model);
}
END_TEST

#define COUNT(list) (int)(sizeof(list) / sizeof(list)[0])

int main(void)
{
    Suite *suite = suite_create("gguf_families");
    TCase *tc = tcase_create("gguf_families");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, both_formats_give_the_same_rows, 0, COUNT(cases));
    tcase_add_loop_test(tc, missing_and_unknown_tensors_are_named, 0, 5);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
