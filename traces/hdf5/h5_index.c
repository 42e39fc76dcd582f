/* h5_index.c -- what a child said of a file, taken apart and judged.
 *
 * The child worked on bytes that may be damaged, so nothing that it says is
 * believed: numbers are bounded, and what refers to another item must find
 * it.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_index.h"
#include "h5_open.h"

#include "bytes.h"
#include "h5_stream.h"
#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The index while it grows. */
struct take {
    struct h5_index *file;
    struct cursor in;
    size_t cap_object, cap_link, cap_attr, cap_place;
    bool no_memory, ended;
};

/* The last object; NULL and `bad`: there is none. */
static struct h5_object *at_hand(struct take *t)
{
    if (t->file->n_object > 0)
        return &t->file->objects[t->file->n_object - 1];
    t->in.bad = true;
    return NULL;
}

/* Room for one more of a list. */
static void *one_more(struct take *t, void **list, size_t *n, size_t *capacity,
                      size_t size)
{
    if (!kvr_grow(list, capacity, *n + 1, size)) {
        t->no_memory = true;
        return NULL;
    }
    uint8_t *at = (uint8_t *)*list + *n * size;
    memset(at, 0, size);
    (*n)++;
    return at;
}

/* Bytes with a 0 behind them; borrowed from the stream. */
static const uint8_t *take_bytes(struct take *t, uint32_t *n)
{
    *n = kvr__take_u32(&t->in);
    const uint8_t *at = kvr__take(&t->in, (size_t)*n + 1);
    if (at != NULL && at[*n] != 0)
        t->in.bad = true;
    return t->in.bad ? NULL : at;
}

static const char *take_text(struct take *t)
{
    uint32_t n;
    const char *text = (const char *)take_bytes(t, &n);

    if (text != NULL && strlen(text) != n)
        t->in.bad = true;
    return text;
}

static uint32_t take_below(struct take *t, uint32_t end)
{
    const uint32_t value = kvr__take_u32(&t->in);

    if (value >= end)
        t->in.bad = true;
    return t->in.bad ? 0 : value;
}

static bool number_size(uint32_t size, enum h5_type_kind kind)
{
    return size == 2 || size == 4 || size == 8 ||
           (size == 1 && kind == TYPE_INTEGER);
}

static void take_type(struct take *t, struct h5_type *type)
{
    type->kind = (enum h5_type_kind)take_below(t, TYPE_VARIABLE_TEXT + 1);
    type->size = kvr__take_u32(&t->in);
    type->big_endian = kvr__take_u32(&t->in) != 0;
    type->is_signed = kvr__take_u32(&t->in) != 0;
    if ((type->kind == TYPE_INTEGER || type->kind == TYPE_FLOAT) &&
        !number_size(type->size, type->kind))
        t->in.bad = true;
}

static void take_object(struct take *t)
{
    struct h5_index *f = t->file;
    const uint32_t kind = take_below(t, OBJECT_OTHER + 1);
    struct h5_object *object = one_more(t, (void **)&f->objects, &f->n_object,
                                        &t->cap_object, sizeof *f->objects);

    if (object == NULL)
        return;
    object->kind = (enum h5_object_kind)kind;
    object->first_link = f->n_link;
    object->first_attr = f->n_attr;
}

static void take_problem(struct take *t, bool attributes)
{
    const char *text = take_text(t);
    struct h5_object *object = at_hand(t);

    if (object == NULL)
        return;
    const char **to = attributes ? &object->attr_problem : &object->problem;
    if (*to == NULL)
        *to = text;
}

static void take_link(struct take *t)
{
    struct h5_index *f = t->file;
    struct h5_object *object = at_hand(t);
    struct h5_link *link = one_more(t, (void **)&f->links, &f->n_link,
                                    &t->cap_link, sizeof *f->links);

    if (link == NULL || object == NULL)
        return;
    link->name = take_text(t);
    link->kind = (enum h5_link_kind)take_below(t, LINK_FOREIGN + 1);
    link->object = kvr__take_u32(&t->in);
    object->n_link++;
}

/* What is read of a value is as long as its type and count say. */
static bool value_fits(const struct h5_attr *attr)
{
    switch (attr->type.kind) {
    case TYPE_INTEGER:
    case TYPE_FLOAT:
        return attr->n <= UINT32_MAX &&
               attr->n * attr->type.size == attr->n_byte;
    case TYPE_FIXED_TEXT:
    case TYPE_PADDED_TEXT:
        return attr->n <= 1 && attr->n * attr->type.size == attr->n_byte;
    case TYPE_VARIABLE_TEXT:
        return attr->n <= 1;
    case TYPE_OTHER:
        break;
    }
    return false;
}

