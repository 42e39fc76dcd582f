/* import_h5_find.c -- which datasets of a file hold the attention.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import_h5.h"

#include "kvr_text.h"

#include <ctype.h>
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

struct find {
    const char *path;
    char *candidate; /* the first float dataset of rank 2 to 4 */
    size_t n_candidate;
    char *steps;   /* the first group that holds step_N groups */
    char *refused; /* a dataset that is not followed */
    char list[600];
    size_t n_listed;
    const char *prefix; /* of the group being walked */
    int depth;
    bool failed;
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
        find->candidate = kvr_strdup(name);
}

static herr_t visit(hid_t group, const char *name, const H5L_info_t *info,
                    void *ud)
{
    struct find *find = ud;
    const char *prefix = find->prefix;
    const size_t room = strlen(prefix) + strlen(name) + 2;
    H5O_info_t object;
    uint32_t number;
    hsize_t next = 0;
    char *full = NULL;

    if (info->type != H5L_TYPE_HARD ||
        H5Oget_info_by_name(group, name, &object, H5P_DEFAULT) < 0)
        return 0;
    full = malloc(room);
    if (full == NULL)
        return -1;
    snprintf(full, room, "%s/%s", prefix, name);
    if (object.type == H5O_TYPE_DATASET) {
        note_dataset(find, group, full);
    } else if (object.type == H5O_TYPE_GROUP && find->depth < MAX_DEPTH) {
        if (find->steps == NULL && numbered(&number, name, "step"))
            find->steps = kvr_strdup(prefix[0] != '\0' ? prefix : "/");
        find->prefix = full;
        find->depth++;
        /* a group's own steps are not dataset candidates one by one */
        if (find->steps == NULL)
            H5Literate_by_name(group, name, H5_INDEX_NAME, H5_ITER_INC, &next,
                               visit, find, H5P_DEFAULT);
        find->depth--;
        find->prefix = prefix;
    }
    free(full);
    return 0;
}

struct numbers {
    const char *word;
    uint32_t *list;
    size_t n, capacity;
    bool failed;
};

static herr_t note_number(hid_t group, const char *name, const H5L_info_t *info,
                          void *ud)
{
    struct numbers *numbers = ud;
    uint32_t number;

    (void)group;
    if (info->type != H5L_TYPE_HARD || !numbered(&number, name, numbers->word))
        return 0;
    if (!kvr_grow((void **)&numbers->list, &numbers->capacity, numbers->n + 1,
                  sizeof *numbers->list)) {
        numbers->failed = true;
        return -1;
    }
    numbers->list[numbers->n++] = number;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Numbers of the members WORD_N of a group, ascending, without gaps. */
static enum kvr_status list_numbers(uint32_t **list, size_t *n,
                                    const char *path, hid_t file,
                                    const char *group, const char *word,
                                    struct kvr_error *err)
{
    struct numbers numbers = {.word = word};
    hsize_t next = 0;

    const herr_t walked =
        H5Literate_by_name(file, group, H5_INDEX_NAME, H5_ITER_INC, &next,
                           note_number, &numbers, H5P_DEFAULT);
    *list = numbers.list;
    *n = numbers.n;
    if (walked < 0 || numbers.failed)
        return kvr__h5_fail(err, KVR_ERR_INPUT, path, group);
    if (numbers.n == 0)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: %s: no %s_N in it", path,
                        group, word);
    qsort(numbers.list, numbers.n, sizeof *numbers.list, compare);
    for (size_t i = 1; i < numbers.n; i++)
        if (numbers.list[i] != numbers.list[i - 1] + 1)
            return kvr_fail(err, KVR_ERR_INPUT,
                            "%s: %s: %s %u is followed by %u", path, group,
                            word, numbers.list[i - 1], numbers.list[i]);
    return KVR_OK;
}

static enum kvr_status use_steps(struct h5_dump *h5, const char *path,
                                 const char *group, struct kvr_error *err)
{
    h5->form = FORM_STEPS;
    h5->name = kvr_strdup(strcmp(group, "/") == 0 ? "" : group);
    if (h5->name == NULL)
        return kvr_no_memory(err, "a name", strlen(group));
    enum kvr_status status = list_numbers(&h5->steps, &h5->n_step, path,
                                          h5->file, group, "step", err);
    if (status != KVR_OK)
        return status;
    char first[300];
    const char *const forms[] = {"%s/step_%u", "%s/step%u"};
    for (int i = 0; i < 2; i++) {
        snprintf(first, sizeof first, i == 0 ? "%s/step_%u" : "%s/step%u",
                 h5->name, h5->steps[0]);
        if (kvr__h5_has_member(h5->file, first) > 0)
            return list_numbers(&h5->layers, &h5->n_layer, path, h5->file,
                                first, "layer", err);
    }
    return kvr_fail(err, KVR_ERR_INPUT,
                    "%s: %s: steps are named otherwise than %s or %s", path,
                    group, forms[0], forms[1]);
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
        struct kvr_error why = {0};
        hid_t set = -1;
        const enum kvr_status status =
            kvr__h5_open_path(&set, path, h5->file, name, &why);
        free(name);
        if (set < 0 && status != KVR_OK && status != KVR_ERR_INPUT) {
            if (err != NULL)
                *err = why;
            return status;
        }
        if (set < 0 && layer > 0)
            break; /* the first layer may be called 1 */
        if (set < 0)
            continue;
        H5Dclose(set);
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
    struct find find = {.path = path, .prefix = ""};
    hsize_t next = 0;
    enum kvr_status status = KVR_OK;

    if (H5Literate(h5->file, H5_INDEX_NAME, H5_ITER_INC, &next, visit, &find) <
        0) {
        status = kvr__h5_fail(err, KVR_ERR_INPUT, path, "its groups");
    } else if (find.n_candidate == 1) {
        h5->form = FORM_ARRAY;
        h5->name = find.candidate;
        find.candidate = NULL;
    } else if (find.n_candidate == 0 && find.steps != NULL) {
        status = use_steps(h5, path, find.steps, err);
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
