/* check_import_forms.c -- forms in which attention is brought to the import.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_half.h"
#include "kvr_import.h"

#include "imported.h"
#include "made.h"
#include "suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct kvr_import_options plain = {.batch_item = -1,
                                                .dtype = -1,
                                                .prompt_len = 4,
                                                .n_kv_head = 2,
                                                .force = true};

static const char *out_path(void)
{
    return made_path("i.kvt.h5");
}

static enum kvr_status import(const char *name,
                              const struct kvr_import_options *options,
                              struct kvr_error *err)
{
    char path[600];

    snprintf(path, sizeof path, "traces/dumps/%s", name);
    unlink(out_path());
    return kvr_import(made_data(path), out_path(), options, err);
}

/* Data of a file whose header ends at byte 128. */
static void read_npy(void *out, size_t size, const char *name)
{
    char path[600];

    snprintf(path, sizeof path, "traces/dumps/%s", name);
    FILE *in = fopen(made_data(path), "rb");
    ck_assert(in != NULL);
    ck_assert_int_eq(fseek(in, 128, SEEK_SET), 0);
    ck_assert_uint_eq(fread(out, 1, size, in), size);
    fclose(in);
}

/* The array of one.npy behind another header. */
static void with_header(const char *name, const char *header)
{
    uint8_t data[800];

    read_npy(data, sizeof data, "one.npy");
    write_npy(made_path(name), header, data, sizeof data);
}

START_TEST(bytes_behind_an_array_are_refused)
{
    struct kvr_error err = {0};

    must(import("one.npy", &plain, &err));
    must_fail(import("two.npy", &plain, &err), KVR_ERR_INPUT,
              "928 bytes behind it");
    ck_assert_ptr_ne(strstr(err.message, "another array begins"), NULL);
    ck_assert(access(out_path(), F_OK) != 0);
    must_fail(import("tail.npy", &plain, &err), KVR_ERR_INPUT,
              "3 bytes behind it");
    ck_assert_ptr_eq(strstr(err.message, "another array"), NULL);
}
END_TEST

START_TEST(headers_are_read_as_numpy_does)
{
    static const char *const read[] = {
        "{'descr':'<f4','fortran_order':False,'shape':(2,10,10)}",
        ("{\"shape\" : ( 2L , 10L,10L , ) ,\n\t\"descr\": 'f4' ,\n"
         "\"fortran_order\" :False , } \n"),
        "{u'descr': u'|f4', 'fortran_order': False, 'shape': (2, 10, 10),}",
        "{'descr': 'float32', 'fortran_order': False, 'shape': (2, 10, 10)}",
        "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 10, 10)}"};
    struct kvr_error err = {0};
    char one[600];

    must(import("long_suffix.npy", &plain, &err));
    must(import("double_quotes.npy", &plain, &err));
    must(import("spaces.npy", &plain, &err));
    snprintf(one, sizeof one, "%s", made_path("one.kvt.h5"));
    must(kvr_import(made_data("traces/dumps/one.npy"), one, &plain, &err));
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        with_header("h.npy", read[i]);
        must(kvr_import(made_path("h.npy"), out_path(), &plain, &err));
        ck_assert_msg(made_same(one, out_path()), "%s", read[i]);
    }
}
END_TEST

/* Refused, and the message says what was found. */
START_TEST(other_headers_are_refused)
{
    static const struct {
        const char *header, *says;
    } bad[] = {
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 10, 10)}",
         "'<i4'"},
        {"{'descr': '<V2', 'fortran_order': False, 'shape': (2, 10, 10)}",
         "bfloat16"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
         "found [('a', '<f4')]"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 10, 10)}",
         "found 0, 'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 10, 10]}",
         "found [2, 10, 10]"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (200)}",
         "found (200)"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 10, 10)}",
         "found 10, 10)"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 10, 10)}",
         "found -2"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,2,10,10)}",
         "2 to 5 axes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(18446744073709551616, 10)}",
         "below 2^64 in the shape, found 18446744073709551616"},
        {"{'descr': '<f4', 'fortran_order': False}", "'shape' is missing"},
        {"{'fortran_order': False, 'shape': (2, 10, 10)}",
         "'descr' is missing"},
        {"{'descr': '<f4', 'shape': (2, 10, 10)}",
         "'fortran_order' is missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (2, 10, 10)}",
         "each key once"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 10, 10), "
         "'x': 1}",
         "found 'x': 1"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 10, 10)} ;",
         "found ;"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 10, 10)",
         "found its end"},
        {"{'descr': '<f4", "closing quote"},
        {"", "found its end"},
    };
    struct kvr_error err = {0};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        with_header("h.npy", bad[i].header);
        const enum kvr_status status =
            kvr_import(made_path("h.npy"), out_path(), &plain, &err);
        ck_assert_msg(status == KVR_ERR_INPUT || status == KVR_ERR_UNSUPPORTED,
                      "%s: %d", bad[i].header, (int)status);
        ck_assert_msg(strstr(err.message, bad[i].says) != NULL,
                      "%s: %s lacks %s", bad[i].header, err.message,
                      bad[i].says);
    }
}
END_TEST

