/* check_hdf5_damage.c -- attributes as they are, and files that libhdf5 does
 * not survive.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_open.h"
#include "kvr_import.h"
#include "kvr_journal.h"
#include "kvr_random.h"

#include "made.h"
#include "suite.h"

#include <errno.h>
#include <hdf5.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct made small = {.n_layer = 2,
                                  .n_head = 2,
                                  .n_kv_head = 1,
                                  .t = 70,
                                  .prompt_len = 30,
                                  .dtype = KVR_F16,
                                  .tokens = true,
                                  .text = true,
                                  .norms = true};

/* Only the sanitizers call these. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5\n";
}

static const struct kvr_import_options options = {.axes = "lhqk",
                                                  .batch_item = -1,
                                                  .dtype = -1,
                                                  .prompt_len = 4,
                                                  .n_kv_head = 1,
                                                  .force = true};

/* ---- attributes ---- */

static void put_value(hid_t file, const char *name, hid_t type,
                      const void *value)
{
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t attr =
        H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);

    ck_assert_int_ge(attr, 0);
    ck_assert_int_ge(H5Awrite(attr, type, value), 0);
    H5Aclose(attr);
    H5Sclose(space);
}

START_TEST(strings_are_read_as_they_are)
{
    const hid_t variable = H5Tcopy(H5T_C_S1), fixed = H5Tcopy(H5T_C_S1);
    const hid_t padded = H5Tcopy(H5T_FORTRAN_S1);
    static const char *const expected[] = {"", "", "kvörk", "ab", "cd"};
    static const char *const names[] = {"null", "empty", "utf8", "fixed",
                                        "padded"};
    const char *null = NULL, *empty = "", *utf8 = "kvörk";
    const char *path = made_kept("strings.h5");
    struct kvr_error err = {0};
    struct h5_index *index = NULL;

    ck_assert_int_ge(H5Tset_size(variable, H5T_VARIABLE), 0);
    ck_assert_int_ge(H5Tset_size(fixed, 5), 0);
    ck_assert_int_ge(H5Tset_size(padded, 5), 0);
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_value(file, "null", variable, &null);
    put_value(file, "empty", variable, &empty);
    put_value(file, "utf8", variable, &utf8);
    put_value(file, "fixed", fixed, "ab\0\0\0");
    put_value(file, "padded", padded, "cd   ");
    H5Fclose(file);
    must(kvr__h5_open(&index, path, &err));
    for (int i = 0; i < 5; i++) {
        const char *text = NULL;
        ck_assert_msg(
            kvr__h5_get_text(&text, index, kvr__h5_root(index), names[i]), "%s",
            names[i]);
        ck_assert_str_eq(text, expected[i]);
    }
    kvr__h5_close(index);
}
END_TEST

/* What a capture is told of its model comes back. */
START_TEST(a_traces_strings_survive)
{
    static const char *const texts[] = {"", "zürich 模型", "plain"};
    const struct kvr_layer_shape layer = {
        .n_head = 1, .n_kv_head = 1, .kv_source = -1};
    struct kvr_error err = {0};
    const char *path = made_kept("texts.kvt.h5");

    for (int i = 0; i < 3; i++) {
        const struct kvr_trace_shape shape = {.n_layer = 1,
                                              .n_head = 1,
                                              .n_kv_head = 1,
                                              .n_token = 1,
                                              .prompt_len = 1,
                                              .layers = &layer,
                                              .cache = "full",
                                              .model_name = texts[i],
                                              .bos = texts[i]};
        const struct kvr_writer_options how = {.force = true, .deflate = -1};
        struct kvr_writer *writer = NULL;
        struct kvr_trace *trace = NULL;
        const float one = 1;
        must(kvr_writer_open(&writer, path, &shape, &how, &err));
        must(kvr_writer_rows(writer, 0, 0, 0, 1, &one, 1, &err));
        must(kvr_writer_commit(writer, 1, &err));
        must(kvr_writer_finish(writer, &err));
        must(kvr_trace_open(&trace, path, &err));
        ck_assert_str_eq(kvr_trace_shape(trace)->model_name, texts[i]);
        ck_assert_str_eq(kvr_trace_shape(trace)->bos, texts[i]);
        kvr_trace_close(trace);
    }
}
END_TEST

