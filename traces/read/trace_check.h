/* trace_check.h -- whether a trace is what it says of itself.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TRACE_CHECK_H
#define TRACE_CHECK_H

#include "kvr_journal.h"

/* kvr_trace_check of a finished trace. */
enum kvr_status kvr__check_trace(struct kvr_trace_report *report,
                                 const char *path, uint32_t threads,
                                 uint64_t memory, struct kvr_error *err);

/* The report is no longer ok. */
KVR_PRINTF(2, 3)
void kvr__add_problem(struct kvr_trace_report *report, const char *format, ...);

#endif
