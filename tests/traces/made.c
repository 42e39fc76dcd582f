/* made.c -- traces from a seed.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made.h"

#include "kvr_half.h"
#include "kvr_random.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 9000 };

static uint32_t largest(const struct made *m)
{
    return m->t_max != 0 ? m->t_max : m->t;
}

static double number(uint32_t layer, uint32_t head, uint32_t a, uint32_t b,
                     uint32_t c)
{
    const struct kvr_random stream = {
        .seed = 11, .purpose = KVR_RANDOM_TEST, .layer = layer, .head = head};

    return 2 * kvr_random_real(&stream, a, b, c) - 1;
}

void made_vector(const struct made *m, uint32_t layer, enum kvr_vector kind,
                 uint32_t head, uint32_t token, float *out)
{
    const bool big =
        kind == KVR_KEY && m->big_from != 0 && token >= m->big_from;

    for (uint32_t i = 0; i < m->dim; i++)
        out[i] = (float)(2 * number(layer, head, token, (uint32_t)kind, i));
    if (big) /* one that f16 would not hold, and that leaves the rows be */
        out[token % m->dim] = 300;
    if (m->big_from != 0 && kind == KVR_QUERY)
        for (uint32_t i = 0; i < m->dim; i++)
            out[i] *= 0.01f;
}

float made_activation(const struct made *m, uint32_t layer, uint32_t token,
                      uint32_t neuron)
{
    const double x = number(layer, m->n_head, token, 9, neuron);

    return x < 0 ? 0 : (float)x;
}

float made_logit(const struct made *m, uint32_t token, uint32_t id)
{
    return (float)(9 * number(m->n_layer, 0, token, 8, id));
}

/* What stays visible is from `first` on. */
static void soft_row(const struct made *m, uint32_t layer, uint32_t head,
                     uint32_t row, uint32_t first, uint32_t n, float *out)
{
    float query[MADE_MOST_DIM], key[MADE_MOST_DIM];
    double most = -INFINITY, sum = 0;
    double *logit = calloc(n, sizeof *logit);

    made_vector(m, layer, KVR_QUERY, head, row, query);
    for (uint32_t i = first; i < n; i++) {
        made_vector(m, layer, KVR_KEY, head / (m->n_head / m->n_kv_head), i,
                    key);
        for (uint32_t k = 0; k < m->dim; k++)
            logit[i] += 0.125 * (double)query[k] * (double)key[k];
        if (m->softcap > 0)
            logit[i] = m->softcap * tanh(logit[i] / m->softcap);
        most = fmax(most, logit[i]);
    }
    for (uint32_t i = first; i < n; i++)
        sum += exp(logit[i] - most);
    for (uint32_t i = 0; i < n; i++)
        out[i] = i < first ? 0 : (float)(exp(logit[i] - most) / sum);
    free(logit);
}

void made_row(const struct made *m, uint32_t layer, uint32_t head, uint32_t row,
              float *out)
{
    const struct kvr_random stream = {
        .seed = 7, .purpose = KVR_RANDOM_TEST, .layer = layer, .head = head};
    const uint32_t n = m->mask == KVR_MASK_NONE ? largest(m) : row + 1;
    uint32_t first = 0;
    double sum = 0;

    if (m->mask == KVR_MASK_WINDOW && row + 1 > m->span)
        first = row + 1 - m->span;
    if (m->mask == KVR_MASK_CHUNK)
        first = row / m->span * m->span;
    if (m->stores & KVR_STORES_QUERY) {
        soft_row(m, layer, head, row, first, n, out);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        double x = kvr_random_real(&stream, row, 0, i);
        x = i < first ? 0 : x * x * x * x + (i == 0 ? 3 : 0);
        out[i] = (float)x;
        sum += x;
    }
    for (uint32_t i = 0; i < n; i++)
        out[i] = (float)(out[i] / sum);
}

