/* check_journal.c -- kills, cuts, flipped bits, full disks, two writers.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_journal.h"
#include "kvr_random.h"

#include "made.h"
#include "suite.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 100, PROMPT = 30 };

static const struct made run = {.n_layer = 2,
                                .n_head = 4,
                                .n_kv_head = 2,
                                .t = STEPS,
                                .prompt_len = PROMPT,
                                .dtype = KVR_F16,
                                .tokens = true,
                                .text = true,
                                .norms = true};

/* Bytes of the journal when step n was closed; 0: never a commit of its own. */
static size_t closed_at[STEPS + 1];

/* Leaves the whole run's journal as `name`.part, not finished. */
static void leave_journal(const char *name)
{
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};
    char path[600], part[620];

    snprintf(path, sizeof path, "%s", made_path(name));
    snprintf(part, sizeof part, "%s.part", path);
    must(made_open(&writer, &run, path, true, &err));
    must(made_steps(writer, &run, 0, PROMPT, &err));
    closed_at[PROMPT] = made_size(part);
    for (uint32_t t = PROMPT; t < STEPS; t++) {
        must(made_steps(writer, &run, t, t + 1, &err));
        closed_at[t + 1] = made_size(part);
    }
    kvr_writer_abandon(writer);
    ck_assert_uint_eq(made_size(part), closed_at[STEPS]);
}

/* KVR_KILL_POINTS asks for a longer run. */
static uint32_t kill_points(uint32_t usual)
{
    const char *wanted = getenv("KVR_KILL_POINTS");
    const long n = wanted != NULL ? strtol(wanted, NULL, 10) : 0;

    return n > 0 ? (uint32_t)n : usual;
}

static uint32_t steps_before(size_t offset)
{
    uint32_t n = 0;

    for (uint32_t t = 1; t <= STEPS; t++)
        if (closed_at[t] != 0 && closed_at[t] <= offset)
            n = t;
    return n;
}

static void expect_closed(const char *part, uint32_t n)
{
    struct kvr_trace_report report;
    struct kvr_error err = {0};
    char why[512] = "";
    const char *out = made_path("repaired.kvt.h5");

    must(kvr_trace_check(&report, part, 1, 0, &err));
    ck_assert(!report.ok && !report.complete && report.n_problem > 0);
    ck_assert_uint_eq(report.closed_rows, n);
    kvr_trace_report_free(&report);
    if (n == 0) {
        must_fail(kvr_trace_repair(part, out, true, &err), KVR_ERR_NOTHING,
                  "no step");
        return;
    }
    must(kvr_trace_repair(part, out, true, &err));
    ck_assert_msg(made_equal(&run, out, n, why, sizeof why), "%s", why);
    must(kvr_trace_check(&report, out, 1, 0, &err));
    ck_assert_msg(report.ok, "%s",
                  report.n_problem > 0 ? report.problems[0] : "");
    kvr_trace_report_free(&report);
}

START_TEST(a_cut_anywhere_loses_only_the_open_step)
{
    const struct kvr_random stream = {.seed = 3, .purpose = KVR_RANDOM_TEST};
    struct kvr_trace_report report;
    struct kvr_error err = {0};

    leave_journal("whole.kvt.h5");
    const size_t size = closed_at[STEPS];
    for (uint32_t i = 0, n = kill_points(80); i < n; i++) {
        /* the first ones right at and around a commit's end */
        size_t cut =
            64 + kvr_random_below(&stream, i, 0, 0, (uint32_t)size - 64);
        if (i < 9)
            cut = closed_at[PROMPT + i / 3 * 20] - 1 + i % 3;
        ck_assert(made_copy(made_path("cut.part"),
                            made_path("whole.kvt.h5.part"), cut));
        if (kvr_trace_check(&report, made_path("cut.part"), 1, 0, &err) !=
            KVR_OK) { /* not even the header: no journal yet */
            ck_assert_uint_lt(cut, 1000);
            continue;
        }
        kvr_trace_report_free(&report);
        expect_closed(made_path("cut.part"), steps_before(cut));
    }
}
END_TEST