/* ---- rows of rounded numbers ---- */

enum { ROWS = 32, HEADS = 2, ALL = HEADS * ROWS * ROWS };

static enum kvr_status import_rows(const float *rows,
                                   const struct kvr_import_options *options,
                                   struct kvr_error *err)
{
    write_npy(made_path("r.npy"),
              "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 32, 32)}",
              rows, ALL * sizeof *rows);
    unlink(out_path());
    return kvr_import(made_path("r.npy"), out_path(), options, err);
}

/* What the trace says of its rows, and how far a row sums from 1 at most. */
static double says(const char *text)
{
    struct kvr_trace *trace = NULL;
    struct kvr_trace_scratch *scratch = NULL;
    struct kvr_error err = {0};
    float row[ROWS];
    double most = 0;

    must(kvr_trace_open(&trace, out_path(), &err));
    const char *said = kvr_trace_shape(trace)->compute;
    ck_assert_msg((said == NULL && text == NULL) ||
                      (said != NULL && text != NULL && strcmp(said, text) == 0),
                  "%s", said != NULL ? said : "nothing");
    must(kvr_trace_scratch_new(&scratch, trace, &err));
    for (uint32_t h = 0; h < HEADS; h++)
        for (uint32_t r = 0; r < ROWS; r++) {
            double sum = 0;
            must(kvr_trace_read_rows(trace, 0, h, r, 1, row, ROWS, scratch,
                                     &err));
            for (uint32_t k = 0; k < ROWS; k++)
                sum += (double)row[k];
            most = fmax(most, fabs(sum - 1));
        }
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
    return most;
}

START_TEST(bfloat16_numbers_are_known_by_their_values)
{
    struct kvr_error err = {0};
    float rows[ALL];

    must(import("rows.npy", &plain, &err));
    ck_assert(fabs(says("rows of bfloat16 numbers") - 0.0023174) < 1e-6);
    must(import("rows_as_f16.npy", &plain, &err));
    ck_assert(says("rows of bfloat16 numbers") > 2e-3);
    must(import("one.npy", &plain, &err));
    /* one weight of 16 more bits: the row is not explained any more */
    read_npy(rows, sizeof rows, "rows.npy");
    ck_assert(rows[18 * ROWS] > 0.5F);
    rows[18 * ROWS] += 0x1p-20F;
    must_fail(import_rows(rows, &plain, &err), KVR_ERR_INPUT,
              "layer 0 head 0 row 18: weights sum to 1.00232");
    ck_assert_ptr_ne(strstr(err.message, "--renormalise"), NULL);
    /* nor one that bfloat16 does not explain */
    read_npy(rows, sizeof rows, "rows.npy");
    rows[18 * ROWS] += 0x1p-8F;
    must_fail(import_rows(rows, &plain, &err), KVR_ERR_INPUT, "row 18");
}
END_TEST

START_TEST(float16_numbers_are_known_in_a_wider_type)
{
    struct kvr_error err = {0};
    float rows[ALL] = {0};

    for (uint32_t h = 0; h < HEADS; h++)
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t k = 0; k <= r; k++)
                rows[(h * ROWS + r) * ROWS + k] =
                    kvr_f16_to_f32(kvr_f32_to_f16(1 / (float)(r + 1)));
    must(import_rows(rows, &plain, &err));
    ck_assert(says("rows of float16 numbers") > 1e-4);
}
END_TEST

