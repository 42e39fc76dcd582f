/* capture.c -- the plan of a capture: model, prompt, selection, sizes.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "capture_private.h"

#include "kvr_blas.h"
#include "kvr_file.h"
#include "kvr_log.h"
#include "kvr_memory.h"
#include "kvr_parallel.h"
#include "kvr_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* PROGRAM_BYTES: the program itself, with its libraries. */
enum { DEFAULT_CHUNK = 256, PROGRAM_BYTES = 32 << 20 };

/* Places of the wanted ones, in order; returns how many. */
static uint32_t number(uint32_t *slots, const bool *wanted, uint32_t n)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++)
        if (wanted[i])
            slots[i] = count++;
    return count;
}

static enum kvr_status check_groups(const struct kvr_capture *c,
                                    struct kvr_error *err)
{
    const uint32_t group = c->model.config.n_head / c->model.config.n_kv_head;

    for (uint32_t h = 0; h < c->model.config.n_head; h++)
        if (c->head_wanted[h] != c->head_wanted[h / group * group])
            return kvr_fail(err, KVR_ERR_USAGE,
                            "--heads: query heads %" PRIu32 " to %" PRIu32
                            " share the keys of KV head %" PRIu32
                            " and are stored together or not at all",
                            h / group * group, h / group * group + group - 1,
                            h / group);
    return KVR_OK;
}

static enum kvr_status select_parts(struct kvr_capture *c,
                                    struct kvr_error *err)
{
    const struct kvr_config *m = &c->model.config;
    enum kvr_status status;

    if ((status = kvr_list_marks(&c->layer_wanted, m->n_layer,
                                 c->options.layers, "layer", err)) != KVR_OK ||
        (status = kvr_list_marks(&c->head_wanted, m->n_head, c->options.heads,
                                 "head", err)) != KVR_OK ||
        (status = check_groups(c, err)) != KVR_OK)
        return status;
    c->layer_slot = kvr_calloc(m->n_layer, sizeof *c->layer_slot);
    c->head_slot = kvr_calloc(m->n_head, sizeof *c->head_slot);
    c->shapes = kvr_calloc(m->n_layer, sizeof *c->shapes);
    c->head_index = kvr_calloc(m->n_head, sizeof *c->head_index);
    if (c->layer_slot == NULL || c->head_slot == NULL || c->shapes == NULL ||
        c->head_index == NULL)
        return kvr_no_memory(err, "the selection", m->n_layer);
    c->plan.stored_layers = number(c->layer_slot, c->layer_wanted, m->n_layer);
    c->plan.stored_heads = number(c->head_slot, c->head_wanted, m->n_head);
    c->plan.stored_kv_heads = c->plan.stored_heads / (m->n_head / m->n_kv_head);
    for (uint32_t h = 0; h < m->n_head; h++)
        if (c->head_wanted[h])
            c->head_index[c->head_slot[h]] = h;
    return KVR_OK;
}

static enum kvr_status count_tokens(struct kvr_capture *c,
                                    struct kvr_error *err)
{
    const uint32_t given = (uint32_t)c->tokens.n;
    const uint32_t wanted = c->options.prompt_len;

    if (wanted > given)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--prompt-len %" PRIu32 ": only %" PRIu32
                        " tokens are given",
                        wanted, given);
    if (c->options.n_generate > (uint32_t)INT32_MAX - given)
        return kvr_fail(err, KVR_ERR_USAGE, "-n %" PRIu32 ": too many tokens",
                        c->options.n_generate);
    c->plan.n_given = given;
    c->plan.prompt_len = wanted > 0 ? wanted : given;
    c->plan.n_token_max = given + c->options.n_generate;
    if (c->model.model_file[KVR_POSITIONS] != NULL &&
        c->plan.n_token_max > c->model.config.n_context)
        return kvr_fail(
            err, KVR_ERR_USAGE,
            "%" PRIu32 " tokens, but %s has %" PRIu32 " learned positions",
            c->plan.n_token_max, c->options.model, c->model.config.n_context);
    if (c->model.config.n_context != 0 &&
        c->plan.n_token_max > c->model.config.n_context)
        kvr_log(KVR_LOG_WARNING,
                "%" PRIu32 " tokens, but %s was made for at most %" PRIu32
                ": positions beyond that were never trained",
                c->plan.n_token_max, c->options.model,
                c->model.config.n_context);
    return KVR_OK;
}

