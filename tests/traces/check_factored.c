/* check_factored.c -- traces that hold queries and keys: what is written is
 * what is read, rows made from them, kills, damage.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_blas.h"
#include "kvr_half.h"
#include "kvr_journal.h"
#include "kvr_parallel.h"
#include "kvr_random.h"

#include "made.h"
#include "suite.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 150, PROMPT = 70, DIM = 8 };
enum {
    PAIR = KVR_STORES_QUERY | KVR_STORES_KEY,
    ALL = KVR_STORES_ATTENTION | PAIR | KVR_STORES_VALUE
};

static const struct made pair = {.n_layer = 2,
                                 .n_head = 4,
                                 .n_kv_head = 2,
                                 .t = STEPS,
                                 .prompt_len = PROMPT,
                                 .dtype = KVR_F16,
                                 .stores = PAIR,
                                 .dim = DIM,
                                 .vector_dtype = KVR_F16,
                                 .tokens = true};

static struct kvr_trace *open_trace(const char *path,
                                    struct kvr_trace_scratch **scratch)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    must(kvr_trace_open(&trace, path, &err));
    must(kvr_trace_scratch_new(scratch, trace, &err));
    return trace;
}

static void expect_whole(const char *path)
{
    struct kvr_trace_report report;
    struct kvr_error err = {0};

    must(kvr_trace_check(&report, path, 2, 0, &err));
    ck_assert_msg(report.ok, "%s",
                  report.n_problem > 0 ? report.problems[0] : "");
    kvr_trace_report_free(&report);
}

/* Largest difference of the file's rows to those in doubles. */
static double farthest(const struct made *m, const char *path)
{
    static float got[STEPS], want[STEPS];
    struct kvr_trace_scratch *scratch;
    struct kvr_trace *trace = open_trace(path, &scratch);
    struct kvr_error err = {0};
    const uint32_t t = kvr_trace_shape(trace)->n_token;
    double most = 0;

    for (uint32_t l = 0; l < m->n_layer; l++)
        for (uint32_t h = 0; h < m->n_head; h++)
            for (uint32_t row = 0; row < t; row++) {
                memset(want, 0, sizeof want);
                made_row(m, l, h, row, want);
                must(kvr_trace_read_rows(trace, l, h, row, 1, got, t, scratch,
                                         &err));
                for (uint32_t i = 0; i < t; i++)
                    most = fmax(most, fabs((double)got[i] - (double)want[i]));
            }
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
    return most;
}

START_TEST(rows_come_from_queries_and_keys)
{
    struct made m = pair;
    struct kvr_error err = {0};
    const enum kvr_mask masks[] = {KVR_MASK_CAUSAL, KVR_MASK_WINDOW,
                                   KVR_MASK_CHUNK, KVR_MASK_NONE};

    for (int i = 0; i < 8; i++) {
        m.mask = masks[i / 2];
        m.span = i / 2 % 3 != 0 ? 20 : 0;
        m.vector_dtype = i % 2 != 0 ? KVR_F32 : KVR_F16;
        m.softcap = i == 1 ? 0.5 : 0;
        must(made_write(&m, made_path("q.kvt.h5"), true, &err));
        ck_assert_double_le(farthest(&m, made_path("q.kvt.h5")),
                            m.vector_dtype == KVR_F32 ? 1e-6 : 2.5e-3);
        expect_whole(made_path("q.kvt.h5"));
    }
}
END_TEST

