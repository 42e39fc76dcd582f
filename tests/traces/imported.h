/* imported.h -- what the suites of the import share. Everything here ends the
 * test on failure.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef IMPORTED_H
#define IMPORTED_H

#include "kvr_journal.h"
#include "kvr_trace.h"

#include "suite.h"

#include <string.h>

/* trace check finds nothing. */
static inline void is_whole(const char *path)
{
    struct kvr_trace_report report;
    struct kvr_error err = {0};

    must(kvr_trace_check(&report, path, 1, 0, &err));
    ck_assert_msg(report.ok, "%s: %s", path,
                  report.n_problem > 0 ? report.problems[0] : "");
    kvr_trace_report_free(&report);
}

/* An .npy file: version 1, `header` as it is, `size` bytes. */
static inline void write_npy(const char *path, const char *header,
                             const void *data, size_t size)
{
    const size_t n = strlen(header);
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    fwrite("\x93NUMPY\x01", 1, 7, file);
    fputc(0, file);
    fputc((int)(n & 255), file);
    fputc((int)(n >> 8), file);
    fwrite(header, 1, n, file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

#endif
