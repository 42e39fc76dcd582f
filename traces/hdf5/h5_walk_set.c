/* h5_walk_set.c -- a dataset's type, extent and storage, and where its chunks
 * lie.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_walk.h"

#include "h5_index.h"
#include "h5_stream.h"
#include "kvr_memory.h"

#include <stdlib.h>
#include <string.h>

/* A compact dataset is part of its header, of 64 KiB at most. */
enum { MAX_COMPACT = 1 << 16, MAX_FILL = 8, BEST_RATIO = 1100 };

struct set_walk {
    struct h5_walk *w;
    hid_t set, plist, type, space;
    enum h5_layout layout;
    int rank;
    hsize_t dims[INDEX_MAX_RANK], chunk[INDEX_MAX_RANK], grid[INDEX_MAX_RANK];
    uint64_t cells;
};

static enum h5_layout layout_of(hid_t plist)
{
    switch (H5Pget_layout(plist)) {
    case H5D_COMPACT:
        return LAYOUT_COMPACT;
    case H5D_CHUNKED:
        return LAYOUT_CHUNKED;
    case H5D_VIRTUAL:
        return LAYOUT_VIRTUAL;
    default:
        return LAYOUT_CONTIGUOUS;
    }
}

/* The name of the other file that holds the bytes, or "". */
static void tell_external(struct set_walk *s)
{
    char file[256] = "";
    off_t offset;
    hsize_t size;

    if (H5Pget_external_count(s->plist) > 0) {
        (void)H5Pget_external(s->plist, 0, sizeof file - 1, file, &offset,
                              &size);
        if (file[0] == '\0')
            memcpy(file, "?", 2);
    }
    kvr__walk_text(s->w, file);
}

/* The space of a virtual dataset is not asked for: HDF5 opens other files for
 * it. */
static void take_extent(struct set_walk *s)
{
    s->rank = -1;
    if (s->layout == LAYOUT_VIRTUAL)
        return;
    s->space = H5Dget_space(s->set);
    if (s->space < 0 || H5Sget_simple_extent_type(s->space) == H5S_NULL)
        return;
    const int rank = H5Sget_simple_extent_ndims(s->space);
    if (rank >= 0 && rank <= INDEX_MAX_RANK &&
        H5Sget_simple_extent_dims(s->space, s->dims, NULL) == rank)
        s->rank = rank;
}

static void tell_filters(struct set_walk *s)
{
    int n = H5Pget_nfilters(s->plist);

    n = n < 0 ? 0 : n > INDEX_MAX_FILTERS ? INDEX_MAX_FILTERS + 1 : n;
    kvr__put_u32(&s->w->out, (uint32_t)n);
    for (int i = 0; i < n && i < INDEX_MAX_FILTERS; i++) {
        unsigned flags = 0, values[16] = {0}, config = 0;
        size_t n_value = 16;
        char name[64] = "";
        const H5Z_filter_t filter =
            H5Pget_filter2(s->plist, (unsigned)i, &flags, &n_value, values,
                           sizeof name, name, &config);
        name[sizeof name - 1] = '\0';
        kvr__put_u32(&s->w->out, (uint32_t)filter);
        kvr__put_u32(&s->w->out, values[0]);
        kvr__walk_text(s->w, name);
    }
}

static void tell_fill(struct set_walk *s)
{
    H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
    uint8_t value[MAX_FILL] = {0};
    const size_t size = H5Tget_size(s->type);
    size_t n = 0;

    if (kvr__walk_reads(s->type) && size <= MAX_FILL &&
        H5Pfill_value_defined(s->plist, &defined) >= 0 &&
        defined == H5D_FILL_VALUE_USER_DEFINED &&
        H5Pget_fill_value(s->plist, s->type, value) >= 0)
        n = size;
    kvr__walk_bytes(s->w, value, n);
}

static bool tell_compact(struct set_walk *s)
{
    const hssize_t n =
        s->rank >= 0 ? H5Sget_simple_extent_npoints(s->space) : 0;
    const size_t size = H5Tget_size(s->type);

    if (s->layout != LAYOUT_COMPACT || n <= 0 || !kvr__walk_reads(s->type) ||
        H5Tis_variable_str(s->type) > 0) {
        kvr__walk_bytes(s->w, "", 0);
        return true;
    }
    if (size == 0 || (uint64_t)n > MAX_COMPACT / size ||
        H5Dget_storage_size(s->set) != (uint64_t)n * size)
        return false;
    uint8_t *data = calloc((size_t)n, size);
    const bool ok = data != NULL && H5Dread(s->set, s->type, H5S_ALL, H5S_ALL,
                                            H5P_DEFAULT, data) >= 0;
    s->w->out.failed |= data == NULL;
    if (ok)
        kvr__walk_bytes(s->w, data, (size_t)n * size);
    free(data);
    return ok;
}

/* ---- chunks ---- */

static bool take_grid(struct set_walk *s)
{
    if (s->rank <= 0 || H5Pget_chunk(s->plist, s->rank, s->chunk) != s->rank)
        return false;
    s->cells = 1;
    for (int i = 0; i < s->rank; i++) {
        if (s->chunk[i] == 0)
            return false;
        s->grid[i] = s->dims[i] == 0 ? 0 : (s->dims[i] - 1) / s->chunk[i] + 1;
        if (!kvr_mul_u64(&s->cells, s->cells, s->grid[i]))
            s->cells = UINT64_MAX;
    }
    return true;
}

/* The chunk after the one at `at`; false: that was the last. */
static bool next_chunk(const struct set_walk *s, hsize_t at[INDEX_MAX_RANK])
{
    for (int i = s->rank; i-- > 0;) {
        if (s->dims[i] - at[i] > s->chunk[i]) {
            at[i] += s->chunk[i];
            return true;
        }
        at[i] = 0;
    }
    return false;
}

