/* import_names.c -- patterns of names, and what fits them.
 *
 * Numbers in names are numbers: layers 0, 8 and 16 are those, not 0, 1 and 2.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_names.h"

#include "import_match.h"
#include "kvr_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A dataset that fits. */
struct cell {
    uint32_t step, layer;
    const char *path;
};

struct cells {
    struct cell *list;
    size_t n, capacity;
};

bool kvr__names_add(struct names *names, const char *prefix, const char *name,
                    enum name_kind kind)
{
    const size_t room = strlen(prefix) + strlen(name) + 2;
    char *path = malloc(room);

    if (path == NULL || !kvr_grow((void **)&names->list, &names->capacity,
                                  names->n + 1, sizeof *names->list)) {
        free(path);
        return false;
    }
    snprintf(path, room, "%s/%s", prefix, name);
    names->list[names->n++] = (struct name){.path = path, .kind = kind};
    return true;
}

void kvr__names_free(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->list[i].path);
    free(names->list);
    names->list = NULL;
    names->n = names->capacity = 0;
}

void kvr__grid_free(struct grid *grid)
{
    for (size_t i = 0; grid->name != NULL && i < grid->n_step * grid->n_layer;
         i++)
        free(grid->name[i]);
    free(grid->name);
    free(grid->layers);
    free(grid->steps);
    free(grid->home);
    *grid = (struct grid){0};
}

bool kvr__is_pattern(const char *pattern)
{
    struct kvr__pattern p;

    return kvr__pattern_parse(&p, pattern);
}

static int by_step_and_layer(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return strcmp(x->path, y->path);
}

static enum kvr_status refuse_name(const struct names *names,
                                   const struct name *link,
                                   struct kvr_error *err)
{
    return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: %s", names->file, link->path,
                    link->kind == NAME_GROUP
                        ? "a group, where a dataset is expected"
                        : "a soft or external link is not followed");
}

/* Every link that fits the pattern. */
static enum kvr_status gather(struct cells *cells, const struct names *names,
                              const struct kvr__pattern *pattern,
                              struct kvr_error *err)
{
    for (size_t i = 0; i < names->n; i++) {
        const struct name *link = &names->list[i];
        uint64_t number[2];
        if (!kvr__pattern_fits(number, pattern, link->path))
            continue;
        if (link->kind != NAME_SET)
            return refuse_name(names, link, err);
        if (number[0] > KVR__MOST_STEP || number[1] > KVR__MOST_LAYER)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: steps are numbered up to %lu, layers up "
                            "to %lu",
                            names->file, link->path,
                            (unsigned long)KVR__MOST_STEP,
                            (unsigned long)KVR__MOST_LAYER);
        if (!kvr_grow((void **)&cells->list, &cells->capacity, cells->n + 1,
                      sizeof *cells->list))
            return kvr_no_memory(err, "names", cells->n * sizeof *cells->list);
        cells->list[cells->n++] = (struct cell){.step = (uint32_t)number[0],
                                                .layer = (uint32_t)number[1],
                                                .path = link->path};
    }
    if (cells->n > 0)
        qsort(cells->list, cells->n, sizeof *cells->list, by_step_and_layer);
    return KVR_OK;
}

/* Which step has a dataset of the layer, for the message. */
static enum kvr_status refuse_hole(const struct names *names,
                                   const struct cells *cells, uint32_t step,
                                   uint32_t layer, struct kvr_error *err)
{
    const struct cell *other = cells->list;

    while (other->layer != layer)
        other++;
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: step %u has no layer %u, but step %u has (%s)",
                    names->file, step, layer, other->step, other->path);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static size_t unique(uint32_t *numbers, size_t n)
{
    size_t kept = 0;

    qsort(numbers, n, sizeof *numbers, by_number);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    return kept;
}

/* Numbers of the layers and of the steps, a step without any layer included. */
static enum kvr_status number_axes(struct grid *grid, const struct cells *cells,
                                   const struct names *names,
                                   const struct kvr__pattern *group,
                                   struct kvr_error *err)
{
    size_t n_step = cells->n;

