/* journal_read.c -- a journal back into memory.
 *
 * First pass: every record's checksums, up to the first that does not hold;
 * it gives the last commit that counts. Second pass: the records before it
 * are applied. What a record says is checked again there, since a checksum
 * proves only that the bytes are those that were written.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _DEFAULT_SOURCE /* flock */
#include "journal_read.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool kvr_journal_is(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint32_t magic = 0;

    struct stat st;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return false;
    }
    /* One that cannot be read is opened as a journal, which says why. */
    const bool is = kvr_read_at(fd, &magic, sizeof magic, 0)
                        ? magic == JOURNAL_MAGIC
                        : errno != 0;
    close(fd);
    return is;
}

static bool fail(struct kvr_journal *j, enum kvr_status status)
{
    j->failed = status;
    return false;
}

KVR_PRINTF(2, 3)
static void note(struct kvr_journal *j, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(j->facts.problem, sizeof j->facts.problem, format, args);
    va_end(args);
}

/* n bytes of the record at `at`. False: the file is shorter (noted as a cut),
 * or the system failed. */
static bool take_bytes(struct kvr_journal *j, void *to, size_t n, uint64_t from,
                       uint64_t at)
{
    if (kvr_read_at(j->fd, to, n, from))
        return true;
    if (errno != 0)
        return fail(j, kvr_fail(&j->why, KVR_ERR_IO,
                                "%s: cannot be read at byte %llu: %s", j->path,
                                (unsigned long long)from, strerror(errno)));
    note(j, "cut inside the record at byte %llu", (unsigned long long)at);
    return false;
}

/* Reads the record at `at` with its payload. False: the journal ends here,
 * `note` says what is wrong, or j->failed. */
static bool next_record(struct kvr_journal *j, uint64_t at, uint64_t sequence,
                        struct journal_record *r)
{
    const unsigned long long byte = at;

    if (at == j->facts.size)
        return false;
    if (j->facts.size - at < sizeof *r) {
        note(j, "cut inside the record at byte %llu", byte);
        return false;
    }
    if (!take_bytes(j, r, sizeof *r, at, at))
        return false;
    if (r->magic != JOURNAL_MAGIC ||
        r->hash != kvr_hash64(r, offsetof(struct journal_record, hash)) ||
        r->sequence != sequence) {
        j->facts.damaged = true;
        note(j, "the record at byte %llu is damaged (its header)", byte);
        return false;
    }
    if (r->size > j->facts.size - at - sizeof *r) {
        note(j, "cut inside the record at byte %llu", byte);
        return false;
    }
    if (!kvr_grow((void **)&j->payload, &j->capacity, r->size, 1))
        return fail(j, kvr_no_memory(&j->why, j->path, r->size));
    if (!take_bytes(j, j->payload, r->size, at + sizeof *r, at))
        return false;
    if (r->payload_hash != kvr_hash64(j->payload, r->size)) {
        j->facts.damaged = true;
        note(j, "the record at byte %llu is damaged (its %llu bytes)", byte,
             (unsigned long long)r->size);
        return false;
    }
    return true;
}

/* End of the last commit that counts; 0: none. */
static uint64_t find_last_commit(struct kvr_journal *j)
{
    struct journal_record r;
    uint64_t at = 0, end = 0;

    for (uint64_t sequence = 0; next_record(j, at, sequence, &r); sequence++) {
        at += sizeof r + r.size;
        if (r.type == JOURNAL_COMMIT)
            end = at;
    }
    return end;
}

static bool apply_tile(struct content *c, const struct journal_record *r,
                       uint64_t at, struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = &c->box->shape;
    const uint32_t set = r->b >> JOURNAL_SET_SHIFT;
    const uint32_t number = r->b & ((1u << JOURNAL_SET_SHIFT) - 1);

    if (r->a > shape->n_layer || set >= N_ROW_SET ||
        number >= kvr__set_heads(shape, r->a, (enum row_set)set))
        return false;
    const uint32_t slot = c->first_slot[set][r->a] + number;
    struct head_rows *head = &c->heads[slot];
    if (r->c != head->n_tiled / KVR_TILE_ROWS || r->d != head->next_col ||
        shape->n_token - head->n_tiled < KVR_TILE_ROWS || r->size == 0 ||
        r->size > UINT32_MAX)
        return false;
    const struct stored_tile tile = {.slot = slot,
                                     .row_tile = r->c,
                                     .col = r->d,
                                     .item = head->item,
                                     .size = (uint32_t)r->size,
                                     .offset = at + sizeof *r,
                                     .hash = r->extra};
    if (kvr__content_add_tile(c, &tile, err) != KVR_OK)
        return false;
    if (++head->next_col == kvr__content_n_col(c, slot, r->c))
        kvr__content_close_tile(c, slot);
    return true;
}