/* --memory holds what makes the rows to the limit, OpenBLAS's share too. */
START_TEST(memory_counts_what_makes_rows)
{
    struct made m = pair;
    struct kvr_trace_scratch *scratch;
    struct kvr_trace_report report;
    struct kvr_error err = {0};

    must(made_write(&m, made_path("q.kvt.h5"), true, &err));
    struct kvr_trace *trace = open_trace(made_path("q.kvt.h5"), &scratch);
    const uint64_t made = kvr_trace_scratch_bytes(trace);
    ck_assert_uint_gt(made, kvr_blas_bytes(1));
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
    must_fail(kvr_trace_check(&report, made_path("q.kvt.h5"), 1, made, &err),
              KVR_ERR_LIMIT, "--memory");
    expect_whole(made_path("q.kvt.h5"));
    m.stores = KVR_STORES_ATTENTION;
    must(made_write(&m, made_path("a.kvt.h5"), true, &err));
    trace = open_trace(made_path("a.kvt.h5"), &scratch);
    const uint64_t stored = kvr_trace_scratch_bytes(trace);
    ck_assert_uint_lt(stored, kvr_blas_bytes(1));
    ck_assert_uint_gt(stored, 64 * STEPS * sizeof(uint16_t));
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
    must(kvr_trace_check(&report, made_path("a.kvt.h5"), 1, made, &err));
    kvr_trace_report_free(&report);
}
END_TEST

START_TEST(the_facts_say_what_is_there)
{
    struct kvr_trace_scratch *scratch;
    struct kvr_error err = {0};

    must(made_write(&pair, made_path("q.kvt.h5"), true, &err));
    struct kvr_trace *trace = open_trace(made_path("q.kvt.h5"), &scratch);
    ck_assert(!kvr_trace_facts(trace)->has_attention);
    ck_assert(kvr_trace_facts(trace)->has_rows);
    ck_assert(kvr_trace_facts(trace)->recomputed);
    ck_assert_int_eq(kvr_trace_shape(trace)->dtype, KVR_F32);
    ck_assert_uint_eq(kvr_trace_shape(trace)->layers[0].stores, PAIR);
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
}
END_TEST

/* One at a time, in blocks that do not fit the tiles, by two threads. */
struct factored_reading {
    const struct kvr_trace *trace;
    float *out; /* [head][T][T] */
    uint32_t block;
};

static enum kvr_status read_head(uint32_t item, uint32_t worker, void *ud,
                                 struct kvr_error *err)
{
    const struct factored_reading *r = ud;
    struct kvr_trace_scratch *scratch = NULL;

    (void)worker;
    enum kvr_status status = kvr_trace_scratch_new(&scratch, r->trace, err);
    for (uint32_t row = 0; status == KVR_OK && row < STEPS; row += r->block)
        status = kvr_trace_read_rows(
            r->trace, 1, item, row,
            STEPS - row < r->block ? STEPS - row : r->block,
            r->out + ((size_t)item * STEPS + row) * STEPS, STEPS, scratch, err);
    kvr_trace_scratch_free(scratch);
    return status;
}

START_TEST(the_bits_do_not_depend_on_how_rows_are_asked_for)
{
    static float once[4 * STEPS * STEPS], again[4 * STEPS * STEPS];
    struct kvr_trace_scratch *scratch;
    struct kvr_error err = {0};
    const uint32_t blocks[] = {1, 7, 64, 100};

    must(made_write(&pair, made_path("q.kvt.h5"), true, &err));
    struct kvr_trace *trace = open_trace(made_path("q.kvt.h5"), &scratch);
    struct factored_reading r = {.trace = trace, .out = once, .block = STEPS};
    must(kvr_parallel_for(4, 1, read_head, &r, &err));
    r.out = again;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        r.block = blocks[i];
        must(kvr_parallel_for(4, 1 + (uint32_t)i % 2, read_head, &r, &err));
        ck_assert_mem_eq(once, again, sizeof once);
    }
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++) {
        const double units = (double)once[i] * 0x1p30;
        ck_assert(units == nearbyint(units));
    }
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
}
END_TEST

static void expect_vectors(const struct made *m, struct kvr_trace *trace,
                           struct kvr_trace_scratch *scratch, uint32_t f16_rows)
{
    float want[DIM], got[STEPS * DIM];
    struct kvr_error err = {0};

