/* check_trace.c -- what is written is what is read.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_trace.h"

#include "kvr_half.h"
#include "made.h"
#include "suite.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void round_trip(struct made m)
{
    struct kvr_error err = {0};
    char why[512] = "";
    const char *path = made_path("a.kvt.h5");

    must(made_write(&m, path, true, &err));
    ck_assert_msg(made_equal(&m, path, m.t, why, sizeof why), "%s", why);
    ck_assert(access(made_path("a.kvt.h5.part"), F_OK) != 0);
}

START_TEST(rows_come_back_as_stored)
{
    round_trip((struct made){.n_layer = 2,
                             .n_head = 4,
                             .n_kv_head = 2,
                             .t = 150,
                             .prompt_len = 70,
                             .dtype = KVR_F16});
    round_trip((struct made){.n_layer = 1,
                             .n_head = 3,
                             .n_kv_head = 1,
                             .t = 128,
                             .prompt_len = 130 - 2,
                             .dtype = KVR_F32});
    round_trip((struct made){.n_layer = 1,
                             .n_head = 1,
                             .n_kv_head = 1,
                             .t = 65,
                             .prompt_len = 64,
                             .dtype = KVR_F16,
                             .round_bits = 7});
}
END_TEST

START_TEST(one_token_is_a_trace)
{
    round_trip((struct made){
        .n_layer = 1, .n_head = 1, .n_kv_head = 1, .t = 1, .dtype = KVR_F16});
    round_trip((struct made){.n_layer = 1,
                             .n_head = 2,
                             .n_kv_head = 1,
                             .t = 1,
                             .dtype = KVR_F32,
                             .tokens = true});
}
END_TEST

START_TEST(an_early_end_leaves_what_was_committed)
{
    round_trip((struct made){.n_layer = 2,
                             .n_head = 2,
                             .n_kv_head = 2,
                             .t = 30,
                             .t_max = 500,
                             .prompt_len = 9,
                             .dtype = KVR_F16,
                             .tokens = true});
    round_trip((struct made){.n_layer = 1,
                             .n_head = 2,
                             .n_kv_head = 2,
                             .t = 200,
                             .t_max = 201,
                             .prompt_len = 150,
                             .dtype = KVR_F32});
}
END_TEST

START_TEST(masks_keep_their_span)
{
    struct made m = {.n_layer = 1,
                     .n_head = 2,
                     .n_kv_head = 1,
                     .t = 90,
                     .prompt_len = 20,
                     .dtype = KVR_F16,
                     .mask = KVR_MASK_WINDOW,
                     .span = 16};
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    round_trip(m);
    must(kvr_trace_open(&trace, made_path("a.kvt.h5"), &err));
    ck_assert_int_eq(kvr_trace_shape(trace)->layers[0].mask, KVR_MASK_WINDOW);
    ck_assert_uint_eq(kvr_trace_shape(trace)->layers[0].span, 16);
    kvr_trace_close(trace);
    m.mask = KVR_MASK_CHUNK;
    round_trip(m);
    m.mask = KVR_MASK_NONE;
    m.span = 0;
    round_trip(m);
}
END_TEST

/* More than 4096 keys: a tile has two chunks. */
START_TEST(long_rows_span_chunks)
{
    struct made m = {.n_layer = 1,
                     .n_head = 1,
                     .n_kv_head = 1,
                     .t = 4200,
                     .prompt_len = 4150,
                     .dtype = KVR_F16};

    round_trip(m);
}
END_TEST