START_TEST(a_flipped_bit_ends_the_journal_there)
{
    const struct kvr_random stream = {.seed = 4, .purpose = KVR_RANDOM_TEST};
    struct kvr_error err = {0};
    struct kvr_trace_report report;

    leave_journal("whole.kvt.h5");
    for (uint32_t i = 0, n = kill_points(40); i < n; i++) {
        const size_t at =
            kvr_random_below(&stream, i, 0, 0, (uint32_t)closed_at[STEPS]);
        ck_assert(made_copy(made_path("bit.part"),
                            made_path("whole.kvt.h5.part"), SIZE_MAX));
        ck_assert(made_flip(made_path("bit.part"), at, (uint8_t)(1u << i % 8)));
        if (kvr_trace_check(&report, made_path("bit.part"), 1, 0, &err) !=
            KVR_OK) {
            ck_assert_uint_lt(at, 1000);
            continue;
        }
        kvr_trace_report_free(&report);
        expect_closed(made_path("bit.part"), steps_before(at));
        const bool there = steps_before(at) > 0;
        ck_assert(!there || access(made_path("bit.part"), F_OK) == 0);
    }
}
END_TEST

START_TEST(the_repaired_run_equals_the_uninterrupted_one)
{
    struct kvr_error err = {0};

    leave_journal("whole.kvt.h5");
    must(kvr_trace_repair(made_path("whole.kvt.h5.part"),
                          made_path("whole.kvt.h5"), false, &err));
    ck_assert(access(made_path("whole.kvt.h5.part"), F_OK) != 0);
    must(made_write(&run, made_path("direct.kvt.h5"), false, &err));
    ck_assert(made_same(made_path("whole.kvt.h5"), made_path("direct.kvt.h5")));
}
END_TEST

static void leave(const char *name)
{
    FILE *f = fopen(made_path(name), "wb");

    ck_assert(f != NULL);
    fclose(f);
}

/* A kill within the assembly leaves its file too. */
START_TEST(a_killed_assembly_leaves_nothing_for_long)
{
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};

    leave_journal("late.kvt.h5");
    leave("late.kvt.h5.part.tmp");
    must(kvr_trace_repair(made_path("late.kvt.h5.part"),
                          made_path("elsewhere.kvt.h5"), false, &err));
    ck_assert(access(made_path("late.kvt.h5.part.tmp"), F_OK) != 0);
    /* the journal is not elsewhere.kvt.h5's own: the user named it */
    ck_assert(access(made_path("late.kvt.h5.part"), F_OK) == 0);
    leave("late.kvt.h5.part.tmp");
    must(made_open(&writer, &run, made_path("late.kvt.h5"), true, &err));
    ck_assert(access(made_path("late.kvt.h5.part.tmp"), F_OK) != 0);
    kvr_writer_abandon(writer);
}
END_TEST

/* Rows of a large step come in several records; a cut between them loses the
 * step. */
START_TEST(a_step_in_several_records_is_one_step)
{
    const struct made wide = {.n_layer = 1,
                              .n_head = 64,
                              .n_kv_head = 1,
                              .t = 303,
                              .prompt_len = 300,
                              .dtype = KVR_F16};
    char path[600], part[620], why[512] = "";
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};

    snprintf(path, sizeof path, "%s", made_path("wide.kvt.h5"));
    snprintf(part, sizeof part, "%s.part", path);
    must(made_open(&writer, &wide, path, true, &err));
    must(made_steps(writer, &wide, 0, 300, &err));
    const size_t before = made_size(part);
    must(made_steps(writer, &wide, 300, 303, &err));
    const size_t after = made_size(part);
    kvr_writer_abandon(writer);
    ck_assert_uint_gt(after - before, 64 << 10); /* more than one record's */
    must(made_copy(made_path("cut.part"), part, before + (after - before) / 2)
             ? KVR_OK
             : KVR_ERR_IO);
    must(kvr_trace_repair(made_path("cut.part"), made_path("cut.h5"), true,
                          &err));
    ck_assert_msg(made_equal(&wide, made_path("cut.h5"), 300, why, sizeof why),
                  "%s", why);
    must(kvr_trace_repair(part, path, false, &err));
    ck_assert_msg(made_equal(&wide, path, 303, why, sizeof why), "%s", why);
}
END_TEST