    for (uint32_t l = 0; l < m->n_layer; l++)
        for (int kind = 0; kind < KVR_N_VECTOR; kind++)
            for (uint32_t h = 0; h < (kind == 0 ? 4u : 2u); h++) {
                must(kvr_trace_read_vectors(trace, l, (enum kvr_vector)kind, h,
                                            0, STEPS, got, scratch, &err));
                for (uint32_t i = 0; i < STEPS * DIM; i++) {
                    const bool wide = m->vector_dtype == KVR_F32 ||
                                      (kind == KVR_KEY && i / DIM >= f16_rows);
                    made_vector(m, l, (enum kvr_vector)kind, h, i / DIM, want);
                    const float x = want[i % DIM];
                    ck_assert(got[i] ==
                              (wide ? x : kvr_f16_to_f32(kvr_f32_to_f16(x))));
                }
            }
}

static void expect_sums(const struct made *m, struct kvr_trace *trace)
{
    for (uint32_t l = 0; l < m->n_layer; l++) {
        const struct kvr_trace_mlp mlp = kvr_trace_mlp(trace, l);
        ck_assert_uint_eq(mlp.n_ff, m->n_ff);
        for (uint32_t i = 0; i < m->n_ff; i++) {
            double sum = 0;
            uint32_t active = 0;
            for (uint32_t t = 0; t < m->t; t++) {
                const float x = made_activation(m, l, t, i);
                sum += fabs((double)x);
                active += x != 0;
            }
            ck_assert(fabs((double)mlp.mass[i] - sum) <= 1e-6 * sum);
            ck_assert_uint_eq(mlp.active[i], active);
        }
    }
}

static struct made everything(void)
{
    struct made m = pair;

    m.stores = ALL;
    m.n_ff = 5;
    m.n_vocab = 11;
    m.norms = true;
    return m;
}

START_TEST(all_that_is_stored_comes_back)
{
    struct made m = everything();
    struct kvr_trace_scratch *scratch;
    struct kvr_error err = {0};
    float logits[STEPS * 11];

    for (int i = 0; i < 2; i++) {
        m.vector_dtype = i != 0 ? KVR_F32 : KVR_F16;
        must(made_write(&m, made_path("e.kvt.h5"), true, &err));
        expect_whole(made_path("e.kvt.h5"));
        struct kvr_trace *trace = open_trace(made_path("e.kvt.h5"), &scratch);
        ck_assert(kvr_trace_facts(trace)->has_attention);
        ck_assert(!kvr_trace_facts(trace)->recomputed);
        expect_vectors(&m, trace, scratch, STEPS);
        expect_sums(&m, trace);
        ck_assert_uint_eq(kvr_trace_shape(trace)->n_vocab, 11);
        must(kvr_trace_read_logits(trace, 0, STEPS, logits, scratch, &err));
        for (uint32_t k = 0; k < STEPS * 11; k++)
            ck_assert(logits[k] == made_logit(&m, k / 11, k % 11));
        kvr_trace_scratch_free(scratch);
        kvr_trace_close(trace);
    }
}
END_TEST

/* The keys become f32 in the middle of a tile, and in the first row. */
START_TEST(what_f16_does_not_hold_is_stored_as_f32)
{
    struct made m = everything();
    struct kvr_trace_scratch *scratch;
    struct kvr_error err = {0};
    const uint32_t from[] = {1, 100, 128, 149};

    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        m.big_from = from[i];
        /* the prompt is one block: its rows are all given after the switch */
        const uint32_t rounded = from[i] < PROMPT ? 0 : from[i];
        must(made_write(&m, made_path("b.kvt.h5"), true, &err));
        expect_whole(made_path("b.kvt.h5"));
        struct kvr_trace *trace = open_trace(made_path("b.kvt.h5"), &scratch);
        ck_assert_int_eq(kvr_trace_shape(trace)->layers[1].vector_dtype[0],
                         KVR_F16);
        ck_assert_int_eq(kvr_trace_shape(trace)->layers[1].vector_dtype[1],
                         KVR_F32);
        expect_vectors(&m, trace, scratch, rounded);
        kvr_trace_scratch_free(scratch);
        kvr_trace_close(trace);
    }
}
END_TEST

