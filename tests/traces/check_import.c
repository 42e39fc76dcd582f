/* check_import.c -- every att_* file of awkward/ does what its index says.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_import.h"
#include "kvr_journal.h"

#include "imported.h"
#include "made.h"
#include "suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct kvr_import_options plain = {
    .batch_item = -1, .dtype = -1, .prompt_len = 4, .force = true};

static const char *out_path(void)
{
    return made_path("i.kvt.h5");
}

static enum kvr_status import(const char *name,
                              const struct kvr_import_options *options,
                              struct kvr_error *err)
{
    char path[600];

    snprintf(path, sizeof path, "awkward/%s", name);
    unlink(out_path());
    return kvr_import(made_data(path), out_path(), options, err);
}

static void refused(const char *name, const struct kvr_import_options *options,
                    enum kvr_status status, const char *a, const char *b)
{
    struct kvr_error err = {0};

    must_fail(import(name, options, &err), status, a);
    ck_assert_msg(strstr(err.message, b) != NULL, "%s lacks '%s'", err.message,
                  b);
    ck_assert(access(out_path(), F_OK) != 0);
    ck_assert(access(made_path("i.kvt.h5.part"), F_OK) != 0);
}

/* Row `row` of a head of what was imported; *t: its tokens. */
static void row_of(float *out, uint32_t *t, uint32_t layer, uint32_t head,
                   uint32_t row)
{
    struct kvr_trace *trace = NULL;
    struct kvr_trace_scratch *scratch = NULL;
    struct kvr_error err = {0};

    must(kvr_trace_open(&trace, out_path(), &err));
    must(kvr_trace_scratch_new(&scratch, trace, &err));
    *t = kvr_trace_shape(trace)->n_token;
    must(kvr_trace_read_rows(trace, layer, head, row, 1, out, *t, scratch,
                             &err));
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
}

static void whole(uint32_t n_layer, uint32_t n_head, uint32_t t,
                  uint32_t prompt_len, enum kvr_dtype dtype)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    is_whole(out_path());
    must(kvr_trace_open(&trace, out_path(), &err));
    const struct kvr_trace_shape *s = kvr_trace_shape(trace);
    ck_assert_uint_eq(s->n_layer, n_layer);
    ck_assert_uint_eq(s->n_head, n_head);
    ck_assert_uint_eq(s->n_token, t);
    ck_assert_uint_eq(s->prompt_len, prompt_len);
    ck_assert_int_eq(s->dtype, dtype);
    ck_assert_int_eq(s->source, KVR_SOURCE_IMPORT);
    kvr_trace_close(trace);
}

/* A float of a .npy: its data begin at byte 128. */
static double raw(const char *name, size_t index, size_t item)
{
    char path[600];
    uint8_t bytes[8] = {0};
    double wide;
    float single;

    snprintf(path, sizeof path, "awkward/%s", name);
    FILE *in = fopen(made_data(path), "rb");
    ck_assert(in != NULL);
    ck_assert_int_eq(fseek(in, (long)(128 + index * item), SEEK_SET), 0);
    ck_assert_uint_eq(fread(bytes, 1, item, in), item);
    fclose(in);
    if (item == 4) {
        memcpy(&single, bytes, sizeof single);
        return (double)single;
    }
    for (int i = 0; i < 4; i++) { /* >f8 */
        const uint8_t b = bytes[i];
        bytes[i] = bytes[7 - i];
        bytes[7 - i] = b;
    }
    memcpy(&wide, bytes, sizeof wide);
    return wide;
}

START_TEST(the_control_is_imported)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};
    float row[24];
    uint32_t t;

    o.axes = "lhqk";
    must(import("att_ok_f32.npy", &o, &err));
    whole(2, 2, 24, 4, KVR_F32);
    row_of(row, &t, 1, 0, 20);
    for (size_t i = 0; i < 24; i++)
        ck_assert(fabs((double)row[i] -
                       raw("att_ok_f32.npy", (2 * 24 + 20) * 24 + i, 4)) <=
                  0x1p-31);
    o.dtype = KVR_F16;
    o.n_kv_head = 1;
    must(import("att_ok_f32.npy", &o, &err));
    whole(2, 2, 24, 4, KVR_F16);
    o.prompt_len = 0;
    refused("att_ok_f32.npy", &o, KVR_ERR_USAGE, "--prompt-len", "1..24");
}
END_TEST

