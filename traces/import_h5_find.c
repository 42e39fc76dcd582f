/* import_h5_find.c -- which datasets of a file hold the attention.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_h5.h"

#include "kvr_memory.h"
#include "kvr_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 4, MAX_LISTED = 12 };

bool kvr__is_layer_pattern(const char *pattern)
{
    const char *percent = strchr(pattern, '%');

    if (percent == NULL || strchr(percent + 1, '%') != NULL)
        return false;
    const char *at = percent + 1;
    if (*at == '0') {
        at++;
        if (!isdigit((unsigned char)*at))
            return false;
        at++;
    }
    return *at == 'd';
}

char *kvr__layer_name(const char *pattern, uint32_t layer)
{
    const char *percent = strchr(pattern, '%');
    const char *rest = strchr(percent, 'd') + 1;
    const int width = percent[1] == '0' ? percent[2] - '0' : 1;
    const size_t room = strlen(pattern) + 24;
    char *name = malloc(room);

    if (name != NULL)
        snprintf(name, room, "%.*s%0*u%s", (int)(percent - pattern), pattern,
                 width, layer, rest);
    return name;
}

enum kvr_status kvr__h5_find_path(const struct h5_object **out,
                                  const struct h5_index *file, const char *name,
                                  struct kvr_error *err)
{
    return kvr__h5_find_set(out, file, kvr__h5_root(file), name, "", err);
}

/* ---- a walk over the file ---- */

struct find {
    const struct h5_index *file;
    char *candidate; /* the first float dataset of rank 2 to 4 */
    size_t n_candidate;
    char *steps;   /* the first group that holds step_N groups */
    char *refused; /* a dataset that is not followed */
    char list[600];
    size_t n_listed;
    int depth;
    bool *seen; /* objects, each once */
};

/* The number behind `word` and an optional '_'. */
static bool numbered(uint32_t *number, const char *name, const char *word)
{
    const size_t n = strlen(word);

    if (strncmp(name, word, n) != 0)
        return false;
    name += n;
    if (*name == '_')
        name++;
    return kvr_parse_u32(number, name, strlen(name));
}

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
    if (find->n_candidate++ == 0)
        find->candidate = kvr_strdup(name);
}

static void visit_group(struct find *find, const struct h5_object *group,
                        const char *prefix);

static void visit(struct find *find, const char *prefix, const char *name,
                  const struct h5_object *object)
{
    const size_t room = strlen(prefix) + strlen(name) + 2;
    char *full = malloc(room);
    uint32_t number;

    if (full == NULL)
        return;
    snprintf(full, room, "%s/%s", prefix, name);
    if (object->kind == OBJECT_SET) {
        note_dataset(find, full);
    } else if (object->kind == OBJECT_GROUP && find->depth < MAX_DEPTH) {
        if (find->steps == NULL && numbered(&number, name, "step"))
            find->steps = kvr_strdup(prefix[0] != '\0' ? prefix : "/");
        find->depth++;
        /* a group's own steps are not dataset candidates one by one */
        if (find->steps == NULL)
            visit_group(find, object, full);
        find->depth--;
    }
    free(full);
}

static void note_problem(struct find *find, const char *prefix,
                         const char *problem)
{
    struct kvr_error err = {0};

    if (find->refused != NULL)
        return;
    (void)kvr_fail(&err, KVR_ERR_INPUT, "%s: %s: %s", find->file->path,
                   prefix[0] != '\0' ? prefix : "/", problem);
    find->refused = kvr_strdup(err.message);
}

static void visit_group(struct find *find, const struct h5_object *group,
                        const char *prefix)
{
    const struct h5_link *link = find->file->links + group->first_link;

    if (group->problem != NULL)
        note_problem(find, prefix, group->problem);
    for (size_t i = 0; i < group->n_link; i++) {
        if (link[i].kind != LINK_HARD || find->seen[link[i].object])
            continue;
        find->seen[link[i].object] = true;
        visit(find, prefix, link[i].name, &find->file->objects[link[i].object]);
    }
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Numbers of the members WORD_N of a group, ascending, without gaps. */
static enum kvr_status list_numbers(uint32_t **list, size_t *n,
                                    const struct h5_index *file,
                                    const struct h5_object *group,
                                    const char *where, const char *word,
                                    struct kvr_error *err)
{
    const struct h5_link *link = file->links + group->first_link;
    uint32_t number;
    size_t capacity = 0;

    for (size_t i = 0; i < group->n_link; i++) {
        if (link[i].kind != LINK_HARD || !numbered(&number, link[i].name, word))
            continue;
        if (!kvr_grow((void **)list, &capacity, *n + 1, sizeof **list))
            return kvr_no_memory(err, "steps", *n * sizeof **list);
        (*list)[(*n)++] = number;
    }
    if (*n == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: no %s_N in it", file->path,
                        where, word);
    qsort(*list, *n, sizeof **list, compare);
    for (size_t i = 1; i < *n; i++)
        if ((*list)[i] != (*list)[i - 1] + 1)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: %s %u is followed by %u", file->path,
                            where, word, (*list)[i - 1], (*list)[i]);
    return KVR_OK;
}

