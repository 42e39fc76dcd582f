/* import.c -- a dump's rows, checked one by one, into a writer.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import.h"

#include "h5_open.h"
#include "kvr_file.h"
#include "kvr_log.h"
#include "kvr_memory.h"
#include "shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct import {
    struct dump dump;
    const struct kvr_import_options *options;
    struct kvr_writer *writer; /* NULL: only check */
    struct pick pick;
    struct windows windows;
    uint32_t n_kv_head; /* of the model */
    uint32_t n_token;   /* without the padding */
    double *block;      /* [KVR_TILE_ROWS][n_row] */
    float *rows;        /* [KVR_TILE_ROWS][n_token] */
    float *sink;        /* [pick.n_head][n_token] of a layer */
    unsigned rounded;   /* ROUNDED_* of the rows so far */
    unsigned stated;    /* what the trace at hand says of that */
};

static enum kvr_status open_dump(struct dump *dump, const char *path,
                                 const struct kvr_import_options *options,
                                 struct kvr_error *err)
{
    static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    const size_t n = strlen(path);
    uint8_t first[sizeof magic] = {0};
    uint64_t size;
    int fd;

    *dump = (struct dump){.path = path};
    const enum kvr_status status = kvr__open_regular(&fd, &size, path, err);
    if (status != KVR_OK)
        return status;
    const bool is_npy = kvr_read_at(fd, first, sizeof first, 0) &&
                        memcmp(first, magic, sizeof magic) == 0;
    close(fd);
    if (is_npy || (n > 4 && strcmp(path + n - 4, ".npy") == 0))
        return kvr__dump_open_npy(dump, options, err);
    return kvr__dump_open_h5(dump, options, err);
}

static void close_dump(struct dump *dump)
{
    if (dump->close != NULL)
        dump->close(dump);
    free(dump->spans);
    dump->spans = NULL;
    free(dump->model);
    dump->model = NULL;
}

/* What the trace says of its numbers; NULL: nothing. */
static const char *said_of_rows(const struct import *im, unsigned rounded)
{
    static const char *const said[] = {
        NULL, "rows of float16 numbers", "rows of bfloat16 numbers",
        "rows of bfloat16 and of float16 numbers"};

    if (im->options->renormalise)
        return "rows divided by their sums";
    return said[rounded == ROUNDED_EITHER
                    ? ROUNDED_BRAIN
                    : rounded & (ROUNDED_HALF | ROUNDED_BRAIN)];
}

static bool is_as_stated(const struct import *im)
{
    return said_of_rows(im, im->rounded) == said_of_rows(im, im->stated);
}

/* One row, its padding cut off, as floats. */
static enum kvr_status take_row(struct import *im,
                                const struct row_check *check, uint32_t row,
                                const double *weight, float *out, float *sink,
                                struct kvr_error *err)
{
    const uint32_t pad = im->options->pad;
    double sum;

    const enum kvr_status status =
        kvr__check_row(check, row, weight, &sum, err);
    if (status != KVR_OK)
        return status;
    const double whole = im->options->renormalise ? sum : 1;
    for (uint32_t i = 0; i < im->n_token; i++)
        out[i] = (float)(weight[pad + i] / whole);
    *sink = sum < 1 ? (float)(1 - sum) : 0;
    return KVR_OK;
}

/* Head and layer by their places among those picked. */
static enum kvr_status take_head(struct import *im, uint32_t layer,
                                 uint32_t head, struct kvr_error *err)
{
    const struct row_check check = {.dump = &im->dump,
                                    .options = im->options,
                                    .layer = im->pick.layer[layer],
                                    .head = im->pick.head[head],
                                    .span = im->windows.span[layer],
                                    .rounded = &im->rounded};
    const uint32_t pad = im->options->pad;
    float *sink = im->sink + (size_t)head * im->n_token;
    enum kvr_status status = KVR_OK;

    for (uint32_t first = 0; status == KVR_OK && first < im->n_token;
         first += KVR_TILE_ROWS) {
        const uint32_t left = im->n_token - first;
        const uint32_t n = left < KVR_TILE_ROWS ? left : KVR_TILE_ROWS;
        status = im->dump.read(&im->dump, check.layer, check.head, pad + first,
                               n, im->block, err);
        for (uint32_t r = 0; status == KVR_OK && r < n; r++) {
            float *out = im->rows + (size_t)r * im->n_token;
            status = take_row(im, &check, pad + first + r,
                              im->block + (size_t)r * im->dump.n_row, out,
                              sink + first + r, err);
            if (status == KVR_OK)
                kvr__windows_row(&im->windows, first + r, out);
        }
        if (status == KVR_OK && im->writer != NULL)
            status = kvr_writer_rows(im->writer, layer, head, first, n,
                                     im->rows, im->n_token, err);
    }
    return status;
}

