/* check_import_names.c -- which datasets of an HDF5 file become which layer and
 * step.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_import.h"

#include "made.h"
#include "suite.h"

#include <hdf5.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { N_HEAD = 2, N_ROW = 10, PROMPT = 4 };

static const struct kvr_import_options plain = {.batch_item = -1,
                                                .dtype = -1,
                                                .prompt_len = PROMPT,
                                                .n_kv_head = 2,
                                                .force = true};

static const char *out_path(void)
{
    return made_path("i.kvt.h5");
}

/* Rows first..first+n-1, which spread evenly over the keys. */
static void put(hid_t file, const char *name, uint32_t first, uint32_t n)
{
    const uint32_t n_key = first + n;
    const hsize_t dims[4] = {1, N_HEAD, n, n_key};
    float rows[N_HEAD * N_ROW * N_ROW] = {0};

    for (uint32_t h = 0; h < N_HEAD; h++)
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t k = 0; k <= first + r; k++)
                rows[(h * n + r) * n_key + k] = 1 / (float)(first + r + 1);
    const hid_t space = H5Screate_simple(4, dims, NULL);
    const hid_t create = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(create, 1);
    const hid_t set = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, create,
                                 H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(set >= 0);
    ck_assert(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       rows) >= 0);
    H5Dclose(set);
    H5Pclose(create);
    H5Sclose(space);
}

static hid_t make(void)
{
    const hid_t file =
        H5Fcreate(made_path("d.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    ck_assert(file >= 0);
    return file;
}

/* Steps 0..n-1 of two layers, their names by `format`: step, layer. */
static hid_t make_steps(const char *step, const char *layer, uint32_t n)
{
    const hid_t file = make();

    for (uint32_t s = 0; s < n; s++)
        for (uint32_t l = 0; l < 2; l++) {
            char name[80];
            snprintf(name, sizeof name, "%s%u%s%u", step, s, layer, l);
            if (s == 0)
                put(file, name, 0, PROMPT);
            else
                put(file, name, PROMPT + s - 1, 1);
        }
    return file;
}

static enum kvr_status import(const char *dataset, struct kvr_error *err)
{
    struct kvr_import_options options = plain;

    options.dataset = dataset;
    unlink(out_path());
    return kvr_import(made_path("d.h5"), out_path(), &options, err);
}

/* What was imported has n tokens and these layers. */
static void has(uint32_t n_token, uint32_t n_layer, const uint32_t *layers)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    must(kvr_trace_open(&trace, out_path(), &err));
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    ck_assert_uint_eq(shape->n_token, n_token);
    ck_assert_uint_eq(shape->n_layer, n_layer);
    for (uint32_t l = 0; l < n_layer; l++)
        ck_assert_uint_eq(shape->layers[l].layer, layers[l]);
    kvr_trace_close(trace);
}

static void refused(const char *dataset, enum kvr_status status, const char *a,
                    const char *b)
{
    struct kvr_error err = {0};

    must_fail(import(dataset, &err), status, a);
    ck_assert_msg(strstr(err.message, b) != NULL, "%s lacks '%s'", err.message,
                  b);
    ck_assert(access(out_path(), F_OK) != 0);
}

START_TEST(layers_keep_their_numbers)
{
    static const uint32_t gaps[] = {0, 8, 16, 24};
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};

    o.dataset = "layer_%d";
    must(kvr_import(made_data("traces/dumps/layers.h5"), out_path(), &o, &err));
    has(10, 4, gaps);
    const hid_t file = make();
    put(file, "m/layer_03/attn", 0, N_ROW);
    put(file, "m/layer_120/attn", 0, N_ROW);
    put(file, "m/layer_11/attn", 0, N_ROW);
    put(file, "m/layer_x/attn", 0, N_ROW);
    put(file, "m/layer_5/other", 0, N_ROW);
    H5Fclose(file);
    must(import("/m/layer_%02d/attn", &err));
    has(N_ROW, 3, (const uint32_t[]){3, 11, 120});
    must(import("m/layer_%d/attn", &err));
    has(N_ROW, 3, (const uint32_t[]){3, 11, 120});
}
END_TEST