/* Bytes of rows first..first+n-1 of slots from..end-1; 0: they do not follow
 * what is there, or go over a tile. */
static uint64_t rows_size(const struct content *c, uint32_t first, uint32_t n,
                          uint32_t from, uint32_t end)
{
    uint64_t size = 0;

    if (n == 0 || n > KVR_TILE_ROWS || first >= c->box->shape.n_token ||
        n > c->box->shape.n_token - first)
        return 0;
    for (uint32_t s = from; s < end; s++) {
        const struct head_rows *head = &c->heads[s];
        if (head->n_row != first || head->next_col != 0 ||
            first + n - head->n_tiled > KVR_TILE_ROWS)
            return 0;
        for (uint32_t row = first; row < first + n; row++)
            size += kvr__content_row_size(c, s, row);
    }
    return size;
}

/* `size` bytes of rows: the payload, or what is inflated from it into *own.
 * NULL: it holds something else, or j->failed. */
static const uint8_t *rows_of(struct kvr_journal *j, const struct content *c,
                              const struct journal_record *r, uint64_t size,
                              uint8_t **own)
{
    const size_t item = kvr__content_rows_item(c);

    if (r->extra == ROWS_PLAIN)
        return r->size == size ? j->payload : NULL;
    /* deflate's best is 1032 to 1: no larger claim sizes a buffer */
    if (r->extra != ROWS_DEFLATED || size / 1040 > r->size)
        return NULL;
    *own = malloc(size);
    errno = 0;
    if (*own != NULL && kvr__codec_unpack(j->codec, *own, size / item, item,
                                          j->payload, r->size, true))
        return *own;
    if (*own == NULL || errno == ENOMEM)
        fail(j, kvr_no_memory(&j->why, "rows of a journal", size));
    return NULL;
}

static bool apply_rows(struct kvr_journal *j, struct content *c,
                       const struct journal_record *r)
{
    if (r->c > c->n_slot || r->d > c->n_slot - r->c)
        return false;
    const uint32_t end = r->d != 0 ? r->c + r->d : c->n_slot;
    const uint64_t size = rows_size(c, r->a, r->b, r->c, end);
    uint8_t *inflated = NULL;
    bool ok = false;
    const uint8_t *from = size > 0 ? rows_of(j, c, r, size, &inflated) : NULL;

    if (from == NULL)
        goto out;
    for (uint32_t s = r->c; s < end; s++) {
        for (uint32_t row = r->a; row < r->a + r->b; row++) {
            const size_t bytes = kvr__content_row_size(c, s, row);
            uint8_t *to = kvr__content_row(c, s, row);
            if (to == NULL) {
                fail(j, kvr_no_memory(&j->why, "a row", bytes));
                goto out;
            }
            memcpy(to, from, bytes);
            from += bytes;
        }
        c->heads[s].n_row = r->a + r->b;
    }
    ok = true;
out:
    free(inflated);
    return ok;
}

static bool apply_array(struct kvr_journal *j, struct content *c,
                        const struct journal_record *r, struct kvr_error *err)
{
    struct cursor in = {.at = j->payload, .left = r->size};
    const uint32_t rows = kvr__take_u32(&in);
    const uint64_t n = r->d;

    if (r->a >= c->box->shape.n_layer || r->b >= KVR_N_ARRAY || rows == 0 ||
        rows > SHAPE_MAX_HEADS || in.left != rows * n * sizeof(float) ||
        kvr__content_array(c, r->a, (enum kvr_array)r->b, rows, r->c, r->d,
                           err) != KVR_OK)
        return false;
    struct array_data *a = &c->arrays[r->a][r->b];
    for (uint32_t i = 0; i < rows; i++)
        memcpy(a->data + (size_t)i * a->capacity + r->c,
               kvr__take(&in, n * sizeof(float)), n * sizeof(float));
    return true;
}

static bool apply_widen(struct kvr_journal *j, struct content *c,
                        const struct journal_record *r)
{
    if (r->a >= c->box->shape.n_layer || r->b < SET_QUERY || r->b > SET_VALUE)
        return false;
    const uint32_t slot = c->first_slot[r->b][r->a];
    if (slot >= c->first_slot[r->b][r->a + 1] ||
        c->heads[slot].item != sizeof(uint16_t) || r->c > c->box->shape.n_token)
        return false;
    return kvr__content_widen(c, r->a, (enum row_set)r->b, r->c) ||
           fail(j, kvr_no_memory(&j->why, "wider rows", r->size));
}

