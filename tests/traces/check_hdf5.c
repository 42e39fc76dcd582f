/* check_hdf5.c -- HDF5 dumps in every legal form.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_import.h"
#include "kvr_trace.h"

#include "made.h"
#include "suite.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 2, ROWS = 23 };

/* Only the sanitizers call these. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5\n";
}

/* ---- legal dumps ---- */

struct file_form {
    const char *name;
    hid_t type;          /* 0: H5T_IEEE_F32LE */
    hsize_t chunk[4];    /* 0: in one piece */
    const char *filters; /* d, s, f: deflate, shuffle, fletcher32 */
    bool compact, latest, unlimited, early, plain_edges;
    hsize_t user_block;
};

static float weight(int layer, int head, int row, int key)
{
    const int peak = (layer + 2 * head + row) % (row + 1);

    if (key > row)
        return 0;
    return key == peak ? 1 - (float)row / 64 : 1.0f / 64;
}

static void fill(float *out)
{
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++)
            for (int r = 0; r < ROWS; r++)
                for (int k = 0; k < ROWS; k++)
                    *out++ = weight(l, h, r, k);
}

static hid_t plist_of(const struct file_form *form)
{
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);

    if (form->compact)
        ck_assert_int_ge(H5Pset_layout(plist, H5D_COMPACT), 0);
    if (form->chunk[0] != 0)
        ck_assert_int_ge(H5Pset_chunk(plist, 4, form->chunk), 0);
    if (form->early)
        ck_assert_int_ge(H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY), 0);
    if (form->plain_edges)
        ck_assert_int_ge(
            H5Pset_chunk_opts(plist, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS), 0);
    for (const char *f = form->filters; f != NULL && *f != '\0'; f++)
        ck_assert_int_ge(*f == 'd'   ? H5Pset_deflate(plist, 6)
                         : *f == 's' ? H5Pset_shuffle(plist)
                                     : H5Pset_fletcher32(plist),
                         0);
    return plist;
}

static hid_t new_file(const char *path, const struct file_form *form)
{
    const hid_t create = H5Pcreate(H5P_FILE_CREATE);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);

    if (form->user_block != 0)
        ck_assert_int_ge(H5Pset_userblock(create, form->user_block), 0);
    ck_assert_int_ge(H5Pset_libver_bounds(access,
                                          form->latest ? H5F_LIBVER_LATEST
                                                       : H5F_LIBVER_EARLIEST,
                                          H5F_LIBVER_LATEST),
                     0);
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, create, access);
    ck_assert_int_ge(file, 0);
    H5Pclose(create);
    H5Pclose(access);
    return file;
}

static void write_dump(const char *path, const struct file_form *form)
{
    static const hsize_t dims[4] = {LAYERS, HEADS, ROWS, ROWS};
    static const hsize_t most[4] = {H5S_UNLIMITED, H5S_UNLIMITED, ROWS, ROWS};
    static float data[LAYERS * HEADS * ROWS * ROWS];
    const hid_t file = new_file(path, form), plist = plist_of(form);
    const hid_t space =
        H5Screate_simple(4, dims, form->unlimited ? most : NULL);
    const hid_t type = form->type != 0 ? form->type : H5T_IEEE_F32LE;

    fill(data);
    const hid_t set = H5Dcreate2(file, "attention", type, space, H5P_DEFAULT,
                                 plist, H5P_DEFAULT);
    ck_assert_int_ge(set, 0);
    ck_assert_int_ge(
        H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data),
        0);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(plist);
    ck_assert_int_ge(H5Fclose(file), 0);
}

static const struct kvr_import_options options = {.axes = "lhqk",
                                                  .batch_item = -1,
                                                  .dtype = -1,
                                                  .prompt_len = 4,
                                                  .n_kv_head = 1,
                                                  .force = true};

static void same_rows(const char *path, const char *name)
{
    struct kvr_trace *trace = NULL;
    struct kvr_trace_scratch *scratch = NULL;
    struct kvr_error err = {0};
    float rows[ROWS * ROWS];

    must(kvr_trace_open(&trace, path, &err));
    must(kvr_trace_scratch_new(&scratch, trace, &err));
    ck_assert_uint_eq(kvr_trace_shape(trace)->n_layer, LAYERS);
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++) {
            must(kvr_trace_read_rows(trace, (uint32_t)l, (uint32_t)h, 0, ROWS,
                                     rows, ROWS, scratch, &err));
            for (int i = 0; i < ROWS * ROWS; i++)
                ck_assert_msg(rows[i] == weight(l, h, i / ROWS, i % ROWS),
                              "%s: layer %d head %d row %d key %d: %g", name, l,
                              h, i / ROWS, i % ROWS, (double)rows[i]);
        }
    kvr_trace_scratch_free(scratch);
    kvr_trace_close(trace);
}

