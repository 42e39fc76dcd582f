/* fuzz_trace.c -- opening a finished trace, and reading all of it.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "fuzz.h"
#include "kvr_journal.h"

#include "made.h"

#include <stdlib.h>

void fuzz_one(const uint8_t *data, size_t size)
{
    struct kvr_trace_report report;
    struct kvr_error err = {0};
    const char *path = fuzz_path("in.kvt.h5");

    fuzz_save(path, data, size);
    if (kvr_trace_check(&report, path, 1, 0, &err) == KVR_OK)
        kvr_trace_report_free(&report);
}

size_t fuzz_corpus(const char **names, size_t most)
{
    const struct made m = {.n_layer = 1,
                           .n_head = 2,
                           .n_kv_head = 1,
                           .t = 40,
                           .prompt_len = 20,
                           .dtype = KVR_F16,
                           .tokens = true,
                           .text = true,
                           .norms = true};
    struct kvr_error err = {0};

    if (most < 1 ||
        made_write(&m, fuzz_path("seed.kvt.h5"), true, &err) != KVR_OK)
        abort();
    names[0] = fuzz_path("seed.kvt.h5");
    return 1;
}