START_TEST(arrays_and_tokens_come_back)
{
    const struct made m = {.n_layer = 2,
                           .n_head = 4,
                           .n_kv_head = 2,
                           .t = 80,
                           .prompt_len = 40,
                           .dtype = KVR_F16,
                           .tokens = true,
                           .text = true,
                           .norms = true};
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    const float *data;
    uint32_t rows;

    must(made_write(&m, made_path("a.kvt.h5"), true, &err));
    must(kvr_trace_open(&trace, made_path("a.kvt.h5"), &err));
    must(kvr_trace_array(&data, &rows, trace, 1, KVR_VALUE_NORM2, &err));
    ck_assert_uint_eq(rows, 2);
    for (uint32_t t = 0; t < 80; t++)
        ck_assert(data[80 + t] == (float)(t + 1) / 3.0f);
    must(kvr_trace_array(&data, &rows, trace, 0, KVR_ROW_MASS, &err));
    ck_assert_uint_eq(rows, 4);
    for (uint32_t i = 0; i < 4 * 80; i++)
        ck_assert(fabs((double)data[i] - 1) < 1e-6);
    must(kvr_trace_array(&data, &rows, trace, 0, KVR_LSE, &err));
    ck_assert(data == NULL && rows == 0);
    const struct kvr_trace_tokens *t = kvr_trace_tokens(trace);
    ck_assert_int_eq(t->id[79], 79 * 3);
    ck_assert(isnan(t->logprob[0]) && t->logprob[5] == -5.0f);
    ck_assert_uint_eq(t->text_offset[1], 3);
    ck_assert(memcmp(t->text + t->text_offset[42], " t42", 4) == 0);
    const struct kvr_trace_shape *s = kvr_trace_shape(trace);
    ck_assert_uint_eq(s->layers[1].layer, 2);
    ck_assert_uint_eq(s->layers[1].head_index[3], 3);
    ck_assert(s->layers[1].scale == 0.125);
    ck_assert_str_eq(s->model_name, "made");
    ck_assert_str_eq(s->cache, "full");
    ck_assert_uint_eq(s->prompt_len, 40);
    ck_assert_uint_eq(strlen(kvr_trace_facts(trace)->hash), 32);
    kvr_trace_close(trace);
}
END_TEST

START_TEST(the_same_input_gives_the_same_bytes)
{
    const struct made m = {.n_layer = 3,
                           .n_head = 4,
                           .n_kv_head = 2,
                           .t = 140,
                           .prompt_len = 100,
                           .dtype = KVR_F16,
                           .tokens = true,
                           .text = true,
                           .norms = true};
    struct kvr_error err = {0};

    must(made_write(&m, made_path("one.kvt.h5"), false, &err));
    must(made_write(&m, made_path("two.kvt.h5"), false, &err));
    ck_assert(made_same(made_path("one.kvt.h5"), made_path("two.kvt.h5")));
}
END_TEST

START_TEST(what_exists_is_not_overwritten)
{
    const struct made m = {.n_layer = 1, .n_head = 1, .n_kv_head = 1, .t = 9};
    const char *path = made_path("e.kvt.h5");
    struct kvr_writer *writer = NULL, *second = NULL;
    struct kvr_error err = {0};

    must(made_write(&m, path, false, &err));
    must_fail(made_open(&writer, &m, path, false, &err), KVR_ERR_EXISTS,
              "--force");
    must(made_open(&writer, &m, path, true, &err));
    must(made_steps(writer, &m, 0, 4, &err));
    must_fail(made_open(&second, &m, path, true, &err), KVR_ERR_EXISTS,
              "another capture");
    must(made_steps(writer, &m, 4, 9, &err));
    kvr_writer_abandon(writer);
    must_fail(made_open(&second, &m, path, true, &err) == KVR_OK
                  ? (kvr_writer_abandon(second), KVR_ERR_NO)
                  : err.status,
              KVR_ERR_NO, "");
    char why[256] = "";
    ck_assert_msg(made_equal(&m, path, 9, why, sizeof why), "%s", why);
}
END_TEST

