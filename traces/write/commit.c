/* commit.c -- what a commit appends: full tiles, the rows of open tiles,
 * arrays, tokens, and the record that makes them count.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "writer.h"

#include "kvr_memory.h"
#include "kvr_parallel.h"

#include <stdlib.h>
#include <string.h>

/* Rows of open tiles are read again only after a kill: speed over size. A
 * record of them has about so many bytes; many are packed in parallel. */
enum { ROWS_BYTES = 128 << 10, ROWS_PARTS = 64 };

static enum kvr_status check_heads(const struct kvr_writer *w, uint32_t n_step,
                                   struct kvr_error *err)
{
    const struct content *c = w->content;

    for (uint32_t s = 0; s < c->n_slot; s++) {
        const struct head_rows *head = &c->heads[s];
        if (head->n_row < n_step || head->n_tiled > n_step)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: commit of %u steps: stored layer %u: %s of "
                            "head %u has %u rows",
                            w->path, n_step, head->layer,
                            kvr__set_name(head->set), head->head, head->n_row);
    }
    return KVR_OK;
}

static enum kvr_status check_rest(const struct kvr_writer *w, uint32_t n_step,
                                  struct kvr_error *err)
{
    const struct content *c = w->content;
    const struct kvr_trace_shape *shape = &c->box->shape;

    for (uint32_t l = 0; l < shape->n_layer; l++)
        for (int a = 0; a < KVR_N_ARRAY; a++)
            if (c->arrays[l][a].rows != 0 && c->arrays[l][a].n_token < n_step)
                return kvr_fail(err, KVR_ERR_INPUT,
                                "%s: commit of %u steps: layer %u: %s has %u",
                                w->path, n_step, shape->layers[l].layer,
                                kvr_array_name((enum kvr_array)a),
                                c->arrays[l][a].n_token);
    for (uint32_t l = 0; l < shape->n_layer; l++)
        if (c->mlp[l].n_ff != 0 && c->mlp[l].n_token != n_step)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: commit of %u steps: layer %u: the MLP's sums "
                            "have %u",
                            w->path, n_step, shape->layers[l].layer,
                            c->mlp[l].n_token);
    if (c->tokens.n != 0 && c->tokens.n < n_step)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: commit of %u steps: %u tokens",
                        w->path, n_step, c->tokens.n);
    if (shape->prompt_len == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: prompt length 0", w->path);
    for (uint32_t l = 0; l < shape->n_layer; l++)
        if (shape->layers[l].mask == KVR_MASK_NONE && n_step != shape->n_token)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: commit of %u of %u steps: a trace without a "
                            "causal mask is committed whole",
                            w->path, n_step, shape->n_token);
    if (n_step < c->n_step || n_step > shape->n_token)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: commit of %u steps after %u, at most %u", w->path,
                        n_step, c->n_step, shape->n_token);
    return KVR_OK;
}

/* row_mass from the rows themselves, where the caller gives none. */
static enum kvr_status add_mass(struct kvr_writer *w, uint32_t n_step,
                                struct kvr_error *err)
{
    struct content *c = w->content;

    for (uint32_t l = 0; l < c->box->shape.n_layer; l++) {
        const uint32_t n_head = c->box->shape.layers[l].n_head;
        struct array_data *a = &c->arrays[l][KVR_ROW_MASS];
        const uint32_t first = a->n_token;
        if (w->mass_given[l] || n_step == first ||
            (c->box->shape.layers[l].stores & KVR_STORES_ATTENTION) == 0)
            continue;
        for (uint32_t h = 0; h < n_head; h++)
            if (w->mass[c->first_slot[SET_ATTENTION][l] + h].capacity < n_step)
                return kvr_fail(err, KVR_ERR_INPUT,
                                "%s: layer %u: rows of f16 without row_mass",
                                w->path, c->box->shape.layers[l].layer);
        const enum kvr_status status = kvr__content_array(
            c, l, KVR_ROW_MASS, n_head, first, n_step - first, err);
        if (status != KVR_OK)
            return status;
        for (uint32_t h = 0; h < n_head; h++)
            memcpy(a->data + (size_t)h * a->capacity + first,
                   w->mass[c->first_slot[SET_ATTENTION][l] + h].value + first,
                   (n_step - first) * sizeof(float));
    }
    return KVR_OK;
}

struct close_job {
    struct kvr_writer *writer;
    uint32_t *slots;
};

static enum kvr_status close_one(uint32_t item, uint32_t worker, void *ud,
                                 struct kvr_error *err)
{
    struct close_job *job = ud;

