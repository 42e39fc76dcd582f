/* check_judge.c -- arrays of a trace that are not what their names say: refused
 * with layer, head, row and both numbers, alike by all who read them.
 *
 * A good trace is written, then one number of one array is changed through
 * HDF5. rows/sum_1.5 and rows/sum_0.5 have a row that sums to other than its
 * row_mass says; rows/plain is the same without.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made.h"
#include "suite.h"

#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { T = 70, HEADS = 4 };

static const struct made run = {.n_layer = 2,
                                .n_head = HEADS,
                                .n_kv_head = 2,
                                .t = T,
                                .prompt_len = 30,
                                .tokens = true,
                                .norms = true,
                                .n_ff = 5,
                                .dtype = KVR_F16};

/* Puts `value` at number `at` of a dataset of [rows][T] floats; makes it, of
 * zeros, where it is not there. */
static void put(const char *path, const char *name, hsize_t rows, hsize_t n,
                size_t at, float value)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    const hsize_t dims[2] = {rows, n};
    float *all = calloc(rows * n, sizeof *all);
    hid_t set;

    ck_assert(file >= 0);
    if (H5Lexists(file, name, H5P_DEFAULT) > 0) {
        set = H5Dopen2(file, name, H5P_DEFAULT);
        const hid_t space = H5Dget_space(set);
        ck_assert_int_eq(H5Sget_simple_extent_npoints(space), rows * n);
        H5Sclose(space);
        ck_assert(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                          all) >= 0);
    } else {
        const hid_t space = H5Screate_simple(2, dims, NULL);
        set = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT,
                         H5P_DEFAULT, H5P_DEFAULT);
        H5Sclose(space);
    }
    all[at] = value;
    ck_assert(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       all) >= 0);
    H5Dclose(set);
    H5Fclose(file);
    free(all);
}

static void take(const char *path, const char *name)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);

    ck_assert(file >= 0 && H5Ldelete(file, name, H5P_DEFAULT) >= 0);
    H5Fclose(file);
}

static void exits(int expected, const char *command, const char *path,
                  const char *says)
{
    char line[1024], said[2048];

    snprintf(line, sizeof line, command, path);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    const size_t n = fread(said, 1, sizeof said - 1, pipe);
    said[n] = '\0';
    const int status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == expected &&
                      strstr(said, says) != NULL,
                  "%s: exit %d: %.300s", line, WEXITSTATUS(status), said);
}

static void all_refuse(const char *path, const char *says)
{
    static const char *const commands[] = {
        KVR_PROGRAM " replay %s -p window,h2o -b 20%% -q 2>&1",
        KVR_PROGRAM " gap %s -p window -b 20%% -q 2>&1",
        KVR_PROGRAM " sparsity %s -q 2>&1",
        KVR_PROGRAM " powerlaw %s -q 2>&1",
        KVR_PROGRAM " trace show %s --layer 2 --head 1 -q 2>&1",
    };

    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        exits(3, commands[i], path, says);
    exits(1, KVR_PROGRAM " trace check %s 2>&1", path, says);
}