START_TEST(a_bad_weight_is_named)
{
    const struct made m = {.n_layer = 1, .n_head = 2, .n_kv_head = 1, .t = 9};
    float row[3] = {0.5f, 0.5f, 0};
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};

    must(made_open(&writer, &m, made_path("b.kvt.h5"), true, &err));
    must(kvr_writer_rows(writer, 0, 1, 0, 2, row, 1, &err));
    row[2] = NAN;
    must_fail(kvr_writer_rows(writer, 0, 1, 2, 1, row, 3, &err), KVR_ERR_INPUT,
              "layer 0 head 1 row 2 key 2");
    row[2] = -1e-9f;
    must_fail(kvr_writer_rows(writer, 0, 1, 2, 1, row, 3, &err), KVR_ERR_INPUT,
              "key 2");
    must_fail(kvr_writer_rows(writer, 0, 1, 3, 1, row, 3, &err), KVR_ERR_INPUT,
              "expected 2 next");
    must_fail(kvr_writer_commit(writer, 2, &err), KVR_ERR_INPUT,
              "head 0 has 0 rows");
    kvr_writer_abandon(writer);
    ck_assert(access(made_path("b.kvt.h5.part"), F_OK) != 0);
}
END_TEST

/* All rows of one head at once: floats, or the same as halves. */
static enum kvr_status give_head(struct kvr_writer *w, const struct made *m,
                                 bool as_halves, const float *mass,
                                 struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;
    float row[256];
    uint16_t half[256];

    for (uint32_t t = 0; t < m->t && status == KVR_OK; t++) {
        made_row(m, 0, 0, t, row);
        if (t > 0)
            row[0] = -0.0f;
        kvr_f32_to_f16_n(half, row, t + 1);
        status = as_halves ? kvr_writer_half_rows(w, 0, 0, t, 1, half, 256, err)
                           : kvr_writer_rows(w, 0, 0, t, 1, row, 256, err);
    }
    if (status == KVR_OK && mass != NULL)
        status =
            kvr_writer_array(w, 0, KVR_ROW_MASS, 1, 0, m->t, mass, m->t, err);
    return status != KVR_OK ? status : kvr_writer_commit(w, m->t, err);
}

START_TEST(rows_of_halves_are_stored_as_they_are)
{
    struct made m = {
        .n_layer = 1, .n_head = 1, .n_kv_head = 1, .t = 150, .prompt_len = 150};
    const uint16_t nan_half[1] = {0x7e00}, minus_half[1] = {0xbc00};
    const char *paths[2] = {made_path("floats.h5"), made_path("halves.h5")};
    struct kvr_writer *w = NULL;
    struct kvr_error err = {0};
    float mass[150];

    for (uint32_t t = 0; t < m.t; t++)
        mass[t] = 1;
    for (int i = 0; i < 2; i++) {
        must(made_open(&w, &m, paths[i], true, &err));
        must(give_head(w, &m, i == 1, mass, &err));
        must(kvr_writer_finish(w, &err));
    }
    ck_assert(made_same(paths[0], paths[1]));
    must(made_open(&w, &m, paths[0], true, &err));
    must_fail(give_head(w, &m, true, NULL, &err), KVR_ERR_INPUT,
              "without row_mass");
    kvr_writer_abandon(w);
    must(made_open(&w, &m, paths[0], true, &err));
    must_fail(kvr_writer_half_rows(w, 0, 0, 0, 1, nan_half, 1, &err),
              KVR_ERR_INPUT, "row 0 key 0: weight nan");
    must_fail(kvr_writer_half_rows(w, 0, 0, 0, 1, minus_half, 1, &err),
              KVR_ERR_INPUT, "weight -1");
    kvr_writer_abandon(w);
    m.round_bits = 7;
    must(made_open(&w, &m, paths[0], true, &err));
    must_fail(kvr_writer_half_rows(w, 0, 0, 0, 1, nan_half, 1, &err),
              KVR_ERR_INPUT, "of other numbers");
    kvr_writer_abandon(w);
}
END_TEST

KVR_SUITE("trace", rows_come_back_as_stored, one_token_is_a_trace,
          an_early_end_leaves_what_was_committed, masks_keep_their_span,
          long_rows_span_chunks, arrays_and_tokens_come_back,
          the_same_input_gives_the_same_bytes, what_exists_is_not_overwritten,
          a_bad_weight_is_named, rows_of_halves_are_stored_as_they_are)
