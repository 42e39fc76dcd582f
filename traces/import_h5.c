/* import_h5.c -- attention dumps in HDF5.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_h5.h"

#include "h5_chunks.h"
#include "h5_vlen.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t set_limit = (uint64_t)1 << 50;

static void close_h5(struct dump *dump)
{
    struct h5_dump *h5 = dump->own;

    if (h5 == NULL)
        return;
    if (h5->open >= 0)
        H5Dclose(h5->open);
    if (h5->file >= 0)
        H5Fclose(h5->file);
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

static enum kvr_status open_set(hid_t *out, const struct dump *dump,
                                uint32_t layer, size_t step,
                                struct kvr_error *err)
{
    const struct h5_dump *h5 = dump->own;
    const char *name = name_of(h5, layer, step);

    enum kvr_status status =
        kvr__h5_open_path(out, dump->path, h5->file, name, err);
    if (status == KVR_OK && *out < 0)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: %s: there is no such "
                          "dataset",
                          dump->path, name);
    if (status == KVR_OK) {
        status = kvr__h5_check_size(*out, dump->path, name, set_limit, err);
        if (status != KVR_OK)
            H5Dclose(*out);
    }
    return status;
}

/* Type, shape and axes of one dataset; its chunks are looked at here, once. */
static enum kvr_status look_at(struct view *view, unsigned *item,
                               const struct dump *dump, uint32_t layer,
                               size_t step,
                               const struct kvr_import_options *options,
                               struct kvr_error *err)
{
    const struct h5_dump *h5 = dump->own;
    uint64_t wide[8];
    hsize_t dims[8];
    char what[300];
    hid_t set = -1;
    int rank;

    enum kvr_status status = open_set(&set, dump, layer, step, err);
    if (status != KVR_OK)
        return status;
    const hid_t type = H5Dget_type(set);
    *item = kvr__h5_float_size(type);
    H5Tclose(type);
    const char *name = name_of(h5, layer, step);
    snprintf(what, sizeof what, "%s: %s", dump->path, name);
    status = kvr__h5_check_chunks(set, dump->path, name, err);
    if (status == KVR_OK && *item == 0)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: no float of 2, 4 or 8 "
                          "bytes",
                          what);
    else if (status == KVR_OK && !kvr__h5_extent(&rank, dims, set))
        status = kvr_fail(err, KVR_ERR_INPUT, "%s: no simple array", what);
    H5Dclose(set);
    if (status != KVR_OK)
        return status;
    for (int i = 0; i < rank; i++)
        wide[i] = dims[i];
    return kvr__view(view, rank, wide, options, what, err);
}

/* The block that `view` selects: rows first..first+n-1 and n_key keys. */
static bool read_block(hid_t set, const struct view *view, uint32_t layer,
                       uint32_t head, uint32_t first, uint32_t n,
                       uint32_t n_key, double *out)
{
    const uint64_t start[N_AXIS] = {view->batch, layer, head, first, 0};
    const uint64_t count[N_AXIS] = {1, 1, 1, n, n_key};
    const hsize_t all[1] = {(hsize_t)n * n_key};
    hsize_t from[8] = {0}, size[8] = {0};

    for (int a = 0; a < N_AXIS; a++)
        if (view->at[a] >= 0) {
            from[view->at[a]] = start[a];
            size[view->at[a]] = count[a];
        }
    const hid_t space = H5Dget_space(set);
    const hid_t memory = H5Screate_simple(1, all, NULL);
    const bool ok =
        space >= 0 && memory >= 0 &&
        H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, size, NULL) >=
            0 &&
        H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, out) >= 0;
    if (space >= 0)
        H5Sclose(space);
    if (memory >= 0)
        H5Sclose(memory);
    return ok;
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

    if (h5->open < 0 || (h5->form == FORM_LAYERS && h5->open_layer != layer)) {
        if (h5->open >= 0)
            H5Dclose(h5->open);
        h5->open = -1;
        const enum kvr_status status = open_set(&h5->open, dump, layer, 0, err);
        if (status != KVR_OK) {
            h5->open = -1;
            return status;
        }
        h5->open_layer = layer;
    }
    if (!read_block(h5->open, &h5->view, h5->form == FORM_ARRAY ? layer : 0,
                    head, first, n, dump->n_row, out) ||
        (h5->view.at[AXIS_K] < h5->view.at[AXIS_Q] &&
         !transpose(out, n, dump->n_row)))
        return kvr__h5_fail(err, KVR_ERR_INPUT, dump->path,
                            "rows cannot be read");
    return KVR_OK;
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
        const uint32_t n_key = prompt ? h5->first_rows : row + 1;
        double *to = out + (size_t)r * dump->n_row;
        hid_t set = -1;
        enum kvr_status status = open_set(&set, dump, layer, step, err);
        if (status != KVR_OK)
            return status;
        if (!read_block(set, &h5->view, 0, head, prompt ? row : 0, 1, n_key,
                        to))
            status = kvr__h5_fail(err, KVR_ERR_INPUT, dump->path,
                                  "a row cannot be read");
        H5Dclose(set);
        if (status != KVR_OK)
            return status;
        for (uint32_t key = n_key; key < dump->n_row; key++)
            to[key] = 0;
    }
    return KVR_OK;
}