enum kvr_status made_open(struct kvr_writer **out, const struct made *m,
                          const char *path, bool force, struct kvr_error *err)
{
    static struct kvr_layer_shape layers[64];
    const struct kvr_writer_options options = {
        .force = force, .deflate = m->raw ? 0 : -1, .threads = 2};
    const struct kvr_trace_shape shape = {
        .n_layer = m->n_layer,
        .n_head = m->n_head,
        .n_kv_head = m->n_kv_head,
        .n_token = largest(m),
        .prompt_len = m->prompt_len != 0 ? m->prompt_len : 1,
        .dtype = m->dtype,
        .source = KVR_SOURCE_SYNTHETIC,
        .round_bits = m->round_bits,
        .layers = layers,
        .cache = "full",
        .n_vocab = m->n_vocab,
        .model_name = "made"};
    const enum kvr_dtype d = m->vector_dtype;

    for (uint32_t l = 0; l < m->n_layer; l++)
        layers[l] = (struct kvr_layer_shape){.layer = 2 * l,
                                             .n_head = m->n_head,
                                             .n_kv_head = m->n_kv_head,
                                             .mask = m->mask,
                                             .span = m->span,
                                             .scale = 0.125,
                                             .softcap = m->softcap,
                                             .key_dim = m->dim,
                                             .value_dim = m->dim,
                                             .stores = m->stores,
                                             .vector_dtype = {d, d, d},
                                             .kv_source = -1};
    return kvr_writer_open(out, path, &shape, &options, err);
}

static enum kvr_status give_rows(struct kvr_writer *writer,
                                 const struct made *m, uint32_t first,
                                 uint32_t end, struct kvr_error *err)
{
    float *row = calloc(largest(m), sizeof *row);
    enum kvr_status status = KVR_OK;

    if (m->stores != 0 && (m->stores & KVR_STORES_ATTENTION) == 0)
        end = first;
    for (uint32_t l = 0; l < m->n_layer; l++)
        for (uint32_t h = 0; h < m->n_head; h++)
            for (uint32_t t = first; status == KVR_OK && t < end; t++) {
                made_row(m, l, h, t, row);
                status = kvr_writer_rows(writer, l, h, t, 1, row, 0, err);
            }
    free(row);
    return status;
}

static enum kvr_status give_vectors(struct kvr_writer *writer,
                                    const struct made *m, uint32_t layer,
                                    enum kvr_vector kind, uint32_t first,
                                    uint32_t n, struct kvr_error *err)
{
    const uint32_t heads = kind == KVR_QUERY ? m->n_head : m->n_kv_head;
    const size_t width = (size_t)heads * m->dim;
    float *in = calloc(n, width * sizeof *in);

    if ((m->stores & (uint32_t)KVR_STORES_QUERY << kind) == 0) {
        free(in);
        return KVR_OK;
    }
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t h = 0; h < heads; h++)
            made_vector(m, layer, kind, h, first + r,
                        in + r * width + (size_t)h * m->dim);
    const enum kvr_status status =
        kvr_writer_vectors(writer, layer, kind, first, n, in, width, err);
    free(in);
    return status;
}

static enum kvr_status give_optional(struct kvr_writer *writer,
                                     const struct made *m, uint32_t first,
                                     uint32_t n, struct kvr_error *err)
{
    const size_t width = m->n_ff > m->n_vocab ? m->n_ff : m->n_vocab;
    float *in = calloc(n, (width + 1) * sizeof *in);
    enum kvr_status status = KVR_OK;

    for (uint32_t l = 0; l < m->n_layer; l++) {
        for (int kind = 0; status == KVR_OK && kind < KVR_N_VECTOR; kind++)
            status = give_vectors(writer, m, l, (enum kvr_vector)kind, first, n,
                                  err);
        for (uint32_t i = 0; i < n * m->n_ff; i++)
            in[i] = made_activation(m, l, first + i / m->n_ff, i % m->n_ff);
        if (status == KVR_OK && m->n_ff > 0)
            status = kvr_writer_mlp(writer, l, m->n_ff, first, n, in, err);
    }
    for (uint32_t i = 0; i < n * m->n_vocab; i++)
        in[i] = made_logit(m, first + i / m->n_vocab, i % m->n_vocab);
    if (status == KVR_OK && m->n_vocab > 0)
        status = kvr_writer_logits(writer, first, n, in, err);
    free(in);
    return status;
}