static bool apply_mlp(struct kvr_journal *j, struct content *c,
                      const struct journal_record *r, struct kvr_error *err)
{
    struct cursor in = {.at = j->payload, .left = r->size};

    if (r->a >= c->box->shape.n_layer || r->size != r->d * (uint64_t)8 ||
        kvr__content_mlp(c, r->a, r->d, err) != KVR_OK)
        return false;
    struct mlp_data *m = &c->mlp[r->a];
    if (r->b != m->n_token || r->c > c->box->shape.n_token - r->b)
        return false;
    for (uint32_t i = 0; i < r->d; i++) {
        float mass;
        memcpy(&mass, kvr__take(&in, sizeof mass), sizeof mass);
        m->mass[i] += (double)mass;
    }
    for (uint32_t i = 0; i < r->d; i++)
        m->active[i] += kvr__take_u32(&in);
    m->n_token += r->c;
    return true;
}

static bool apply_tokens(struct kvr_journal *j, struct content *c,
                         const struct journal_record *r, struct kvr_error *err)
{
    struct cursor in = {.at = j->payload, .left = r->size};

    if (r->a != c->tokens.n || r->b > c->box->shape.n_token - r->a)
        return false;
    for (uint32_t i = 0; i < r->b; i++) {
        const int32_t id = (int32_t)kvr__take_u32(&in);
        float logprob = 0;
        const uint8_t *bits = kvr__take(&in, sizeof logprob);
        const uint32_t class_of = kvr__take_u32(&in);
        const uint32_t size = kvr__take_u32(&in);
        const uint8_t *text = kvr__take(&in, size);
        if (in.bad)
            return false;
        memcpy(&logprob, bits, sizeof logprob);
        if (kvr__content_token(c, id, r->c != 0 ? text : NULL, size, logprob,
                               (uint8_t)class_of, err) != KVR_OK)
            return false;
    }
    return in.left == 0;
}

static bool apply_commit(struct content *c, const struct journal_record *r)
{
    struct kvr_trace_shape *shape = &c->box->shape;

    if (r->a < c->n_step || r->a > shape->n_token || r->b == 0 ||
        r->b > shape->n_token)
        return false;
    for (uint32_t s = 0; s < c->n_slot; s++)
        if (c->heads[s].n_row != r->a || c->heads[s].next_col != 0)
            return false;
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        if (shape->layers[l].mask == KVR_MASK_NONE && r->a != shape->n_token)
            return false;
        for (int a = 0; a < KVR_N_ARRAY; a++)
            if (c->arrays[l][a].rows != 0 && c->arrays[l][a].n_token != r->a)
                return false;
        if (c->mlp[l].n_ff != 0 && c->mlp[l].n_token != r->a)
            return false;
    }
    if (c->tokens.n != 0 && c->tokens.n != r->a)
        return false;
    c->n_step = r->a;
    shape->prompt_len = r->b;
    return true;
}

static bool apply(struct kvr_journal *j, struct content *c,
                  const struct journal_record *r, uint64_t at,
                  struct kvr_error *err)
{
    switch ((enum journal_type)r->type) {
    case JOURNAL_HEADER:
        return at == 0;
    case JOURNAL_TILE:
        return apply_tile(c, r, at, err);
    case JOURNAL_ROWS:
        return apply_rows(j, c, r);
    case JOURNAL_ARRAY:
        return apply_array(j, c, r, err);
    case JOURNAL_TOKENS:
        return apply_tokens(j, c, r, err);
    case JOURNAL_COMMIT:
        return apply_commit(c, r);
    case JOURNAL_WIDEN:
        return apply_widen(j, c, r);
    case JOURNAL_MLP:
        return apply_mlp(j, c, r, err);
    }
    return false;
}

static enum kvr_status pass_on(const struct kvr_journal *j,
                               struct kvr_error *err)
{
    return kvr_fail(err, j->failed, "%s", j->why.message);
}

static enum kvr_status read_header(struct kvr_journal *j, struct kvr_error *err)
{
    struct journal_record r;
    struct shape_box *box = NULL;