    grid->layers = kvr_calloc(cells->n, sizeof *grid->layers);
    grid->steps = kvr_calloc(cells->n + names->n, sizeof *grid->steps);
    if (grid->layers == NULL || grid->steps == NULL)
        return kvr_no_memory(err, "numbers", (cells->n + names->n) * 4);
    for (size_t i = 0; i < cells->n; i++) {
        grid->layers[i] = cells->list[i].layer;
        grid->steps[i] = cells->list[i].step;
    }
    for (size_t i = 0; group != NULL && i < names->n; i++) {
        uint64_t number[2];
        if (!kvr__pattern_fits(number, group, names->list[i].path))
            continue;
        if (names->list[i].kind == NAME_FOREIGN)
            return refuse_name(names, &names->list[i], err);
        if (number[0] <= KVR__MOST_STEP)
            grid->steps[n_step++] = (uint32_t)number[0];
    }
    grid->n_layer = unique(grid->layers, cells->n);
    grid->n_step = unique(grid->steps, n_step);
    for (size_t s = 1; s < grid->n_step; s++)
        if (grid->steps[s] != grid->steps[s - 1] + 1)
            return kvr_fail(err, KVR_ERR_INPUT, "%s: step %u is followed by %u",
                            names->file, grid->steps[s - 1], grid->steps[s]);
    return KVR_OK;
}

/* Cells in order into the grid, where each must find its place. */
static enum kvr_status place_cells(struct grid *grid, const struct cells *cells,
                                   const struct names *names,
                                   struct kvr_error *err)
{
    const struct cell *cell = cells->list, *end = cell + cells->n;

    grid->name = kvr_calloc(grid->n_step * grid->n_layer, sizeof *grid->name);
    if (grid->name == NULL)
        return kvr_no_memory(err, "names", grid->n_step * grid->n_layer);
    for (size_t s = 0; s < grid->n_step; s++)
        for (size_t l = 0; l < grid->n_layer; l++) {
            if (cell == end || cell->step != grid->steps[s] ||
                cell->layer != grid->layers[l])
                return refuse_hole(names, cells, grid->steps[s],
                                   grid->layers[l], err);
            char **name = &grid->name[s * grid->n_layer + l];
            *name = kvr_strdup(cell->path);
            if (*name == NULL)
                return kvr_no_memory(err, "a name", strlen(cell->path));
            cell++;
        }
    return KVR_OK;
}

static enum kvr_status refuse_twice(const struct cells *cells,
                                    const struct names *names,
                                    struct kvr_error *err)
{
    for (size_t i = 1; i < cells->n; i++) {
        const struct cell *a = &cells->list[i - 1], *b = a + 1;
        if (a->step == b->step && a->layer == b->layer)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: two names of one layer: %s and %s",
                            names->file, a->path, b->path);
    }
    return KVR_OK;
}

/* A layer that stands in the name as a number without %d. */
static void fix_layer(struct cells *cells, const struct kvr__pattern *pattern)
{
    uint32_t layer = 0;

    if (pattern->layer >= 0 || !kvr__layer_in_name(&layer, pattern->text))
        return;
    for (size_t i = 0; i < cells->n; i++)
        cells->list[i].layer = layer;
}

static enum kvr_status fill_grid(struct grid *grid, const struct names *names,
                                 const struct kvr__pattern *pattern,
                                 struct cells *cells, struct kvr_error *err)
{
    struct kvr__pattern group;
    const bool groups = kvr__pattern_of_groups(&group, pattern);

    fix_layer(cells, pattern);
    enum kvr_status status = refuse_twice(cells, names, err);
    if (status == KVR_OK)
        status = number_axes(grid, cells, names, groups ? &group : NULL, err);
    if (status == KVR_OK)
        status = place_cells(grid, cells, names, err);
    if (status == KVR_OK && pattern->step >= 0) {
        grid->home = kvr__pattern_home(pattern);
        if (grid->home == NULL)
            status = kvr_no_memory(err, "a name", 0);
    }
    if (status == KVR_OK && pattern->step < 0) {
        free(grid->steps);
        grid->steps = NULL;
    }
    return status;
}

enum kvr_status kvr__grid_by_pattern(struct grid *grid,
                                     const struct names *names,
                                     const char *pattern, struct kvr_error *err)
{
    struct cells cells = {0};
    struct kvr__pattern p;

    if (!kvr__pattern_parse(&p, pattern))
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--dataset %s: expected one %%d or %%02d for the "
                        "layer, and perhaps one for the step (step_%%d)",
                        pattern);
    enum kvr_status status = gather(&cells, names, &p, err);
    if (status == KVR_OK && cells.n == 0)
        status = kvr_fail(err, KVR_ERR_INPUT, "%s: no dataset is named like %s",
                          names->file, pattern);
    if (status == KVR_OK)
        status = fill_grid(grid, names, &p, &cells, err);
    free(cells.list);
    return status;
}