START_TEST(numbers_beside_the_rows_are_judged)
{
    static const struct {
        const char *name;
        hsize_t rows, n;
        float value;
        const char *says;
    } bad[] = {
        {"/layers/02/sink_mass", HEADS, T, 3, "sink_mass is 3, expected"},
        {"/layers/02/sink_mass", HEADS, T, -0.5f, "sink_mass is -0.5"},
        {"/layers/02/sink_mass", HEADS, T, NAN, "sink_mass is nan"},
        {"/layers/02/sink_mass", HEADS, T, INFINITY, "sink_mass is inf"},
        {"/layers/02/row_mass", HEADS, T, NAN, "row_mass is nan"},
        {"/layers/02/row_mass", HEADS, T, -1, "row_mass is -1"},
        {"/layers/02/row_mass", HEADS, T, 5, "row_mass is 5"},
        {"/layers/02/lse", HEADS, T, NAN, "lse is nan"},
        {"/layers/02/lse", HEADS, T, INFINITY, "lse is inf"},
        {"/layers/02/key_norm", 2, T, -1, "key_norm is -1"},
        {"/layers/02/value_norm1", 2, T, NAN, "value_norm1 is nan"},
        {"/layers/02/value_norm2", 2, T, INFINITY, "value_norm2 is inf"},
        {"/layers/02/value_norm2", 2, T, -2, "value_norm2 is -2"},
        {"/layers/02/value_out_norm1", HEADS, T, NAN, "value_out_norm1 is nan"},
        {"/layers/02/mlp_mass", 1, 5, NAN, "mlp_mass nan"},
        {"/layers/02/mlp_mass", 1, 5, -1, "mlp_mass -1"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_error err = {0};
        struct kvr_trace *trace = NULL;
        char path[512];
        snprintf(path, sizeof path, "%s", made_path("judged.kvt.h5"));
        must(made_write(&run, path, true, &err));
        /* head 1, row 3; or neuron 2 */
        const size_t at = bad[i].n == T ? T + 3 : 2;
        put(path, bad[i].name, bad[i].rows, bad[i].n, at, bad[i].value);
        must_fail(kvr_trace_open(&trace, path, &err), KVR_ERR_INPUT,
                  bad[i].says);
        ck_assert_msg(strstr(err.message, bad[i].n == T
                                              ? "layer 2 head 1 row 3"
                                              : "layer 2 neuron 2") != NULL,
                      "%s", err.message);
        if (i % 4 == 0)
            all_refuse(path, bad[i].says);
    }
}
END_TEST

/* In rows that have, or lack, a row_mass and a mask; all of layer 2, head 1. */
START_TEST(weights_are_judged)
{
    static const struct {
        enum kvr_mask mask;
        bool stated; /* row_mass */
        float sink;
        uint32_t row, key;
        float value;
        const char *says;
    } bad[] = {
        {KVR_MASK_CAUSAL, true, 0, 69, 3, 0.875f, "row_mass is"},
        {KVR_MASK_CAUSAL, false, 0, 69, 69, 0.875f, "expected at most 1.125"},
        {KVR_MASK_CAUSAL, false, 0.5f, 69, 69, 0.125f,
         "expected at most 0.625 (sink_mass 0.5)"},
        {KVR_MASK_CAUSAL, true, 0.5f, 69, 69, -1, "(sink_mass 0.5)"},
        {KVR_MASK_CAUSAL, true, 0, 69, 3, 1.5f, "row_mass is"},
        {KVR_MASK_CAUSAL, true, 0, 69, 3, 2, "key 3: weight 2"},
        {KVR_MASK_CAUSAL, false, 0, 69, 3, 0x1p100f, "key 3: weight 1.26765"},
        {KVR_MASK_WINDOW, true, 0, 69, 60, 0x1p-14f,
         "key 60: weight 6.10351562e-05 outside of the window of 9"},
        {KVR_MASK_CHUNK, true, 0, 69, 62, 0x1p-14f,
         "key 62: weight 6.10351562e-05 outside of the chunk of 9"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *path = made_path("weights.kvt.h5");
        const uint32_t at = (T + bad[i].row) * T + bad[i].key;
        struct kvr_error err = {0};
        struct made m = run;
        m.mask = bad[i].mask;
        m.span = m.mask == KVR_MASK_CAUSAL ? 0 : 9;
        m.dtype = bad[i].value > 2 ? KVR_F32 : run.dtype;
        must(made_write(&m, path, true, &err));
        if (bad[i].value > 0)
            put(path, "/layers/02/attention", HEADS, (hsize_t)T * T, at,
                bad[i].value);
        if (bad[i].sink > 0)
            put(path, "/layers/02/sink_mass", HEADS, T, T + bad[i].row,
                bad[i].sink);
        if (!bad[i].stated)
            take(path, "/layers/02/row_mass");
        char says[200];
        snprintf(says, sizeof says, "layer 2 head 1 row %u", bad[i].row);
        all_refuse(path, says);
        all_refuse(path, bad[i].says);
    }
}
END_TEST

START_TEST(a_probability_is_at_most_one)
{
    struct kvr_error err = {0};
    struct kvr_trace *trace = NULL;
    char path[512];

    snprintf(path, sizeof path, "%s", made_path("prob.kvt.h5"));
    must(made_write(&run, path, true, &err));
    put(path, "/tokens/logprob", 1, T, 9, 0.5f);
    must_fail(kvr_trace_open(&trace, path, &err), KVR_ERR_INPUT,
              "token 9: logprob is 0.5");
    put(path, "/tokens/logprob", 1, T, 9, NAN); /* not known */
    must(kvr_trace_open(&trace, path, &err));
    kvr_trace_close(trace);
}
END_TEST

/* All commands that read rows compare them with what the trace says. */
START_TEST(rows_sum_to_their_mass)
{
    static const char *const commands[] = {
        KVR_PROGRAM " replay %s -p h2o -b 3 -q 2>&1",
        KVR_PROGRAM " gap %s -p h2o -b 3 -q 2>&1",
        KVR_PROGRAM " sparsity %s -q 2>&1",
        KVR_PROGRAM " powerlaw %s -q 2>&1",
    };
    char line[1024];

    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        exits(3, commands[i], made_data("traces/rows/sum_1.5.kvt.h5"),
              "layer 0 head 1 row 6: the weights sum to 1.5");
        exits(3, commands[i], made_data("traces/rows/sum_0.5.kvt.h5"),
              "layer 0 head 1 row 7: the weights sum to 0.49999");
        snprintf(line, sizeof line, commands[i],
                 made_data("traces/rows/plain.kvt.h5"));
        line[strlen(line) - strlen("2>&1")] = '\0'; /* quiet */
        const size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, ">/dev/null 2>&1");
        ck_assert_int_eq(system(line), 0);
    }
}
END_TEST

KVR_SUITE("judge", numbers_beside_the_rows_are_judged, weights_are_judged,
          a_probability_is_at_most_one, rows_sum_to_their_mass)