    (void)worker;
    return kvr__writer_close_tile(job->writer, job->slots[item], err);
}

static enum kvr_status close_full(struct kvr_writer *w, uint32_t n_step,
                                  struct kvr_error *err)
{
    struct content *c = w->content;
    uint32_t n = 0;
    struct close_job job = {.writer = w,
                            .slots = kvr_calloc(c->n_slot, sizeof(uint32_t))};

    if (job.slots == NULL)
        return kvr_no_memory(err, "a list of heads", c->n_slot * 4u);
    for (uint32_t s = 0; s < c->n_slot; s++)
        if (c->heads[s].n_tiled + KVR_TILE_ROWS <= n_step &&
            c->heads[s].n_row - c->heads[s].n_tiled == KVR_TILE_ROWS)
            job.slots[n++] = s;
    const enum kvr_status status =
        kvr_parallel_for(n, w->options.threads, close_one, &job, err);
    free(job.slots);
    return status;
}

static enum kvr_status append_bytes(struct kvr_writer *w,
                                    struct journal_record record,
                                    struct bytes *payload,
                                    struct kvr_error *err)
{
    enum kvr_status status;

    if (payload->failed) {
        status = kvr_no_memory(err, "a journal record", payload->n);
    } else {
        record.size = payload->n;
        status =
            kvr__journal_append(w->journal, &record, payload->data, NULL, err);
    }
    free(payload->data);
    return status;
}

/* Rows first..n_step-1 of the open tiles of slots from[i]..from[i + 1]-1. */
struct rows_job {
    struct kvr_writer *writer;
    uint32_t first, n_step, n_part;
    uint32_t from[ROWS_PARTS + 1];
};

static void gather_rows(struct bytes *out, const struct rows_job *job,
                        uint32_t part)
{
    struct content *c = job->writer->content;

    for (uint32_t s = job->from[part]; s < job->from[part + 1]; s++)
        for (uint32_t row = job->first; row < job->n_step; row++) {
            const uint8_t *from = kvr__content_row(c, s, row);
            if (from == NULL)
                out->failed = true;
            else
                kvr__put(out, from, kvr__content_row_size(c, s, row));
        }
}

/* One record: as they are, since the tile that replaces them is deflated soon
 * enough. */
static enum kvr_status write_part(uint32_t part, uint32_t worker, void *ud,
                                  struct kvr_error *err)
{
    const struct rows_job *job = ud;
    struct journal_record record = {.type = JOURNAL_ROWS,
                                    .a = job->first,
                                    .b = job->n_step - job->first,
                                    .extra = ROWS_PLAIN};
    struct bytes plain = {0};

    (void)worker;
    gather_rows(&plain, job, part);
    if (job->n_part > 1) {
        record.c = job->from[part];
        record.d = job->from[part + 1] - job->from[part];
    }
    return append_bytes(job->writer, record, &plain, err);
}

/* Rows first..n_step-1 of all open tiles. */
static enum kvr_status write_rows(struct kvr_writer *w, uint32_t n_step,
                                  struct kvr_error *err)
{
    struct content *c = w->content;
    const uint32_t start = n_step / KVR_TILE_ROWS * KVR_TILE_ROWS;
    struct rows_job job = {.writer = w,
                           .first = c->n_step > start ? c->n_step : start,
                           .n_step = n_step};
    uint64_t bytes = 0;

    if (job.first >= n_step)
        return KVR_OK;
    for (uint32_t s = 0; s < c->n_slot; s++) {
        bytes += (uint64_t)(n_step - job.first) *
                 kvr__content_row_size(c, s, n_step - 1);
        if (bytes < ROWS_BYTES || job.n_part + 1 == ROWS_PARTS)
            continue;
        job.from[++job.n_part] = s + 1;
        bytes = 0;
    }
    if (job.n_part == 0 || job.from[job.n_part] < c->n_slot)
        job.from[++job.n_part] = c->n_slot;
    return kvr_parallel_for(job.n_part, w->options.threads, write_part, &job,
                            err);
}

static enum kvr_status write_array(struct kvr_writer *w, uint32_t layer,
                                   int array, uint32_t n_step,
                                   struct kvr_error *err)
{
    const struct array_data *a = &w->content->arrays[layer][array];
    const uint32_t first = w->array_written[layer][array];
    const struct journal_record record = {.type = JOURNAL_ARRAY,
                                          .a = layer,
                                          .b = (uint32_t)array,
                                          .c = first,
                                          .d = n_step - first};
    struct bytes payload = {0};

