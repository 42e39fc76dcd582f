/* check_import_window.c -- dumps of models with sliding windows.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_import.h"
#include "kvr_journal.h"
#include "kvr_log.h"

#include "imported.h"
#include "made.h"
#include "suite.h"

#include <string.h>
#include <unistd.h>

enum { LAYERS = 3, HEADS = 2, T = 12, WINDOW = 4 };

static const struct kvr_import_options plain = {.axes = "lhqk",
                                                .batch_item = -1,
                                                .dtype = -1,
                                                .prompt_len = 4,
                                                .n_kv_head = 2,
                                                .force = true};

static char warned[2000];

static void note(enum kvr_log_level level, const char *line, void *ud)
{
    (void)ud;
    if (level == KVR_LOG_WARNING)
        snprintf(warned + strlen(warned), sizeof warned - strlen(warned),
                 "%s\n", line);
}

static const char *out_path(void)
{
    return made_path("w.kvt.h5");
}

/* Rows that spread over the keys they see: layers 0 and 2 a window, layer 1
 * all. */
static float (*rows(void))[HEADS][T][T]
{
    static float made[LAYERS][HEADS][T][T];

    memset(made, 0, sizeof made);
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++)
            for (int t = 0; t < T; t++) {
                const int from = l != 1 && t >= WINDOW ? t - WINDOW + 1 : 0;
                for (int k = from; k <= t; k++)
                    made[l][h][t][k] = 1 / (float)(t - from + 1);
            }
    return made;
}

static enum kvr_status import(float (*made)[HEADS][T][T],
                              const struct kvr_import_options *options,
                              struct kvr_error *err)
{
    static const char header[] =
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 12, 12)}";

    write_npy(made_path("w.npy"), header, made, sizeof *made * LAYERS);
    unlink(out_path());
    warned[0] = '\0';
    kvr_log_set_sink(note, NULL);
    const enum kvr_status status =
        kvr_import(made_path("w.npy"), out_path(), options, err);
    kvr_log_set_sink(NULL, NULL);
    return status;
}

/* Window of each stored layer, 0: causal; and the trace is whole. */
static void spans_are(uint32_t n, const uint32_t *spans)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};

    is_whole(out_path());
    must(kvr_trace_open(&trace, out_path(), &err));
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    ck_assert_uint_eq(shape->n_layer, n);
    for (uint32_t l = 0; l < n; l++) {
        ck_assert_uint_eq(shape->layers[l].span, spans[l]);
        ck_assert_int_eq(shape->layers[l].mask,
                         spans[l] != 0 ? KVR_MASK_WINDOW : KVR_MASK_CAUSAL);
    }
    kvr_trace_close(trace);
}

START_TEST(windows_are_stated)
{
    static const uint32_t by_layer[] = {WINDOW, 0, WINDOW};
    struct kvr_import_options o = plain;
    struct kvr_error err = {0};

    o.spans = by_layer;
    o.n_span = 3;
    must(import(rows(), &o, &err));
    spans_are(3, by_layer);
    ck_assert_str_eq(warned, "");
    o.n_span = 2;
    must_fail(import(rows(), &o, &err), KVR_ERR_INPUT, "layer 2");
    o = plain;
    o.window = WINDOW;
    must_fail(import(rows(), &o, &err), KVR_ERR_INPUT,
              "layer 1 head 0 row 4 key 0: weight outside of the window");
    o.layers = "0,2";
    must(import(rows(), &o, &err));
    spans_are(2, (const uint32_t[]){WINDOW, WINDOW});
    o.window = WINDOW - 1;
    must_fail(import(rows(), &o, &err), KVR_ERR_INPUT,
              "layer 0 head 0 row 3 key 0");
    o.not_causal = true;
    must_fail(import(rows(), &o, &err), KVR_ERR_USAGE, "--not-causal");
}
END_TEST

START_TEST(what_looks_like_a_window_is_said)
{
    struct kvr_error err = {0};
    float(*made)[HEADS][T][T] = rows();

    must(import(made, &plain, &err));
    spans_are(3, (const uint32_t[]){0, 0, 0});
    ck_assert_msg(strstr(warned, "layers 0,2: every row sees exactly the last "
                                 "4 keys") != NULL,
                  "%s", warned);
    ck_assert_ptr_ne(strstr(warned, "--window 4"), NULL);
    /* one row of one head that sees one key more */
    made[0][1][9][4] = made[0][1][9][9] = 0.125F;
    must(import(made, &plain, &err));
    ck_assert_msg(strstr(warned, "layers 2: ") != NULL, "%s", warned);
    /* one whose oldest key rounds to nothing is no window's end */
    made = rows();
    made[2][0][9][6] = made[2][1][9][6] = 0;
    made[2][0][9][9] = made[2][1][9][9] = 0.5F;
    must(import(made, &plain, &err));
    ck_assert_msg(strstr(warned, "layers 0: ") != NULL, "%s", warned);
}
END_TEST

KVR_SUITE("import_window", windows_are_stated, what_looks_like_a_window_is_said)
