/* import_h5.c -- attention dumps in HDF5.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_h5.h"

#include "kvr_log.h"
#include "kvr_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t set_limit = (uint64_t)1 << 50;

static void close_h5(struct dump *dump)
{
    struct h5_dump *h5 = dump->own;

    if (h5 == NULL)
        return;
    kvr__h5_reader_free(h5->open);
    kvr__h5_close(h5->file);
    free(h5->block);
    free(h5->name);
    kvr__grid_free(&h5->grid);
    free(h5);
    dump->own = NULL;
}

/* Dataset of a layer (and step). */
static const char *name_of(const struct h5_dump *h5, uint32_t layer,
                           size_t step)
{
    return h5->form == FORM_ARRAY
               ? h5->name
               : h5->grid.name[step * h5->grid.n_layer + layer];
}

static enum kvr_status find_set(const struct h5_object **out,
                                const struct dump *dump, uint32_t layer,
                                size_t step, struct kvr_error *err)
{
    const struct h5_dump *h5 = dump->own;
    const char *name = name_of(h5, layer, step);
    const enum kvr_status status = kvr__h5_find_path(out, h5->file, name, err);

    if (status == KVR_OK && *out == NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: there is no such dataset",
                        dump->path, name);
    return status;
}

/* Type, shape and axes of one dataset. */
static enum kvr_status look_at(struct view *view, unsigned *item,
                               const struct dump *dump, uint32_t layer,
                               size_t step,
                               const struct kvr_import_options *options,
                               struct kvr_error *err)
{
    const struct h5_dump *h5 = dump->own;
    const struct h5_object *object;
    const char *name = name_of(h5, layer, step);
    char what[300];

    enum kvr_status status = find_set(&object, dump, layer, step, err);
    snprintf(what, sizeof what, "%s: %s", dump->path, name);
    if (status == KVR_OK && object->set->type.kind != TYPE_FLOAT)
        status = kvr_fail(err, KVR_ERR_INPUT, "%s: no float of 2, 4 or 8 bytes",
                          what);
    if (status == KVR_OK)
        status =
            kvr__h5_check_stored(h5->file, object->set, name, set_limit, err);
    if (status != KVR_OK)
        return status;
    *item = object->set->type.size;
    return kvr__view(view, object->set->rank, object->set->dims, options, what,
                     err);
}

/* Makes h5->open read a layer's (and step's) dataset. */
static enum kvr_status open_set(struct dump *dump, uint32_t layer, size_t step,
                                struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;
    const struct h5_object *object;

    enum kvr_status status = find_set(&object, dump, layer, step, err);
    if (status == KVR_OK && (h5->open == NULL || h5->open_set != object->set)) {
        kvr__h5_reader_free(h5->open);
        h5->open = NULL;
        h5->open_set = object->set;
        status = kvr__h5_reader_new(&h5->open, h5->file, object->set,
                                    name_of(h5, layer, step), err);
    }
    return status;
}

/* The block that `view` selects of the open dataset: rows first..first+n-1 and
 * n_key keys, in the order of the axes. */
static enum kvr_status read_block(struct h5_dump *h5, const struct view *view,
                                  uint32_t layer, uint32_t head, uint32_t first,
                                  uint32_t n, uint32_t n_key, double *out,
                                  struct kvr_error *err)
{
    const uint64_t start[N_AXIS] = {view->batch, layer, head, first, 0};
    const uint64_t count[N_AXIS] = {1, 1, 1, n, n_key};
    uint64_t from[INDEX_MAX_RANK] = {0}, size[INDEX_MAX_RANK] = {0};
    const struct h5_type *type = &h5->open_set->type;
    const size_t bytes = (size_t)n * n_key * type->size;

    for (int a = 0; a < N_AXIS; a++)
        if (view->at[a] >= 0) {
            from[view->at[a]] = start[a];
            size[view->at[a]] = count[a];
        }
    if (!kvr_grow((void **)&h5->block, &h5->n_block, bytes, 1))
        return kvr_no_memory(err, "rows", bytes);
    const enum kvr_status status =
        kvr__h5_read_box(h5->open, from, size, h5->block, err);
    if (status == KVR_OK)
        kvr__h5_widen(out, h5->block, (size_t)n * n_key, type);
    return status;
}