/* ---- names that need no pattern ---- */

/* Bytes of "PREFIX/step_" in a path that ends in step_N or stepN; 0: it does
 * not. */
static size_t steps_prefix(const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    const size_t word = kvr__step_word(name);

    return word != 0 && name[word + strspn(name + word, "0123456789")] == '\0'
               ? (size_t)(name - path) + word
               : 0;
}

/* The one pattern of the groups of steps, "PREFIX/step_%d"; NULL: none. */
static enum kvr_status find_steps(char **pattern, const struct names *names,
                                  struct kvr_error *err)
{
    const char *first = NULL;
    size_t length = 0;

    *pattern = NULL;
    for (size_t i = 0; i < names->n; i++) {
        const char *path = names->list[i].path;
        const size_t n = steps_prefix(path);
        if (n == 0 || names->list[i].kind == NAME_SET)
            continue;
        if (first != NULL && (n != length || strncmp(first, path, n) != 0))
            return kvr_fail(err, KVR_ERR_USAGE,
                            "%s: steps are named like %s and like %s: choose "
                            "with --dataset %.*s%%d/layer_%%d",
                            names->file, first, path, (int)length, first);
        first = path;
        length = n;
    }
    if (first == NULL)
        return KVR_OK;
    *pattern = malloc(length + 3);
    if (*pattern == NULL)
        return kvr_no_memory(err, "a name", length);
    snprintf(*pattern, length + 3, "%.*s%%d", (int)length, first);
    return KVR_OK;
}

static size_t count_fits(const struct names *names, const char *text)
{
    struct kvr__pattern pattern;
    uint64_t number[2];
    size_t n = 0;

    if (!kvr__pattern_parse(&pattern, text))
        return 0;
    for (size_t i = 0; i < names->n; i++)
        n += kvr__pattern_fits(number, &pattern, names->list[i].path);
    return n;
}

enum kvr_status kvr__grid_by_steps(struct grid *grid, bool *found,
                                   const struct names *names,
                                   struct kvr_error *err)
{
    char *steps = NULL;

    enum kvr_status status = find_steps(&steps, names, err);
    *found = steps != NULL;
    if (status != KVR_OK || steps == NULL)
        return status;
    const size_t room = strlen(steps) + 16;
    char *full = malloc(room);
    if (full == NULL) {
        free(steps);
        return kvr_no_memory(err, "a name", room);
    }
    snprintf(full, room, "%s/layer%%d", steps);
    if (count_fits(names, full) == 0)
        snprintf(full, room, "%s/layer_%%d", steps);
    if (count_fits(names, full) == 0)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: the groups %s hold no dataset layer_N: name it "
                          "with --dataset",
                          names->file, steps);
    else
        status = kvr__grid_by_pattern(grid, names, full, err);
    free(full);
    free(steps);
    return status;
}

bool kvr__is_in_step(const char *path)
{
    for (const char *at = path; at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        const size_t word = kvr__step_word(at);
        if (word != 0 && at[word + strspn(at + word, "0123456789")] == '/')
            return true;
    }
    return false;
}

/* Steps of the names that fit. */
static size_t count_steps(const struct names *names, const char *text)
{
    struct kvr__pattern pattern;
    uint64_t number[2], first = 0;
    size_t n = 0;

    if (!kvr__pattern_parse(&pattern, text))
        return 0;
    for (size_t i = 0; i < names->n; i++)
        if (kvr__pattern_fits(number, &pattern, names->list[i].path) &&
            (n == 0 || number[0] != first)) {
            first = number[0];
            n++;
        }
    return n;
}

enum kvr_status kvr__steps_beside(char **pattern, const struct names *names,
                                  const char *name, struct kvr_error *err)
{
    const size_t room = strlen(name) + 4;

    *pattern = malloc(room);
    if (*pattern == NULL)
        return kvr_no_memory(err, "a name", room);
    for (const char *at = name; at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        const size_t word = kvr__step_word(at);
        if (word == 0)
            continue;
        const char *rest = at + word + strspn(at + word, "0123456789");
        snprintf(*pattern, room, "%.*s%%d%s", (int)(at - name + (long)word),
                 name, rest);
        if (count_steps(names, *pattern) > 1)
            return KVR_OK;
    }
    free(*pattern);
    *pattern = NULL;
    return KVR_OK;
}
