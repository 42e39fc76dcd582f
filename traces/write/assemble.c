/* assemble.c -- from a journal's committed steps to a finished file.
 *
 * Everything is written in one fixed order under a temporary name, synced and
 * renamed: no half file ever has the trace's name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "assemble.h"

#include "trace_check.h"

#include "hash.h"
#include "journal.h"
#include "kvr_file.h"
#include "kvr_journal.h"
#include "kvr_memory.h"
#include "kvr_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Every tile is there; where each slot's begin. */
static enum kvr_status place_tiles(struct assembly *a, const char *path,
                                   struct kvr_error *err)
{
    const struct content *c = a->content;
    size_t next = 0;

    a->first_tile = kvr_calloc((size_t)c->n_slot + 1, sizeof *a->first_tile);
    if (a->first_tile == NULL)
        return kvr_no_memory(err, "the places of tiles", c->n_slot);
    for (uint32_t s = 0; s < c->n_slot; s++) {
        for (uint32_t r = 0; r < c->heads[s].n_tiled / KVR_TILE_ROWS; r++)
            for (uint32_t col = 0; col < kvr__content_n_col(c, s, r); col++) {
                if (next >= c->n_tile || c->tiles[next].slot != s ||
                    c->tiles[next].row_tile != r || c->tiles[next].col != col)
                    return kvr_fail(err, KVR_ERR_INTERNAL,
                                    "%s: a tile is missing: head %u, rows "
                                    "%u..",
                                    path, s, r * KVR_TILE_ROWS);
                next++;
            }
        a->first_tile[s + 1] = next;
    }
    return KVR_OK;
}

/* Hashes of a dataset's tiles, head by head. */
static enum kvr_status hash_rows(struct kvr_hash *hash, struct assembly *a,
                                 uint32_t layer, enum row_set set,
                                 struct kvr_error *err)
{
    const struct content *c = a->content;
    const uint32_t end = c->first_slot[set][layer + 1];
    enum kvr_status status = KVR_OK;

    for (uint32_t s = c->first_slot[set][layer]; s < end; s++) {
        for (size_t i = a->first_tile[s];
             status == KVR_OK && i < a->first_tile[s + 1]; i++) {
            uint64_t tile;
            if (c->tiles[i].col != 0)
                continue;
            status = kvr__assemble_tile_hash(a, &c->tiles[i], &tile, err);
            kvr_hash_add(hash, &tile, sizeof tile);
        }
        if (status == KVR_OK && c->heads[s].n_tiled < a->shape.n_token) {
            const uint64_t last =
                kvr__content_tile_hash(c, s, a->shape.n_token);
            kvr_hash_add(hash, &last, sizeof last);
        }
    }
    return status;
}

static void hash_tokens(struct kvr_hash *hash, const struct token_data *t,
                        uint32_t n, uint32_t *offset)
{
    if (t->n == 0)
        return;
    memcpy(offset + 1, t->text_end, n * sizeof *offset);
    const struct kvr_trace_tokens tokens = {.id = t->id,
                                            .logprob = t->logprob,
                                            .class_of = t->class_of,
                                            .text = t->text.data,
                                            .text_offset =
                                                t->has_text ? offset : NULL};
    kvr__hash_tokens(hash, n, &tokens);
}

/* Items 5 and 6 of FORMAT.md's list. */
static enum kvr_status hash_optional(struct kvr_hash *hash, struct assembly *a,
                                     struct kvr_error *err)
{
    const struct content *c = a->content;
    enum kvr_status status = KVR_OK;

    for (uint32_t l = 0; l <= a->shape.n_layer; l++) {
        for (int set = SET_QUERY; status == KVR_OK && set < N_ROW_SET; set++) {
            const uint32_t slot = c->first_slot[set][l];
            const uint32_t heads = c->first_slot[set][l + 1] - slot;
            if (heads == 0)
                continue;
            kvr__hash_rows_head(hash, l, (uint32_t)set, heads,
                                kvr__content_row_items(c, slot, 0),
                                c->heads[slot].item);
            status = hash_rows(hash, a, l, (enum row_set)set, err);
        }
        if (status == KVR_OK && l < a->shape.n_layer && c->mlp[l].n_ff != 0)
            status = kvr__hash_mlp(hash, l, c->mlp[l].n_ff, c->mlp[l].mass,
                                   NULL, c->mlp[l].active, err);
    }
    return status;
}

static enum kvr_status hash_content(struct assembly *a, struct kvr_error *err)
{
    const struct content *c = a->content;
    const uint32_t n = a->shape.n_token;
    struct kvr_hash *hash = kvr_hash_new();
    uint32_t *offset = kvr_calloc((size_t)n + 1, sizeof *offset);

    if (hash == NULL || offset == NULL) {
        kvr_hash_free(hash);
        free(offset);
        return kvr_no_memory(err, "a hash", n);
    }
    enum kvr_status status = kvr__hash_shape(hash, &a->shape, err);
    for (uint32_t l = 0; status == KVR_OK && l < a->shape.n_layer; l++)
        status = hash_rows(hash, a, l, SET_ATTENTION, err);
    for (uint32_t l = 0; l < a->shape.n_layer; l++)
        for (int i = 0; i < KVR_N_ARRAY; i++)
            if (c->arrays[l][i].rows != 0)
                kvr__hash_array(hash, c->arrays[l][i].rows, n,
                                c->arrays[l][i].data, c->arrays[l][i].capacity);
    hash_tokens(hash, &c->tokens, n, offset);
    if (status == KVR_OK)
        status = hash_optional(hash, a, err);
    kvr_hash_text(hash, a->hash);
    kvr_hash_free(hash);
    free(offset);
    return status;
}

