/* import_h5_find.c -- which datasets of a file hold the attention.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_h5.h"

#include "kvr_log.h"
#include "kvr_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8, MAX_LISTED = 12, MAX_NAMES = 1 << 21 };

enum kvr_status kvr__h5_find_path(const struct h5_object **out,
                                  const struct h5_index *file, const char *name,
                                  struct kvr_error *err)
{
    return kvr__h5_find_set(out, file, kvr__h5_root(file), name, "", err);
}

/* ---- a walk over the file ---- */

struct walk {
    const struct h5_index *file;
    struct names *names;
    bool *within; /* objects that the walk is inside of */
    int depth;
    struct kvr_error *err;
};

static enum kvr_status visit_group(struct walk *walk, uint32_t group,
                                   const char *prefix);

static enum kvr_status visit(struct walk *walk, const struct h5_link *link,
                             const char *prefix)
{
    const enum h5_object_kind is = link->kind == LINK_HARD
                                       ? walk->file->objects[link->object].kind
                                       : OBJECT_OTHER;
    const enum name_kind kind = is == OBJECT_SET     ? NAME_SET
                                : is == OBJECT_GROUP ? NAME_GROUP
                                                     : NAME_FOREIGN;
    struct names *names = walk->names;

    if (names->n >= MAX_NAMES)
        return kvr_fail(walk->err, KVR_ERR_INPUT, "%s: more than %d names",
                        names->file, MAX_NAMES);
    if (!kvr__names_add(names, prefix, link->name, kind))
        return kvr_no_memory(walk->err, "names",
                             names->n * sizeof *names->list);
    if (kind != NAME_GROUP || walk->depth == MAX_DEPTH ||
        walk->within[link->object])
        return KVR_OK;
    return visit_group(walk, link->object, names->list[names->n - 1].path);
}

static enum kvr_status visit_group(struct walk *walk, uint32_t group,
                                   const char *prefix)
{
    const struct h5_object *object = &walk->file->objects[group];
    const struct h5_link *link = walk->file->links + object->first_link;
    enum kvr_status status = KVR_OK;

    if (object->problem != NULL)
        return kvr_fail(walk->err, KVR_ERR_INPUT, "%s: %s: %s",
                        walk->file->path, prefix[0] != '\0' ? prefix : "/",
                        object->problem);
    walk->within[group] = true;
    walk->depth++;
    for (size_t i = 0; status == KVR_OK && i < object->n_link; i++)
        status = visit(walk, &link[i], prefix);
    walk->depth--;
    walk->within[group] = false;
    return status;
}

/* The name of every link of the file; a group that holds itself is entered
 * once. */
static enum kvr_status list_names(struct names *names,
                                  const struct h5_index *file,
                                  struct kvr_error *err)
{
    struct walk walk = {.file = file, .names = names, .err = err};

    walk.within = kvr_calloc(file->n_object, sizeof *walk.within);
    if (walk.within == NULL)
        return kvr_no_memory(err, "objects", file->n_object);
    const enum kvr_status status = visit_group(&walk, 0, "");
    free(walk.within);
    return status;
}

/* ---- the dataset that no option names ---- */

struct find {
    const struct h5_index *file;
    const char *candidate;          /* the first float dataset of rank 2 to 4 */
    const struct h5_object *object; /* it may have several names */
    size_t n_candidate;
    char *refused; /* why a dataset cannot be read */
    char list[600];
    size_t n_listed;
};

static void list_dataset(struct find *find, const char *name, int rank,
                         const uint64_t *dims, bool is_float)
{
    size_t used = strlen(find->list);

    if (++find->n_listed > MAX_LISTED || used + 100 > sizeof find->list)
        return;
    used += (size_t)snprintf(find->list + used, sizeof find->list - used,
                             "%s%.60s [", used > 0 ? ", " : "", name);
    for (int i = 0; i < rank && used + 32 < sizeof find->list; i++)
        used += (size_t)snprintf(find->list + used, sizeof find->list - used,
                                 "%s%llu", i > 0 ? "," : "",
                                 (unsigned long long)dims[i]);
    if (used + 8 < sizeof find->list)
        snprintf(find->list + used, sizeof find->list - used, "]%s",
                 is_float ? "" : " no float");
}

