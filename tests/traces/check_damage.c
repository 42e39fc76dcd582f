/* check_damage.c -- finished traces that are not what they were, and traces
 * that other programs wrote.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_journal.h"
#include "kvr_random.h"

#include "made.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct made small = {.n_layer = 2,
                                  .n_head = 2,
                                  .n_kv_head = 1,
                                  .t = 100,
                                  .prompt_len = 60,
                                  .dtype = KVR_F16,
                                  .tokens = true,
                                  .text = true,
                                  .norms = true};

START_TEST(a_whole_trace_is_whole)
{
    struct kvr_trace_report report;
    struct kvr_error err = {0};
    struct made m = small;

    for (int i = 0; i < 3; i++) {
        m.dtype = i == 1 ? KVR_F32 : KVR_F16;
        m.round_bits = i == 2 ? 5 : 0;
        must(made_write(&m, made_path("w.kvt.h5"), true, &err));
        must(kvr_trace_check(&report, made_path("w.kvt.h5"), 2, 0, &err));
        ck_assert_msg(report.ok && report.complete, "%s",
                      report.n_problem > 0 ? report.problems[0] : "");
        ck_assert_uint_eq(report.closed_rows, 100);
        kvr_trace_report_free(&report);
    }
}
END_TEST

/* A flip either shows, or lies in bytes that nothing is read from. */
START_TEST(a_flipped_bit_shows)
{
    const struct kvr_random stream = {.seed = 5, .purpose = KVR_RANDOM_TEST};
    struct kvr_error err = {0};
    char why[512] = "";
    uint32_t n_shown = 0;

    must(made_write(&small, made_path("f.kvt.h5"), true, &err));
    const size_t size = made_size(made_path("f.kvt.h5"));
    for (uint32_t i = 0; i < 200; i++) {
        struct kvr_trace_report report;
        ck_assert(
            made_copy(made_path("g.kvt.h5"), made_path("f.kvt.h5"), SIZE_MAX));
        ck_assert(made_flip(made_path("g.kvt.h5"),
                            kvr_random_below(&stream, i, 0, 0, (uint32_t)size),
                            (uint8_t)(1u << i % 8)));
        if (kvr_trace_check(&report, made_path("g.kvt.h5"), 1, 0, &err) !=
            KVR_OK) {
            n_shown++;
            continue;
        }
        if (report.ok)
            ck_assert_msg(
                made_equal(&small, made_path("g.kvt.h5"), 100, why, sizeof why),
                "flip %u: %s", i, why);
        n_shown += !report.ok;
        kvr_trace_report_free(&report);
    }
    ck_assert_uint_gt(n_shown, 100);
}
END_TEST

/* Row 0 is a 1; the first such of the file, in its raw chunk. */
static size_t find_row_0(const char *path, size_t size)
{
    static const uint8_t row[100] = {0x00, 0x3c};
    uint8_t *all = malloc(size);
    FILE *f = fopen(path, "rb");
    size_t at = 0;

    ck_assert(all != NULL && f != NULL);
    ck_assert_uint_eq(fread(all, 1, size, f), size);
    fclose(f);
    while (at + sizeof row < size && memcmp(all + at, row, sizeof row) != 0)
        at++;
    free(all);
    ck_assert_uint_lt(at + sizeof row, size);
    return at;
}

START_TEST(a_weight_above_the_diagonal_shows)
{
    struct kvr_trace_report report;
    struct kvr_error err = {0};
    struct made m = small;
    const char *path = made_path("above.kvt.h5");

    m.raw = true;
    must(made_write(&m, path, true, &err));
    const size_t at = find_row_0(path, made_size(path));
    ck_assert(made_flip(path, at + 2 * 7 + 1, 0x80)); /* -0 is still 0 */
    must(kvr_trace_check(&report, path, 1, 0, &err));
    ck_assert(report.ok);
    kvr_trace_report_free(&report);
    ck_assert(made_flip(path, at + 2 * 7 + 1, 0x80 | 0x34));
    must(kvr_trace_check(&report, path, 1, 0, &err));
    ck_assert(!report.ok && report.n_problem == 1);
    ck_assert_msg(strstr(report.problems[0], "row 0 key 7: weight 0.25 above "
                                             "the diagonal") != NULL,
                  "%s", report.problems[0]);
    kvr_trace_report_free(&report);
}
END_TEST