/* Returns early where the rows are not as the trace at hand states. */
static enum kvr_status take_rows(struct import *im, struct kvr_error *err)
{
    const struct pick *pick = &im->pick;
    enum kvr_status status = KVR_OK;

    for (uint32_t l = 0; status == KVR_OK && l < pick->n_layer; l++) {
        kvr__windows_begin(&im->windows);
        for (uint32_t h = 0; status == KVR_OK && h < pick->n_head; h++) {
            status = take_head(im, l, h, err);
            if (im->writer != NULL && !is_as_stated(im))
                return status;
        }
        kvr__windows_end(&im->windows, l);
        if (status == KVR_OK && im->writer != NULL && im->options->sink)
            status =
                kvr_writer_array(im->writer, l, KVR_SINK_MASS, pick->n_head, 0,
                                 im->n_token, im->sink, im->n_token, err);
    }
    return status;
}

static enum kvr_status finish(struct import *im, struct kvr_error *err)
{
    const enum kvr_status status =
        kvr_writer_commit(im->writer, im->n_token, err);

    if (status == KVR_OK)
        return kvr_writer_finish(im->writer, err);
    kvr_writer_abandon(im->writer);
    return status;
}

static enum kvr_status write_rows(struct import *im, const char *to,
                                  const struct kvr_trace_shape *shape,
                                  struct kvr_error *err)
{
    const struct kvr_writer_options options = {.force = im->options->force,
                                               .deflate = -1,
                                               .memory = im->options->memory};

    enum kvr_status status =
        kvr_writer_open(&im->writer, to, shape, &options, err);
    if (status != KVR_OK)
        return status;
    status = take_rows(im, err);
    if (status == KVR_OK && is_as_stated(im))
        return finish(im, err);
    kvr_writer_abandon(im->writer);
    return status;
}

/* The head of a trace is written before its rows; a row that is otherwise than
 * it states has it written again. */
static enum kvr_status write_stated(struct import *im, const char *to,
                                    struct kvr_trace_shape *shape,
                                    struct kvr_error *err)
{
    enum kvr_status status;

    do {
        im->stated = im->rounded;
        shape->compute = said_of_rows(im, im->stated);
        status = write_rows(im, to, shape, err);
    } while (status == KVR_OK && !is_as_stated(im));
    if (status == KVR_OK && shape->compute != NULL)
        kvr_log(KVR_LOG_NOTE, "%s: %s, as the trace says", im->dump.path,
                shape->compute);
    return status;
}

static uint32_t kv_heads(const struct import *im)
{
    const struct dump *dump = &im->dump;

    const uint32_t asked = im->options->n_kv_head;

    if (asked != 0 && dump->n_kv_head != 0 && asked != dump->n_kv_head)
        kvr_log(KVR_LOG_WARNING, "%s: says %u KV heads, taken as %u as asked",
                dump->path, dump->n_kv_head, asked);
    if (asked != 0)
        return asked;
    if (dump->n_kv_head != 0)
        return dump->n_kv_head;
    kvr_log(KVR_LOG_NOTE,
            "%s: does not say how heads share keys: taken as %u kv heads, one "
            "for each head (--n-kv-head)",
            dump->path, dump->n_head);
    return dump->n_head;
}

static void fill_layers(struct kvr_layer_shape *layers, const struct import *im)
{
    const struct pick *pick = &im->pick;
    const uint32_t group = im->dump.n_head / im->n_kv_head;

    for (uint32_t l = 0; l < pick->n_layer; l++)
        layers[l] = (struct kvr_layer_shape){
            .layer = kvr__dump_layer(&im->dump, pick->layer[l]),
            .n_head = pick->n_head,
            .n_kv_head = pick->n_head / group,
            .mask = im->options->not_causal    ? KVR_MASK_NONE
                    : im->windows.span[l] != 0 ? KVR_MASK_WINDOW
                                               : KVR_MASK_CAUSAL,
            .span = im->windows.span[l],
            .kv_source = -1,
            .head_index = pick->head};
}

