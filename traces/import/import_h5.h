/* import_h5.h -- attention in HDF5: which datasets, and reading blocks.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef IMPORT_H5_H
#define IMPORT_H5_H

#include "h5_data.h"
#include "import.h"
#include "import_names.h"

/* One array, one array for each layer, or one for each layer and step. */
enum h5_form { FORM_ARRAY, FORM_LAYERS, FORM_STEPS };

struct h5_dump {
    struct h5_index *file;
    enum h5_form form;
    char *name;       /* FORM_ARRAY: its dataset */
    struct grid grid; /* FORM_LAYERS, FORM_STEPS: theirs */
    struct view view;
    uint32_t first_rows;    /* FORM_STEPS: rows of the first step */
    struct h5_reader *open; /* the dataset read last */
    const struct h5_set *open_set;
    uint8_t *block; /* of it, as stored */
    size_t n_block;
};

/* A dataset by its path from the root, each part behind a hard link. *out
 * NULL: absent. */
enum kvr_status kvr__h5_find_path(const struct h5_object **out,
                                  const struct h5_index *file, const char *name,
                                  struct kvr_error *err);

/* Finds what to read; fills form, name and the numbers. */
enum kvr_status kvr__h5_find(struct h5_dump *h5, const char *path,
                             const struct kvr_import_options *options,
                             struct kvr_error *err);

#endif