START_TEST(left_padding_is_named_and_taken)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};

    refused("att_leftpad_nan.npy", &o, KVR_ERR_INPUT, "layer 0 head 0 row 0",
            "--pad 4");
    refused("att_leftpad_uniform.npy", &o, KVR_ERR_INPUT, "row 0 key 1",
            "--pad 4");
    o.pad = 4;
    must(import("att_leftpad_nan.npy", &o, &err));
    whole(1, 2, 12, 4, KVR_F32);
    must(import("att_leftpad_uniform.npy", &o, &err));
    whole(1, 2, 12, 4, KVR_F32);
}
END_TEST

START_TEST(rows_that_are_no_attention_are_named)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};
    struct kvr_trace *trace = NULL;
    const float *sink;
    uint32_t rows, t;
    float row[24];

    refused("att_not_causal.npy", &o, KVR_ERR_INPUT,
            "layer 0 head 0 row 0 key 1", "--not-causal");
    refused("att_raw_scores.npy", &o, KVR_ERR_INPUT, "negative weight",
            "raw scores");
    o.axes = "lhqk";
    refused("att_dropout_rows.npy", &o, KVR_ERR_INPUT, "sum to",
            "evaluation mode");
    refused("att_dropout_rows.npy", &o, KVR_ERR_INPUT, "layer 0 head 0 row ",
            "dropout in training mode?");
    refused("att_sink_logit_rows.npy", &o, KVR_ERR_INPUT, "sum to", "--sink");
    o.sink = true;
    must(import("att_sink_logit_rows.npy", &o, &err));
    whole(2, 2, 24, 4, KVR_F32);
    must(kvr_trace_open(&trace, out_path(), &err));
    must(kvr_trace_array(&sink, &rows, trace, 1, KVR_SINK_MASS, &err));
    ck_assert_uint_eq(rows, 2);
    row_of(row, &t, 1, 1, 23);
    double sum = (double)sink[24 + 23];
    for (uint32_t i = 0; i < t; i++)
        sum += (double)row[i];
    ck_assert(fabs(sum - 1) < 1e-5 && (double)sink[24 + 23] > 0.04);
    kvr_trace_close(trace);
    refused("att_dropout_rows.npy", &o, KVR_ERR_INPUT, "sum to", "dropout");
    o = plain;
    o.not_causal = true;
    must(import("att_not_causal.npy", &o, &err));
    whole(1, 2, 12, 4, KVR_F32);
    must(kvr_trace_open(&trace, out_path(), &err));
    ck_assert_int_eq(kvr_trace_shape(trace)->layers[0].mask, KVR_MASK_NONE);
    kvr_trace_close(trace);
    row_of(row, &t, 0, 1, 2);
    ck_assert((double)row[11] ==
                  raw("att_not_causal.npy", (12 + 2) * 12 + 11, 4) ||
              row[11] > 0);
}
END_TEST

START_TEST(types_are_read_as_they_are)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};
    float row[10];
    uint32_t t;

    must(import("att_f64_big_endian.npy", &o, &err));
    whole(1, 2, 10, 4, KVR_F32);
    row_of(row, &t, 0, 1, 9);
    for (size_t i = 0; i < 10; i++)
        ck_assert(fabs((double)row[i] - raw("att_f64_big_endian.npy",
                                            (10 + 9) * 10 + i, 8)) < 1e-7);
    must(import("att_f16_rounded.npy", &o, &err));
    whole(1, 2, 48, 4, KVR_F16);
    must(import("att_uniform_ties.npy", &o, &err));
    whole(1, 1, 20, 4, KVR_F32);
}
END_TEST

START_TEST(ambiguous_and_broken_arrays_are_refused)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};

    refused("att_batch2_ambiguous.npy", &o, KVR_ERR_USAGE, "[2, 2, 8, 8]",
            "lhqk");
    refused("att_truncated.npy", &o, KVR_ERR_INPUT, "9216", "2872");
    o.axes = "bhqk";
    refused("att_batch2_ambiguous.npy", &o, KVR_ERR_USAGE, "--batch-item",
            "0..1");
    o.batch_item = 1;
    must(import("att_batch2_ambiguous.npy", &o, &err));
    whole(1, 2, 8, 4, KVR_F32);
    o.batch_item = 2;
    refused("att_batch2_ambiguous.npy", &o, KVR_ERR_USAGE, "2 of 2", "batch");
    o.axes = "hqkx";
    refused("att_batch2_ambiguous.npy", &o, KVR_ERR_USAGE, "hqkx", "b, l, h");
}
END_TEST