static enum kvr_status use_steps(struct h5_dump *h5, const char *group,
                                 struct kvr_error *err)
{
    const struct h5_index *file = h5->file;
    const struct h5_object *parent = NULL, *first = NULL;
    char name[64], where[300];

    h5->form = FORM_STEPS;
    h5->name = kvr_strdup(strcmp(group, "/") == 0 ? "" : group);
    if (h5->name == NULL)
        return kvr_no_memory(err, "a name", strlen(group));
    enum kvr_status status =
        kvr__h5_member(&parent, file, kvr__h5_root(file), h5->name, "", err);
    if (status == KVR_OK && parent != NULL)
        status = list_numbers(&h5->steps, &h5->n_step, file, parent, group,
                              "step", err);
    for (int i = 0; status == KVR_OK && first == NULL && i < 2; i++) {
        snprintf(name, sizeof name, "step%s%u", i == 0 ? "_" : "",
                 h5->steps[0]);
        snprintf(where, sizeof where, "%s/%s", h5->name, name);
        status = kvr__h5_member(&first, file, parent, name, h5->name, err);
    }
    if (status == KVR_OK && first == NULL)
        status = kvr_fail(err, KVR_ERR_INPUT,
                          "%s: %s: step %u is named otherwise than step_%u or "
                          "step%u",
                          file->path, group, h5->steps[0], h5->steps[0],
                          h5->steps[0]);
    if (status == KVR_OK)
        status = list_numbers(&h5->layers, &h5->n_layer, file, first, where,
                              "layer", err);
    return status;
}

static enum kvr_status use_pattern(struct h5_dump *h5, const char *path,
                                   const char *pattern, struct kvr_error *err)
{
    size_t capacity = 0;

    h5->form = FORM_LAYERS;
    h5->name = kvr_strdup(pattern);
    if (h5->name == NULL)
        return kvr_no_memory(err, "a name", strlen(pattern));
    for (uint32_t layer = 0; layer < 4096; layer++) {
        char *name = kvr__layer_name(pattern, layer);
        if (name == NULL)
            return kvr_no_memory(err, "a name", strlen(pattern));
        const struct h5_object *found;
        const enum kvr_status status =
            kvr__h5_find_path(&found, h5->file, name, err);
        free(name);
        if (status != KVR_OK)
            return status;
        if (found == NULL && layer > 0)
            break; /* the first layer may be called 1 */
        if (found == NULL)
            continue;
        if (!kvr_grow((void **)&h5->layers, &capacity, h5->n_layer + 1,
                      sizeof *h5->layers))
            return kvr_no_memory(err, "layers", h5->n_layer);
        h5->layers[h5->n_layer++] = layer;
    }
    if (h5->n_layer == 0)
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: no dataset is named like '%s', from 0 or 1 on",
                        path, pattern);
    return KVR_OK;
}

static enum kvr_status use_only_one(struct h5_dump *h5, const char *path,
                                    struct kvr_error *err)
{
    const struct h5_object *root = kvr__h5_root(h5->file);
    struct find find = {.file = h5->file};
    enum kvr_status status = KVR_OK;

    if (root->problem != NULL)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: /: %s", path, root->problem);
    find.seen = kvr_calloc(h5->file->n_object, sizeof *find.seen);
    if (find.seen == NULL)
        return kvr_no_memory(err, "objects", h5->file->n_object);
    find.seen[0] = true;
    visit_group(&find, root, "");
    if (find.n_candidate == 1) {
        h5->form = FORM_ARRAY;
        h5->name = find.candidate;
        find.candidate = NULL;
    } else if (find.n_candidate == 0 && find.steps != NULL) {
        status = use_steps(h5, find.steps, err);
    } else if (find.n_candidate == 0 && find.refused != NULL) {
        status = kvr_fail(err, KVR_ERR_UNSUPPORTED, "%s", find.refused);
    } else {
        status = kvr_fail(
            err, find.n_candidate > 1 ? KVR_ERR_USAGE : KVR_ERR_INPUT,
            "%s: %s; it holds %s: choose with --dataset", path,
            find.n_candidate > 1 ? "several datasets could be the attention"
                                 : "no float dataset of 2 to 4 axes",
            find.list[0] != '\0' ? find.list : "nothing");
    }
    free(find.seen);
    free(find.candidate);
    free(find.steps);
    free(find.refused);
    return status;
}

enum kvr_status kvr__h5_find(struct h5_dump *h5, const char *path,
                             const struct kvr_import_options *options,
                             struct kvr_error *err)
{
    const char *name = options->dataset;

    if (name == NULL)
        return use_only_one(h5, path, err);
    if (strchr(name, '%') == NULL) {
        h5->form = FORM_ARRAY;
        h5->name = kvr_strdup(name);
        return h5->name != NULL ? KVR_OK
                                : kvr_no_memory(err, "a name", strlen(name));
    }
    if (!kvr__is_layer_pattern(name))
        return kvr_fail(err, KVR_ERR_USAGE,
                        "--dataset %s: expected one %%d or %%02d for the "
                        "layer",
                        name);
    return use_pattern(h5, path, name, err);
}