/* A block whose keys come before its rows in the file. */
static bool transpose(double *block, uint32_t n, uint32_t n_key)
{
    double *copy = kvr_calloc((size_t)n * n_key, sizeof *copy);

    if (copy == NULL)
        return false;
    memcpy(copy, block, (size_t)n * n_key * sizeof *copy);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t key = 0; key < n_key; key++)
            block[(size_t)r * n_key + key] = copy[(size_t)key * n + r];
    free(copy);
    return true;
}

static enum kvr_status read_rows(struct dump *dump, uint32_t layer,
                                 uint32_t head, uint32_t first, uint32_t n,
                                 double *out, struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;
    const bool own_layers = h5->form == FORM_ARRAY;

    enum kvr_status status = open_set(dump, layer, 0, err);
    if (status == KVR_OK)
        status = read_block(h5, &h5->view, own_layers ? layer : 0, head, first,
                            n, dump->n_row, out, err);
    if (status == KVR_OK && h5->view.at[AXIS_K] < h5->view.at[AXIS_Q] &&
        !transpose(out, n, dump->n_row))
        status =
            kvr_no_memory(err, "rows", (size_t)n * dump->n_row * sizeof *out);
    return status;
}

/* Keys that a row of a step holds: its own is the last of them. */
static uint32_t step_keys(const struct dump *dump, uint32_t layer, uint32_t row)
{
    const uint32_t span = dump->spans[layer];

    return span != 0 && span < row + 1 ? span : row + 1;
}

/* Rows of steps: the first step's rows, then one row from each. */
static enum kvr_status read_steps(struct dump *dump, uint32_t layer,
                                  uint32_t head, uint32_t first, uint32_t n,
                                  double *out, struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;

    for (uint32_t r = 0; r < n; r++) {
        const uint32_t row = first + r;
        const bool prompt = row < h5->first_rows;
        const size_t step = prompt ? 0 : row - h5->first_rows + 1;
        const uint32_t n_key =
            prompt ? h5->first_rows : step_keys(dump, layer, row);
        const uint32_t oldest = prompt ? 0 : row + 1 - n_key;
        double *to = out + (size_t)r * dump->n_row;
        enum kvr_status status = open_set(dump, layer, step, err);
        if (status == KVR_OK)
            status = read_block(h5, &h5->view, 0, head, prompt ? row : 0, 1,
                                n_key, to + oldest, err);
        if (status != KVR_OK)
            return status;
        for (uint32_t key = 0; key < oldest; key++)
            to[key] = 0;
        for (uint32_t key = oldest + n_key; key < dump->n_row; key++)
            to[key] = 0;
    }
    return KVR_OK;
}

/* One step of a layer: T rows of T keys, or one row of as many keys as the
 * tokens so far, or as the window of the layer. */
static enum kvr_status check_step(const struct dump *dump, uint32_t layer,
                                  size_t step, const struct view *view,
                                  unsigned item, struct kvr_error *err)
{
    const struct h5_dump *h5 = dump->own;
    const uint32_t last = h5->first_rows + (uint32_t)step - 1;
    const uint64_t rows = step == 0 ? h5->first_rows : 1;
    const uint64_t keys =
        step == 0 ? h5->first_rows : step_keys(dump, layer, last);

    if (view->extent[AXIS_Q] == rows && view->extent[AXIS_K] == keys &&
        view->extent[AXIS_H] == dump->n_head && item == dump->item &&
        view->extent[AXIS_L] == 1)
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: step %u layer %u: %llu heads, %llu rows of %llu keys: "
                    "expected %u heads, %llu rows of %llu keys%s",
                    dump->path, h5->grid.steps[step], h5->grid.layers[layer],
                    (unsigned long long)view->extent[AXIS_H],
                    (unsigned long long)view->extent[AXIS_Q],
                    (unsigned long long)view->extent[AXIS_K], dump->n_head,
                    (unsigned long long)rows, (unsigned long long)keys,
                    item != dump->item ? ", of one type" : "");
}

