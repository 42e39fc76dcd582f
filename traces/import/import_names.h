/* import_names.h -- which datasets of a file are which layer and step, by their
 * names alone.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef IMPORT_NAMES_H
#define IMPORT_NAMES_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum name_kind {
    NAME_SET,
    NAME_GROUP,
    NAME_FOREIGN, /* soft, external, and what is neither set nor group */
};

struct name {
    char *path; /* from the root, "/a/b" */
    enum name_kind kind;
};

/* All links of a file. */
struct names {
    const char *file; /* borrowed, for messages */
    struct name *list;
    size_t n, capacity;
};

/* False: no memory. */
bool kvr__names_add(struct names *names, const char *prefix, const char *name,
                    enum name_kind kind);
void kvr__names_free(struct names *names);

/* The datasets of a dump. */
struct grid {
    char **name; /* [n_step][n_layer], step 0 alone without steps */
    uint32_t *layers, *steps; /* their numbers, ascending */
    size_t n_layer, n_step;
    char *home; /* the group that holds the steps, "" for the root */
};

void kvr__grid_free(struct grid *grid);

/* One %d or %0Nd for the layer, and perhaps one for the step, which follows
 * the word "step" or "token". */
bool kvr__is_pattern(const char *pattern);

/* Every dataset whose name fits. An error: what fits and is no dataset, two
 * names of one number, a step that lacks a layer, a gap in the steps. */
enum kvr_status kvr__grid_by_pattern(struct grid *grid,
                                     const struct names *names,
                                     const char *pattern,
                                     struct kvr_error *err);

/* The groups step_N or stepN with layer_N or layerN in them. *found false:
 * there is no such group. */
enum kvr_status kvr__grid_by_steps(struct grid *grid, bool *found,
                                   const struct names *names,
                                   struct kvr_error *err);

/* Whether a part of the path is step_N or stepN. */
bool kvr__is_in_step(const char *path);

/* The pattern that takes all steps, where `name` takes one of several; NULL:
 * it does not; malloc'ed. */
enum kvr_status kvr__steps_beside(char **pattern, const struct names *names,
                                  const char *name, struct kvr_error *err);

#endif