START_TEST(what_fits_and_cannot_be_taken_is_refused)
{
    hid_t file = make();

    put(file, "layer_0", 0, N_ROW);
    put(file, "layer_00", 0, N_ROW);
    H5Fclose(file);
    refused("layer_%d", KVR_ERR_INPUT, "two names of one layer", "/layer_00");
    file = make();
    put(file, "layer_0", 0, N_ROW);
    H5Gclose(
        H5Gcreate2(file, "layer_4", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
    refused("layer_%d", KVR_ERR_INPUT, "/layer_4", "a group");
    file = make();
    put(file, "layer_0", 0, N_ROW);
    H5Lcreate_soft("/layer_0", file, "layer_4", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    refused("layer_%d", KVR_ERR_INPUT, "/layer_4", "soft or external link");
    file = make();
    put(file, "layer_0", 0, N_ROW);
    put(file, "layer_65536", 0, N_ROW);
    H5Fclose(file);
    refused("layer_%d", KVR_ERR_INPUT, "/layer_65536", "up to 65535");
    file = make();
    put(file, "layer_0", 0, N_ROW);
    put(file, "layer_7", 0, PROMPT);
    H5Fclose(file);
    refused("layer_%d", KVR_ERR_INPUT, "/layer_7", "the same in all layers");
    refused("layer_%d/x", KVR_ERR_INPUT, "no dataset is named", "layer_%d/x");
    refused("layer_%d_%d", KVR_ERR_USAGE, "expected one %d", "step_%d");
    refused("layer_%x", KVR_ERR_USAGE, "expected one %d", "%x");
}
END_TEST

START_TEST(steps_are_found_by_their_names)
{
    static const struct {
        const char *step, *layer, *pattern;
    } forms[] = {{"step_", "/layer_", NULL},
                 {"step", "/layer", NULL},
                 {"step_0", "/layer_", NULL}, /* step_00 .. step_05 */
                 {"run/a/step_", "/layer_", NULL},
                 {"step_", "/layer_", "step_%d/layer_%d"},
                 {"layer_", "/token_", "layer_%d/token_%d"},
                 {"tokens/", "_l", "tokens/%d_l%02d"}};
    struct kvr_error err = {0};

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const bool swapped = forms[i].step[0] == 'l';
        if (swapped) {
            const hid_t file = make();
            for (uint32_t s = 0; s < 6; s++) {
                char name[80];
                snprintf(name, sizeof name, "layer_0/token_%u", s);
                put(file, name, s == 0 ? 0 : PROMPT + s - 1,
                    s == 0 ? PROMPT : 1);
                snprintf(name, sizeof name, "layer_1/token_%u", s);
                put(file, name, s == 0 ? 0 : PROMPT + s - 1,
                    s == 0 ? PROMPT : 1);
            }
            H5Fclose(file);
        } else {
            H5Fclose(make_steps(forms[i].step, forms[i].layer, 6));
        }
        must(import(forms[i].pattern, &err));
        has(PROMPT + 5, 2, (const uint32_t[]){0, 1});
    }
    H5Fclose(make_steps("step_", "/layer_", 6));
    must(import("step_%d/layer_1", &err));
    has(PROMPT + 5, 1, (const uint32_t[]){1});
}
END_TEST

START_TEST(a_step_is_never_taken_for_the_file)
{
    struct kvr_error err = {0};

    H5Fclose(make_steps("step_", "/layer_", 6));
    refused("step_0/layer_%d", KVR_ERR_USAGE, "one of several steps",
            "step_%d/layer_%d takes them all");
    refused("step_3/layer_%d", KVR_ERR_USAGE, "one of several steps", "step_3");
    must(import("step_0/layer_1", &err)); /* one dataset, and a warning */
    has(PROMPT, 1, (const uint32_t[]){0});
    H5Fclose(make_steps("step_", "/layer_", 1));
    must(import("step_0/layer_%d", &err));
    has(PROMPT, 2, (const uint32_t[]){0, 1});
}
END_TEST

START_TEST(a_hole_in_the_steps_is_named)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};

    must_fail(
        kvr_import(made_data("traces/dumps/steps.h5"), out_path(), &o, &err),
        KVR_ERR_INPUT, "step 3 has no layer 1");
    ck_assert_ptr_eq(strchr(err.message, '%'), NULL);
    hid_t file = make_steps("step_", "/layer_", 6);
    H5Ldelete(file, "step_5/layer_0", H5P_DEFAULT);
    H5Ldelete(file, "step_5/layer_1", H5P_DEFAULT);
    H5Fclose(file);
    refused(NULL, KVR_ERR_INPUT, "step 5 has no layer 0", "step 0 has");
    file = make_steps("step_", "/layer_", 6);
    H5Ldelete(file, "step_2", H5P_DEFAULT);
    H5Fclose(file);
    refused(NULL, KVR_ERR_INPUT, "step 1 is followed by 3", "d.h5");
    file = make_steps("step_", "/layer_", 6);
    H5Ldelete(file, "step_2", H5P_DEFAULT);
    H5Lcreate_soft("/step_1", file, "step_2", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    refused(NULL, KVR_ERR_INPUT, "/step_2", "soft or external link");
    file = make_steps("step_", "/layer_", 6);
    put(file, "other/step_0/layer_0", 0, PROMPT);
    H5Fclose(file);
    refused(NULL, KVR_ERR_USAGE, "/other/step_", "choose with --dataset");
    H5Fclose(make_steps("step_", "/l", 6));
    refused(NULL, KVR_ERR_INPUT, "no dataset layer_N", "step_%d");
    must(import("step_%d/l%d", &err));
}
END_TEST

/* A row over the last n_key keys, heavier towards the newest. */
static void put_row(hid_t file, const char *name, uint32_t n_key)
{
    const hsize_t dims[4] = {1, N_HEAD, 1, n_key};
    float row[N_HEAD * N_ROW];

    for (uint32_t i = 0; i < N_HEAD * n_key; i++)
        row[i] = (float)(i % n_key + 1) / (float)(n_key * (n_key + 1) / 2);
    const hid_t space = H5Screate_simple(4, dims, NULL);
    const hid_t set = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT,
                                 H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(set >= 0);
    ck_assert(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       row) >= 0);
    H5Dclose(set);
    H5Sclose(space);
}