/* The child is killed at a moment of the scheduler's choosing. */
START_TEST(sigkill_leaves_closed_steps)
{
    struct kvr_error err = {0};
    struct kvr_trace_report report;
    char path[600], part[620];

    snprintf(path, sizeof path, "%s", made_path("killed.kvt.h5"));
    snprintf(part, sizeof part, "%s.part", path);
    for (uint32_t round = 0; round < 5; round++) {
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            struct kvr_writer *writer = NULL;
            if (made_open(&writer, &run, path, true, &err) != KVR_OK)
                _exit(1);
            for (uint32_t t = 0; t < STEPS; t++)
                if (made_steps(writer, &run, t, t + 1, &err) != KVR_OK)
                    _exit(1);
            _exit(0);
        }
        while (made_size(part) < 3000 + 9000 * round &&
               waitpid(child, NULL, WNOHANG) == 0)
            continue;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        must(kvr_trace_check(&report, part, 1, 0, &err));
        const uint32_t n = report.closed_rows;
        kvr_trace_report_free(&report);
        ck_assert_uint_le(n, STEPS);
        expect_closed(part, n);
    }
}
END_TEST

START_TEST(a_second_process_is_refused_and_harms_nothing)
{
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};
    char path[600], why[512] = "";
    int status = 0;

    snprintf(path, sizeof path, "%s", made_path("two.kvt.h5"));
    must(made_open(&writer, &run, path, false, &err));
    must(made_steps(writer, &run, 0, 50, &err));
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct kvr_writer *second = NULL;
        _exit(made_open(&second, &run, path, true, &err) == KVR_ERR_EXISTS ? 0
                                                                           : 1);
    }
    waitpid(child, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must(made_steps(writer, &run, 50, STEPS, &err));
    must(kvr_writer_finish(writer, &err));
    ck_assert_msg(made_equal(&run, path, STEPS, why, sizeof why), "%s", why);
}
END_TEST

START_TEST(a_left_journal_is_named_with_its_repair)
{
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};
    struct kvr_trace *trace = NULL;

    leave_journal("left.kvt.h5");
    must_fail(made_open(&writer, &run, made_path("left.kvt.h5"), false, &err),
              KVR_ERR_EXISTS, "trace repair");
    must_fail(kvr_trace_open(&trace, made_path("left.kvt.h5.part"), &err),
              KVR_ERR_INPUT, "trace repair");
}
END_TEST

static void limit_file_size(rlim_t bytes)
{
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0) {
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
}

/* The limit hits the journal; what was closed before it stays. */
START_TEST(a_full_disk_keeps_the_closed_steps)
{
    struct kvr_error err = {0};
    char path[600], part[620];
    struct kvr_writer *writer = NULL;
    enum kvr_status status = KVR_OK;
    uint32_t done = 0;

    snprintf(path, sizeof path, "%s", made_path("full.kvt.h5"));
    snprintf(part, sizeof part, "%s.part", path);
    limit_file_size(40000);
    must(made_open(&writer, &run, path, false, &err));
    while (status == KVR_OK && done < STEPS) {
        status = made_steps(writer, &run, done, done + 1, &err);
        done += status == KVR_OK;
    }
    limit_file_size(RLIM_INFINITY);
    ck_assert_int_eq(status, KVR_ERR_IO);
    ck_assert_msg(strstr(err.message, "File too large") != NULL &&
                      strstr(err.message, part) != NULL &&
                      strstr(err.message, "bytes written") != NULL,
                  "%s", err.message);
    must_fail(kvr_writer_finish(writer, &err), KVR_ERR_IO, "File too large");
    ck_assert(access(path, F_OK) != 0);
    expect_closed(part, done);
}
END_TEST

