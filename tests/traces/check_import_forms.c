/* check_import_forms.c -- forms in which attention is brought to the import.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_import.h"

#include "made.h"
#include "suite.h"

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

/* The array of one.npy behind another header. */
static void with_header(const char *name, const char *header)
{
    const size_t n = strlen(header);
    uint8_t data[800];

    FILE *in = fopen(made_data("traces/dumps/one.npy"), "rb");
    ck_assert(in != NULL);
    ck_assert_int_eq(fseek(in, 128, SEEK_SET), 0);
    ck_assert_uint_eq(fread(data, 1, sizeof data, in), sizeof data);
    fclose(in);
    FILE *out = fopen(made_path(name), "wb");
    ck_assert(out != NULL);
    fwrite("\x93NUMPY\x01", 1, 7, out);
    fputc(0, out);
    fputc((int)(n & 255), out);
    fputc((int)(n >> 8), out);
    fwrite(header, 1, n, out);
    fwrite(data, 1, sizeof data, out);
    ck_assert_int_eq(fclose(out), 0);
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
        "{\"shape\" : ( 2L , 10L,10L , ) ,\n\t\"descr\": 'f4' ,\n"
        "\"fortran_order\" :False , } \n",
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

KVR_SUITE("import_forms", bytes_behind_an_array_are_refused,
          headers_are_read_as_numpy_does, other_headers_are_refused)