/* T rows, then one each, with one more key each; the same heads. */
static enum kvr_status check_steps(struct dump *dump, uint32_t layer,
                                   const struct kvr_import_options *options,
                                   struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;

    for (size_t s = 0; s < h5->grid.n_step; s++) {
        struct view view;
        unsigned item;
        const enum kvr_status status =
            look_at(&view, &item, dump, layer, s, options, err);
        if (status != KVR_OK)
            return status;
        if (s == 0 && layer == 0) {
            h5->first_rows = (uint32_t)view.extent[AXIS_Q];
            h5->view = view;
            dump->item = item;
            dump->n_head = (uint32_t)view.extent[AXIS_H];
        }
        const uint64_t rows = s == 0 ? h5->first_rows : 1;
        const uint64_t keys = h5->first_rows + s;
        if (view.extent[AXIS_Q] != rows || view.extent[AXIS_K] != keys ||
            view.extent[AXIS_H] != dump->n_head || item != dump->item ||
            view.extent[AXIS_L] != 1)
            return kvr_fail(
                err, KVR_ERR_INPUT,
                "%s: step %u layer %u: %llu heads, %llu rows of %llu keys: "
                "expected %u heads, %llu rows of %llu keys",
                dump->path, h5->grid.steps[s], h5->grid.layers[layer],
                (unsigned long long)view.extent[AXIS_H],
                (unsigned long long)view.extent[AXIS_Q],
                (unsigned long long)view.extent[AXIS_K], dump->n_head,
                (unsigned long long)rows, (unsigned long long)keys);
    }
    return KVR_OK;
}

static enum kvr_status prepare_steps(struct dump *dump,
                                     const struct kvr_import_options *options,
                                     struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;
    enum kvr_status status = KVR_OK;

    dump->n_layer = (uint32_t)h5->grid.n_layer;
    for (uint32_t l = 0; status == KVR_OK && l < dump->n_layer; l++)
        status = check_steps(dump, l, options, err);
    dump->layers = h5->grid.layers;
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

/* What the file says of itself, on the root or on the object that is read. */
static enum kvr_status read_attrs(struct dump *dump, hid_t object,
                                  struct kvr_error *err)
{
    int64_t value;

    if (!kvr__h5_attributes_whole(object))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: an attribute is longer than its place in the "
                        "file: damaged",
                        dump->path);
    if (kvr__h5_get_int(&value, object, "prompt_len") && value > 0 &&
        value <= dump->n_row)
        dump->prompt_len = (uint32_t)value;
    if ((kvr__h5_get_int(&value, object, "n_kv_head") ||
         kvr__h5_get_int(&value, object, "n_kv_heads")) &&
        value > 0 && value <= dump->n_head)
        dump->n_kv_head = (uint32_t)value;
    if (dump->model == NULL)
        (void)kvr__h5_get_text(&dump->model, object, "model");
    if ((kvr__h5_get_int(&value, object, "n_head") ||
         kvr__h5_get_int(&value, object, "n_heads")) &&
        value != dump->n_head)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: attribute n_heads is %lld, but the data has %u "
                        "heads",
                        dump->path, (long long)value, dump->n_head);
    H5Eclear2(H5E_DEFAULT);
    return KVR_OK;
}

static enum kvr_status read_all_attrs(struct dump *dump, struct kvr_error *err)
{
    struct h5_dump *h5 = dump->own;
    hid_t object = -1;

    enum kvr_status status = read_attrs(dump, h5->file, err);
    if (status != KVR_OK)
        return status;
    if (h5->form == FORM_STEPS) {
        const char *home = h5->grid.home;
        if (home[0] == '\0')
            return KVR_OK;
        object = H5Gopen2(h5->file, home, H5P_DEFAULT);
        if (object < 0)
            return kvr__h5_fail(err, KVR_ERR_INPUT, dump->path, home);
        status = read_attrs(dump, object, err);
        H5Gclose(object);
        return status;
    }
    status = open_set(&object, dump, 0, 0, err);
    if (status != KVR_OK)
        return status;
    status = read_attrs(dump, object, err);
    H5Dclose(object);
    return status;
}

enum kvr_status kvr__dump_open_h5(struct dump *dump,
                                  const struct kvr_import_options *options,
                                  struct kvr_error *err)
{
    struct h5_dump *h5 = kvr_calloc(1, sizeof *h5);

    if (h5 == NULL)
        return kvr_no_memory(err, "a file", sizeof *h5);
    h5->file = h5->open = -1;
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