/* The last step tells whether the cache of the layer stopped to grow. */
static enum kvr_status find_span(struct dump *dump, uint32_t layer,
                                 const struct kvr_import_options *options,
                                 struct kvr_error *err)
{
    const struct h5_dump *h5 = dump->own;
    const size_t last = h5->grid.n_step - 1;
    struct view view;
    unsigned item;

    const enum kvr_status status =
        look_at(&view, &item, dump, layer, last, options, err);
    if (status == KVR_OK && last > 0 &&
        view.extent[AXIS_K] < h5->first_rows + last)
        dump->spans[layer] = (uint32_t)view.extent[AXIS_K];
    return status;
}

static enum kvr_status check_steps(struct dump *dump, uint32_t layer,
                                   const struct kvr_import_options *options,
                                   struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;
    enum kvr_status status = KVR_OK;

    for (size_t s = 0; status == KVR_OK && s < h5->grid.n_step; s++) {
        struct view view;
        unsigned item;
        status = look_at(&view, &item, dump, layer, s, options, err);
        if (status == KVR_OK && s == 0 && layer == 0) {
            h5->first_rows = (uint32_t)view.extent[AXIS_Q];
            h5->view = view;
            dump->item = item;
            dump->n_head = (uint32_t)view.extent[AXIS_H];
        }
        if (status == KVR_OK && s == 0)
            status = find_span(dump, layer, options, err);
        if (status == KVR_OK)
            status = check_step(dump, layer, s, &view, item, err);
    }
    return status;
}

static enum kvr_status prepare_steps(struct dump *dump,
                                     const struct kvr_import_options *options,
                                     struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;
    enum kvr_status status = KVR_OK;

    dump->n_layer = (uint32_t)h5->grid.n_layer;
    dump->layers = h5->grid.layers;
    dump->spans = kvr_calloc(dump->n_layer, sizeof *dump->spans);
    if (dump->spans == NULL)
        return kvr_no_memory(err, "layers", dump->n_layer);
    for (uint32_t l = 0; status == KVR_OK && l < dump->n_layer; l++)
        status = check_steps(dump, l, options, err);
    dump->n_row = h5->first_rows + (uint32_t)(h5->grid.n_step - 1);
    dump->prompt_len = h5->first_rows;
    dump->read = read_steps;
    return status;
}

static enum kvr_status prepare_arrays(struct dump *dump,
                                      const struct kvr_import_options *options,
                                      struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;
    const uint32_t n_set =
        h5->form == FORM_LAYERS ? (uint32_t)h5->grid.n_layer : 1;

    for (uint32_t l = 0; l < n_set; l++) {
        struct view view;
        unsigned item;
        const enum kvr_status status =
            look_at(&view, &item, dump, l, 0, options, err);
        if (status != KVR_OK)
            return status;
        const uint64_t *n = view.extent;
        if (l == 0) {
            h5->view = view;
            dump->item = item;
        }
        if (n[AXIS_Q] != n[AXIS_K] || n[AXIS_Q] > UINT32_MAX ||
            n[AXIS_H] > UINT32_MAX || n[AXIS_L] > UINT32_MAX ||
            (h5->form == FORM_LAYERS && n[AXIS_L] != 1) ||
            n[AXIS_Q] != h5->view.extent[AXIS_Q] ||
            n[AXIS_H] != h5->view.extent[AXIS_H] || item != dump->item)
            return kvr_fail(
                err, KVR_ERR_INPUT,
                "%s: %s: %llu heads, %llu rows of %llu keys: "
                "expected as many keys as rows, and the same in "
                "all layers",
                dump->path, name_of(h5, l, 0), (unsigned long long)n[AXIS_H],
                (unsigned long long)n[AXIS_Q], (unsigned long long)n[AXIS_K]);
    }
    dump->layers = h5->grid.layers;
    dump->n_layer =
        h5->form == FORM_LAYERS ? n_set : (uint32_t)h5->view.extent[AXIS_L];
    dump->n_head = (uint32_t)h5->view.extent[AXIS_H];
    dump->n_row = (uint32_t)h5->view.extent[AXIS_Q];
    dump->read = read_rows;
    return KVR_OK;
}