/* Each advice leads somewhere. */
START_TEST(rows_are_renormalised_when_asked)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};
    float rows[ALL];

    read_npy(rows, sizeof rows, "rows.npy");
    rows[18 * ROWS] += 0x1p-20F;
    o.renormalise = true;
    must(import_rows(rows, &o, &err));
    ck_assert(says("rows divided by their sums") < 1e-6);
    rows[18 * ROWS] += 0.2F;
    must_fail(import_rows(rows, &o, &err), KVR_ERR_INPUT, "row 18");
    o.sink = true;
    must_fail(import_rows(rows, &o, &err), KVR_ERR_USAGE, "--sink");
}
END_TEST

/* ---- layers and heads ---- */

/* Head `head` of layer `layer` as stored is that of the array. */
static void same_rows(uint32_t layer, uint32_t head, uint32_t from_layer,
                      uint32_t from_head)
{
    enum { T = 10, H = 4, L = 3 };
    struct kvr_trace *trace = NULL;
    struct kvr_trace_scratch *scratch = NULL;
    struct kvr_error err = {0};
    float all[L][H][T][T], rows[T][T];

    read_npy(all, sizeof all, "att.npy");
    must(kvr_trace_open(&trace, out_path(), &err));
    const struct kvr_layer_shape *shape =
        &kvr_trace_shape(trace)->layers[layer];
    ck_assert_uint_eq(shape->layer, from_layer);
    ck_assert_uint_eq(shape->head_index[head], from_head);
    must(kvr_trace_scratch_new(&scratch, trace, &err));
    must(kvr_trace_read_rows(trace, layer, head, 0, T, rows[0], T, scratch,
                             &err));
    for (int r = 0; r < T; r++)
        for (int k = 0; k < T; k++)
            ck_assert(fabsf(rows[r][k] - all[from_layer][from_head][r][k]) <
                      0x1p-30F);
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
}

static void has(uint32_t n_layer, uint32_t n_head, uint32_t n_kv_head)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    must(kvr_trace_open(&trace, out_path(), &err));
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    ck_assert_uint_eq(shape->n_layer, n_layer);
    ck_assert_uint_eq(shape->n_head, 4);
    ck_assert_uint_eq(shape->n_kv_head, 2);
    ck_assert_uint_eq(shape->layers[0].n_head, n_head);
    ck_assert_uint_eq(shape->layers[0].n_kv_head, n_kv_head);
    kvr_trace_close(trace);
}

START_TEST(layers_and_heads_are_chosen)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};

    o.axes = "lhqk";
    o.layers = "1";
    must(import("att.npy", &o, &err));
    has(1, 4, 2);
    same_rows(0, 3, 1, 3);
    o.layers = "0,2";
    o.heads = "2-3";
    must(import("att.npy", &o, &err));
    has(2, 2, 1);
    same_rows(1, 0, 2, 2);
    o.sink = true;
    must(import("att.npy", &o, &err));
    same_rows(1, 1, 2, 3);
    o.heads = NULL;
    o.layers = "7";
    must_fail(import("att.npy", &o, &err), KVR_ERR_USAGE, "'7'");
    o.layers = "x";
    must_fail(import("att.npy", &o, &err), KVR_ERR_USAGE, "'x'");
    o.layers = NULL;
    o.heads = "0";
    must_fail(import("att.npy", &o, &err), KVR_ERR_USAGE,
              "query heads 0 to 1 share the keys of KV head 0");
    o.heads = "4";
    must_fail(import("att.npy", &o, &err), KVR_ERR_USAGE, "'4'");
    o.heads = NULL;
    o.n_kv_head = 3;
    must_fail(import("att.npy", &o, &err), KVR_ERR_USAGE, "--n-kv-head");
    o = plain;
    o.dataset = "layer_%d";
    o.layers = "8,24";
    must(import("layers.h5", &o, &err));
    o.layers = "8-16";
    must_fail(import("layers.h5", &o, &err), KVR_ERR_USAGE, "has no layer 9");
}
END_TEST

KVR_SUITE("import_forms", bytes_behind_an_array_are_refused,
          headers_are_read_as_numpy_does, other_headers_are_refused,
          bfloat16_numbers_are_known_by_their_values,
          float16_numbers_are_known_in_a_wider_type,
          rows_are_renormalised_when_asked, layers_and_heads_are_chosen)