static enum kvr_status write_file(struct assembly *a, struct kvr_error *err)
{
    struct kvr_error closing = {0};

    enum kvr_status status = kvr__sink_create(&a->sink, &a->file, a->path, err);
    if (status != KVR_OK)
        return status;
    status = kvr__assemble_head(a, err);
    if (status == KVR_OK)
        status = kvr__assemble_layers(a, err);
    if (status == KVR_OK)
        status = kvr__assemble_logits(a, err);
    const enum kvr_status closed = kvr__sink_close(&a->sink, a->file, &closing);
    if (status == KVR_OK && closed != KVR_OK && err != NULL)
        *err = closing;
    return status == KVR_OK ? closed : status;
}

/* The first problem that a check of every row finds, or OK. */
static enum kvr_status check_whole(const char *path, struct kvr_error *err)
{
    struct kvr_trace_report report;
    enum kvr_status status =
        kvr__check_trace(&report, path, 0, UINT64_MAX, err);

    if (status != KVR_OK)
        return status;
    if (!report.ok)
        status = kvr_fail(err, KVR_ERR_INPUT, "%s",
                          report.n_problem > 0 ? report.problems[0]
                                               : "it is not whole");
    kvr_trace_report_free(&report);
    return status;
}

/* Nothing counts as written before it was read. */
static enum kvr_status read_back(const struct assembly *a, const char *path,
                                 bool whole, struct kvr_error *err)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error why = {0};
    enum kvr_status status = kvr_trace_open(&trace, a->path, &why);

    if (status == KVR_OK &&
        (kvr_trace_shape(trace)->n_token != a->shape.n_token ||
         strcmp(kvr_trace_facts(trace)->hash, a->hash) != 0))
        status =
            kvr_fail(&why, KVR_ERR_INTERNAL,
                     "%u steps and the hash '%s', %u steps and '%s' were "
                     "written",
                     kvr_trace_shape(trace)->n_token,
                     kvr_trace_facts(trace)->hash, a->shape.n_token, a->hash);
    kvr_trace_close(trace);
    if (status == KVR_OK && whole)
        status = check_whole(a->path, &why);
    if (status == KVR_OK)
        return KVR_OK;
    return kvr_fail(err, status,
                    "%s: what was put together does not read "
                    "back: %s",
                    path, why.message);
}

/* A hard link is refused where the name is taken, a rename is not; some file
 * systems have no links. */
static bool link_into_place(const char *temporary, const char *path)
{
    if (link(temporary, path) == 0) {
        unlink(temporary);
        return true;
    }
    if (errno == EEXIST || kvr_file_exists(path)) {
        errno = EEXIST;
        return false;
    }
    return rename(temporary, path) == 0;
}

static enum kvr_status move_into_place(const char *temporary, const char *path,
                                       bool force, struct kvr_error *err)
{
    if (force ? rename(temporary, path) == 0 : link_into_place(temporary, path))
        return kvr_sync_folder(path, err);
    if (errno == EEXIST)
        return kvr_fail(err, KVR_ERR_EXISTS,
                        "%s: exists; --force overwrites it", path);
    return kvr_fail(err, KVR_ERR_IO, "%s: cannot be renamed into place: %s",
                    path, strerror(errno));
}

static enum kvr_status check_space(const struct assembly *a, const char *path,
                                   struct kvr_error *err)
{
    const uint64_t room = kvr_free_space(path);
    uint64_t need = 0;
    char text[2][32];

    for (size_t i = 0; i < a->content->n_tile; i++)
        need += a->content->tiles[i].size;
    if (need <= room)
        return KVR_OK;
    kvr_format_bytes(text[0], need);
    kvr_format_bytes(text[1], room);
    return kvr_fail(err, KVR_ERR_IO,
                    "%s: %s: %s to write, %s free (0 bytes written)", path,
                    strerror(ENOSPC), text[0], text[1]);
}

enum kvr_status kvr__assemble(struct content *content, int fd, const char *path,
                              bool force, bool whole, struct kvr_error *err)
{
    struct assembly a = {
        .content = content, .shape = content->box->shape, .fd = fd};
    char *temporary = kvr__path_with(path, JOURNAL_SUFFIX ASSEMBLY_SUFFIX);

    if (temporary == NULL)
        return kvr_no_memory(err, "a path", strlen(path));
    a.path = temporary;
    a.shape.n_token = content->n_step;
    if (a.shape.prompt_len > content->n_step)
        a.shape.prompt_len = content->n_step;
    kvr__content_sort(content);
    enum kvr_status status = place_tiles(&a, path, err);
    if (status == KVR_OK && content->n_step == 0)
        status =
            kvr_fail(err, KVR_ERR_NOTHING, "%s: no step was committed", path);
    if (status == KVR_OK)
        status = check_space(&a, path, err);
    if (status == KVR_OK)
        status = kvr__codec_new(&a.codec, content->level, err);
    if (status == KVR_OK)
        status = hash_content(&a, err);
    if (status == KVR_OK) {
        status = write_file(&a, err);
        if (status == KVR_OK)
            status = read_back(&a, path, whole, err);
        if (status == KVR_OK)
            status = move_into_place(temporary, path, force, err);
        if (status != KVR_OK)
            unlink(temporary);
    }
    kvr__codec_free(a.codec);
    free(a.buffer);
    free(a.first_tile);
    free(temporary);
    return status;
}
