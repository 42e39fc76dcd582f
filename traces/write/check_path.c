/* check_path.c -- trace check: of a trace, or of a capture's journal.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "trace_check.h"
#include "kvr_journal.h"

static enum kvr_status check_journal(struct kvr_trace_report *report,
                                     const char *path, struct kvr_error *err)
{
    struct kvr_journal *j = NULL;

    const enum kvr_status status = kvr_journal_open(&j, path, err);
    if (status != KVR_OK)
        return status;
    const struct kvr_journal_facts *f = kvr_journal_facts(j);
    report->closed_rows = f->n_step;
    kvr__add_problem(report,
                     "%s: %u of at most %u steps are closed; 'kvreplay trace "
                     "repair' makes a trace of them",
                     f->running ? "the capture is still running"
                                : "the capture did not finish",
                     f->n_step, kvr_journal_shape(j)->n_token);
    if (f->problem[0] != '\0')
        kvr__add_problem(report, "%s", f->problem);
    kvr_journal_close(j);
    return KVR_OK;
}

enum kvr_status kvr_trace_check(struct kvr_trace_report *report,
                                const char *path, uint32_t threads,
                                uint64_t memory, struct kvr_error *err)
{
    if (!kvr_journal_is(path))
        return kvr__check_trace(report, path, threads, memory, err);
    *report = (struct kvr_trace_report){.ok = true};
    return check_journal(report, path, err);
}