/* The limit hits the finished file only: the journal must survive that. */
START_TEST(a_full_disk_at_the_end_keeps_the_journal)
{
    struct made big = run;
    struct kvr_error err = {0};
    char path[600], part[620], why[512] = "";
    struct kvr_writer *writer = NULL;

    big.t = 64;
    snprintf(path, sizeof path, "%s", made_path("end.kvt.h5"));
    snprintf(part, sizeof part, "%s.part", path);
    must(made_open(&writer, &big, path, false, &err));
    must(made_steps(writer, &big, 0, 64, &err));
    const rlim_t room = made_size(part) / 2;
    limit_file_size(room);
    const enum kvr_status status = kvr_writer_finish(writer, &err);
    limit_file_size(RLIM_INFINITY);
    ck_assert_int_eq(status, KVR_ERR_IO);
    ck_assert_msg(strstr(err.message, "File too large") != NULL, "%s",
                  err.message);
    ck_assert(access(path, F_OK) != 0);
    must(kvr_trace_repair(part, path, false, &err));
    ck_assert_msg(made_equal(&big, path, 64, why, sizeof why), "%s", why);
}
END_TEST

/* 40 steps of the run, as versions before 1.3 wrote them: rows deflated. */
START_TEST(an_older_journal_is_read)
{
    const char *old = made_data("traces/journal_1.2.bin");

    ck_assert(made_copy(made_path("old.part"), old, made_size(old)));
    expect_closed(made_path("old.part"), 40);
}
END_TEST

/* Every checksum holds, but a layer reads the keys of layer -131073: what was
 * put together is no trace, so nothing is written and nothing removed. */
START_TEST(numbers_of_a_journal_are_judged_like_a_trace_s)
{
    const char *forged = made_data("traces/journal_forged.bin");
    struct kvr_error err = {0};

    ck_assert(
        made_copy(made_path("forged.kvt.h5.part"), forged, made_size(forged)));
    must_fail(kvr_trace_repair(made_path("forged.kvt.h5.part"),
                               made_path("forged.kvt.h5"), false, &err),
              KVR_ERR_INPUT, "does not read back");
    ck_assert(access(made_path("forged.kvt.h5"), F_OK) != 0);
    ck_assert(access(made_path("forged.kvt.h5.part.tmp"), F_OK) != 0);
    ck_assert(access(made_path("forged.kvt.h5.part"), F_OK) == 0);
}
END_TEST

/* A name that was taken meanwhile is not overwritten. */
START_TEST(an_output_that_came_meanwhile_is_kept)
{
    struct kvr_error err = {0};

    leave_journal("taken.kvt.h5");
    leave("taken.kvt.h5");
    must_fail(kvr_trace_repair(made_path("taken.kvt.h5.part"),
                               made_path("taken.kvt.h5"), false, &err),
              KVR_ERR_EXISTS, "exists");
    ck_assert_uint_eq(made_size(made_path("taken.kvt.h5")), 0);
    ck_assert(access(made_path("taken.kvt.h5.part"), F_OK) == 0);
}
END_TEST

KVR_SUITE("journal", numbers_of_a_journal_are_judged_like_a_trace_s,
          an_output_that_came_meanwhile_is_kept,
          a_cut_anywhere_loses_only_the_open_step,
          a_flipped_bit_ends_the_journal_there,
          the_repaired_run_equals_the_uninterrupted_one,
          a_killed_assembly_leaves_nothing_for_long,
          a_step_in_several_records_is_one_step, an_older_journal_is_read,
          sigkill_leaves_closed_steps,
          a_second_process_is_refused_and_harms_nothing,
          a_left_journal_is_named_with_its_repair,
          a_full_disk_keeps_the_closed_steps,
          a_full_disk_at_the_end_keeps_the_journal)
