/* check_synth.c -- synthetic traces, and many threads on one trace.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_journal.h"
#include "kvr_parallel.h"
#include "kvr_synth.h"

#include "made.h"
#include "suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct kvr_synth_options small = {.n_token = 200,
                                               .n_layer = 3,
                                               .n_head = 6,
                                               .n_kv_head = 2,
                                               .prompt_len = 50,
                                               .seed = 11,
                                               .dtype = KVR_F16,
                                               .threads = 1};

START_TEST(the_same_seed_gives_the_same_bytes_on_any_threads)
{
    struct kvr_synth_options o = small;
    struct kvr_error err = {0};

    must(kvr_synth_zipf(made_path("one.kvt.h5"), &o, &err));
    o.threads = 3;
    must(kvr_synth_zipf(made_path("three.kvt.h5"), &o, &err));
    ck_assert(made_same(made_path("one.kvt.h5"), made_path("three.kvt.h5")));
    o.seed = 12;
    must(kvr_synth_zipf(made_path("other.kvt.h5"), &o, &err));
    ck_assert(!made_same(made_path("one.kvt.h5"), made_path("other.kvt.h5")));
    must_fail(kvr_synth_zipf(made_path("other.kvt.h5"), &o, &err),
              KVR_ERR_EXISTS, "--force");
}
END_TEST

START_TEST(a_synthetic_trace_is_whole)
{
    struct kvr_synth_options o = small;
    struct kvr_trace_report report;
    struct kvr_error err = {0};

    o.force = true;
    for (int i = 0; i < 3; i++) {
        o.dtype = i == 1 ? KVR_F32 : KVR_F16;
        o.round_bits = i == 2 ? 7 : 0;
        must(kvr_synth_zipf(made_path("s.kvt.h5"), &o, &err));
        must(kvr_trace_check(&report, made_path("s.kvt.h5"), 2, 0, &err));
        ck_assert_msg(report.ok, "%s",
                      report.n_problem > 0 ? report.problems[0] : "");
        ck_assert_uint_eq(report.closed_rows, 200);
        kvr_trace_report_free(&report);
    }
}
END_TEST

/* The sink holds its share, and the heaviest fifth most of the rest. */
START_TEST(rows_look_like_attention)
{
    struct kvr_trace *trace = NULL;
    struct kvr_trace_scratch *scratch = NULL;
    struct kvr_error err = {0};
    float row[200];

    must(kvr_synth_zipf(made_path("look.kvt.h5"), &small, &err));
    must(kvr_trace_open(&trace, made_path("look.kvt.h5"), &err));
    must(kvr_trace_scratch_new(&scratch, trace, &err));
    for (uint32_t h = 0; h < 6; h++) {
        double sum = 0, heavy = 0;
        must(kvr_trace_read_rows(trace, 1, h, 199, 1, row, 200, scratch, &err));
        for (uint32_t i = 0; i < 200; i++) {
            sum += (double)row[i];
            heavy += row[i] > 1.0f / 200 ? (double)row[i] : 0;
        }
        ck_assert(fabs(sum - 1) < 1e-3);
        ck_assert(row[0] > 0.09f && row[0] < 0.71f);
        ck_assert(heavy > 0.5);
    }
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
}
END_TEST

struct synth_job {
    const struct kvr_trace *trace;
    struct kvr_trace_scratch *scratch[4];
    double sums[18];
};

static enum kvr_status sum_head(uint32_t item, uint32_t worker, void *ud,
                                struct kvr_error *err)
{
    struct synth_job *job = ud;
    float *rows = calloc(KVR_TILE_ROWS * 200, sizeof *rows);
    const float *mass;
    uint32_t n_mass;
    enum kvr_status status = kvr_trace_array(&mass, &n_mass, job->trace,
                                             item / 6, KVR_ROW_MASS, err);

    for (uint32_t t = 0; status == KVR_OK && t < 200; t += KVR_TILE_ROWS) {
        const uint32_t n = 200 - t < KVR_TILE_ROWS ? 200 - t : KVR_TILE_ROWS;
        status = kvr_trace_read_rows(job->trace, item / 6, item % 6, t, n, rows,
                                     200, job->scratch[worker], err);
        for (uint32_t i = 0; status == KVR_OK && i < n * 200; i++)
            job->sums[item] += (double)rows[i] * (i + 1);
    }
    if (status == KVR_OK)
        job->sums[item] += (double)mass[(item % 6) * 200 + 199];
    free(rows);
    return status;
}

START_TEST(many_threads_read_what_one_reads)
{
    struct synth_job one = {0}, four = {0};
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    must(kvr_synth_zipf(made_path("many.kvt.h5"), &small, &err));
    must(kvr_trace_open(&trace, made_path("many.kvt.h5"), &err));
    one.trace = four.trace = trace;
    for (int i = 0; i < 4; i++) {
        must(kvr_trace_scratch_new(&one.scratch[i], trace, &err));
        four.scratch[i] = one.scratch[i];
    }
    must(kvr_parallel_for(18, 4, sum_head, &four, &err));
    must(kvr_parallel_for(18, 1, sum_head, &one, &err));
    ck_assert(memcmp(one.sums, four.sums, sizeof one.sums) == 0);
    for (int i = 0; i < 4; i++)
        kvr_trace_scratch_free(one.scratch[i]);
    kvr_trace_close(trace);
}
END_TEST

KVR_SUITE("synth", the_same_seed_gives_the_same_bytes_on_any_threads,
          a_synthetic_trace_is_whole, rows_look_like_attention,
          many_threads_read_what_one_reads)
