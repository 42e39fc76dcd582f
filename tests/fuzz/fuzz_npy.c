/* fuzz_npy.c -- the importer's .npy reader.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "fuzz_import.h"

void fuzz_one(const uint8_t *data, size_t size)
{
    struct kvr_import_options options = {
        .batch_item = -1, .dtype = -1, .prompt_len = 1, .force = true};
    const char *path = fuzz_path("in.npy");

    fuzz_save(path, data, size);
    for (int i = 0; i < 2; i++) {
        options.axes = i == 0 ? NULL : "lhqk";
        fuzz_import(path, &options, data, size);
    }
}

size_t fuzz_corpus(const char **names, size_t most)
{
    static const char *const all[] = {
        KVR_TEST_DATA "/awkward/att_ok_f32.npy",
        KVR_TEST_DATA "/awkward/att_f64_big_endian.npy",
        KVR_TEST_DATA "/awkward/att_f16_rounded.npy",
        KVR_TEST_DATA "/awkward/att_uniform_ties.npy",
        KVR_TEST_DATA "/traces/dumps/rows.npy",
        KVR_TEST_DATA "/traces/dumps/rows_as_f16.npy",
        KVR_TEST_DATA "/traces/dumps/att.npy"};
    size_t n = 0;

    for (; n < sizeof all / sizeof all[0] && n < most; n++)
        names[n] = all[n];
    return n;
}