/* KVR_STORES_* of every layer. */
static uint32_t stores(const struct kvr_capture_options *o)
{
    uint32_t bits = 0;

    if (o->store != KVR_CAPTURE_QK)
        bits |= KVR_STORES_ATTENTION;
    if (o->store != KVR_CAPTURE_ATTENTION)
        bits |= KVR_STORES_QUERY | KVR_STORES_KEY;
    if (o->with & KVR_CAPTURE_VALUES)
        bits |= KVR_STORES_VALUE;
    return bits;
}

static void fill_shape(struct kvr_capture *c)
{
    const struct kvr_config *m = &c->model.config;
    struct kvr_trace_shape *s = &c->shape;

    for (uint32_t l = 0; l < m->n_layer; l++) {
        if (!c->layer_wanted[l])
            continue;
        c->shapes[c->layer_slot[l]] = (struct kvr_layer_shape){
            .layer = l,
            .n_head = c->plan.stored_heads,
            .n_kv_head = c->plan.stored_kv_heads,
            .key_dim = m->key_dim,
            .value_dim = m->value_dim,
            .mask =
                c->model.layers[l].span > 0 ? KVR_MASK_WINDOW : KVR_MASK_CAUSAL,
            .span = c->model.layers[l].span,
            .scale = m->attention_scale,
            .softcap = m->softcap,
            .kv_source = -1,
            .stores = stores(&c->options),
            .vector_dtype = {[KVR_QUERY] = c->options.dtype,
                             [KVR_KEY] = c->options.dtype,
                             [KVR_VALUE] = KVR_F16},
            .head_index = c->head_index,
        };
    }
    *s = (struct kvr_trace_shape){
        .n_layer = c->plan.stored_layers,
        .n_head = m->n_head,
        .n_kv_head = m->n_kv_head,
        .n_token = c->plan.n_token_max,
        .prompt_len = c->plan.prompt_len,
        .dtype = c->options.dtype,
        .source = KVR_SOURCE_CAPTURE,
        .n_vocab = c->options.with & KVR_CAPTURE_LOGITS ? m->n_vocab : 0,
        .round_bits = c->options.round_bits,
        .layers = c->shapes,
        .cache = "full",
        .writer = c->options.writer,
        .created = c->options.created,
        .options = c->options.command_line,
        .model_name = c->model.name,
        .architecture = kvr__family_name(c->model.family),
        .model_hash = c->model.hash,
        .quantisation = c->model.quantisation,
        .backend = c->backend->name,
        .compute = c->compute.text,
        .bos = c->bos,
    };
}

/* Open tiles of 64 rows in the writer, what it packs them into and keeps of
 * them; the last factor is measured (SmolLM2 at 1000 and 1334 tokens). */
static uint64_t writer_bytes(const struct kvr_capture *c)
{
    const struct kvr_config *m = &c->model.config;
    const struct kvr_capture_plan *plan = &c->plan;
    const uint64_t item = c->options.dtype == KVR_F32 ? 4 : 2;
    const uint64_t tile =
        (uint64_t)plan->stored_layers * KVR_TILE_ROWS * item * 5 / 2;
    uint64_t bytes = 0;

    if (c->options.store != KVR_CAPTURE_QK)
        bytes += tile * plan->stored_heads * plan->n_token_max;
    if (c->options.store != KVR_CAPTURE_ATTENTION)
        bytes +=
            tile * m->key_dim * (plan->stored_heads + plan->stored_kv_heads);
    if (c->options.with & KVR_CAPTURE_VALUES)
        bytes += tile * m->value_dim * plan->stored_kv_heads;
    if (c->options.with & KVR_CAPTURE_MLP)
        bytes += 24ull * plan->stored_layers * m->n_ff;
    if (c->options.with & KVR_CAPTURE_LOGITS)
        bytes += 3ull * KVR_TILE_ROWS * m->n_vocab * sizeof(float);
    /* arrays grow by doubling: lse, row_mass, value_out_norm1 and three of
     * the KV heads */
    return bytes + 2ull * plan->stored_layers * plan->n_token_max *
                       sizeof(float) *
                       (3 * plan->stored_heads + 3 * plan->stored_kv_heads);
}

struct kvr_decoder_options kvr__capture_decoder(const struct kvr_capture *c)
{
    /* f16 rows are rounded once, wherever; with fewer bits than that they are
     * rounded from f32 in one step, on the host */
    const bool halves =
        c->options.dtype == KVR_F16 && c->options.round_bits == 0;

    return (struct kvr_decoder_options){
        .max_tokens = c->plan.n_token_max,
        .max_rows = c->prompt_chunk,
        .threads = c->options.threads,
        .compute = c->compute.compute,
        .rows = halves ? KVR_ROWS_F16 : KVR_ROWS_F32,
    };
}

