/* synth.c -- trace synth --kind zipf.
 *
 * Row t of head h, key i <= t, all u uniform in [0, 1) and independent:
 *
 *   z_i   = 1 / (u_i + 1/T)             importance; the r-th largest of T is
 *                                       about T/r: Zipf's law with exponent 1.
 *                                       Shared by the heads of a group.
 *   b     = 4 where the topic of key i (one of 8) is that of row block t/32,
 *           else 1                      heavy hitters come and go
 *   r     = R_h / (1 + t - i)           recency, R_h in [2, 34)
 *   e     = 0.2 + 4 u^3                 noise of this row and key
 *   w_i   = ((z_i b + r) e)^p_h         p_h = 1, 1.5 or 2
 *   w_0   = s_h / (1 - s_h) * sum of the others, s_h in [0.1, 0.7): the sink
 *
 * and A = w / sum(w). Only + - * / and sqrt are used.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_synth.h"

#include "kvr_memory.h"
#include "kvr_parallel.h"
#include "kvr_random.h"

#include <math.h>
#include <stdlib.h>

enum { N_TOPIC = 8, TOPIC_ROWS = 32, TOPIC_BOOST = 4, VOCABULARY = 4096 };

/* What a draw is for: the replicate of its counter. */
enum synth_draw {
    DRAW_IMPORTANCE,
    DRAW_TOPIC,
    DRAW_ROW_TOPIC,
    DRAW_NOISE,
    DRAW_HEAD,
    DRAW_NORM,
    DRAW_TOKEN,
};

struct synth {
    const struct kvr_synth_options *options;
    struct kvr_writer *writer;
    double **z;      /* [workers][T] */
    uint8_t **topic; /* [workers][T] */
    double **row;    /* [workers][T] */
    float **block;   /* [workers][KVR_TILE_ROWS][T] */
};

struct head_kind {
    double recency, sink;
    uint32_t power; /* in halves: 2, 3 or 4 */
};

static struct kvr_random stream_of(const struct synth *s, uint32_t layer,
                                   uint32_t head)
{
    return (struct kvr_random){.seed = s->options->seed,
                               .purpose = KVR_RANDOM_SYNTH,
                               .layer = layer,
                               .head = head};
}

static double raise(double w, uint32_t halves)
{
    if (halves == 3)
        return w * sqrt(w);
    return halves == 4 ? w * w : w;
}

static void make_row(const struct synth *s, const struct kvr_random *head,
                     const struct kvr_random *group,
                     const struct head_kind *kind, uint32_t t, uint32_t worker,
                     float *out)
{
    const double *z = s->z[worker];
    const uint8_t *topic = s->topic[worker];
    double *w = s->row[worker];
    const uint32_t now =
        kvr_random_below(group, t / TOPIC_ROWS, DRAW_ROW_TOPIC, 0, N_TOPIC);
    uint32_t bits[4] = {0};
    double sum = 0;

    for (uint32_t i = 0; i <= t; i++) {
        if (i % 4 == 0)
            kvr_random_bits(bits, head, t, DRAW_NOISE, i / 4);
        const double u = bits[i % 4] * 0x1p-32;
        const double base = z[i] * (topic[i] == now ? TOPIC_BOOST : 1) +
                            kind->recency / (1 + t - i);
        w[i] = raise(base * (0.2 + 4 * u * u * u), kind->power);
        if (i > 0)
            sum += w[i];
    }
    if (t > 0)
        w[0] = kind->sink / (1 - kind->sink) * sum;
    sum += w[0];
    for (uint32_t i = 0; i <= t; i++)
        out[i] = (float)(w[i] / sum);
}

