/* fuzz_dump.c -- the importer's HDF5 side.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "fuzz.h"
#include "kvr_import.h"

void fuzz_one(const uint8_t *data, size_t size)
{
    const struct kvr_import_options options = {.axes = "lhqk",
                                               .batch_item = -1,
                                               .dtype = -1,
                                               .prompt_len = 1,
                                               .force = true};
    struct kvr_error err = {0};
    const char *path = fuzz_path("in.h5");

    fuzz_save(path, data, size);
    (void)!kvr_import(path, fuzz_path("out.kvt.h5"), &options, &err);
}

size_t fuzz_corpus(const char **names, size_t most)
{
    static const char *const all[] = {
        KVR_TEST_DATA "/awkward/att_f16_gzip.h5",
        KVR_TEST_DATA "/awkward/att_generate_steps.h5",
        KVR_TEST_DATA "/awkward/att_string_attrs.h5",
        KVR_TEST_DATA "/awkward/att_writer_killed.h5",
        KVR_TEST_DATA "/traces/short_chunks.h5"};
    size_t n = 0;

    for (; n < sizeof all / sizeof all[0] && n < most; n++)
        names[n] = all[n];
    return n;
}