START_TEST(hdf5_dumps_are_read)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};
    struct kvr_trace *trace = NULL;
    float row[24], want[24];
    uint32_t t;

    o.prompt_len = 0;
    must(import("att_generate_steps.h5", &o, &err));
    whole(1, 2, 11, 6, KVR_F32);
    must(kvr_trace_open(&trace, out_path(), &err));
    ck_assert_str_eq(kvr_trace_shape(trace)->model_name, "tiny");
    kvr_trace_close(trace);
    o = plain;
    o.axes = "lhqk";
    must(import("att_ok_f32.npy", &o, &err));
    row_of(want, &t, 1, 1, 21);
    must(import("att_f16_gzip.h5", &o, &err));
    whole(2, 2, 24, 4, KVR_F16);
    row_of(row, &t, 1, 1, 21);
    for (size_t i = 0; i < 24; i++)
        ck_assert(fabs((double)row[i] - (double)want[i]) < 1e-3);
    must(import("att_string_attrs.h5", &plain, &err));
    whole(1, 2, 24, 4, KVR_F32);
    must(kvr_trace_open(&trace, out_path(), &err));
    ck_assert_str_eq(kvr_trace_shape(trace)->model_name,
                     "vlen utf-8 \xe2\x96\x81");
    kvr_trace_close(trace);
}
END_TEST

START_TEST(hdf5_traps_are_refused)
{
    refused("att_lzf.h5", &plain, KVR_ERR_UNSUPPORTED, "filter 32000 (lzf)",
            "gzip");
    refused("att_shape_bomb.h5", &plain, KVR_ERR_INPUT, "140737488355328",
            "stores 0");
    refused("att_external_storage.h5", &plain, KVR_ERR_UNSUPPORTED,
            "external storage is not followed", "/etc/hostname");
    refused("att_truncated.h5", &plain, KVR_ERR_INPUT, "truncated",
            "5632 of 11264 bytes");
    refused("att_writer_killed.h5", &plain, KVR_ERR_INPUT, "did not close",
            "trace repair");
    struct kvr_import_options o = plain;
    o.dataset = "/layer_%02d/attention";
    refused("att_f16_gzip.h5", &o, KVR_ERR_INPUT, "named like", "layer_%02d");
    o.dataset = "/%s";
    refused("att_f16_gzip.h5", &o, KVR_ERR_USAGE, "%02d", "expected");
}
END_TEST

/* The one step of the killed writer's file is readable after the repair. */
START_TEST(a_repaired_file_is_imported)
{
    struct kvr_error err = {0};
    struct kvr_import_options o = plain;
    char killed[600];

    snprintf(killed, sizeof killed, "%s", made_path("killed.h5"));
    must(kvr_trace_repair(made_data("awkward/att_writer_killed.h5"), killed,
                          true, &err));
    const enum kvr_status status = kvr_import(killed, out_path(), &o, &err);
    /* it is readable; whether its rows are attention is another matter */
    ck_assert_msg(status == KVR_OK || strstr(err.message, "row 0") != NULL,
                  "%s", err.message);
}
END_TEST