static enum kvr_status write_trace(struct import *im, const char *to,
                                   uint32_t prompt_len, struct kvr_error *err)
{
    const struct kvr_import_options *o = im->options;
    const struct dump *dump = &im->dump;
    struct kvr_layer_shape *layers =
        kvr_calloc(im->pick.n_layer, sizeof *layers);
    enum kvr_dtype dtype = dump->item == 2 ? KVR_F16 : KVR_F32;

    if (layers == NULL)
        return kvr_no_memory(err, "layers", im->pick.n_layer * sizeof *layers);
    if (o->dtype >= 0)
        dtype = (enum kvr_dtype)o->dtype;
    fill_layers(layers, im);
    struct kvr_trace_shape shape = {.n_layer = im->pick.n_layer,
                                    .n_head = dump->n_head,
                                    .n_kv_head = im->n_kv_head,
                                    .n_token = im->n_token,
                                    .prompt_len = prompt_len,
                                    .dtype = dtype,
                                    .source = KVR_SOURCE_IMPORT,
                                    .layers = layers,
                                    .cache = "full",
                                    .writer = o->writer,
                                    .created = o->created,
                                    .options = o->options,
                                    .model_name = dump->model};
    const enum kvr_status status = write_stated(im, to, &shape, err);
    free(layers);
    return status;
}

static enum kvr_status check_shape(struct import *im, struct kvr_error *err)
{
    const struct dump *dump = &im->dump;
    const uint32_t pad = im->options->pad;

    if (dump->n_row > SHAPE_MAX_TOKENS || dump->n_layer > SHAPE_MAX_LAYERS ||
        dump->n_head > SHAPE_MAX_HEADS)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: %u layers, %u heads, %u rows: at most %d, %d, %d",
                        dump->path, dump->n_layer, dump->n_head, dump->n_row,
                        SHAPE_MAX_LAYERS, SHAPE_MAX_HEADS, SHAPE_MAX_TOKENS);
    if (pad >= dump->n_row)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: --pad %u of %u rows leaves nothing", dump->path,
                        pad, dump->n_row);
    im->n_token = dump->n_row - pad;
    im->block =
        kvr_calloc((size_t)KVR_TILE_ROWS * dump->n_row, sizeof *im->block);
    im->rows =
        kvr_calloc((size_t)KVR_TILE_ROWS * im->n_token, sizeof *im->rows);
    im->sink = kvr_calloc((size_t)dump->n_head * im->n_token, sizeof *im->sink);
    if (im->block == NULL || im->rows == NULL || im->sink == NULL)
        return kvr_no_memory(err, "rows",
                             (size_t)KVR_TILE_ROWS * dump->n_row * 12);
    return KVR_OK;
}

/* Without a prompt length nothing can be written; but a dump that is no
 * attention is refused for that first. */
static enum kvr_status import_dump(struct import *im, const char *to,
                                   struct kvr_error *err)
{
    const struct kvr_import_options *o = im->options;
    uint32_t prompt_len = o->prompt_len;

    enum kvr_status status = check_shape(im, err);
    if (status != KVR_OK)
        return status;
    im->n_kv_head = kv_heads(im);
    status = kvr__pick(&im->pick, &im->dump, o, im->n_kv_head, err);
    if (status == KVR_OK)
        status = kvr__windows_init(&im->windows, &im->pick, &im->dump,
                                   im->n_token, o, err);
    if (status != KVR_OK)
        return status;
    if (prompt_len == 0 && im->dump.prompt_len > o->pad)
        prompt_len = im->dump.prompt_len - o->pad;
    if (prompt_len == 0) {
        status = take_rows(im, err);
        if (status != KVR_OK)
            return status;
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: does not say how long the prompt is: "
                        "--prompt-len 1..%u",
                        im->dump.path, im->n_token);
    }
    if (prompt_len > im->n_token)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: a prompt of %u tokens, but %u rows", im->dump.path,
                        prompt_len, im->n_token);
    status = write_trace(im, to, prompt_len, err);
    if (status == KVR_OK && !o->not_causal)
        kvr__windows_say(&im->windows, &im->pick, &im->dump);
    return status;
}

enum kvr_status kvr_import(const char *from, const char *to,
                           const struct kvr_import_options *options,
                           struct kvr_error *err)
{
    struct import im = {.options = options};

    if (options->renormalise && options->sink)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--renormalise and --sink: what a row lacks to 1 is "
                        "either");
    enum kvr_status status = open_dump(&im.dump, from, options, err);
    if (status == KVR_OK)
        status = import_dump(&im, to, err);
    close_dump(&im.dump);
    kvr__windows_free(&im.windows);
    kvr__pick_free(&im.pick);
    free(im.block);
    free(im.rows);
    free(im.sink);
    return status;
}
