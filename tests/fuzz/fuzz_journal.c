/* fuzz_journal.c -- the journal's reader, and the trace made of it.
 *
 * Every other input gets its checksums put right again, so that what stands
 * behind them is reached.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "fuzz.h"
#include "kvr_hash.h"
#include "kvr_journal.h"

#include "made.h"

#include <stdlib.h>
#include <string.h>

enum { RECORD = 64, SIZE_AT = 32, PAYLOAD_HASH_AT = 40, HASH_AT = 56 };

static void fix_checksums(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + RECORD <= size;) {
        uint64_t payload, hash;
        memcpy(&payload, data + at + SIZE_AT, sizeof payload);
        if (payload > size - at - RECORD)
            return;
        hash = kvr_hash64(data + at + RECORD, payload);
        memcpy(data + at + PAYLOAD_HASH_AT, &hash, sizeof hash);
        hash = kvr_hash64(data + at, HASH_AT);
        memcpy(data + at + HASH_AT, &hash, sizeof hash);
        at += RECORD + payload;
    }
}

static void try(const uint8_t *data, size_t size)
{
    struct kvr_trace_report report;
    struct kvr_error err = {0};
    const char *path = fuzz_path("in.part");
    const char *out = fuzz_path("out.kvt.h5");

    fuzz_save(path, data, size);
    if (kvr_trace_check(&report, path, 1, 0, &err) == KVR_OK)
        kvr_trace_report_free(&report);
    if (kvr_trace_repair(path, out, true, &err) == KVR_OK &&
        kvr_trace_check(&report, out, 1, 0, &err) == KVR_OK)
        kvr_trace_report_free(&report);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    if (copy == NULL)
        abort();
    try(data, size);
    memcpy(copy, data, size);
    fix_checksums(copy, size);
    try(copy, size);
    free(copy);
}

size_t fuzz_corpus(const char **names, size_t most)
{
    const struct made m = {.n_layer = 2,
                           .n_head = 2,
                           .n_kv_head = 1,
                           .t = 70,
                           .prompt_len = 60,
                           .dtype = KVR_F16,
                           .tokens = true,
                           .text = true,
                           .norms = true};
    struct kvr_writer *writer = NULL;
    struct kvr_error err = {0};

    if (most < 2 ||
        made_open(&writer, &m, fuzz_path("seed"), true, &err) != KVR_OK ||
        made_steps(writer, &m, 0, 60, &err) != KVR_OK)
        abort();
    for (uint32_t t = 60; t < 70; t++)
        if (made_steps(writer, &m, t, t + 1, &err) != KVR_OK)
            abort();
    kvr_writer_abandon(writer);
    names[0] = fuzz_path("seed.part");
    names[1] = made_data("traces/journal_1.2.bin"); /* rows deflated */
    return 2;
}
