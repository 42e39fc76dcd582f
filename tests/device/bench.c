/* bench.c -- what recording costs on a device: one JSON line a figure.
 *
 * usage: kvr_device_bench FOLDER SHAPE TOKENS STEPS [COMPUTE [MODEL]]
 *
 * SHAPE: 7b or tiny: a llama with random weights, of which only a header lies
 * in FOLDER (the file is a hole): every matrix is filled from one block of
 * random numbers on its way to the device. Or a MODEL file: SHAPE is ignored.
 * Decodes STEPS tokens after TOKENS - STEPS, without recording, with rows,
 * with queries and keys; the CPU's recorded prefill is measured on a part.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "capture_private.h"

#include "kvr_file.h"
#include "kvr_memory.h"
#include "kvr_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH = 512, CPU_TOKENS = 256, BF16_ONE = 0x3f80 };

struct device_bench {
    const char *folder;
    char model[PATH], ids[PATH], out[PATH];
    uint32_t n_token, n_step;
    enum kvr_capture_compute compute;
    bool made;  /* the model's weights are made here */
    int failed; /* figures below their bound */
};

struct device_shape {
    const char *name;
    uint32_t n_layer, n_head, n_kv_head, hidden, n_ff, n_vocab;
};
static const struct device_shape shapes[] = {
    {"7b", 32, 32, 32, 4096, 11008, 32000},
    {"tiny", 2, 4, 2, 64, 96, 160},
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void give_up(const char *what, const struct kvr_error *err)
{
    fprintf(stderr, "kvr_device_bench: %s: %s\n", what,
            err != NULL ? err->message : "failed");
    exit(4);
}

static void must(enum kvr_status status, const char *what,
                 const struct kvr_error *err)
{
    if (status != KVR_OK)
        give_up(what, err);
}

/* ---- the model ---- */

struct header {
    char text[1 << 17];
    size_t n;
    uint64_t offset;
};

static void add_tensor(struct header *h, const char *name, int layer,
                       uint32_t rows, uint32_t cols)
{
    char full[128], dims[32];
    const uint64_t size = (uint64_t)rows * (cols > 0 ? cols : 1) * 2;

    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    if (cols > 0)
        snprintf(dims, sizeof dims, "%u,%u", rows, cols);
    else
        snprintf(dims, sizeof dims, "%u", rows);
    h->n += (size_t)snprintf(
        h->text + h->n, sizeof h->text - h->n,
        "%s\"%s.weight\":{\"dtype\":\"BF16\",\"shape\":[%s],"
        "\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
        h->n > 1 ? "," : "", full, dims, h->offset, h->offset + size);
    h->offset += size;
}

static void write_config(const struct device_bench *b,
                         const struct device_shape *s)
{
    char path[PATH];

    snprintf(path, sizeof path, "%s/config.json", b->folder);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        give_up(path, NULL);
    fprintf(file,
            "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":"
            "\"llama\",\"hidden_size\":%u,\"intermediate_size\":%u,"
            "\"num_hidden_layers\":%u,\"num_attention_heads\":%u,"
            "\"num_key_value_heads\":%u,\"vocab_size\":%u,"
            "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,"
            "\"rope_theta\":10000.0,\"hidden_act\":\"silu\","
            "\"tie_word_embeddings\":false}\n",
            s->hidden, s->n_ff, s->n_layer, s->n_head, s->n_kv_head,
            s->n_vocab);
    fclose(file);
}

/* config.json, and a safetensors file that is a header and a hole. */
static void make_model(struct device_bench *b, const struct device_shape *s)
{
    static struct header h;
    const uint32_t kv = s->hidden / s->n_head * s->n_kv_head;

    h = (struct header){.text = "{", .n = 1};
    add_tensor(&h, "model.embed_tokens", -1, s->n_vocab, s->hidden);
    for (int l = 0; l < (int)s->n_layer; l++) {
        add_tensor(&h, "input_layernorm", l, s->hidden, 0);
        add_tensor(&h, "self_attn.q_proj", l, s->hidden, s->hidden);
        add_tensor(&h, "self_attn.k_proj", l, kv, s->hidden);
        add_tensor(&h, "self_attn.v_proj", l, kv, s->hidden);
        add_tensor(&h, "self_attn.o_proj", l, s->hidden, s->hidden);
        add_tensor(&h, "post_attention_layernorm", l, s->hidden, 0);
        add_tensor(&h, "mlp.gate_proj", l, s->n_ff, s->hidden);
        add_tensor(&h, "mlp.up_proj", l, s->n_ff, s->hidden);
        add_tensor(&h, "mlp.down_proj", l, s->hidden, s->n_ff);
    }
    add_tensor(&h, "model.norm", -1, s->hidden, 0);
    add_tensor(&h, "lm_head", -1, s->n_vocab, s->hidden);
    h.text[h.n++] = '}';
    write_config(b, s);
    snprintf(b->model, sizeof b->model, "%s/model.safetensors", b->folder);
    FILE *file = fopen(b->model, "w");
    const uint64_t size = h.n;
    if (file == NULL || fwrite(&size, 8, 1, file) != 1 ||
        fwrite(h.text, 1, h.n, file) != h.n || fflush(file) != 0 ||
        ftruncate(fileno(file), (off_t)(8 + h.n + h.offset)) != 0)
        give_up(b->model, NULL);
    fclose(file);
    b->made = true;
}

/* The back end in use, and what its weights are filled from: random numbers
 * for matrices, ones for vectors. */
static const struct kvr_backend *real;
static struct device_block {
    uint16_t *values;
    uint64_t n;
} noise, ones;

/* +-2^-6 .. 2^-5, of the size that trained weights have; or 1. */
static enum kvr_status fill(struct device_block *block, uint64_t n, bool random,
                            struct kvr_error *err)
{
    uint64_t state = 0x9e3779b97f4a7c15u;

    if (n <= block->n)
        return KVR_OK;
    free(block->values);
    block->values = kvr_calloc((size_t)n, sizeof *block->values);
    block->n = block->values != NULL ? n : 0;
    if (block->values == NULL)
        return kvr_no_memory(err, "random weights", (size_t)n * 2);
    for (uint64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        block->values[i] =
            random ? (uint16_t)(0x3c80 | (state >> 40 & 0x807f)) : BF16_ONE;
    }
    return KVR_OK;
}

/* CUDA's `weight` has copied what it was given when it returns. */
static enum kvr_status filled_weight(struct kvr_tensor **out,
                                     struct kvr_device *device,
                                     const struct kvr_weight *weight,
                                     struct kvr_error *err)
{
    struct kvr_weight filled = *weight;
    struct device_block *block = weight->rows == 1 ? &ones : &noise;
    const enum kvr_status status =
        fill(block, weight->rows * weight->cols, block == &noise, err);

    if (status != KVR_OK)
        return status;
    filled.data = (const uint8_t *)block->values;
    return real->weight(out, device, &filled, err);
}

/* ---- the figures ---- */

static void figure(struct device_bench *b, const char *name, double value,
                   const char *unit, double bound)
{
    const bool judged = bound > 0, pass = value >= bound;

    printf("{\"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", "
           "\"bound\": ",
           name, value, unit);
    if (judged)
        printf("%.6g, \"pass\": %s}\n", bound, pass ? "true" : "false");
    else
        printf("null, \"pass\": null}\n");
    fflush(stdout);
    b->failed += judged && !pass;
}

static struct kvr_capture *open_capture(const struct device_bench *b,
                                        enum kvr_capture_backend backend,
                                        enum kvr_capture_store store,
                                        uint32_t n_given, uint32_t n_step)
{
    struct kvr_capture_options o = {
        .model = b->model,
        .output = b->out,
        .ids_file = b->ids,
        .n_generate = n_step,
        .ignore_eos = true,
        .backend = backend,
        .compute =
            backend == KVR_CAPTURE_CPU ? KVR_CAPTURE_COMPUTE_AUTO : b->compute,
        .store = store,
        .force = true,
    };
    struct kvr_capture *c;
    struct kvr_error err = {0};
    FILE *ids = fopen(b->ids, "w");

    if (ids == NULL)
        give_up(b->ids, NULL);
    for (uint32_t i = 0; i < n_given; i++)
        fprintf(ids, "%u ", (i * 37 + i * i) % 151);
    fclose(ids);
    must(kvr_capture_new(&c, &o, &err), "the capture", &err);
    return c;
}

/* The table with weights of our own, where the model is made here. */
static void use_noise(const struct device_bench *b, struct kvr_capture *c,
                      struct kvr_backend *table)
{
    real = c->backend;
    *table = *real;
    if (!b->made || strcmp(real->name, "cpu") == 0)
        return; /* the CPU reads weights where they lie: zeros cost the same */
    table->weight = filled_weight;
    c->backend = table;
}

/* Decodes without an observer: tokens per second of prefill and of steps. */
static void run_bare(struct device_bench *b, double *prefill, double *steps)
{
    const uint32_t n_given = b->n_token - b->n_step;
    struct kvr_capture *c = open_capture(
        b, KVR_CAPTURE_CUDA, KVR_CAPTURE_ATTENTION, n_given, b->n_step);
    struct kvr_decoder_options options = kvr__capture_decoder(c);
    float *logits = kvr_calloc(c->model.config.n_vocab, sizeof *logits);
    struct kvr_backend table;
    struct kvr_decoder *d;
    struct kvr_error err = {0};
    uint32_t row = 0;

    use_noise(b, c, &table);
    must(kvr__decoder_new(&d, &c->model, c->backend, &options, &err),
         "the decoder", &err);
    double start = seconds();
    for (uint32_t i = 0; i < n_given; i += row) {
        row = n_given - i < c->prompt_chunk ? n_given - i : c->prompt_chunk;
        must(kvr__decoder_feed(d, c->tokens.ids + i, row, NULL, &err),
             "prefill", &err);
    }
    must(kvr__decoder_logits(d, logits, row - 1, &err), "logits", &err);
    *prefill = n_given / (seconds() - start);
    start = seconds();
    for (uint32_t i = 0; i < b->n_step; i++) {
        int32_t best = 0;
        for (uint32_t k = 1; k < c->model.config.n_vocab; k++)
            best = logits[k] > logits[best] ? (int32_t)k : best;
        must(kvr__decoder_feed(d, &best, 1, NULL, &err), "a step", &err);
        must(kvr__decoder_logits(d, logits, 0, &err), "logits", &err);
    }
    *steps = b->n_step / (seconds() - start);
    printf("{\"figure\": \"compute\", \"value\": \"%s\", \"backend\": \"%s\", "
           "\"why\": \"%s\"}\n",
           c->plan.compute, c->plan.backend, c->plan.backend_why);
    kvr__decoder_free(d);
    kvr_capture_free(c);
    free(logits);
}

struct rates {
    double prefill, steps, bytes;
};

static struct rates run_recorded(struct device_bench *b,
                                 enum kvr_capture_backend backend,
                                 enum kvr_capture_store store, uint32_t n_given,
                                 uint32_t n_step)
{
    struct kvr_capture *c = open_capture(b, backend, store, n_given, n_step);
    struct kvr_backend table;
    struct kvr_capture_result result;
    struct kvr_error err = {0};
    struct rates r = {0};

    use_noise(b, c, &table);
    must(kvr_capture_run(c, &result, NULL, NULL, &err), "the capture", &err);
    const struct kvr_config *m = &c->model.config;
    uint64_t bytes = 0;
    for (uint32_t t = n_given; t < n_given + n_step; t++)
        bytes += (uint64_t)m->n_layer *
                 (store == KVR_CAPTURE_QK
                      ? 4ull * m->key_dim * (m->n_head + m->n_kv_head)
                      : 2ull * m->n_head * (t + 1));
    r.prefill = n_given / result.prompt_seconds;
    if (n_step > 0) {
        r.steps = n_step / result.decode_seconds;
        r.bytes = (double)bytes / result.decode_seconds;
    }
    kvr_capture_free(c);
    unlink(b->out);
    return r;
}

static void measure(struct device_bench *b)
{
    const uint32_t n_given = b->n_token - b->n_step;
    const uint32_t on_cpu = n_given < CPU_TOKENS ? n_given : CPU_TOKENS;
    double prefill, steps;

    run_bare(b, &prefill, &steps);
    figure(b, "prefill, not recorded", prefill, "tokens/s", 0);
    figure(b, "decode, not recorded", steps, "tokens/s", 0);
    const struct rates qk =
        run_recorded(b, KVR_CAPTURE_CUDA, KVR_CAPTURE_QK, n_given, b->n_step);
    figure(b, "decode, queries and keys", qk.steps, "tokens/s", 0);
    figure(b, "prefill, queries and keys", qk.prefill, "tokens/s", 0);
    figure(b, "queries and keys to the host", qk.bytes, "bytes/s", 0);
    figure(b, "decode, queries and keys / not recorded", qk.steps / steps, "",
           0.9);
    const struct rates rows = run_recorded(
        b, KVR_CAPTURE_CUDA, KVR_CAPTURE_ATTENTION, n_given, b->n_step);
    figure(b, "decode, attention", rows.steps, "tokens/s", 0);
    figure(b, "prefill, attention", rows.prefill, "tokens/s", 0);
    figure(b, "attention to the host", rows.bytes, "bytes/s", 0);
    figure(b, "decode, attention / not recorded", rows.steps / steps, "", 0.6);
    const struct rates cpu =
        run_recorded(b, KVR_CAPTURE_CPU, KVR_CAPTURE_ATTENTION, on_cpu, 0);
    figure(b, "prefill, attention, cpu", cpu.prefill, "tokens/s", 0);
    figure(b, "prefill, attention / cpu", rows.prefill / cpu.prefill, "", 5);
}

static enum kvr_capture_compute compute_named(const char *name)
{
    return strcmp(name, "f32") == 0    ? KVR_CAPTURE_COMPUTE_F32
           : strcmp(name, "f16") == 0  ? KVR_CAPTURE_COMPUTE_F16
           : strcmp(name, "bf16") == 0 ? KVR_CAPTURE_COMPUTE_BF16
                                       : KVR_CAPTURE_COMPUTE_AUTO;
}

int main(int argc, char **argv)
{
    struct device_bench b = {0};
    const struct device_shape *shape = NULL;

    for (size_t i = 0; argc > 2 && i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(argv[2], shapes[i].name) == 0)
            shape = &shapes[i];
    if (argc < 5 || argc > 7 || shape == NULL) {
        fprintf(stderr,
                "usage: %s FOLDER 7b|tiny TOKENS STEPS [COMPUTE "
                "[MODEL]]\n",
                argv[0]);
        return 2;
    }
    b.folder = argv[1];
    b.n_token = (uint32_t)strtoul(argv[3], NULL, 10);
    b.n_step = (uint32_t)strtoul(argv[4], NULL, 10);
    b.compute = compute_named(argc > 5 ? argv[5] : "auto");
    if (b.n_step == 0 || b.n_step >= b.n_token) {
        fprintf(stderr, "expected 0 < STEPS < TOKENS\n");
        return 2;
    }
    snprintf(b.ids, sizeof b.ids, "%s/ids", b.folder);
    snprintf(b.out, sizeof b.out, "%s/bench.kvt.h5", b.folder);
    if (argc > 6)
        snprintf(b.model, sizeof b.model, "%s", argv[6]);
    else
        make_model(&b, shape);
    measure(&b);
    free(noise.values);
    free(ones.values);
    return b.failed > 0 ? 1 : 0;
}