static void note_dataset(struct find *find, const char *name)
{
    const struct h5_object *object;
    struct kvr_error err = {0};

    if (kvr__h5_find_path(&object, find->file, name, &err) != KVR_OK ||
        object == NULL) {
        if (find->refused == NULL)
            find->refused = kvr_strdup(err.message);
        list_dataset(find, name, 0, NULL, true);
        return;
    }
    const struct h5_set *set = object->set;
    const bool is_float = set->type.kind == TYPE_FLOAT;
    list_dataset(find, name, set->rank, set->dims, is_float);
    if (!is_float || set->rank < 2 || set->rank > 4)
        return;
    if (object == find->object)
        return;
    if (find->n_candidate++ == 0) {
        find->candidate = name;
        find->object = object;
    }
}

static enum kvr_status refuse_all(const struct find *find,
                                  struct kvr_error *err)
{
    if (find->n_candidate == 0 && find->refused != NULL)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED, "%s", find->refused);
    return kvr_fail(
        err, find->n_candidate > 1 ? KVR_ERR_USAGE : KVR_ERR_INPUT,
        "%s: %s; it holds %s: choose with --dataset", find->file->path,
        find->n_candidate > 1 ? "several datasets could be the attention"
                              : "no float dataset of 2 to 4 axes",
        find->list[0] != '\0' ? find->list : "nothing");
}

static enum kvr_status use_array(struct h5_dump *h5, const char *name,
                                 struct kvr_error *err)
{
    h5->form = FORM_ARRAY;
    h5->name = kvr_strdup(name);
    return h5->name != NULL ? KVR_OK
                            : kvr_no_memory(err, "a name", strlen(name));
}

static enum kvr_status use_only_one(struct h5_dump *h5,
                                    const struct names *names,
                                    struct kvr_error *err)
{
    struct find find = {.file = h5->file};
    enum kvr_status status = KVR_OK;
    bool steps = false;

    for (size_t i = 0; i < names->n; i++)
        if (names->list[i].kind == NAME_SET &&
            !kvr__is_in_step(names->list[i].path))
            note_dataset(&find, names->list[i].path);
    if (find.n_candidate == 1)
        status = use_array(h5, find.candidate, err);
    else if (find.n_candidate == 0)
        status = kvr__grid_by_steps(&h5->grid, &steps, names, err);
    if (steps)
        h5->form = FORM_STEPS;
    else if (status == KVR_OK && h5->name == NULL)
        status = refuse_all(&find, err);
    free(find.refused);
    return status;
}

/* ---- the ones that --dataset names ---- */

static enum kvr_status use_pattern(struct h5_dump *h5,
                                   const struct names *names,
                                   const char *pattern, struct kvr_error *err)
{
    const enum kvr_status status =
        kvr__grid_by_pattern(&h5->grid, names, pattern, err);

    h5->form = h5->grid.steps != NULL ? FORM_STEPS : FORM_LAYERS;
    return status;
}

/* A name that holds one step of several: a choice where it is one dataset,
 * and a slip where it is a pattern. */
static enum kvr_status use_named(struct h5_dump *h5, const struct names *names,
                                 const char *name, struct kvr_error *err)
{
    const bool one = strchr(name, '%') == NULL;
    char *all = NULL;

    enum kvr_status status = kvr__steps_beside(&all, names, name, err);
    if (all != NULL && one)
        kvr_log(KVR_LOG_WARNING,
                "%s: %s is one of several steps: --dataset %s takes them all",
                names->file, name, all);
    else if (all != NULL)
        status = kvr_fail(err, KVR_ERR_USAGE,
                          "%s: --dataset %s takes one of several steps: %s "
                          "takes them all",
                          names->file, name, all);
    free(all);
    if (status != KVR_OK)
        return status;
    return one ? use_array(h5, name, err) : use_pattern(h5, names, name, err);
}

enum kvr_status kvr__h5_find(struct h5_dump *h5, const char *path,
                             const struct kvr_import_options *options,
                             struct kvr_error *err)
{
    struct names names = {.file = path};

    enum kvr_status status = list_names(&names, h5->file, err);
    if (status == KVR_OK)
        status = options->dataset == NULL
                     ? use_only_one(h5, &names, err)
                     : use_named(h5, &names, options->dataset, err);
    kvr__names_free(&names);
    return status;
}