/* Little-endian or big-endian binary16. */
static hid_t half(hid_t from)
{
    const hid_t type = H5Tcopy(from);

    ck_assert_int_ge(H5Tset_fields(type, 15, 10, 5, 0, 10), 0);
    ck_assert_int_ge(H5Tset_size(type, 2), 0);
    ck_assert_int_ge(H5Tset_ebias(type, 15), 0);
    return type;
}

START_TEST(every_legal_form_is_read)
{
    const struct file_form forms[] = {
        {.name = "plain"},
        {.name = "f32 big", .type = H5T_IEEE_F32BE},
        {.name = "f64", .type = H5T_IEEE_F64LE},
        {.name = "f64 big", .type = H5T_IEEE_F64BE, .chunk = {1, 2, 5, 23}},
        {.name = "f16", .type = half(H5T_IEEE_F32LE)},
        {.name = "f16 big",
         .type = half(H5T_IEEE_F32BE),
         .chunk = {2, 1, 9, 9}},
        {.name = "compact", .compact = true},
        {.name = "chunks", .chunk = {1, 1, 5, 7}},
        {.name = "one chunk", .chunk = {2, 2, 23, 23}, .latest = true},
        {.name = "implicit",
         .chunk = {1, 1, 8, 8},
         .latest = true,
         .early = true},
        {.name = "fixed array", .chunk = {1, 2, 8, 8}, .latest = true},
        {.name = "trees 2",
         .chunk = {1, 1, 8, 8},
         .latest = true,
         .unlimited = true,
         .filters = "sd"},
        {.name = "unlimited", .chunk = {3, 1, 8, 8}, .unlimited = true},
        {.name = "deflate", .chunk = {1, 1, 6, 6}, .filters = "d"},
        {.name = "shuffle", .chunk = {1, 1, 6, 6}, .filters = "s"},
        {.name = "checksum", .chunk = {1, 1, 6, 5}, .filters = "f"},
        {.name = "h5py", .chunk = {1, 2, 12, 12}, .filters = "sdf"},
        {.name = "netCDF", .chunk = {1, 2, 12, 12}, .filters = "fsd"},
        {.name = "late shuffle", .chunk = {1, 2, 12, 12}, .filters = "fds"},
        {.name = "edges",
         .chunk = {1, 2, 12, 12},
         .filters = "sd",
         .latest = true,
         .plain_edges = true},
        {.name = "user block", .user_block = 512},
        {.name = "user block, chunks",
         .user_block = 2048,
         .chunk = {1, 1, 5, 7},
         .filters = "sd",
         .latest = true}};
    struct kvr_error err = {0};

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        write_dump(made_path("dump.h5"), &forms[i]);
        const enum kvr_status status = kvr_import(
            made_path("dump.h5"), made_path("d.kvt.h5"), &options, &err);
        ck_assert_msg(status == KVR_OK, "%s: %s", forms[i].name, err.message);
        same_rows(made_path("d.kvt.h5"), forms[i].name);
    }
}
END_TEST

START_TEST(a_flipped_bit_under_a_checksum_shows)
{
    const struct file_form form = {.chunk = {2, 2, 23, 23}, .filters = "f"};
    struct kvr_error err = {0};
    const char *path = made_kept("sum.h5");

    write_dump(path, &form);
    ck_assert(made_flip(path, made_size(path) - 700, 1));
    must_fail(kvr_import(path, made_path("d.kvt.h5"), &options, &err),
              KVR_ERR_INPUT, "a chunk is not the");
}
END_TEST

/* Hard links may make a circle; soft ones may lead nowhere. */
START_TEST(links_make_no_circles)
{
    const struct file_form form = {.chunk = {1, 1, 8, 8}};
    struct kvr_error err = {0};
    const char *path = made_kept("links.h5");

    write_dump(path, &form);
    const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t group =
        H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(
        H5Lcreate_hard(file, "/", group, "up", H5P_DEFAULT, H5P_DEFAULT), 0);
    ck_assert_int_ge(H5Lcreate_hard(file, "attention", group, "again",
                                    H5P_DEFAULT, H5P_DEFAULT),
                     0);
    ck_assert_int_ge(
        H5Lcreate_soft("/nowhere", file, "soft", H5P_DEFAULT, H5P_DEFAULT), 0);
    H5Gclose(group);
    H5Fclose(file);
    must(kvr_import(path, made_path("d.kvt.h5"), &options, &err));
    same_rows(made_path("d.kvt.h5"), "links");
    struct kvr_import_options o = options;
    o.dataset = "group/up/group/again";
    must(kvr_import(path, made_path("d.kvt.h5"), &o, &err));
    o.dataset = "/soft";
    must_fail(kvr_import(path, made_path("d.kvt.h5"), &o, &err),
              KVR_ERR_UNSUPPORTED, "/soft: a soft or external link");
}
END_TEST

KVR_SUITE("hdf5", every_legal_form_is_read,
          a_flipped_bit_under_a_checksum_shows, links_make_no_circles)