static herr_t take_first(unsigned n, const H5E_error2_t *error, void *ud)
{
    if (n == 0)
        *(H5E_error2_t *)ud = *error;
    return 0;
}

/* Whether the first reason on HDF5's stack is that there is no such chunk, and
 * not that the search for it failed. Then the stack is cleared. */
static bool is_absent(void)
{
    static const char *const reasons[] = {"chunk address isn't defined",
                                          "storage is not initialized"};
    H5E_error2_t error = {0};
    bool absent = false;

    if (H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &error) < 0 ||
        error.desc == NULL)
        return false;
    for (int i = 0; i < 2; i++)
        absent = absent || strcmp(error.desc, reasons[i]) == 0;
    if (absent)
        H5Eclear2(H5E_DEFAULT);
    return absent;
}

/* Found as H5Dread finds it, by its coordinates; nothing is read. */
static bool tell_chunk(struct set_walk *s, const hsize_t *at, uint64_t cell)
{
    struct h5_source *source = &s->w->source;
    uint32_t skipped = 0;
    uint8_t nothing = 0;

    source->noting = true;
    source->n = 0;
    const herr_t found =
        H5Dread_chunk(s->set, H5P_DEFAULT, at, &skipped, &nothing);
    source->noting = false;
    if (found < 0)
        return is_absent();
    if (source->n == 0)
        return false;
    kvr__put_u32(&s->w->out, TAG_PLACE);
    kvr__put_u64(&s->w->out, cell);
    kvr__put_u64(&s->w->out, source->at);
    kvr__put_u64(&s->w->out, source->n);
    kvr__put_u64(&s->w->out, skipped);
    kvr__walk_send(s->w, false);
    return true;
}

static void tell_chunks(struct set_walk *s)
{
    hsize_t at[INDEX_MAX_RANK] = {0};
    const uint64_t plausible = s->w->source.size <= UINT64_MAX / BEST_RATIO
                                   ? s->w->source.size * BEST_RATIO
                                   : UINT64_MAX;
    uint64_t bytes = H5Tget_size(s->type);

    for (int i = 0; i < s->rank; i++)
        if (!kvr_mul_u64(&bytes, bytes, s->dims[i]))
            bytes = UINT64_MAX;
    /* the parent refuses what does not come out of the bytes stored */
    if (s->cells == 0 || (bytes > plausible && bytes > 4096))
        return;
    if (s->cells > s->w->cells_left) {
        kvr__walk_problem(s->w, TAG_PROBLEM,
                          "more chunks than a file of this size tells of");
        return;
    }
    s->w->cells_left -= s->cells;
    for (uint64_t cell = 0; cell < s->cells; cell++) {
        if (cell % 16 == 0)
            kvr__child_step(s->w->child, "the chunks of a dataset", "");
        if (!tell_chunk(s, at, cell)) {
            kvr__walk_problem(s->w, TAG_PROBLEM,
                              "the place of a chunk cannot be found: damaged");
            return;
        }
        if (!next_chunk(s, at))
            return;
    }
}

/* ---- all of it ---- */

static void tell_storage(struct set_walk *s)
{
    const bool one = s->layout == LAYOUT_CONTIGUOUS;
    const haddr_t offset = one ? H5Dget_offset(s->set) : HADDR_UNDEF;
    const bool sized = one || s->layout == LAYOUT_COMPACT;

    kvr__put_u64(&s->w->out, offset != HADDR_UNDEF ? offset : UINT64_MAX);
    kvr__put_u64(&s->w->out, sized ? H5Dget_storage_size(s->set) : 0);
    H5Eclear2(H5E_DEFAULT);
}

static void tell_set(struct set_walk *s)
{
    struct bytes *out = &s->w->out;
    const size_t before = out->n;

    take_extent(s);
    const bool chunked = s->layout == LAYOUT_CHUNKED;
    const bool grid = !chunked || take_grid(s);
    kvr__put_u32(out, TAG_SET);
    kvr__walk_type(s->w, s->type);
    kvr__put_u32(out, (uint32_t)s->rank);
    for (int i = 0; i < INDEX_MAX_RANK; i++) {
        kvr__put_u64(out, s->dims[i]);
        kvr__put_u64(out, s->chunk[i]);
        kvr__put_u64(out, s->grid[i]);
    }
    kvr__put_u32(out, s->layout);
    tell_external(s);
    tell_storage(s);
    tell_filters(s);
    tell_fill(s);
    unsigned options = 0;
    if (chunked && H5Pget_chunk_opts(s->plist, &options) < 0)
        options = 0;
    kvr__put_u32(out, options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    if (!tell_compact(s) || !grid) {
        out->n = before;
        kvr__walk_problem(s->w, TAG_PROBLEM, "its storage cannot be told");
    } else if (chunked) {
        tell_chunks(s);
    }
}

void kvr__walk_set(struct h5_walk *w, hid_t set)
{
    struct set_walk s = {.w = w, .set = set, .space = -1};

    kvr__child_step(w->child, "a dataset", "");
    s.plist = H5Dget_create_plist(set);
    s.type = H5Dget_type(set);
    if (s.plist < 0 || s.type < 0) {
        kvr__walk_problem(w, TAG_PROBLEM, "its description cannot be read");
    } else {
        s.layout = layout_of(s.plist);
        tell_set(&s);
    }
    if (s.plist >= 0)
        H5Pclose(s.plist);
    if (s.type >= 0)
        H5Tclose(s.type);
    if (s.space >= 0)
        H5Sclose(s.space);
}