/* An integer under one of two names; absent: *value is 0. What is there must
 * be one. */
static enum kvr_status get_int(int64_t *value, const struct h5_index *file,
                               const struct h5_object *object, const char *name,
                               const char *other, struct kvr_error *err)
{
    *value = 0;
    if (!kvr__h5_has_attr(file, object, name)) {
        if (other != NULL)
            return get_int(value, file, object, other, NULL, err);
        return KVR_OK;
    }
    if (kvr__h5_get_int(value, file, object, name))
        return KVR_OK;
    return kvr_fail(err, KVR_ERR_INPUT, "%s: attribute '%s' is not one integer",
                    file->path, name);
}

static enum kvr_status get_model(struct dump *dump, const struct h5_index *file,
                                 const struct h5_object *object,
                                 struct kvr_error *err)
{
    const char *text;

    if (dump->model != NULL || !kvr__h5_has_attr(file, object, "model"))
        return KVR_OK;
    if (!kvr__h5_get_text(&text, file, object, "model")) {
        kvr_log(KVR_LOG_NOTE,
                "%s: attribute 'model' is not one string: left out",
                file->path);
        return KVR_OK;
    }
    dump->model = kvr_strdup(text);
    return dump->model != NULL ? KVR_OK
                               : kvr_no_memory(err, "model", strlen(text));
}

/* What the file says of itself, on the root or on the object that is read. */
static enum kvr_status read_attrs(struct dump *dump,
                                  const struct h5_object *object,
                                  const char *where, struct kvr_error *err)
{
    const struct h5_index *file = ((const struct h5_dump *)dump->own)->file;
    int64_t prompt = 0, groups = 0, heads = 0;

    enum kvr_status status = kvr__h5_check_attrs(file, object, where, err);
    if (status == KVR_OK)
        status = get_int(&prompt, file, object, "prompt_len", NULL, err);
    if (status == KVR_OK)
        status = get_int(&groups, file, object, "n_kv_head", "n_kv_heads", err);
    if (status == KVR_OK)
        status = get_int(&heads, file, object, "n_head", "n_heads", err);
    if (status != KVR_OK)
        return status;
    if (prompt > 0 && prompt <= dump->n_row)
        dump->prompt_len = (uint32_t)prompt;
    if (groups > 0 && groups <= dump->n_head)
        dump->n_kv_head = (uint32_t)groups;
    if (heads != 0 && heads != dump->n_head)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: attribute n_heads is %lld, but the data has %u "
                        "heads",
                        dump->path, (long long)heads, dump->n_head);
    return get_model(dump, file, object, err);
}

static enum kvr_status read_all_attrs(struct dump *dump, struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;
    const struct h5_object *object = NULL, *root = kvr__h5_root(h5->file);
    const char *where =
        h5->form == FORM_STEPS ? h5->grid.home : name_of(h5, 0, 0);

    enum kvr_status status = read_attrs(dump, root, "/", err);
    if (status != KVR_OK)
        return status;
    if (h5->form == FORM_STEPS)
        status = kvr__h5_member(&object, h5->file, root, where, "", err);
    else
        status = find_set(&object, dump, 0, 0, err);
    if (status == KVR_OK && object != NULL && object != root)
        status = read_attrs(dump, object, where, err);
    return status;
}

enum kvr_status kvr__dump_open_h5(struct dump *dump,
                                  const struct kvr_import_options *options,
                                  struct kvr_error *err)
{
    struct h5_dump *h5 = kvr_calloc(1, sizeof *h5);

    if (h5 == NULL)
        return kvr_no_memory(err, "a file", sizeof *h5);
    dump->own = h5;
    dump->close = close_h5;
    enum kvr_status status = kvr__h5_open(&h5->file, dump->path, err);
    if (status == KVR_OK)
        status = kvr__h5_find(h5, dump->path, options, err);
    if (status == KVR_OK)
        status = h5->form == FORM_STEPS ? prepare_steps(dump, options, err)
                                        : prepare_arrays(dump, options, err);
    if (status == KVR_OK)
        status = read_all_attrs(dump, err);
    return status;
}
