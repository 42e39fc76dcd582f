/* import_h5_find.c -- which datasets of a file hold the attention.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_h5.h"

#include "kvr_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8, MAX_LISTED = 12, MAX_LINKS = 1 << 22 };

enum kvr_status kvr__h5_open_path(hid_t *out, const char *file_path, hid_t file,
                                  const char *name, struct kvr_error *err)
{
    char *part = kvr_strdup(name);
    char *last = part != NULL ? strrchr(part, '/') : NULL;
    const char *group_name = "/", *leaf = part;
    enum kvr_status status = KVR_OK;

    *out = -1;
    if (part == NULL)
        return kvr_no_memory(err, "a name", strlen(name));
    /* every group on the way must be there behind a hard link */
    for (char *slash = strchr(part + 1, '/'); status == KVR_OK && slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (kvr__h5_has_member(file, part) <= 0)
            status = kvr_fail(err, KVR_ERR_INPUT,
                              "%s: %s: there is no such group of this file",
                              file_path, part);
        *slash = '/';
    }
    if (status == KVR_OK && last != NULL) {
        *last = '\0';
        leaf = last + 1;
        group_name = last == part ? "/" : part;
    }
    const hid_t group =
        status == KVR_OK ? H5Gopen2(file, group_name, H5P_DEFAULT) : -1;
    if (status == KVR_OK && group < 0)
        status = kvr__h5_fail(err, KVR_ERR_INPUT, file_path, group_name);
    if (status == KVR_OK)
        status = kvr__open_dataset(
            out, file_path, group, leaf,
            strcmp(group_name, "/") == 0 ? "" : group_name, err);
    if (group >= 0)
        H5Gclose(group);
    free(part);
    return status;
}

/* ---- a walk over the file ---- */

struct walk {
    struct links *links;
    const char *prefix; /* of the group being walked */
    int depth;
    bool failed; /* no memory, or too many links */
};

static herr_t visit(hid_t group, const char *name, const H5L_info_t *info,
                    void *ud)
{
    struct walk *walk = ud;
    const char *prefix = walk->prefix;
    enum link_kind kind = LINK_FOREIGN;
    H5O_info_t object;
    hsize_t next = 0;

    if (info->type == H5L_TYPE_HARD &&
        H5Oget_info_by_name(group, name, &object, H5P_DEFAULT) >= 0)
        kind = object.type == H5O_TYPE_DATASET ? LINK_SET
               : object.type == H5O_TYPE_GROUP ? LINK_GROUP
                                               : LINK_FOREIGN;
    if (walk->links->n >= MAX_LINKS ||
        !kvr__links_add(walk->links, prefix, name, kind)) {
        walk->failed = true;
        return -1;
    }
    if (kind != LINK_GROUP || walk->depth == MAX_DEPTH)
        return 0;
    walk->prefix = walk->links->list[walk->links->n - 1].path;
    walk->depth++;
    const herr_t walked =
        H5Literate_by_name(group, name, H5_INDEX_NAME, H5_ITER_INC, &next,
                           visit, walk, H5P_DEFAULT);
    walk->depth--;
    walk->prefix = prefix;
    return walk->failed || walked < 0 ? -1 : 0;
}

/* Every link of the file. */
static enum kvr_status list_links(struct links *links, hid_t file,
                                  struct kvr_error *err)
{
    struct walk walk = {.links = links, .prefix = ""};
    hsize_t next = 0;

    if (H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, &next, visit, &walk) >= 0)
        return KVR_OK;
    if (walk.failed)
        return kvr_no_memory(err, "names", links->n * sizeof *links->list);
    return kvr__h5_fail(err, KVR_ERR_INPUT, links->file, "its groups");
}

/* ---- the dataset that no option names ---- */

struct find {
    const char *path;
    const char *candidate; /* the first float dataset of rank 2 to 4 */
    size_t n_candidate;
    char *refused; /* why a dataset cannot be read */
    char list[600];
    size_t n_listed;
};