static enum kvr_status plan_compute(struct kvr_capture *c,
                                    struct kvr_error *err)
{
    c->compute.compute = (enum kvr_compute)c->options.compute;
    const struct kvr_decoder_options decoder = kvr__capture_decoder(c);
    const struct kvr_device_options device =
        kvr__decoder_device(&c->model, &decoder);

    return c->backend->plan(&c->compute, &device, err);
}

static void fill_plan(struct kvr_capture *c)
{
    struct kvr_decoder_options decoder = kvr__capture_decoder(c);
    decoder.threads = kvr_parallel_workers(UINT32_MAX, c->options.threads);
    struct kvr_capture_plan *plan = &c->plan;

    plan->model_name = c->model.name;
    plan->architecture = kvr__family_name(c->model.family);
    plan->quantisation = c->model.quantisation;
    plan->backend = c->backend->name;
    plan->backend_why = c->backend_why;
    plan->compute = c->compute.text;
    plan->device_bytes = c->compute.device_bytes;
    plan->bos = c->bos;
    plan->n_layer = c->model.config.n_layer;
    plan->n_head = c->model.config.n_head;
    plan->n_kv_head = c->model.config.n_kv_head;
    kvr_trace_estimate(&plan->raw_bytes, &plan->expected_bytes, &c->shape);
    plan->logits_bytes =
        (uint64_t)plan->n_token_max * c->shape.n_vocab * sizeof(float);
    /* The journal goes only when the trace is whole. What is generated, and
     * chunks that are no whole tiles, come to it as steps too. */
    plan->disk_bytes =
        2 * plan->expected_bytes +
        kvr_trace_step_bytes(&c->shape, c->prompt_chunk % KVR_TILE_ROWS == 0
                                            ? plan->n_given
                                            : 0);
    plan->disk_free = c->options.output != NULL
                          ? kvr_free_space(c->options.output)
                          : UINT64_MAX;
    const uint64_t products = strcmp(c->backend->name, "cpu") == 0
                                  ? kvr_blas_bytes(decoder.threads)
                                  : 0;
    plan->memory_bytes = PROGRAM_BYTES + products + c->model.weight_bytes +
                         kvr__weights_bytes(&c->model) +
                         kvr__decoder_bytes(&c->model, &decoder) +
                         writer_bytes(c);
}

static enum kvr_status check_options(const struct kvr_capture_options *o,
                                     struct kvr_error *err)
{
    if ((o->prompt != NULL) + (o->prompt_file != NULL) +
            (o->ids_file != NULL) !=
        1)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "capture: expected exactly one of -p, -f, --ids and "
                        "--text");
    if (o->chat != NULL && o->ids_file != NULL)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--chat is about text; --ids gives token ids");
    if (o->chat != NULL && o->no_special)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--chat puts special tokens around the message; not "
                        "together with --no-special");
    if (!(o->temperature >= 0) || !isfinite(o->temperature))
        return kvr_fail(err, KVR_ERR_USAGE, "--temp %g: expected 0 or more",
                        o->temperature);
    if (!(o->top_p >= 0 && o->top_p <= 1))
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--top-p %g: expected above 0 and at most 1", o->top_p);
    if (o->top_p > 0 && o->top_p < 1 && o->temperature == 0)
        return kvr_fail(err, KVR_ERR_USAGE, "--top-p needs --temp above 0");
    if (o->round_bits > 0 && o->dtype == KVR_F32)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--round-bits rounds f16, not --dtype f32");
    if (o->round_bits > 0 && o->store == KVR_CAPTURE_QK)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--round-bits rounds attention, and --store qk stores "
                        "none");
    return KVR_OK;
}

/* The tokenizer that was named, that of the model's folder, or that in the
 * model's file. */
static enum kvr_status open_tokenizer(struct kvr_capture *c,
                                      struct kvr_error *err)
{
    static const char name[] = "/tokenizer.json";

    if (c->options.tokenizer != NULL) {
        kvr_log(KVR_LOG_NOTE, "%s is the tokenizer, not the model's own",
                c->options.tokenizer);
        return kvr__tokenizer_from_json(&c->tokenizer, c->options.tokenizer,
                                        err);
    }
    if (c->model.gguf != NULL)
        return kvr__tokenizer_from_gguf(&c->tokenizer, c->model.gguf, err);
    const size_t n = strlen(c->model.folder);
    char *path = malloc(n + sizeof name);
    if (path == NULL)
        return kvr_no_memory(err, "a path", n);
    memcpy(path, c->model.folder, n);
    memcpy(path + n, name, sizeof name);
    enum kvr_status status =
        kvr_file_exists(path)
            ? kvr__tokenizer_from_json(&c->tokenizer, path, err)
            : kvr_fail(err, KVR_ERR_UNSUPPORTED,
                       "%s: has no tokenizer.json (--tokenizer names one, "
                       "--ids needs none)",
                       c->model.folder);
    free(path);
    return status;
}

