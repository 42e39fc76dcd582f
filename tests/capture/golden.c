/* golden.c -- see golden.h.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "golden.h"

#include "kvr_file.h"
#include "kvr_memory.h"

#include <hdf5.h>
#include <math.h>
#include <string.h>

struct golden {
    hid_t file;
};

struct golden *golden_open(const char *path)
{
    struct golden *golden = kvr_calloc(1, sizeof *golden);

    ck_assert_ptr_nonnull(golden);
    golden->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    ck_assert_msg(golden->file >= 0, "%s cannot be opened", path);
    return golden;
}

void golden_close(struct golden *golden)
{
    H5Fclose(golden->file);
    free(golden);
}

static void *read_all(struct golden *golden, const char *name, hid_t type,
                      size_t size, size_t *n)
{
    const hid_t set = H5Dopen2(golden->file, name, H5P_DEFAULT);

    ck_assert_msg(set >= 0, "no dataset %s", name);
    const hid_t space = H5Dget_space(set);
    *n = (size_t)H5Sget_simple_extent_npoints(space);
    void *out = kvr_calloc(*n, size);
    ck_assert_ptr_nonnull(out);
    ck_assert_int_ge(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out), 0);
    H5Sclose(space);
    H5Dclose(set);
    return out;
}

float *golden_f32(struct golden *golden, const char *name, size_t *n)
{
    return read_all(golden, name, H5T_NATIVE_FLOAT, sizeof(float), n);
}

double *golden_f64(struct golden *golden, const char *name, size_t *n)
{
    return read_all(golden, name, H5T_NATIVE_DOUBLE, sizeof(double), n);
}

int32_t *golden_i32(struct golden *golden, const char *name, size_t *n)
{
    return read_all(golden, name, H5T_NATIVE_INT32, sizeof(int32_t), n);
}

double golden_number(struct golden *golden, const char *object,
                     const char *attribute)
{
    double out = NAN;
    const hid_t a = H5Aopen_by_name(golden->file, object, attribute,
                                    H5P_DEFAULT, H5P_DEFAULT);

    ck_assert_msg(a >= 0, "no attribute %s of %s", attribute, object);
    ck_assert_int_ge(H5Aread(a, H5T_NATIVE_DOUBLE, &out), 0);
    H5Aclose(a);
    return out;
}

void golden_text(struct golden *golden, const char *object,
                 const char *attribute, char *out, size_t size)
{
    char *text = NULL;
    const hid_t a = H5Aopen_by_name(golden->file, object, attribute,
                                    H5P_DEFAULT, H5P_DEFAULT);

    ck_assert_msg(a >= 0, "no attribute %s of %s", attribute, object);
    const hid_t type = H5Aget_type(a);
    ck_assert(H5Tis_variable_str(type) > 0);
    ck_assert_int_ge(H5Aread(a, type, &text), 0);
    snprintf(out, size, "%s", text);
    H5free_memory(text);
    H5Tclose(type);
    H5Aclose(a);
}

struct visit {
    void (*fn)(const char *name, void *ud);
    void *ud;
};

static herr_t visit_one(hid_t group, const char *name, const H5L_info_t *info,
                        void *ud)
{
    const struct visit *visit = ud;

    (void)group;
    (void)info;
    visit->fn(name, visit->ud);
    return 0;
}

void golden_members(struct golden *golden, const char *group,
                    void (*fn)(const char *name, void *ud), void *ud)
{
    struct visit visit = {.fn = fn, .ud = ud};
    const hid_t g = H5Gopen2(golden->file, group, H5P_DEFAULT);

    ck_assert_msg(g >= 0, "no group %s", group);
    H5Literate(g, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_one, &visit);
    H5Gclose(g);
}

const char *golden_model(void)
{
    static char path[4096];
    const char *given = getenv("KVREPLAY_MODEL");
    const char *cache = getenv("KVREPLAY_CACHE");
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    static const char name[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

    if (given != NULL && given[0] != '\0')
        snprintf(path, sizeof path, "%s", given);
    else if (cache != NULL && cache[0] != '\0')
        snprintf(path, sizeof path, "%s/%s", cache, name);
    else if (xdg != NULL && xdg[0] != '\0')
        snprintf(path, sizeof path, "%s/kvreplay/%s", xdg, name);
    else
        snprintf(path, sizeof path, "%s/.cache/kvreplay/%s",
                 home != NULL ? home : "", name);
    return kvr_file_exists(path) ? path : NULL;
}

static enum kvr_status keep_rows(void *ud,
                                 const struct kvr_attention_rows *rows,
                                 struct kvr_error *err)
{
    struct golden_run *run = ud;
    const size_t T = run->n_token;
    const size_t head =
        (size_t)rows->layer * run->model.config.n_head + rows->head;

    (void)err;
    for (uint32_t r = 0; r < rows->n; r++) {
        const size_t t = rows->first + r;
        memcpy(run->attention + (head * T + t) * T,
               rows->rows + r * rows->stride, (t + 1) * sizeof(float));
        run->lse[head * T + t] = rows->lse[r];
        run->mass[head * T + t] = rows->mass[r];
    }
    return KVR_OK;
}

static enum kvr_status keep_query_key(void *ud, uint32_t layer, uint32_t first,
                                      uint32_t n, const float *query,
                                      const float *key, struct kvr_error *err)
{
    struct golden_run *run = ud;
    const struct kvr_config *c = &run->model.config;
    const size_t q = (size_t)c->n_head * c->key_dim;
    const size_t k = (size_t)c->n_kv_head * c->key_dim;
    const size_t at = (size_t)layer * run->n_token + first;

    (void)err;
    memcpy(run->query + at * q, query, n * q * sizeof(float));
    memcpy(run->key + at * k, key, n * k * sizeof(float));
    return KVR_OK;
}

static enum kvr_status keep_hidden(void *ud, uint32_t index, uint32_t first,
                                   uint32_t n, const float *hidden,
                                   struct kvr_error *err)
{
    struct golden_run *run = ud;
    const size_t width = run->model.config.hidden;

    (void)err;
    memcpy(run->hidden + ((size_t)index * run->n_token + first) * width, hidden,
           n * width * sizeof(float));
    return KVR_OK;
}

static enum kvr_status add_mlp(void *ud, uint32_t layer, uint32_t first,
                               uint32_t n, const float *activation,
                               struct kvr_error *err)
{
    struct golden_run *run = ud;
    const size_t width = run->model.config.n_ff;

    (void)first;
    (void)err;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < width; k++)
            run->mlp[layer * width + k] +=
                fabs((double)activation[i * width + k]);
    return KVR_OK;
}

static float *floats(size_t n)
{
    float *out = kvr_calloc(n, sizeof *out);

    ck_assert_ptr_nonnull(out);
    return out;
}

const struct kvr_backend *golden_backend(void)
{
    static char why[KVR_BACKEND_WHY];
    const struct kvr_backend *backend = NULL;
    const char *name = getenv("KVR_TEST_BACKEND");
    struct kvr_error err = {0};

    if (name == NULL || name[0] == '\0')
        return &kvr__backend_cpu;
    ck_assert_str_eq(name, "cuda");
    must(kvr__backend_choose(&backend, why, KVR_BACKEND_CUDA, &err));
    return backend;
}

void golden_run_init(struct golden_run *run, const char *path, uint32_t n_token,
                     uint32_t max_rows, uint32_t threads)
{
    const struct kvr_decoder_options options = {
        .max_tokens = n_token, .max_rows = max_rows, .threads = threads};
    struct kvr_error err = {0};

    *run = (struct golden_run){.n_token = n_token};
    must(kvr__model_init(&run->model, path, &err));
    must(kvr__decoder_new(&run->decoder, &run->model, golden_backend(),
                          &options, &err));
    const struct kvr_config *c = &run->model.config;
    const size_t T = n_token, heads = (size_t)c->n_layer * c->n_head;
    run->attention = floats(heads * T * T);
    run->lse = floats(heads * T);
    run->mass = floats(heads * T);
    run->hidden = floats((c->n_layer + 2) * T * c->hidden);
    run->query = floats(heads * T * c->key_dim);
    run->key = floats((size_t)c->n_layer * c->n_kv_head * T * c->key_dim);
    run->mlp = kvr_calloc((size_t)c->n_layer * c->n_ff, sizeof(double));
    ck_assert_ptr_nonnull(run->mlp);
    run->observer = (struct kvr_observer){
        .ud = run,
        .rows = keep_rows,
        .query_key = keep_query_key,
        .hidden = keep_hidden,
        .mlp = add_mlp,
    };
}

void golden_run_fini(struct golden_run *run)
{
    kvr__decoder_free(run->decoder);
    kvr__model_fini(&run->model);
    free(run->attention);
    free(run->lse);
    free(run->mass);
    free(run->hidden);
    free(run->query);
    free(run->key);
    free(run->mlp);
}

void golden_feed(struct golden_run *run, const int32_t *ids, uint32_t n,
                 uint32_t chunk)
{
    struct kvr_error err = {0};

    for (uint32_t i = 0; i < n; i += chunk)
        must(kvr__decoder_feed(run->decoder, ids + i,
                               n - i < chunk ? n - i : chunk, &run->observer,
                               &err));
    must(kvr__decoder_drain(run->decoder, &err));
}

double golden_max_diff(const float *a, const float *b, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++) {
        const double diff = fabs((double)a[i] - (double)b[i]);
        if (!(diff <= most)) /* a NaN is the largest difference */
            most = diff;
    }
    return most;
}

double golden_check_attention(const struct golden_run *run,
                              const float *expected, double bound)
{
    const struct kvr_config *c = &run->model.config;
    const size_t T = run->n_token;
    const size_t rows = (size_t)c->n_layer * c->n_head * T;
    const double diff = golden_max_diff(run->attention, expected, rows * T);

    ck_assert_msg(diff <= bound, "attention is off by %g, allowed %g", diff,
                  bound);
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t i = 0; i < T; i++) {
            sum += (double)run->attention[r * T + i];
            ck_assert(i <= r % T || run->attention[r * T + i] == 0);
        }
        ck_assert_msg(fabs(sum - 1) <= 1e-5, "row %zu sums to %g", r, sum);
        ck_assert(fabs(sum - (double)run->mass[r]) <= 1e-6);
    }
    return diff;
}