static enum kvr_status make_head(uint32_t item, uint32_t worker, void *ud,
                                 struct kvr_error *err)
{
    struct synth *s = ud;
    const struct kvr_synth_options *o = s->options;
    const uint32_t layer = item / o->n_head, h = item % o->n_head;
    const uint32_t g = h / (o->n_head / o->n_kv_head);
    const struct kvr_random head = stream_of(s, layer, o->n_kv_head + h);
    const struct kvr_random group = stream_of(s, layer, g);
    const struct head_kind kind = {
        .recency = 2 + 32 * kvr_random_real(&head, 0, DRAW_HEAD, 0),
        .sink = 0.1 + 0.6 * kvr_random_real(&head, 0, DRAW_HEAD, 1),
        .power = 2 + kvr_random_below(&head, 0, DRAW_HEAD, 2, 3)};
    enum kvr_status status = KVR_OK;

    for (uint32_t i = 0; i < o->n_token; i++) {
        s->z[worker][i] = 1 / (kvr_random_real(&group, i, DRAW_IMPORTANCE, 0) +
                               1.0 / o->n_token);
        s->topic[worker][i] =
            (uint8_t)kvr_random_below(&group, i, DRAW_TOPIC, 0, N_TOPIC);
    }
    for (uint32_t t = 0; status == KVR_OK && t < o->n_token;
         t += KVR_TILE_ROWS) {
        const uint32_t left = o->n_token - t;
        const uint32_t n = left < KVR_TILE_ROWS ? left : KVR_TILE_ROWS;
        for (uint32_t r = 0; r < n; r++)
            make_row(s, &head, &group, &kind, t + r, worker,
                     s->block[worker] + (size_t)r * o->n_token);
        status = kvr_writer_rows(s->writer, layer, h, t, n, s->block[worker],
                                 o->n_token, err);
    }
    return status;
}

/* Norms of made-up keys and values; the sink's value is small, as in real
 * models. */
static enum kvr_status make_norms(struct synth *s, struct kvr_error *err)
{
    const struct kvr_synth_options *o = s->options;
    const size_t n = (size_t)o->n_kv_head * o->n_token;
    float *norm = kvr_calloc(3 * n, sizeof *norm);
    enum kvr_status status = KVR_OK;

    if (norm == NULL)
        return kvr_no_memory(err, "norms", 3 * n * sizeof *norm);
    for (uint32_t l = 0; status == KVR_OK && l < o->n_layer; l++) {
        for (uint32_t g = 0; g < o->n_kv_head; g++) {
            const struct kvr_random stream = stream_of(s, l, g);
            for (uint32_t t = 0; t < o->n_token; t++) {
                const size_t at = (size_t)g * o->n_token + t;
                const double key = kvr_random_real(&stream, t, DRAW_NORM, 0);
                double value = 0.5 + kvr_random_real(&stream, t, DRAW_NORM, 1);
                if (t == 0)
                    value *= 0.05;
                norm[at] = (float)(8 + 4 * key);
                norm[n + at] = (float)(value * 6);
                norm[2 * n + at] = (float)value;
            }
        }
        static const enum kvr_array arrays[] = {KVR_KEY_NORM, KVR_VALUE_NORM1,
                                                KVR_VALUE_NORM2};
        for (size_t a = 0; status == KVR_OK && a < 3; a++)
            status =
                kvr_writer_array(s->writer, l, arrays[a], o->n_kv_head, 0,
                                 o->n_token, norm + a * n, o->n_token, err);
    }
    free(norm);
    return status;
}

static enum kvr_status make_tokens(struct synth *s, struct kvr_error *err)
{
    const struct kvr_random stream = stream_of(s, 0, 0);
    enum kvr_status status = KVR_OK;

    for (uint32_t t = 0; status == KVR_OK && t < s->options->n_token; t++) {
        const double u = kvr_random_real(&stream, t, DRAW_TOKEN, 0);
        const double p = kvr_random_real(&stream, t, DRAW_TOKEN, 1);
        const int32_t id = (int32_t)(1 / (u + 1.0 / VOCABULARY));
        status = kvr_writer_token(s->writer, id, NULL, 0,
                                  t == 0 ? NAN : (float)(-8 * p * p),
                                  KVR_TOKEN_TEXT, err);
    }
    return status;
}

