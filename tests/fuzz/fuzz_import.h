/* fuzz_import.h -- an import of changed bytes: refused, or a whole trace.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FUZZ_IMPORT_H
#define FUZZ_IMPORT_H

#include "fuzz.h"
#include "kvr_import.h"
#include "kvr_journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Every weight of the trace is one, or as far above as rounding explains. */
static inline void fuzz_rows(const struct kvr_trace *trace)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    const uint32_t T = shape->n_token;
    float *row = calloc(T, sizeof *row);
    struct kvr_trace_scratch *scratch = NULL;
    struct kvr_error err = {0};

    MUST_HOLD(row != NULL);
    MUST_HOLD(kvr_trace_scratch_new(&scratch, trace, &err) == KVR_OK);
    for (uint32_t l = 0; l < shape->n_layer; l++)
        for (uint32_t h = 0; h < shape->layers[l].n_head; h++)
            for (uint32_t t = 0; t < T; t++) {
                MUST_HOLD(kvr_trace_read_rows(trace, l, h, t, 1, row, T,
                                              scratch, &err) == KVR_OK);
                for (uint32_t i = 0; i <= t; i++)
                    MUST_HOLD(row[i] >= 0 && row[i] <= 1.01F);
            }
    kvr_trace_scratch_free(scratch);
    free(row);
}

/* --renormalise at every other input: the bytes say which. */
static inline void fuzz_import(const char *from,
                               const struct kvr_import_options *given,
                               const uint8_t *data, size_t size)
{
    struct kvr_import_options options = *given;
    const char *to = fuzz_path("out.kvt.h5");
    struct kvr_trace_report report;
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    struct stat about;
    uint32_t turn = 0;

    for (size_t i = 0; i < size; i++)
        turn = turn * 31 + data[i];
    options.renormalise = turn % 2 == 1;
    remove(to);
    const enum kvr_status status = kvr_import(from, to, &options, &err);
    if (status != KVR_OK) {
        MUST_HOLD(status == KVR_ERR_INPUT || status == KVR_ERR_UNSUPPORTED ||
                  status == KVR_ERR_USAGE || status == KVR_ERR_IO ||
                  status == KVR_ERR_LIMIT);
        MUST_HOLD(err.message[0] != '\0');
        MUST_HOLD(stat(to, &about) != 0); /* nothing half-written */
        return;
    }
    MUST_HOLD(kvr_trace_check(&report, to, 1, 0, &err) == KVR_OK);
    if (!report.ok)
        fprintf(stderr, "fuzz: %s\n", report.problems[0]);
    MUST_HOLD(report.ok);
    kvr_trace_report_free(&report);
    MUST_HOLD(kvr_trace_open(&trace, to, &err) == KVR_OK);
    fuzz_rows(trace);
    kvr_trace_close(trace);
}

#endif