static void list_dataset(struct find *find, const char *name, int rank,
                         const hsize_t *dims, unsigned float_size)
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
                 float_size != 0 ? "" : " no float");
}

static void note_dataset(struct find *find, hid_t file, const char *name)
{
    struct kvr_error err = {0};
    hsize_t dims[8] = {0};
    int rank = 0;
    hid_t set = -1;

    if (kvr__h5_open_path(&set, find->path, file, name, &err) != KVR_OK) {
        if (find->refused == NULL)
            find->refused = kvr_strdup(err.message);
        list_dataset(find, name, 0, dims, 1);
        return;
    }
    const hid_t type = H5Dget_type(set);
    const unsigned size = kvr__h5_float_size(type);
    const bool simple = kvr__h5_extent(&rank, dims, set);
    H5Tclose(type);
    H5Dclose(set);
    list_dataset(find, name, simple ? rank : 0, dims, size);
    if (!simple || size == 0 || rank < 2 || rank > 4)
        return;
    if (find->n_candidate++ == 0)
        find->candidate = name;
}

static enum kvr_status refuse_all(const struct find *find,
                                  struct kvr_error *err)
{
    if (find->n_candidate == 0 && find->refused != NULL)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED, "%s", find->refused);
    return kvr_fail(err, find->n_candidate > 1 ? KVR_ERR_USAGE : KVR_ERR_INPUT,
                    "%s: %s; it holds %s: choose with --dataset", find->path,
                    find->n_candidate > 1
                        ? "several datasets could be the attention"
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
                                    const struct links *links,
                                    struct kvr_error *err)
{
    struct find find = {.path = links->file};
    enum kvr_status status = KVR_OK;
    bool steps = false;

    for (size_t i = 0; i < links->n; i++)
        if (links->list[i].kind == LINK_SET &&
            !kvr__is_in_step(links->list[i].path))
            note_dataset(&find, h5->file, links->list[i].path);
    if (find.n_candidate == 1)
        status = use_array(h5, find.candidate, err);
    else if (find.n_candidate == 0)
        status = kvr__grid_by_steps(&h5->grid, &steps, links, err);
    if (steps)
        h5->form = FORM_STEPS;
    else if (status == KVR_OK && h5->name == NULL)
        status = refuse_all(&find, err);
    free(find.refused);
    return status;
}

/* ---- the ones that --dataset names ---- */

static enum kvr_status use_pattern(struct h5_dump *h5,
                                   const struct links *links,
                                   const char *pattern, struct kvr_error *err)
{
    const enum kvr_status status =
        kvr__grid_by_pattern(&h5->grid, links, pattern, err);

    h5->form = h5->grid.steps != NULL ? FORM_STEPS : FORM_LAYERS;
    return status;
}

/* A name that holds one step of several: a choice where it is one dataset,
 * and a slip where it is a pattern. */
static enum kvr_status use_named(struct h5_dump *h5, const struct links *links,
                                 const char *name, struct kvr_error *err)
{
    const bool one = strchr(name, '%') == NULL;
    char *all = NULL;

    enum kvr_status status = kvr__steps_beside(&all, links, name, err);
    if (all != NULL && one)
        kvr_log(KVR_LOG_WARNING,
                "%s: %s is one of several steps: --dataset %s takes them all",
                links->file, name, all);
    else if (all != NULL)
        status = kvr_fail(err, KVR_ERR_USAGE,
                          "%s: --dataset %s takes one of several steps: %s "
                          "takes them all",
                          links->file, name, all);
    free(all);
    if (status != KVR_OK)
        return status;
    return one ? use_array(h5, name, err) : use_pattern(h5, links, name, err);
}

enum kvr_status kvr__h5_find(struct h5_dump *h5, const char *path,
                             const struct kvr_import_options *options,
                             struct kvr_error *err)
{
    struct links links = {.file = path};

    enum kvr_status status = list_links(&links, h5->file, err);
    if (status == KVR_OK)
        status = options->dataset == NULL
                     ? use_only_one(h5, &links, err)
                     : use_named(h5, &links, options->dataset, err);
    kvr__links_free(&links);
    return status;
}