START_TEST(a_truncated_trace_names_both_sizes)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    char text[64];

    must(made_write(&small, made_path("t.kvt.h5"), true, &err));
    const size_t size = made_size(made_path("t.kvt.h5"));
    ck_assert(
        made_copy(made_path("u.kvt.h5"), made_path("t.kvt.h5"), size / 2));
    snprintf(text, sizeof text, "%zu of %zu bytes", size / 2, size);
    must_fail(kvr_trace_open(&trace, made_path("u.kvt.h5"), &err),
              KVR_ERR_INPUT, text);
    ck_assert(made_copy(made_path("u.kvt.h5"), made_path("t.kvt.h5"), 0));
    must_fail(kvr_trace_open(&trace, made_path("u.kvt.h5"), &err),
              KVR_ERR_INPUT, "empty file");
    must_fail(kvr_trace_open(&trace, made_path("absent.kvt.h5"), &err),
              KVR_ERR_IO, "No such file");
}
END_TEST

START_TEST(what_is_no_trace_is_named)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    must_fail(
        kvr_trace_open(&trace, made_data("awkward/att_f16_gzip.h5"), &err),
        KVR_ERR_INPUT, "not a trace");
    must_fail(kvr_trace_open(&trace, made_data("awkward/att_ok_f32.npy"), &err),
              KVR_ERR_INPUT, "not an HDF5 file");
    must_fail(kvr_trace_open(&trace, made_data("awkward"), &err), KVR_ERR_IO,
              "directory");
    FILE *zip = fopen(made_path("a.npz"), "wb");
    ck_assert_ptr_nonnull(zip);
    ck_assert_uint_eq(fwrite("PK\3\4 and more", 1, 13, zip), 13);
    ck_assert_int_eq(fclose(zip), 0);
    must_fail(kvr_trace_open(&trace, made_path("a.npz"), &err),
              KVR_ERR_UNSUPPORTED, ".npz");
}
END_TEST

START_TEST(a_writers_flag_is_repaired_on_a_copy)
{
    const char *from = made_data("awkward/att_writer_killed.h5");
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    must_fail(kvr_trace_open(&trace, from, &err), KVR_ERR_INPUT,
              "did not close");
    must(kvr_trace_repair(from, made_path("plain.h5"), false, &err));
    /* HDF5 opens it now: it is only no trace. */
    must_fail(kvr_trace_open(&trace, made_path("plain.h5"), &err),
              KVR_ERR_INPUT, "not a trace");
    must_fail(kvr_trace_repair(from, made_path("plain.h5"), false, &err),
              KVR_ERR_EXISTS, "--force");
    must_fail(
        kvr_trace_repair(made_path("plain.h5"), made_path("q.h5"), false, &err),
        KVR_ERR_NOTHING, "nothing to repair");
}
END_TEST

/* h5py writes and reads our layout, where it is installed. */
START_TEST(h5py_reads_and_writes_our_layout)
{
    struct kvr_error err = {0};
    char command[3000], why[512] = "";
    static const char *const kinds[] = {"gzip", "contiguous", "raw", "auto"};

    if (KVR_PYTHON[0] == '\0') {
        printf("skipped: no python3 with h5py\n");
        return;
    }
    must(made_write(&small, made_path("p.kvt.h5"), true, &err));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        snprintf(command, sizeof command, KVR_PYTHON " %s %s %s %s",
                 made_data("traces/rewrite.py"), made_path("p.kvt.h5"),
                 made_path("q.kvt.h5"), kinds[i]);
        ck_assert_int_eq(system(command), 0);
        ck_assert_msg(
            made_equal(&small, made_path("q.kvt.h5"), 100, why, sizeof why),
            "%s: %s", kinds[i], why);
        struct kvr_trace_report report;
        must(kvr_trace_check(&report, made_path("q.kvt.h5"), 1, 0, &err));
        ck_assert_msg(report.ok, "%s: %s", kinds[i],
                      report.n_problem > 0 ? report.problems[0] : "");
        kvr_trace_report_free(&report);
    }
}
END_TEST

KVR_SUITE("damage", a_whole_trace_is_whole, a_flipped_bit_shows,
          a_weight_above_the_diagonal_shows, a_truncated_trace_names_both_sizes,
          what_is_no_trace_is_named, a_writers_flag_is_repaired_on_a_copy,
          h5py_reads_and_writes_our_layout)