/* ---- traces that were changed ---- */

static hid_t change(const char *path)
{
    struct kvr_error err = {0};

    must(made_write(&small, path, true, &err));
    const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    return file;
}

static void replace_by_text(hid_t object, const char *name)
{
    const hid_t type = H5Tcopy(H5T_C_S1);

    ck_assert_int_ge(H5Adelete(object, name), 0);
    put_value(object, name, type, "x");
    H5Tclose(type);
}

START_TEST(an_attribute_of_another_kind_is_not_absent)
{
    static const char *const names[] = {"scale", "softcap", "kv_source",
                                        "key_dim", "span"};
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    const char *path = made_kept("kind.kvt.h5");

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const hid_t file = change(path);
        const hid_t group = H5Gopen2(file, "layers/00", H5P_DEFAULT);
        replace_by_text(group, names[i]);
        H5Gclose(group);
        H5Fclose(file);
        must_fail(kvr_trace_open(&trace, path, &err), KVR_ERR_INPUT, names[i]);
    }
    const hid_t file = change(path);
    replace_by_text(file, "hash");
    H5Fclose(file);
    must_fail(kvr_trace_open(&trace, path, &err), KVR_ERR_INPUT,
              "attribute 'hash'");
}
END_TEST

START_TEST(a_layers_number_is_bounded)
{
    static const uint32_t numbers[] = {65536, 4294967295};
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    const char *path = made_kept("layer.kvt.h5");
    char name[32];

    for (int i = 0; i < 2; i++) {
        const hid_t file = change(path);
        snprintf(name, sizeof name, "/layers/%u", numbers[i]);
        ck_assert_int_ge(
            H5Lmove(file, "/layers/02", file, name, H5P_DEFAULT, H5P_DEFAULT),
            0);
        const hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
        ck_assert_int_ge(H5Adelete(group, "layer"), 0);
        put_value(group, "layer", H5T_STD_U32LE, &numbers[i]);
        H5Gclose(group);
        H5Fclose(file);
        must_fail(kvr_trace_open(&trace, path, &err), KVR_ERR_INPUT,
                  "at most 65535");
    }
    const hid_t file = change(path);
    ck_assert_int_ge(H5Lmove(file, "/layers/02", file, "/layers/03",
                             H5P_DEFAULT, H5P_DEFAULT),
                     0);
    H5Fclose(file);
    must_fail(kvr_trace_open(&trace, path, &err), KVR_ERR_INPUT,
              "/layers/03: attribute 'layer' is 2");
}
END_TEST

START_TEST(a_trace_without_a_hash_is_not_verified)
{
    const hid_t type = H5Tcopy(H5T_C_S1);
    struct kvr_trace_report report;
    struct kvr_error err = {0};
    const char *path = made_kept("nohash.kvt.h5");

    ck_assert_int_ge(H5Tset_size(type, 14), 0);
    for (int ours = 0; ours < 2; ours++) {
        const hid_t file = change(path);
        ck_assert_int_ge(H5Arename(file, "hash", "hasi"), 0);
        if (H5Aexists(file, "writer") > 0)
            H5Adelete(file, "writer");
        put_value(file, "writer", type,
                  ours ? "kvreplay 0.1.0" : "another one 1.");
        H5Fclose(file);
        must(kvr_trace_check(&report, path, 1, 0, &err));
        ck_assert_int_eq(report.ok, !ours);
        ck_assert_uint_eq(report.n_problem, (size_t)ours);
        if (ours)
            ck_assert_ptr_nonnull(
                strstr(report.problems[0], "no hash is stated"));
        kvr_trace_report_free(&report);
    }
    H5Tclose(type);
}
END_TEST