/* Bytes of the journal when step n was closed; 0: never. */
static size_t closed_at[STEPS + 1];

static void leave_journal(const struct made *m, const char *name)
{
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};
    char path[600], part[620];

    snprintf(path, sizeof path, "%s", made_path(name));
    snprintf(part, sizeof part, "%s.part", path);
    must(made_open(&writer, m, path, true, &err));
    must(made_steps(writer, m, 0, PROMPT, &err));
    closed_at[PROMPT] = made_size(part);
    for (uint32_t t = PROMPT; t < STEPS; t++) {
        must(made_steps(writer, m, t, t + 1, &err));
        closed_at[t + 1] = made_size(part);
    }
    kvr_writer_abandon(writer);
}

static uint32_t steps_before(size_t offset)
{
    uint32_t n = 0;

    for (uint32_t t = 1; t <= STEPS; t++)
        if (closed_at[t] != 0 && closed_at[t] <= offset)
            n = t;
    return n;
}

static void cut_everywhere(const struct made *m, uint32_t n)
{
    const struct kvr_random stream = {.seed = 6, .purpose = KVR_RANDOM_TEST};
    struct kvr_error err = {0};
    struct made shorter = *m;

    leave_journal(m, "w.kvt.h5");
    shorter.t_max = m->t;
    for (uint32_t i = 0; i < n; i++) {
        size_t cut =
            closed_at[PROMPT] +
            kvr_random_below(&stream, i, 0, 0,
                             (uint32_t)(closed_at[STEPS] - closed_at[PROMPT]));
        if (i < 6)
            cut = closed_at[PROMPT + i / 3 * 40] - 1 + i % 3;
        const uint32_t steps = steps_before(cut);
        ck_assert(
            made_copy(made_path("cut.part"), made_path("w.kvt.h5.part"), cut));
        if (steps == 0) {
            must_fail(kvr_trace_repair(made_path("cut.part"),
                                       made_path("cut.kvt.h5"), true, &err),
                      KVR_ERR_NOTHING, "no step");
            continue;
        }
        must(kvr_trace_repair(made_path("cut.part"), made_path("cut.kvt.h5"),
                              true, &err));
        /* what an uninterrupted run of these steps would have left */
        shorter.t = steps;
        must(made_write(&shorter, made_path("to.kvt.h5"), true, &err));
        ck_assert_msg(
            made_same(made_path("cut.kvt.h5"), made_path("to.kvt.h5")),
            "cut at %zu: the %u steps are not those of a whole run", cut,
            steps);
    }
}

START_TEST(a_cut_anywhere_loses_only_the_open_step)
{
    const struct made m = everything();

    cut_everywhere(&pair, 25);
    cut_everywhere(&m, 15);
}
END_TEST

START_TEST(a_cut_after_keys_became_f32)
{
    struct made m = pair;

    m.big_from = 100;
    cut_everywhere(&m, 25);
}
END_TEST

/* HDF5 1.10 leaks what it has decoded of a damaged header. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5\n";
}

/* In the bytes of the keys, mostly: the hash tells. */
START_TEST(a_flipped_bit_of_a_key_shows)
{
    struct made m = pair;
    struct kvr_error err = {0};
    struct kvr_trace_report report;
    uint32_t shown = 0;

    m.vector_dtype = KVR_F32;
    must(made_write(&m, made_path("k.kvt.h5"), true, &err));
    const size_t size = made_size(made_path("k.kvt.h5"));
    for (uint32_t i = 0; i < 40; i++) {
        ck_assert(
            made_copy(made_path("f.kvt.h5"), made_path("k.kvt.h5"), size));
        ck_assert(made_flip(made_path("f.kvt.h5"), size / 41 * (i + 1),
                            (uint8_t)(1u << i % 8)));
        if (kvr_trace_check(&report, made_path("f.kvt.h5"), 1, 0, &err) !=
            KVR_OK) {
            shown++;
            continue;
        }
        shown += !report.ok;
        kvr_trace_report_free(&report);
    }
    ck_assert_uint_ge(shown, 20);
}
END_TEST

