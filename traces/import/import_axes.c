/* import_axes.c -- which axis of an array is which.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import.h"

#include <stdio.h>
#include <string.h>

static const char letters[] = "blhqk";

static void shape_text(char out[160], int rank, const uint64_t *dims)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < rank && used < 130; i++)
        used +=
            (size_t)snprintf(out + used, 160 - used, "%s%llu",
                             i > 0 ? ", " : "", (unsigned long long)dims[i]);
}

static enum kvr_status place_axes(struct view *view, const char *axes, int rank,
                                  const char *what, const char *shape,
                                  struct kvr_error *err)
{
    for (int a = 0; a < N_AXIS; a++)
        view->at[a] = -1;
    for (int i = 0; axes[i] != '\0'; i++) {
        const char *letter = strchr(letters, axes[i]);
        if (letter == NULL || view->at[letter - letters] >= 0)
            return kvr_fail(err, KVR_ERR_USAGE,
                            "--axes %s: expected each of b, l, h, q, k at "
                            "most once",
                            axes);
        view->at[letter - letters] = i;
    }
    if (strlen(axes) != (size_t)rank || view->at[AXIS_Q] < 0 ||
        view->at[AXIS_K] < 0)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: shape [%s] with --axes %s: expected one letter "
                        "for each axis, q and k among them",
                        what, shape, axes);
    return KVR_OK;
}

static enum kvr_status default_axes(const char **axes, int rank,
                                    const uint64_t *dims, const char *what,
                                    const char *shape, struct kvr_error *err)
{
    if (rank == 2)
        *axes = "qk";
    else if (rank == 3)
        *axes = "hqk";
    else if (rank == 4 && dims[0] == 1)
        *axes = "bhqk";
    else if (rank == 4)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: shape [%s]: is the first axis layer or batch? "
                        "Name the axes: --axes lhqk, or --axes bhqk with "
                        "--batch-item (letters b, l, h, q, k)",
                        what, shape);
    else
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: shape [%s]: expected 2 to 4 axes, or --axes", what,
                        shape);
    return KVR_OK;
}

static enum kvr_status choose_batch(struct view *view,
                                    const struct kvr_import_options *options,
                                    const char *what, const char *shape,
                                    struct kvr_error *err)
{
    const uint64_t n = view->extent[AXIS_B];

    if (options->batch_item < 0 && n > 1)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: shape [%s] has %llu batch items: choose one with "
                        "--batch-item 0..%llu",
                        what, shape, (unsigned long long)n,
                        (unsigned long long)n - 1);
    if (options->batch_item >= 0 && (uint64_t)options->batch_item >= n)
        return kvr_fail(err, KVR_ERR_USAGE,
                        "%s: --batch-item %lld of %llu batch items", what,
                        (long long)options->batch_item, (unsigned long long)n);
    view->batch = options->batch_item > 0 ? (uint64_t)options->batch_item : 0;
    return KVR_OK;
}

enum kvr_status kvr__view(struct view *view, int rank, const uint64_t *dims,
                          const struct kvr_import_options *options,
                          const char *what, struct kvr_error *err)
{
    const char *axes = options->axes;
    enum kvr_status status = KVR_OK;
    char shape[160];

    shape_text(shape, rank, dims);
    if (axes == NULL)
        status = default_axes(&axes, rank, dims, what, shape, err);
    if (status == KVR_OK)
        status = place_axes(view, axes, rank, what, shape, err);
    if (status != KVR_OK)
        return status;
    for (int a = 0; a < N_AXIS; a++)
        view->extent[a] = view->at[a] >= 0 ? dims[view->at[a]] : 1;
    for (int a = 0; a < N_AXIS; a++)
        if (view->extent[a] == 0)
            return kvr_fail(err, KVR_ERR_INPUT, "%s: shape [%s] is empty", what,
                            shape);
    return choose_batch(view, options, what, shape, err);
}
