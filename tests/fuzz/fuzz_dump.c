/* fuzz_dump.c -- the importer's HDF5 side.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _GNU_SOURCE /* memmem */
#include "fuzz_import.h"

#include <string.h>

void fuzz_one(const uint8_t *data, size_t size)
{
    const bool by_layer = memmem(data, size, "layer_16", 8) != NULL;
    const struct kvr_import_options options = {.dataset =
                                                   by_layer ? "layer_%d" : NULL,
                                               .axes = by_layer ? NULL : "lhqk",
                                               .batch_item = -1,
                                               .dtype = -1,
                                               .prompt_len = 1,
                                               .force = true};
    const char *path = fuzz_path("in.h5");

    fuzz_save(path, data, size);
    fuzz_import(path, &options, data, size);
}

size_t fuzz_corpus(const char **names, size_t most)
{
    static const char *const all[] = {
        KVR_TEST_DATA "/awkward/att_f16_gzip.h5",
        KVR_TEST_DATA "/awkward/att_generate_steps.h5",
        KVR_TEST_DATA "/awkward/att_string_attrs.h5",
        KVR_TEST_DATA "/awkward/att_writer_killed.h5",
        KVR_TEST_DATA "/traces/short_chunks.h5",
        KVR_TEST_DATA "/traces/dumps/layers.h5",
        KVR_TEST_DATA "/traces/dumps/steps.h5"};
    size_t n = 0;

    for (; n < sizeof all / sizeof all[0] && n < most; n++)
        names[n] = all[n];
    return n;
}