    if (a->rows == 0 || first >= n_step)
        return KVR_OK;
    kvr__put_u32(&payload, a->rows);
    for (uint32_t r = 0; r < a->rows; r++)
        kvr__put(&payload, a->data + (size_t)r * a->capacity + first,
                 (n_step - first) * sizeof *a->data);
    w->array_written[layer][array] = n_step;
    return append_bytes(w, record, &payload, err);
}

/* What this commit's tokens add, as f32: the running sums add up the same
 * numbers when the journal is read. */
static enum kvr_status write_mlp(struct kvr_writer *w, uint32_t layer,
                                 uint32_t n_step, struct kvr_error *err)
{
    struct mlp_data *m = &w->content->mlp[layer];
    const struct journal_record record = {.type = JOURNAL_MLP,
                                          .a = layer,
                                          .b = w->content->n_step,
                                          .c = n_step - w->content->n_step,
                                          .d = m->n_ff};
    struct bytes payload = {0};

    if (m->n_ff == 0 || record.c == 0)
        return KVR_OK;
    for (uint32_t i = 0; i < m->n_ff; i++) {
        const float mass = (float)m->open_mass[i];
        kvr__put(&payload, &mass, sizeof mass);
        m->mass[i] += (double)mass;
        m->open_mass[i] = 0;
    }
    for (uint32_t i = 0; i < m->n_ff; i++) {
        kvr__put_u32(&payload, m->open_active[i]);
        m->active[i] += m->open_active[i];
        m->open_active[i] = 0;
    }
    return append_bytes(w, record, &payload, err);
}

static enum kvr_status write_tokens(struct kvr_writer *w, uint32_t n_step,
                                    struct kvr_error *err)
{
    const struct token_data *t = &w->content->tokens;
    const struct journal_record record = {.type = JOURNAL_TOKENS,
                                          .a = w->tokens_written,
                                          .b = n_step - w->tokens_written,
                                          .c = t->has_text};
    struct bytes payload = {0};

    if (t->n == 0 || w->tokens_written >= n_step)
        return KVR_OK;
    for (uint32_t i = w->tokens_written; i < n_step; i++) {
        const uint32_t from = i > 0 ? t->text_end[i - 1] : 0;
        const uint32_t size = t->text_end[i] - from;
        kvr__put_u32(&payload, (uint32_t)t->id[i]);
        kvr__put(&payload, &t->logprob[i], sizeof t->logprob[i]);
        kvr__put_u32(&payload, t->class_of[i]);
        kvr__put_u32(&payload, size);
        kvr__put(&payload, size > 0 ? t->text.data + from : NULL, size);
    }
    w->tokens_written = n_step;
    return append_bytes(w, record, &payload, err);
}

static enum kvr_status write_all(struct kvr_writer *w, uint32_t n_step,
                                 struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &w->content->box->shape;

    enum kvr_status status = close_full(w, n_step, err);
    if (status == KVR_OK)
        status = write_rows(w, n_step, err);
    for (uint32_t l = 0; l < shape->n_layer; l++)
        for (int a = 0; status == KVR_OK && a < KVR_N_ARRAY; a++)
            status = write_array(w, l, a, n_step, err);
    for (uint32_t l = 0; status == KVR_OK && l < shape->n_layer; l++)
        status = write_mlp(w, l, n_step, err);
    if (status == KVR_OK)
        status = write_tokens(w, n_step, err);
    if (status != KVR_OK)
        return status;
    const struct journal_record record = {
        .type = JOURNAL_COMMIT, .a = n_step, .b = shape->prompt_len};
    status = kvr__journal_append(w->journal, &record, NULL, NULL, err);
    if (status == KVR_OK && w->options.sync)
        status = kvr__journal_sync(w->journal, err);
    return status;
}

enum kvr_status kvr_writer_commit(struct kvr_writer *w, uint32_t n_step,
                                  struct kvr_error *err)
{
    enum kvr_status status = kvr__writer_state(w, err);

    if (status == KVR_OK)
        status = check_heads(w, n_step, err);
    if (status == KVR_OK)
        status = add_mass(w, n_step, err);
    if (status == KVR_OK)
        status = check_rest(w, n_step, err);
    if (status != KVR_OK)
        return status;
    status = write_all(w, n_step, err);
    if (status != KVR_OK)
        return kvr__writer_failed(w, status, err);
    w->content->n_step = n_step;
    return KVR_OK;
}