static enum kvr_status give_rest(struct kvr_writer *writer,
                                 const struct made *m, uint32_t first,
                                 uint32_t end, struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;
    float norm[64];
    char text[32];

    for (uint32_t t = first; status == KVR_OK && t < end; t++) {
        for (uint32_t l = 0; m->norms && l < m->n_layer; l++) {
            for (uint32_t g = 0; g < m->n_kv_head; g++)
                norm[g] = (float)(t + 1) / (float)(g + l + 1);
            status = kvr_writer_array(writer, l, KVR_VALUE_NORM2, m->n_kv_head,
                                      t, 1, norm, 1, err);
            if (status != KVR_OK)
                return status;
        }
        if (!m->tokens)
            continue;
        snprintf(text, sizeof text, " t%u", t);
        status = kvr_writer_token(
            writer, (int32_t)(t * 3), m->text ? (const uint8_t *)text : NULL,
            strlen(text), t == 0 ? NAN : -(float)t, KVR_TOKEN_TEXT, err);
    }
    return status;
}

enum kvr_status made_steps(struct kvr_writer *writer, const struct made *m,
                           uint32_t first, uint32_t end, struct kvr_error *err)
{
    enum kvr_status status = give_rows(writer, m, first, end, err);

    if (status == KVR_OK && end > first)
        status = give_optional(writer, m, first, end - first, err);
    if (status == KVR_OK)
        status = give_rest(writer, m, first, end, err);
    if (status == KVR_OK)
        status = kvr_writer_commit(writer, end, err);
    return status;
}

enum kvr_status made_write(const struct made *m, const char *path, bool force,
                           struct kvr_error *err)
{
    struct kvr_writer *writer = NULL;
    const uint32_t prompt = m->mask == KVR_MASK_NONE ? m->t
                            : m->prompt_len != 0     ? m->prompt_len
                                                     : 1;

    enum kvr_status status = made_open(&writer, m, path, force, err);
    if (status != KVR_OK)
        return status;
    status = made_steps(writer, m, 0, prompt, err);
    for (uint32_t t = prompt; status == KVR_OK && t < m->t; t++)
        status = made_steps(writer, m, t, t + 1, err);
    if (status != KVR_OK) {
        kvr_writer_abandon(writer);
        return status;
    }
    return kvr_writer_finish(writer, err);
}

/* As FORMAT.md says a weight is stored and read. */
static float stored(const struct made *m, float weight)
{
    if (m->dtype == KVR_F32)
        return (float)(nearbyint((double)weight * 0x1p30) * 0x1p-30);
    uint32_t half = kvr_f32_to_f16(weight);
    if (m->round_bits != 0 && m->round_bits < 10) {
        const uint32_t step = 1u << (10 - m->round_bits), low = half % step;
        half -= low;
        if (low > step / 2 || (low == step / 2 && half / step % 2 == 1))
            half += step;
    }
    return kvr_f16_to_f32((uint16_t)half);
}

static bool equal_head(const struct made *m, const struct kvr_trace *trace,
                       uint32_t layer, uint32_t head, uint32_t n,
                       struct kvr_trace_scratch *scratch, char *why,
                       size_t room)
{
    static float got[KVR_TILE_ROWS * MOST], want[MOST];
    const uint32_t t = kvr_trace_shape(trace)->n_token;
    struct kvr_error err = {0};

    for (uint32_t first = 0; first < n; first += KVR_TILE_ROWS) {
        const uint32_t count =
            n - first < KVR_TILE_ROWS ? n - first : KVR_TILE_ROWS;
        if (kvr_trace_read_rows(trace, layer, head, first, count, got, t,
                                scratch, &err) != KVR_OK) {
            snprintf(why, room, "%s", err.message);
            return false;
        }
        for (uint32_t r = 0; r < count; r++) {
            memset(want, 0, sizeof want);
            made_row(m, layer, head, first + r, want);
            for (uint32_t i = 0; i < t; i++)
                if (got[(size_t)r * t + i] != stored(m, want[i])) {
                    snprintf(why, room,
                             "layer %u head %u row %u key %u: %g "
                             "instead of %g",
                             layer, head, first + r, i,
                             (double)got[(size_t)r * t + i],
                             (double)stored(m, want[i]));
                    return false;
                }
        }
    }
    return true;
}