/* The writer is told rows, lse or keys that do not belong together. */
START_TEST(rows_that_do_not_follow_from_query_and_key_show)
{
    struct made m = everything(), other;
    struct kvr_error err = {0};
    struct kvr_trace_report report;
    struct kvr_writer *writer = NULL;

    m.dtype = m.vector_dtype = KVR_F32;
    m.n_ff = m.n_vocab = 0;
    other = m;
    other.softcap = 0.3;
    must(made_open(&writer, &m, made_path("o.kvt.h5"), true, &err));
    must(made_steps(writer, &m, 0, 100, &err));
    must(made_steps(writer, &other, 100, STEPS, &err));
    must(kvr_writer_finish(writer, &err));
    must(kvr_trace_check(&report, made_path("o.kvt.h5"), 1, 0, &err));
    ck_assert(!report.ok);
    ck_assert_uint_eq(report.closed_rows, 100);
    ck_assert_ptr_nonnull(strstr(report.problems[0], "query and key give"));
    kvr_trace_report_free(&report);
}
END_TEST

START_TEST(half_a_pair_is_refused)
{
    struct made m = pair;
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};
    float bad[4 * DIM] = {0};

    m.stores = KVR_STORES_QUERY;
    must_fail(made_open(&writer, &m, made_path("h.kvt.h5"), true, &err),
              KVR_ERR_INPUT, "query and key");
    m.stores = PAIR;
    must(made_open(&writer, &m, made_path("h.kvt.h5"), true, &err));
    must_fail(kvr_writer_rows(writer, 0, 0, 0, 1, bad, 1, &err), KVR_ERR_INPUT,
              "there is none");
    must_fail(
        kvr_writer_vectors(writer, 0, KVR_VALUE, 0, 1, bad, 2 * DIM, &err),
        KVR_ERR_INPUT, "no dataset 'value'");
    bad[3] = NAN;
    must_fail(
        kvr_writer_vectors(writer, 0, KVR_QUERY, 0, 1, bad, 4 * DIM, &err),
        KVR_ERR_INPUT, "not finite");
    bad[3] = 0;
    must(kvr_writer_vectors(writer, 0, KVR_QUERY, 0, 1, bad, 4 * DIM, &err));
    must_fail(kvr_writer_commit(writer, 1, &err), KVR_ERR_INPUT, "has 0 rows");
    kvr_writer_abandon(writer);
}
END_TEST

START_TEST(no_layer_has_an_odd_softcap)
{
    static const double odd[] = {-1, -0x1p-60, NAN, INFINITY};
    struct made m = pair;
    struct kvr_error err = {0};

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        m.softcap = odd[i];
        must_fail(made_write(&m, made_path("q.kvt.h5"), true, &err),
                  KVR_ERR_INPUT, "softcap");
    }
}
END_TEST

KVR_SUITE("factored", rows_come_from_queries_and_keys,
          memory_counts_what_makes_rows, the_facts_say_what_is_there,
          the_bits_do_not_depend_on_how_rows_are_asked_for,
          all_that_is_stored_comes_back,
          what_f16_does_not_hold_is_stored_as_f32,
          a_cut_anywhere_loses_only_the_open_step, a_cut_after_keys_became_f32,
          a_flipped_bit_of_a_key_shows,
          rows_that_do_not_follow_from_query_and_key_show,
          half_a_pair_is_refused, no_layer_has_an_odd_softcap)