/* Layer 0 keeps all, layer 1 the last `window` keys; `odd` of them in step 4.
 */
static void make_fixed(uint32_t window, uint32_t odd)
{
    const hid_t file = make();

    put(file, "step_0/layer_0", 0, PROMPT);
    put(file, "step_0/layer_1", 0, PROMPT);
    for (uint32_t s = 1; s < 6; s++) {
        const uint32_t now = PROMPT + s;
        char name[80];
        snprintf(name, sizeof name, "step_%u/layer_0", s);
        put(file, name, now - 1, 1);
        snprintf(name, sizeof name, "step_%u/layer_1", s);
        put_row(file, name, s == 4 ? odd : now < window ? now : window);
    }
    H5Fclose(file);
}

START_TEST(steps_of_a_fixed_width_are_a_window)
{
    enum { W = 6 };
    struct kvr_import_options o = plain;
    struct kvr_trace *trace = NULL;
    struct kvr_trace_scratch *scratch = NULL;
    struct kvr_error err = {0};
    float row[PROMPT + 5];

    make_fixed(W, W);
    must(import(NULL, &err));
    must(kvr_trace_open(&trace, out_path(), &err));
    const struct kvr_layer_shape *layers = kvr_trace_shape(trace)->layers;
    ck_assert_int_eq(layers[0].mask, KVR_MASK_CAUSAL);
    ck_assert_int_eq(layers[1].mask, KVR_MASK_WINDOW);
    ck_assert_uint_eq(layers[1].span, W);
    must(kvr_trace_scratch_new(&scratch, trace, &err));
    for (uint32_t t = PROMPT; t < PROMPT + 5; t++) {
        const uint32_t n = t + 1 < W ? t + 1 : W;
        must(kvr_trace_read_rows(trace, 1, 1, t, 1, row, PROMPT + 5, scratch,
                                 &err));
        for (uint32_t k = 0; k < PROMPT + 5; k++) {
            const bool in = k <= t && k + n > t;
            const float want =
                in ? (float)(k + n - t) / (float)(n * (n + 1) / 2) : 0;
            ck_assert_msg(fabsf(row[k] - want) < 0x1p-29F, "row %u key %u", t,
                          k);
        }
    }
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
    o.window = W;
    must_fail(kvr_import(made_path("d.h5"), out_path(), &o, &err),
              KVR_ERR_INPUT, "layer 0 head 0 row 6 key 0");
    o.layers = "1";
    must(kvr_import(made_path("d.h5"), out_path(), &o, &err));
    o.window = W - 1;
    must_fail(kvr_import(made_path("d.h5"), out_path(), &o, &err),
              KVR_ERR_INPUT, "layer 1: its steps hold 6 keys");
    make_fixed(W, W - 1);
    refused(NULL, KVR_ERR_INPUT, "step 4 layer 1", "1 rows of 6 keys");
    make_fixed(W, W + 1);
    refused(NULL, KVR_ERR_INPUT, "step 4 layer 1", "1 rows of 6 keys");
}
END_TEST

KVR_SUITE("import_names", layers_keep_their_numbers,
          what_fits_and_cannot_be_taken_is_refused,
          steps_are_found_by_their_names, a_step_is_never_taken_for_the_file,
          a_hole_in_the_steps_is_named, steps_of_a_fixed_width_are_a_window)
