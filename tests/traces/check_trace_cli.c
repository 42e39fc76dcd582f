/* check_trace_cli.c -- kvreplay trace: exit codes, JSON, messages.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made.h"
#include "suite.h"

#include <jansson.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct made run = {.n_layer = 2,
                                .n_head = 4,
                                .n_kv_head = 2,
                                .t = 80,
                                .prompt_len = 30,
                                .dtype = KVR_F16,
                                .tokens = true,
                                .text = true,
                                .norms = true};

/* Runs the program; its output goes to out.txt and err.txt. */
static int kvreplay(const char *arguments)
{
    char command[4000];

    snprintf(command, sizeof command, "%s %s >%s 2>%s", KVR_PROGRAM, arguments,
             made_path("out.txt"), made_path("err.txt"));
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int with(const char *format, const char *a, const char *b)
{
    char arguments[3000];

    snprintf(arguments, sizeof arguments, format, a, b);
    return kvreplay(arguments);
}

static void said(const char *name, const char *text)
{
    char data[8192] = "";
    FILE *in = fopen(made_path(name), "r");

    ck_assert(in != NULL);
    data[fread(data, 1, sizeof data - 1, in)] = '\0';
    fclose(in);
    ck_assert_msg(strstr(data, text) != NULL, "'%s' lacks '%s'", data, text);
}

static json_t *first_result(json_t **root)
{
    json_error_t error;

    *root = json_load_file(made_path("out.txt"), 0, &error);
    ck_assert_msg(*root != NULL, "%s", error.text);
    return json_array_get(json_object_get(*root, "results"), 0);
}

START_TEST(check_tells_whole_unfinished_and_foreign)
{
    struct kvr_error err = {0};
    struct kvr_writer *writer = NULL;
    json_t *root;

    must(made_write(&run, made_path("a.kvt.h5"), true, &err));
    ck_assert_int_eq(
        with("trace check %s --format json%s", made_path("a.kvt.h5"), ""), 0);
    json_t *item = first_result(&root);
    ck_assert(json_is_true(json_object_get(item, "ok")));
    ck_assert_int_eq(json_integer_value(json_object_get(item, "closed_rows")),
                     80);
    ck_assert_uint_eq(json_array_size(json_object_get(item, "problems")), 0);
    json_decref(root);
    must(made_open(&writer, &run, made_path("b.kvt.h5"), true, &err));
    must(made_steps(writer, &run, 0, 33, &err));
    kvr_writer_abandon(writer);
    ck_assert_int_eq(
        with("trace check %s --format json%s", made_path("b.kvt.h5.part"), ""),
        1);
    item = first_result(&root);
    ck_assert(json_is_false(json_object_get(item, "ok")));
    ck_assert_int_eq(json_integer_value(json_object_get(item, "closed_rows")),
                     33);
    json_decref(root);
    ck_assert_int_eq(
        with("trace info %s --format json%s", made_path("b.kvt.h5.part"), ""),
        0);
    item = first_result(&root);
    ck_assert(json_is_false(json_object_get(item, "complete")));
    ck_assert_int_eq(json_integer_value(json_object_get(item, "n_token")), 33);
    json_decref(root);
    ck_assert_int_eq(with("trace repair %s -o %s", made_path("b.kvt.h5.part"),
                          made_path("b.kvt.h5")),
                     0);
    ck_assert_int_eq(with("trace check %s%s", made_path("b.kvt.h5"), ""), 0);
    ck_assert_int_eq(
        with("trace check %s%s", made_data("awkward/att_ok_f32.npy"), ""), 3);
    said("err.txt", "not an HDF5 file");
}
END_TEST

START_TEST(info_and_show_give_what_is_stored)
{
    struct kvr_error err = {0};
    json_t *root;

    must(made_write(&run, made_path("a.kvt.h5"), true, &err));
    ck_assert_int_eq(
        with("trace info %s --format json%s", made_path("a.kvt.h5"), ""), 0);
    json_t *item = first_result(&root);
    static const char *const keys[] = {
        "format_version", "complete",   "n_layer", "n_head", "n_kv_head",
        "n_token",        "prompt_len", "dtype",   "hash",   "members"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        ck_assert_msg(json_object_get(item, keys[i]) != NULL, "%s", keys[i]);
    ck_assert_int_eq(json_integer_value(json_object_get(item, "prompt_len")),
                     30);
    ck_assert_str_eq(json_string_value(json_object_get(item, "dtype")), "f16");
    json_decref(root);
    ck_assert_int_eq(with("trace show %s --layer 2 --head 3 --row 9 --format "
                          "json%s",
                          made_path("a.kvt.h5"), ""),
                     0);
    item = first_result(&root);
    float row[10];
    made_row(&run, 1, 3, 9, row);
    ck_assert(json_real_value(json_object_get(item, "weight")) -
                  (double)row[0] <
              1e-3);
    ck_assert_str_eq(json_string_value(json_object_get(item, "text")), " t0");
    json_decref(root);
    ck_assert_int_eq(
        with("trace show %s --layer 1%s", made_path("a.kvt.h5"), ""), 2);
    ck_assert_int_eq(
        with("trace show %s --row 80%s", made_path("a.kvt.h5"), ""), 2);
}
END_TEST

START_TEST(import_and_synth_write_once)
{
    ck_assert_int_eq(with("trace import %s --axes lhqk --prompt-len 5 -o %s",
                          made_data("awkward/att_ok_f32.npy"),
                          made_path("i.kvt.h5")),
                     0);
    said("err.txt", "--n-kv-head");
    ck_assert_int_eq(with("trace import %s --axes lhqk --prompt-len 5 -o %s",
                          made_data("awkward/att_ok_f32.npy"),
                          made_path("i.kvt.h5")),
                     3);
    said("err.txt", "--force");
    ck_assert_int_eq(with("trace import %s -o %s",
                          made_data("awkward/att_batch2_ambiguous.npy"),
                          made_path("j.kvt.h5")),
                     2);
    ck_assert_int_eq(with("trace import %s --prompt-len 5%s",
                          made_data("awkward/att_ok_f32.npy"), ""),
                     2);
    ck_assert_int_eq(
        with("trace synth --kind zipf -T 70 --layers 2 --heads 4 --kv-heads 2 "
             "--seed 5 --prompt-len 9 --no-provenance -o %s%s",
             made_path("s.kvt.h5"), ""),
        0);
    ck_assert_int_eq(
        with("trace synth --kind zipf -T 70 --layers 2 --heads 4 --kv-heads 2 "
             "--seed 5 --prompt-len 9 --no-provenance --threads 1 -o %s%s",
             made_path("t.kvt.h5"), ""),
        0);
    ck_assert(made_same(made_path("s.kvt.h5"), made_path("t.kvt.h5")));
    ck_assert_int_eq(with("trace synth --heads 4 --kv-heads 3 -o %s%s",
                          made_path("u.kvt.h5"), ""),
                     2);
    ck_assert_int_eq(with("trace nonsense%s%s", "", ""), 2);
    ck_assert_int_eq(with("trace --help%s%s", "", ""), 0);
    said("out.txt", "repair");
}
END_TEST

/* Provenance, and the time that SOURCE_DATE_EPOCH stands for. */
START_TEST(provenance_follows_the_environment)
{
    json_t *root;

    setenv("SOURCE_DATE_EPOCH", "86400", 1);
    ck_assert_int_eq(
        with("trace synth -T 20 -o %s%s", made_path("p.kvt.h5"), ""), 0);
    unsetenv("SOURCE_DATE_EPOCH");
    ck_assert_int_eq(
        with("trace info %s --format json%s", made_path("p.kvt.h5"), ""), 0);
    json_t *item = first_result(&root);
    ck_assert_str_eq(json_string_value(json_object_get(item, "created")),
                     "1970-01-02T00:00:00Z");
    ck_assert(strstr(json_string_value(json_object_get(item, "options")),
                     "trace synth -T 20") != NULL);
    json_decref(root);
}
END_TEST

KVR_SUITE("trace_cli", check_tells_whole_unfinished_and_foreign,
          info_and_show_give_what_is_stored, import_and_synth_write_once,
          provenance_follows_the_environment)