static void free_scratch(struct synth *s, uint32_t workers)
{
    for (uint32_t w = 0; w < workers; w++) {
        if (s->z != NULL)
            free(s->z[w]);
        if (s->topic != NULL)
            free(s->topic[w]);
        if (s->row != NULL)
            free(s->row[w]);
        if (s->block != NULL)
            free(s->block[w]);
    }
    free(s->z);
    free(s->topic);
    free(s->row);
    free(s->block);
}

static bool new_scratch(struct synth *s, uint32_t workers)
{
    const size_t t = s->options->n_token;

    s->z = kvr_calloc(workers, sizeof(double *));
    s->topic = kvr_calloc(workers, sizeof(uint8_t *));
    s->row = kvr_calloc(workers, sizeof(double *));
    s->block = kvr_calloc(workers, sizeof(float *));
    if (s->z == NULL || s->topic == NULL || s->row == NULL || s->block == NULL)
        return false;
    for (uint32_t w = 0; w < workers; w++) {
        s->z[w] = kvr_calloc(t, sizeof(double));
        s->topic[w] = kvr_calloc(t, 1);
        s->row[w] = kvr_calloc(t, sizeof(double));
        s->block[w] = kvr_calloc(KVR_TILE_ROWS * t, sizeof(float));
        if (s->z[w] == NULL || s->topic[w] == NULL || s->row[w] == NULL ||
            s->block[w] == NULL)
            return false;
    }
    return true;
}

static enum kvr_status fill(struct synth *s, struct kvr_error *err)
{
    const struct kvr_synth_options *o = s->options;
    const uint32_t n = o->n_layer * o->n_head;
    const uint32_t workers = kvr_parallel_workers(n, o->threads);
    enum kvr_status status = KVR_OK;

    if (!new_scratch(s, workers))
        status = kvr_no_memory(err, "rows", o->n_token * sizeof(double));
    if (status == KVR_OK)
        status = kvr_parallel_for(n, o->threads, make_head, s, err);
    free_scratch(s, workers);
    if (status == KVR_OK)
        status = make_norms(s, err);
    if (status == KVR_OK)
        status = make_tokens(s, err);
    if (status == KVR_OK)
        status = kvr_writer_commit(s->writer, o->n_token, err);
    return status;
}

enum kvr_status kvr_synth_zipf(const char *to,
                               const struct kvr_synth_options *o,
                               struct kvr_error *err)
{
    const struct kvr_writer_options options = {.force = o->force,
                                               .deflate = -1,
                                               .threads = o->threads,
                                               .memory = o->memory};
    struct synth s = {.options = o};
    struct kvr_layer_shape *layers = kvr_calloc(o->n_layer, sizeof *layers);

    if (layers == NULL)
        return kvr_no_memory(err, "layers", o->n_layer * sizeof *layers);
    for (uint32_t l = 0; l < o->n_layer; l++)
        layers[l] = (struct kvr_layer_shape){.layer = l,
                                             .n_head = o->n_head,
                                             .n_kv_head = o->n_kv_head,
                                             .mask = KVR_MASK_CAUSAL,
                                             .kv_source = -1};
    const struct kvr_trace_shape shape = {.n_layer = o->n_layer,
                                          .n_head = o->n_head,
                                          .n_kv_head = o->n_kv_head,
                                          .n_token = o->n_token,
                                          .prompt_len = o->prompt_len,
                                          .dtype = o->dtype,
                                          .round_bits = o->round_bits,
                                          .source = KVR_SOURCE_SYNTHETIC,
                                          .layers = layers,
                                          .cache = "full",
                                          .writer = o->writer,
                                          .created = o->created,
                                          .options = o->options,
                                          .model_name = "synthetic: zipf"};
    enum kvr_status status =
        kvr_writer_open(&s.writer, to, &shape, &options, err);
    free(layers);
    if (status != KVR_OK)
        return status;
    status = fill(&s, err);
    if (status != KVR_OK) {
        kvr_writer_abandon(s.writer);
        return status;
    }
    return kvr_writer_finish(s.writer, err);
}