bool made_equal(const struct made *m, const char *path, uint32_t n, char *why,
                size_t room)
{
    struct kvr_trace *trace = NULL;
    struct kvr_trace_scratch *scratch = NULL;
    struct kvr_error err = {0};

    if (kvr_trace_open(&trace, path, &err) != KVR_OK ||
        kvr_trace_scratch_new(&scratch, trace, &err) != KVR_OK) {
        snprintf(why, room, "%s", err.message);
        kvr_trace_close(trace);
        return false;
    }
    bool ok = kvr_trace_shape(trace)->n_token == n;
    if (!ok)
        snprintf(why, room, "%u tokens instead of %u",
                 kvr_trace_shape(trace)->n_token, n);
    for (uint32_t l = 0; ok && l < m->n_layer; l++)
        for (uint32_t h = 0; ok && h < m->n_head; h++)
            ok = equal_head(m, trace, l, h, n, scratch, why, room);
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
    return ok;
}

static char folder[256];
static pid_t owner;

static void remove_folder(void)
{
    char path[600];
    struct dirent *entry;

    if (folder[0] == '\0' || owner != getpid())
        return;
    DIR *dir = opendir(folder);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    if (dir != NULL)
        closedir(dir);
    rmdir(folder);
}

const char *made_path(const char *name)
{
    static char paths[4][600];
    static int next;
    const char *root = getenv("TMPDIR");

    if (folder[0] == '\0' || owner != getpid()) {
        snprintf(folder, sizeof folder, "%s/kvr-traces-XXXXXX",
                 root != NULL ? root : "/tmp");
        if (mkdtemp(folder) == NULL)
            abort();
        owner = getpid();
        atexit(remove_folder);
    }
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

const char *made_kept(const char *name)
{
    static char path[400];

    snprintf(path, sizeof path, "%s", made_path(name));
    return path;
}

const char *made_data(const char *name)
{
    static char paths[4][600];
    static int next;

    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", KVR_TEST_DATA, name);
    return paths[next];
}

size_t made_size(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

static uint8_t *slurp(const char *path, size_t *n)
{
    FILE *in = fopen(path, "rb");

    *n = made_size(path);
    uint8_t *data = malloc(*n + 1);
    if (in == NULL || data == NULL || fread(data, 1, *n, in) != *n)
        abort();
    fclose(in);
    return data;
}

bool made_copy(const char *to, const char *from, size_t n)
{
    size_t all;
    uint8_t *data = slurp(from, &all);
    FILE *out = fopen(to, "wb");

    if (n > all)
        n = all;
    const bool ok = out != NULL && fwrite(data, 1, n, out) == n;
    if (out != NULL)
        fclose(out);
    free(data);
    return ok;
}

bool made_same(const char *a, const char *b)
{
    size_t n, m;
    uint8_t *x = slurp(a, &n), *y = slurp(b, &m);
    const bool same = n == m && memcmp(x, y, n) == 0;

    free(x);
    free(y);
    return same;
}

bool made_flip(const char *path, size_t at, uint8_t mask)
{
    FILE *file = fopen(path, "r+b");
    int byte = EOF;

    if (file == NULL)
        return false;
    if (fseek(file, (long)at, SEEK_SET) == 0)
        byte = fgetc(file);
    const bool ok = byte != EOF && fseek(file, (long)at, SEEK_SET) == 0 &&
                    fputc(byte ^ mask, file) != EOF;
    return fclose(file) == 0 && ok;
}