    kvr__content_free(j->content);
    j->content = NULL;
    const bool found = next_record(j, 0, 0, &r);
    if (j->failed != KVR_OK)
        return pass_on(j, err);
    if (!found || r.type != JOURNAL_HEADER)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: no journal: %s", j->path,
                        j->facts.problem[0] != '\0'
                            ? j->facts.problem
                            : "its first record is no header");
    if (r.a != JOURNAL_MAJOR)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: journal format %u.%u; this program reads %d.x",
                        j->path, r.a, r.b, JOURNAL_MAJOR);
    if (r.c > 12)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: deflate level %u", j->path,
                        r.c);
    struct cursor in = {.at = j->payload, .left = r.size};
    const enum kvr_status status = kvr__shape_unpack(&box, &in, j->path, err);
    if (status != KVR_OK)
        return status;
    return kvr__content_new(&j->content, box, (int)r.c, err);
}

/* Applies the records before `end`. Where one does not fit, *end becomes the
 * end of the last commit before it, and the caller begins again. */
static enum kvr_status apply_all(struct kvr_journal *j, uint64_t *end,
                                 bool *again, struct kvr_error *err)
{
    struct journal_record r;
    uint64_t at = 0, last = 0;

    *again = false;
    const enum kvr_status status = read_header(j, err);
    if (status != KVR_OK)
        return status;
    for (uint64_t sequence = 0; at < *end; sequence++) {
        struct kvr_error why = {0};
        const bool fits = next_record(j, at, sequence, &r) &&
                          apply(j, j->content, &r, at, &why);
        if (!fits && j->failed == KVR_OK && why.status == KVR_ERR_MEMORY)
            fail(j, kvr_fail(&j->why, why.status, "%s", why.message));
        if (j->failed != KVR_OK)
            return pass_on(j, err);
        if (!fits) {
            j->facts.damaged = true;
            note(j, "the record at byte %llu does not fit those before it",
                 (unsigned long long)at);
            *end = last;
            *again = true;
            return KVR_OK;
        }
        at += sizeof r + r.size;
        if (r.type == JOURNAL_COMMIT)
            last = at;
    }
    return KVR_OK;
}

static enum kvr_status read_journal(struct kvr_journal *j,
                                    struct kvr_error *err)
{
    struct stat st;
    bool again = true;

    j->fd = open(j->path, O_RDONLY | O_CLOEXEC);
    if (j->fd < 0 || fstat(j->fd, &st) != 0)
        return kvr_fail(err, KVR_ERR_IO, "%s: cannot be opened: %s", j->path,
                        strerror(errno));
    j->facts.size = (uint64_t)st.st_size;
    if (flock(j->fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        j->facts.running = true;
    enum kvr_status status = kvr__codec_new(&j->codec, 0, err);
    if (status == KVR_OK)
        status = read_header(j, err);
    if (status != KVR_OK)
        return status;
    uint64_t end = find_last_commit(j);
    if (j->failed != KVR_OK)
        return pass_on(j, err);
    while (status == KVR_OK && again)
        status = apply_all(j, &end, &again, err);
    if (status != KVR_OK)
        return status;
    j->facts.closed_bytes = end;
    j->facts.n_step = j->content->n_step;
    for (size_t i = 0; i < j->content->n_tile; i++)
        j->facts.stored_bytes += j->content->tiles[i].size;
    return KVR_OK;
}

enum kvr_status kvr_journal_open(struct kvr_journal **out, const char *path,
                                 struct kvr_error *err)
{
    struct kvr_journal *j = kvr_calloc(1, sizeof *j);

    if (j == NULL)
        return kvr_no_memory(err, "a journal", sizeof *j);
    j->fd = -1;
    j->path = kvr_strdup(path);
    enum kvr_status status = KVR_OK;
    if (j->path == NULL)
        status = kvr_no_memory(err, "a path", strlen(path));
    if (status == KVR_OK && !kvr_journal_is(path))
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: no journal of a capture (it does not begin "
                          "with 'KVRJ')",
                          path);
    if (status == KVR_OK)
        status = read_journal(j, err);
    if (status != KVR_OK) {
        kvr_journal_close(j);
        return status;
    }
    *out = j;
    return KVR_OK;
}

void kvr_journal_close(struct kvr_journal *j)
{
    if (j == NULL)
        return;
    kvr__content_free(j->content);
    kvr__codec_free(j->codec);
    if (j->fd >= 0)
        close(j->fd);
    free(j->payload);
    free(j->path);
    free(j);
}

const struct kvr_trace_shape *kvr_journal_shape(const struct kvr_journal *j)
{
    return &j->content->box->shape;
}

const struct kvr_journal_facts *kvr_journal_facts(const struct kvr_journal *j)
{
    return &j->facts;
}
