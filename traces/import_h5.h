/* import_h5.h -- attention in HDF5: which datasets, and reading blocks.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef IMPORT_H5_H
#define IMPORT_H5_H

#include "h5_dataset.h"
#include "import.h"
#include "import_names.h"

/* One array, one array for each layer, or one for each layer and step. */
enum h5_form { FORM_ARRAY, FORM_LAYERS, FORM_STEPS };

struct h5_dump {
    hid_t file;
    enum h5_form form;
    char *name;       /* FORM_ARRAY: its dataset */
    struct grid grid; /* FORM_LAYERS, FORM_STEPS: theirs */
    struct view view;
    uint32_t first_rows; /* FORM_STEPS: rows of the first step */
    hid_t open;          /* FORM_LAYERS: the dataset read last */
    uint32_t open_layer;
};

/* Opens a dataset by its absolute path, each part behind a hard link. */
enum kvr_status kvr__h5_open_path(hid_t *out, const char *file_path, hid_t file,
                                  const char *name, struct kvr_error *err);

/* Finds what to read; fills form, name and the numbers. */
enum kvr_status kvr__h5_find(struct h5_dump *h5, const char *path,
                             const struct kvr_import_options *options,
                             struct kvr_error *err);

#endif