/* ---- damage that libhdf5 1.10 does not survive ---- */

struct bytes_of {
    uint8_t *data;
    size_t n;
};

static struct bytes_of load(const char *path)
{
    struct bytes_of b = {.n = made_size(path)};
    FILE *in = fopen(path, "rb");

    b.data = malloc(b.n);
    ck_assert(in != NULL && b.data != NULL);
    ck_assert_uint_eq(fread(b.data, 1, b.n, in), b.n);
    fclose(in);
    return b;
}

static void save(const char *path, struct bytes_of b)
{
    FILE *out = fopen(path, "wb");

    ck_assert(out != NULL && fwrite(b.data, 1, b.n, out) == b.n);
    ck_assert_int_eq(fclose(out), 0);
    free(b.data);
}

static size_t find(struct bytes_of b, const void *what, size_t n, size_t from)
{
    for (size_t at = from; at + n <= b.n; at++)
        if (memcmp(b.data + at, what, n) == 0)
            return at;
    return b.n;
}

/* The free space of the global heap does not end where the heap ends. */
static void damage_free_space(struct bytes_of b)
{
    const size_t heap = find(b, "GCOL", 4, 0);
    uint64_t size;
    uint16_t index;

    ck_assert_uint_lt(heap, b.n);
    for (size_t at = heap + 16;; at += 16 + (size + 7) / 8 * 8) {
        memcpy(&index, b.data + at, sizeof index);
        memcpy(&size, b.data + at + 8, sizeof size);
        if (index != 0)
            continue;
        b.data[at + 9] ^= 2;
        return;
    }
}

/* No group says where its names are. */
static void damage_heap_address(struct bytes_of b)
{
    for (size_t heap = find(b, "HEAP", 4, 0); heap < b.n;
         heap = find(b, "HEAP", 4, heap + 4)) {
        const uint64_t address = heap;
        for (size_t at = find(b, &address, sizeof address, 0); at < b.n;
             at = find(b, &address, sizeof address, at))
            memset(b.data + at, 0xff, sizeof address);
    }
}

/* A string's place in the heap is one that the heap has not. */
static void damage_place(struct bytes_of b)
{
    const uint64_t heap = find(b, "GCOL", 4, 0);

    for (size_t at = find(b, &heap, sizeof heap, 0); at < b.n;
         at = find(b, &heap, sizeof heap, at + 1))
        b.data[at + 11] ^= 1;
}

/* That none takes for ever is judged by the suite's own time limit. */
START_TEST(what_libhdf5_does_not_survive_is_a_message)
{
    static void (*const damages[])(struct bytes_of) = {
        damage_free_space, damage_heap_address, damage_place};
    struct kvr_trace_report report;
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    const char *path = made_kept("broken.kvt.h5");

    for (int i = 0; i < 3; i++) {
        must(made_write(&small, path, true, &err));
        struct bytes_of b = load(path);
        damages[i](b);
        save(path, b);
        must_fail(kvr_trace_open(&trace, path, &err), KVR_ERR_INPUT, path);
        ck_assert_msg(i == 1 || strstr(err.message, " at attribute ") != NULL,
                      "%s", err.message);
        must_fail(kvr_trace_check(&report, path, 1, 0, &err), KVR_ERR_INPUT,
                  path);
        must_fail(kvr_import(path, made_path("d.kvt.h5"), &options, &err),
                  KVR_ERR_INPUT, path);
    }
}
END_TEST

/* The host's own children and handlers are as they were. */
START_TEST(the_child_is_nobody_elses)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    const char *path = made_kept("host.kvt.h5");

    must(made_write(&small, path, true, &err));
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            ck_assert(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
        must(kvr_trace_open(&trace, path, &err));
        kvr_trace_close(trace);
        ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
        ck_assert_int_eq(errno, ECHILD);
    }
    ck_assert(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
}
END_TEST