static enum kvr_status open_model(struct kvr_capture *c, struct kvr_error *err)
{
    enum kvr_status status;

    if ((status = kvr__model_init(&c->model, c->options.model, err)) != KVR_OK)
        return status;
    status = open_tokenizer(c, err);
    if (c->options.ids_file != NULL &&
        (status == KVR_ERR_UNSUPPORTED || status == KVR_ERR_INPUT)) {
        kvr_log(KVR_LOG_NOTE, "the trace will have no text: %s",
                err != NULL ? err->message : "the tokenizer is not read");
        if (err != NULL)
            *err = (struct kvr_error){0};
        return KVR_OK;
    }
    if (status != KVR_OK)
        return status;
    if (c->tokenizer != NULL &&
        kvr__tokenizer_size(c->tokenizer) > c->model.config.n_vocab)
        return kvr_fail(
            err, KVR_ERR_INPUT,
            "%s: the tokenizer%s%s has %zu tokens, "
            "the embedding %" PRIu32,
            c->options.model, c->options.tokenizer != NULL ? " " : "",
            c->options.tokenizer != NULL ? c->options.tokenizer : "",
            kvr__tokenizer_size(c->tokenizer), c->model.config.n_vocab);
    return KVR_OK;
}

enum kvr_status kvr_capture_new(struct kvr_capture **out,
                                const struct kvr_capture_options *options,
                                struct kvr_error *err)
{
    struct kvr_capture *c = kvr_calloc(1, sizeof *c);
    enum kvr_status status;

    *out = NULL;
    if (c == NULL)
        return kvr_no_memory(err, "a capture", sizeof *c);
    c->options = *options;
    if ((status = check_options(options, err)) != KVR_OK ||
        (status = kvr__backend_choose(&c->backend, c->backend_why,
                                      (enum kvr_backend_choice)options->backend,
                                      err)) != KVR_OK ||
        (status = open_model(c, err)) != KVR_OK ||
        (status = select_parts(c, err)) != KVR_OK ||
        (status = kvr__capture_read_prompt(c, err)) != KVR_OK ||
        (status = count_tokens(c, err)) != KVR_OK) {
        kvr_capture_free(c);
        return status;
    }
    c->prompt_chunk =
        options->prompt_chunk > 0 ? options->prompt_chunk : DEFAULT_CHUNK;
    if (c->prompt_chunk > c->plan.n_token_max)
        c->prompt_chunk = c->plan.n_token_max;
    if ((status = plan_compute(c, err)) != KVR_OK) {
        kvr_capture_free(c);
        return status;
    }
    fill_shape(c);
    fill_plan(c);
    *out = c;
    return KVR_OK;
}

void kvr_capture_free(struct kvr_capture *c)
{
    if (c == NULL)
        return;
    kvr__tokenizer_free(c->tokenizer);
    kvr__model_fini(&c->model);
    free(c->tokens.ids);
    free(c->layer_wanted);
    free(c->head_wanted);
    free(c->layer_slot);
    free(c->head_slot);
    free(c->shapes);
    free(c->head_index);
    free(c);
}

const struct kvr_capture_plan *kvr_capture_plan(const struct kvr_capture *c)
{
    return &c->plan;
}

uint32_t kvr_capture_n_token(const struct kvr_capture *c)
{
    return (uint32_t)c->tokens.n;
}

/* The texts of the given tokens, one after another, are the text given: an
 * added BOS has none, and an added blank is not shown. */
struct kvr_capture_token kvr_capture_token(struct kvr_capture *c,
                                           uint32_t index)
{
    struct kvr_capture_token token = {.id = c->tokens.ids[index]};

    if (c->tokenizer == NULL)
        return token;
    const struct kvr_slice piece = kvr__tokenizer_piece(c->tokenizer, token.id);
    token.text = (const uint8_t *)piece.bytes;
    token.text_size = piece.size;
    token.class_of = kvr__tokenizer_class(c->tokenizer, token.id);
    if (index < c->first_text)
        token.text_size = 0;
    if (index == c->first_text && c->tokens.spaced && piece.size > 0) {
        token.text++;
        token.text_size--;
    }
    return token;
}