static void cut_padding(uint8_t *text, uint32_t n)
{
    while (n > 0 && text[n - 1] == ' ')
        text[--n] = '\0';
}

static void take_attr(struct take *t)
{
    struct h5_index *f = t->file;
    struct h5_object *object = at_hand(t);
    struct h5_attr *attr = one_more(t, (void **)&f->attrs, &f->n_attr,
                                    &t->cap_attr, sizeof *f->attrs);

    if (attr == NULL || object == NULL)
        return;
    attr->name = take_text(t);
    take_type(t, &attr->type);
    attr->n = kvr__take_u64(&t->in);
    const bool read = kvr__take_u32(&t->in) != 0;
    const uint8_t *value = take_bytes(t, &attr->n_byte);
    if (read && !value_fits(attr))
        t->in.bad = true;
    if (value != NULL && attr->type.kind == TYPE_PADDED_TEXT)
        cut_padding(f->said + (value - f->said), attr->n_byte);
    attr->value = read ? value : NULL;
    object->n_attr++;
}

static void take_extent(struct take *t, struct h5_set *set)
{
    const uint32_t rank = kvr__take_u32(&t->in);

    if (rank != UINT32_MAX && rank > INDEX_MAX_RANK)
        t->in.bad = true;
    set->rank = rank <= INDEX_MAX_RANK ? (int)rank : -1;
    for (int i = 0; i < INDEX_MAX_RANK; i++) {
        set->dims[i] = kvr__take_u64(&t->in);
        set->chunk[i] = kvr__take_u64(&t->in);
        set->grid[i] = kvr__take_u64(&t->in);
    }
}

/* A grid is what the extent and the chunks make it. */
static bool grid_fits(const struct h5_set *set)
{
    for (int i = 0; i < set->rank; i++)
        if (set->chunk[i] == 0 ||
            set->grid[i] != (set->dims[i] == 0
                                 ? 0
                                 : (set->dims[i] - 1) / set->chunk[i] + 1))
            return false;
    return set->rank > 0;
}

static void take_filters(struct take *t, struct h5_set *set)
{
    const uint32_t n = take_below(t, INDEX_MAX_FILTERS + 2);

    set->n_filter = (int)n; /* one more than there is room for: too many */
    for (uint32_t i = 0; i < n && i < INDEX_MAX_FILTERS; i++) {
        set->filter[i].id = kvr__take_u32(&t->in);
        set->filter[i].parameter = kvr__take_u32(&t->in);
        set->filter[i].name = take_text(t);
    }
}

static void take_set(struct take *t)
{
    struct h5_object *object = at_hand(t);
    struct h5_set *set = kvr_calloc(1, sizeof *set);
    uint32_t n;

    if (set == NULL || object == NULL || object->set != NULL) {
        t->no_memory = set == NULL;
        t->in.bad = true;
        free(set);
        return;
    }
    object->set = set;
    take_type(t, &set->type);
    take_extent(t, set);
    set->layout = (enum h5_layout)take_below(t, LAYOUT_VIRTUAL + 1);
    const char *external = take_text(t);
    set->external = external != NULL && external[0] != '\0' ? external : NULL;
    set->offset = kvr__take_u64(&t->in);
    set->stored = kvr__take_u64(&t->in);
    take_filters(t, set);
    set->fill = take_bytes(t, &n);
    if (n != set->type.size)
        set->fill = NULL;
    set->edges_are_plain = kvr__take_u32(&t->in) != 0;
    set->compact = take_bytes(t, &set->n_compact);
    set->first_place = t->file->n_place;
    if (set->layout == LAYOUT_CHUNKED && !t->in.bad && !grid_fits(set))
        t->in.bad = true;
}

static void take_place(struct take *t)
{
    struct h5_index *f = t->file;
    const struct h5_object *object = at_hand(t);
    struct h5_place *place = one_more(t, (void **)&f->places, &f->n_place,
                                      &t->cap_place, sizeof *f->places);

    if (object == NULL || object->set == NULL || place == NULL) {
        t->in.bad = true;
        return;
    }
    struct h5_set *set = object->set;
    place->cell = kvr__take_u64(&t->in);
    place->offset = kvr__take_u64(&t->in);
    place->size = kvr__take_u64(&t->in);
    place->skipped = kvr__take_u64(&t->in);
    if (set->layout != LAYOUT_CHUNKED ||
        (set->n_place > 0 && place[-1].cell >= place->cell) ||
        place->size > UINT64_MAX - set->stored)
        t->in.bad = true;
    set->n_place++;
    set->stored += place->size;
}

static enum kvr_status take_failure(struct take *t, struct kvr_error *err)
{
    const bool system = kvr__take_u32(&t->in) != 0;
    const char *text = take_text(t);