START_TEST(only_regular_files_are_read)
{
    struct kvr_trace_report report;
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    char pipe[300];

    snprintf(pipe, sizeof pipe, "%s", made_path("pipe"));
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    const char *const paths[] = {pipe, "/dev/zero"};
    for (int i = 0; i < 2; i++) {
        must_fail(kvr_trace_open(&trace, paths[i], &err), KVR_ERR_INPUT,
                  "not a regular file");
        must_fail(kvr_trace_check(&report, paths[i], 1, 0, &err), KVR_ERR_INPUT,
                  "not a regular file");
        must_fail(kvr_trace_repair(paths[i], made_path("r.h5"), true, &err),
                  KVR_ERR_INPUT, "not a regular file");
        must_fail(kvr_import(paths[i], made_path("d.kvt.h5"), &options, &err),
                  KVR_ERR_INPUT, "not a regular file");
    }
}
END_TEST

/* What lies under a temporary name is neither followed nor written to. */
START_TEST(a_temporary_file_is_a_new_one)
{
    const char *killed = made_data("awkward/att_writer_killed.h5");
    struct kvr_error err = {0};
    char other[300], link[300];

    snprintf(other, sizeof other, "%s", made_path("other"));
    ck_assert(made_copy(other, killed, 100));
    for (int i = 0; i < 2; i++) {
        snprintf(link, sizeof link, "%s",
                 made_path(i == 0 ? "n.h5.part.tmp" : "n.kvt.h5.part.tmp"));
        ck_assert_int_eq(symlink(other, link), 0);
        if (i == 0)
            must(kvr_trace_repair(killed, made_path("n.h5"), true, &err));
        else
            must(made_write(&small, made_path("n.kvt.h5"), true, &err));
        ck_assert_uint_eq(made_size(other), 100);
    }
}
END_TEST

/* Whatever a child says, the parent ends with an index or a message. */
START_TEST(what_a_child_says_is_not_believed)
{
    const struct kvr_random stream = {.seed = 7, .purpose = KVR_RANDOM_TEST};
    struct h5_index *index = NULL;
    struct kvr_error err = {0};
    uint32_t refused = 0;
    char name[] = "said";

    must(made_write(&small, made_path("said.kvt.h5"), true, &err));
    must(kvr__h5_open(&index, made_path("said.kvt.h5"), &err));
    for (uint32_t i = 0; i < 3000; i++) {
        struct h5_index *copy = calloc(1, sizeof *copy);
        ck_assert_ptr_nonnull(copy);
        copy->fd = -1;
        copy->path = strdup(name);
        copy->size = index->size;
        copy->n_said = index->n_said;
        if (i % 5 == 0)
            copy->n_said =
                kvr_random_below(&stream, i, 0, 0, (uint32_t)index->n_said);
        copy->said = malloc(copy->n_said + 1);
        ck_assert_ptr_nonnull(copy->said);
        memcpy(copy->said, index->said, copy->n_said);
        for (uint32_t k = 0; copy->n_said > 0 && k < 1 + i % 3; k++)
            copy->said[kvr_random_below(&stream, i, k, 1,
                                        (uint32_t)copy->n_said)] ^=
                (uint8_t)(1u << kvr_random_below(&stream, i, k, 2, 8));
        refused += kvr__h5_take(copy, &err) != KVR_OK;
        kvr__h5_close(copy);
    }
    ck_assert_uint_gt(refused, 500);
    kvr__h5_close(index);
}
END_TEST

KVR_SUITE("hdf5_damage", strings_are_read_as_they_are, a_traces_strings_survive,
          an_attribute_of_another_kind_is_not_absent,
          a_layers_number_is_bounded, a_trace_without_a_hash_is_not_verified,
          what_libhdf5_does_not_survive_is_a_message, the_child_is_nobody_elses,
          only_regular_files_are_read, a_temporary_file_is_a_new_one,
          what_a_child_says_is_not_believed)