/* Layer datasets by a pattern: the golden attention of a real model. */
START_TEST(layers_by_a_pattern)
{
    struct kvr_error err = {0};
    struct kvr_import_options o = plain;

    if (KVR_PYTHON[0] == '\0') {
        printf("skipped: no python3 with h5py\n");
        return;
    }
    char command[2000];
    snprintf(command, sizeof command, KVR_PYTHON " %s %s",
             made_data("traces/dumps.py"), made_path(""));
    ck_assert_int_eq(system(command), 0);
    o.dataset = "/layer_%02d/attention";
    must(kvr_import(made_path("layers.h5"), out_path(), &o, &err));
    whole(3, 2, 40, 4, KVR_F32);
    o.dataset = NULL;
    must_fail(kvr_import(made_path("layers.h5"), out_path(), &o, &err),
              KVR_ERR_USAGE, "--dataset");
    must(kvr_import(made_path("steps.h5"), out_path(), &o, &err));
    whole(2, 3, 16, 4, KVR_F32);
    o.prompt_len = 0;
    must(kvr_import(made_path("steps.h5"), out_path(), &o, &err));
    whole(2, 3, 16, 5, KVR_F32);
    must_fail(kvr_import(made_path("gap.h5"), out_path(), &o, &err),
              KVR_ERR_INPUT, "step 6 is followed by 8");
    must_fail(kvr_import(made_path("soft.h5"), out_path(), &o, &err),
              KVR_ERR_INPUT, "no float dataset");
    o = plain;
    must(kvr_import(made_path("fortran.npy"), out_path(), &o, &err));
    whole(1, 2, 40, 4, KVR_F32);
    float a[40], b[40];
    uint32_t t;
    row_of(a, &t, 0, 1, 33);
    must(kvr_import(made_path("plain.npy"), out_path(), &o, &err));
    row_of(b, &t, 0, 1, 33);
    ck_assert(memcmp(a, b, sizeof a) == 0);
    o.axes = "hkq";
    must(kvr_import(made_path("swapped.npy"), out_path(), &o, &err));
    row_of(b, &t, 0, 1, 33);
    ck_assert(memcmp(a, b, sizeof a) == 0);
    must(kvr_import(made_path("swapped.h5"), out_path(), &o, &err));
    row_of(b, &t, 0, 1, 33);
    ck_assert(memcmp(a, b, sizeof a) == 0);
    o.axes = NULL;
    must_fail(kvr_import(made_path("swapped.npy"), out_path(), &o, &err),
              KVR_ERR_INPUT, "axes q and k swapped");
}
END_TEST

static uint64_t u64_at(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return value;
}

/* Fills the local heap of the file's one group, and says that none of it is
 * free: no name ends in it. */
static void fill_heap(const char *path)
{
    const uint64_t nothing_free = 1;
    uint8_t data[8192] = {0};
    size_t heap = 0;

    FILE *file = fopen(path, "r+b");
    ck_assert(file != NULL);
    const size_t n = fread(data, 1, sizeof data, file);
    while (heap + 32 < n && memcmp(data + heap, "HEAP", 4) != 0)
        heap++;
    ck_assert_uint_lt(heap + 32, n);
    const uint64_t size = u64_at(data + heap + 8);
    const uint64_t at = u64_at(data + heap + 24);
    ck_assert(at < n && size <= n - at);
    ck_assert_int_eq(fseek(file, (long)heap + 16, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(&nothing_free, 8, 1, file), 1);
    memset(data, 'x', size);
    ck_assert_int_eq(fseek(file, (long)at, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

/* The sanitizer ends the child before it has looked. */
#ifdef __SANITIZE_ADDRESS__
#define LONG_ATTRIBUTE "gave up"
#define ENDLESS_NAME "gave up"
#else
#define LONG_ATTRIBUTE "an attribute is longer"
#define ENDLESS_NAME "a name in its groups has no end"
#endif

/* HDF5 1.10 reads past its buffers with each. In the first the filters are gone
 * and the chunks still deflated. */
START_TEST(what_hdf5_would_read_past_is_refused)
{
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};
    const char *gzip = made_data("awkward/att_f16_gzip.h5");

    o.axes = "lhqk";
    must_fail(
        kvr_import(made_data("traces/short_chunks.h5"), out_path(), &o, &err),
        KVR_ERR_INPUT, "a chunk is not the 384 bytes");
    must_fail(
        kvr_import(made_data("traces/long_attribute.h5"), out_path(), &o, &err),
        KVR_ERR_INPUT, LONG_ATTRIBUTE);
    ck_assert(made_copy(made_path("names.h5"), gzip, made_size(gzip)));
    fill_heap(made_path("names.h5"));
    must_fail(kvr_import(made_path("names.h5"), out_path(), &o, &err),
              KVR_ERR_INPUT, ENDLESS_NAME);
}
END_TEST

KVR_SUITE("import", the_control_is_imported, left_padding_is_named_and_taken,
          rows_that_are_no_attention_are_named, types_are_read_as_they_are,
          ambiguous_and_broken_arrays_are_refused, hdf5_dumps_are_read,
          hdf5_traps_are_refused, a_repaired_file_is_imported,
          layers_by_a_pattern, what_hdf5_would_read_past_is_refused)