    return kvr_fail(err, system ? KVR_ERR_IO : KVR_ERR_INPUT, "%s: %s",
                    t->file->path, text != NULL ? text : "");
}

static enum kvr_status take_item(struct take *t, struct kvr_error *err)
{
    switch (kvr__take_u32(&t->in)) {
    case TAG_OBJECT:
        take_object(t);
        break;
    case TAG_PROBLEM:
        take_problem(t, false);
        break;
    case TAG_ATTR_PROBLEM:
        take_problem(t, true);
        break;
    case TAG_LINK:
        take_link(t);
        break;
    case TAG_ATTR:
        take_attr(t);
        break;
    case TAG_SET:
        take_set(t);
        break;
    case TAG_PLACE:
        take_place(t);
        break;
    case TAG_FAILED:
        return take_failure(t, err);
    case TAG_END:
        t->ended = kvr__take_u32(&t->in) == t->file->n_object;
        break;
    default:
        t->in.bad = true;
    }
    return KVR_OK;
}

static int compare_links(const void *a, const void *b)
{
    const struct h5_link *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Links by name, each once, to objects that are there. */
static bool sort_links(struct h5_index *file)
{
    for (size_t i = 0; i < file->n_link; i++)
        if (file->links[i].kind == LINK_HARD &&
            file->links[i].object >= file->n_object)
            return false;
    for (size_t o = 0; o < file->n_object; o++) {
        struct h5_link *first = file->links + file->objects[o].first_link;
        const size_t n = file->objects[o].n_link;
        if (n > 1)
            qsort(first, n, sizeof *first, compare_links);
        for (size_t i = 1; i < n; i++)
            if (strcmp(first[i - 1].name, first[i].name) == 0)
                return false;
    }
    return true;
}

enum kvr_status kvr__h5_take(struct h5_index *file, struct kvr_error *err)
{
    struct take t = {.file = file,
                     .in = {.at = file->said, .left = file->n_said}};
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK && !t.ended && !t.in.bad && !t.no_memory)
        status = take_item(&t, err);
    if (status != KVR_OK)
        return status;
    if (t.no_memory)
        return kvr_no_memory(err, "a file's index", file->n_said);
    if (t.in.bad || t.in.left != 0 || file->n_object == 0 || !sort_links(file))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: what the HDF5 library finds in this file does "
                        "not fit together: damaged",
                        file->path);
    return KVR_OK;
}

void kvr__h5_close(struct h5_index *file)
{
    if (file == NULL)
        return;
    for (size_t i = 0; i < file->n_object; i++)
        free(file->objects[i].set);
    free(file->objects);
    free(file->links);
    free(file->attrs);
    free(file->places);
    free(file->said);
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file);
}

const struct h5_object *kvr__h5_root(const struct h5_index *file)
{
    return &file->objects[0];
}

/* ---- members ---- */

static enum kvr_status one_member(const struct h5_object **out,
                                  const struct h5_index *file,
                                  const struct h5_object *group,
                                  const char *name, const char *where,
                                  struct kvr_error *err)
{
    const struct h5_link key = {.name = name};
    const char *slash = strcmp(where, "/") == 0 ? "" : "/";

    *out = NULL;
    if (group->problem != NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: %s", file->path,
                        where[0] != '\0' ? where : "/", group->problem);
    if (group->n_link == 0)
        return KVR_OK;
    const struct h5_link *link =
        bsearch(&key, file->links + group->first_link, group->n_link,
                sizeof key, compare_links);
    if (link == NULL)
        return KVR_OK;
    if (link->kind != LINK_HARD)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: %s%s%s: a soft or external link, which is not "
                        "followed",
                        file->path, where, slash, name);
    const struct h5_object *object = &file->objects[link->object];
    if (object->problem != NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s%s%s: %s", file->path, where,
                        slash, name, object->problem);
    *out = object;
    return KVR_OK;
}

enum kvr_status kvr__h5_member(const struct h5_object **out,
                               const struct h5_index *file,
                               const struct h5_object *group, const char *name,
                               const char *where, struct kvr_error *err)
{
    char *copy = kvr_strdup(name), *rest = copy;
    enum kvr_status status = KVR_OK;

    *out = NULL;
    if (copy == NULL)
        return kvr_no_memory(err, "a name", strlen(name));
    const struct h5_object *at = group;
    while (status == KVR_OK && at != NULL && rest != NULL) {
        char *part = rest + strspn(rest, "/");
        rest = strchr(part, '/');
        if (rest != NULL)
            *rest++ = '\0';
        if (part[0] == '\0')
            continue;
        status = one_member(&at, file, at, part, where, err);
    }
    free(copy);
    *out = status == KVR_OK ? at : NULL;
    return status;
}
