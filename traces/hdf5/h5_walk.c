/* h5_walk.c -- every object of a file once, with its links.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "h5_walk.h"

#include "h5_index.h"
#include "h5_stream.h"
#include "kvr_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEND_BYTES = 1 << 16, MORE_LINKS = 1000, MORE_CELLS = 1 << 20 };

void kvr__walk_text(struct h5_walk *w, const char *text)
{
    kvr__walk_bytes(w, text, strlen(text));
}

void kvr__walk_bytes(struct h5_walk *w, const void *data, size_t n)
{
    kvr__put_u32(&w->out, (uint32_t)n);
    kvr__put(&w->out, data, n);
    kvr__put(&w->out, "", 1);
}

void kvr__walk_send(struct h5_walk *w, bool now)
{
    size_t done = 0;

    if (!now && w->out.n < SEND_BYTES)
        return;
    while (done < w->out.n && !w->out.failed) {
        const ssize_t n =
            write(w->child->out, w->out.data + done, w->out.n - done);
        if (n < 0 && errno == EINTR)
            continue;
        w->out.failed = n <= 0;
        done += n > 0 ? (size_t)n : 0;
    }
    w->out.n = 0;
}

void kvr__walk_problem(struct h5_walk *w, uint32_t tag, const char *what)
{
    char reason[H5_REASON_TEXT], text[512];

    (void)kvr__h5_reason(reason);
    snprintf(text, sizeof text, "%s%s%s", what, reason[0] != '\0' ? ": " : "",
             reason);
    kvr__put_u32(&w->out, tag);
    kvr__walk_text(w, text);
}

/* ---- objects seen ---- */

static size_t slot_of(const struct h5_seen *seen, haddr_t address)
{
    size_t at = (size_t)(address * 0x9e3779b97f4a7c15u >> 20);

    for (;; at++) {
        at &= seen->n_slot - 1;
        if (seen->slot[at] == 0 || seen->address[seen->slot[at] - 1] == address)
            return at;
    }
}

static bool more_slots(struct h5_seen *seen)
{
    const size_t n = seen->n_slot == 0 ? 256 : 2 * seen->n_slot;
    uint32_t *slot = kvr_calloc(n, sizeof *slot);

    if (slot == NULL)
        return false;
    free(seen->slot);
    seen->slot = slot;
    seen->n_slot = n;
    for (size_t i = 0; i < seen->n; i++)
        seen->slot[slot_of(seen, seen->address[i])] = (uint32_t)i + 1;
    return true;
}

/* The number of an object, a new one where it was not seen. */
static bool number_of(uint32_t *number, struct h5_walk *w, haddr_t address)
{
    struct h5_seen *seen = &w->seen;

    w->out.failed |= 2 * (seen->n + 1) > seen->n_slot && !more_slots(seen);
    if (w->out.failed)
        return false;
    const size_t at = slot_of(seen, address);
    if (seen->slot[at] == 0) {
        w->out.failed |= seen->n >= UINT32_MAX - 1 ||
                         !kvr_grow((void **)&seen->address, &seen->capacity,
                                   seen->n + 1, sizeof *seen->address);
        if (w->out.failed)
            return false;
        seen->address[seen->n++] = address;
        seen->slot[at] = (uint32_t)seen->n;
    }
    *number = seen->slot[at] - 1;
    return true;
}

/* ---- links ---- */

/* Names of an old group end within its heap, or HDF5 1.10 reads past it:
 * together, each with its 0 and filled up to 8 bytes, they fit. */
struct name_room {
    uint64_t used, room; /* room 0: names are stored otherwise */
    bool exceeded;
};

struct link_walk {
    struct h5_walk *w;
    struct name_room names;
    bool failed; /* told already */
};

static void measure_heap(struct name_room *names, hid_t group)
{
    enum { HEAP_HEADER = 32 };
    H5O_info_t info;

    *names = (struct name_room){.used = 8}; /* an empty name is first */
    if (H5Oget_info2(group, &info, H5O_INFO_META_SIZE) >= 0 &&
        info.meta_size.obj.heap_size > HEAP_HEADER)
        names->room = info.meta_size.obj.heap_size - HEAP_HEADER;
}

static herr_t tell_link(hid_t group, const char *name, const H5L_info_t *info,
                        void *ud)
{
    struct link_walk *links = ud;
    struct h5_walk *w = links->w;
    const bool hard = info->type == H5L_TYPE_HARD;
    uint32_t number = 0;

    (void)group;
    kvr__child_step(w->child, "link ", name);
    links->names.used += (strlen(name) + 8) / 8 * 8;
    if (links->names.room != 0 && links->names.used > links->names.room) {
        links->names.exceeded = true;
        return 1;
    }
    if (w->links_left-- == 0 ||
        (hard && !number_of(&number, w, info->u.address)))
        return -1;
    kvr__put_u32(&w->out, TAG_LINK);
    kvr__walk_text(w, name);
    kvr__put_u32(&w->out, hard ? LINK_HARD : LINK_FOREIGN);
    kvr__put_u32(&w->out, number);
    kvr__walk_send(w, false);
    return 0;
}

static void tell_links(struct h5_walk *w, hid_t group)
{
    struct link_walk links = {.w = w};
    H5G_info_t info;
    hsize_t next = 0;

    kvr__child_step(w->child, "the links of a group", "");
    /* an old group has a heap; the size of a new one's tells nothing */
    if (H5Gget_info(group, &info) >= 0 &&
        info.storage_type == H5G_STORAGE_TYPE_SYMBOL_TABLE)
        measure_heap(&links.names, group);
    const herr_t walked =
        H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &next, tell_link, &links);
    if (links.names.exceeded)
        kvr__walk_problem(w, TAG_PROBLEM,
                          "a name in its groups has no end: damaged");
    else if (walked < 0)
        kvr__walk_problem(w, TAG_PROBLEM, "its members cannot be listed");
}

/* ---- objects ---- */

static enum h5_object_kind kind_of(hid_t object)
{
    switch (H5Iget_type(object)) {
    case H5I_GROUP:
        return OBJECT_GROUP;
    case H5I_DATASET:
        return OBJECT_SET;
    default:
        return OBJECT_OTHER;
    }
}

static void tell_object(struct h5_walk *w, haddr_t address)
{
    kvr__child_step(w->child, "an object", "");
    const hid_t object = H5Oopen_by_addr(w->file, address);
    const enum h5_object_kind kind =
        object >= 0 ? kind_of(object) : OBJECT_OTHER;
    kvr__put_u32(&w->out, TAG_OBJECT);
    kvr__put_u32(&w->out, kind);
    if (object < 0) {
        kvr__walk_problem(w, TAG_PROBLEM, "cannot be opened");
        return;
    }
    if (kind == OBJECT_GROUP)
        tell_links(w, object);
    if (kind == OBJECT_SET)
        kvr__walk_set(w, object);
    if (kind != OBJECT_OTHER)
        kvr__walk_attrs(w, object);
    H5Oclose(object);
    H5Eclear2(H5E_DEFAULT);
}

static void tell_failure(struct h5_walk *w, const char *what)
{
    char reason[H5_REASON_TEXT], text[512];
    const bool stack = kvr__h5_reason(reason) != 0;

    if (w->source.error != 0)
        snprintf(reason, sizeof reason, "%s", strerror(w->source.error));
    snprintf(text, sizeof text, "%s%s%s", what, reason[0] != '\0' ? ": " : "",
             reason);
    kvr__put_u32(&w->out, TAG_FAILED);
    kvr__put_u32(&w->out, stack || w->source.error != 0);
    kvr__walk_text(w, text);
}

static bool begin(struct h5_walk *w, const char *path)
{
    size_t address = 0, size = 0;
    H5O_info_t info;
    uint32_t root;

    kvr__h5_quiet();
    kvr__child_step(w->child, "its beginning", "");
    w->file = kvr__source_open(&w->source, path);
    if (w->file < 0) {
        tell_failure(w, "cannot be opened as HDF5");
        return false;
    }
    const hid_t plist = H5Fget_create_plist(w->file);
    if (plist < 0 || H5Pget_sizes(plist, &address, &size) < 0 ||
        H5Oget_info2(w->file, &info, H5O_INFO_BASIC) < 0 ||
        !number_of(&root, w, info.addr)) {
        tell_failure(w, "its root cannot be opened");
        return false;
    }
    H5Pclose(plist);
    w->variable_bytes = 4 + address + 4; /* length, heap, place in it */
    return true;
}

void kvr__h5_walk(const struct child *child, void *ud)
{
    const off_t size = lseek(child->keep, 0, SEEK_END);
    struct h5_walk w = {.child = child,
                        .source = {.fd = child->keep, .size = (uint64_t)size}};

    /* a link or a chunk's place takes some bytes of the file: more of them
     * than that are told by a tree that runs in circles */
    w.links_left = w.source.size / 4 + MORE_LINKS;
    w.cells_left = w.source.size + MORE_CELLS;
    if (size > 0 && begin(&w, ud)) {
        for (size_t i = 0; i < w.seen.n && w.source.error == 0; i++) {
            tell_object(&w, w.seen.address[i]);
            kvr__walk_send(&w, i % 16 == 0); /* a word now and then */
        }
        if (w.source.error != 0)
            tell_failure(&w, "cannot be read");
    }
    if (w.out.failed)
        _exit(CHILD_NO_MEMORY);
    kvr__put_u32(&w.out, TAG_END);
    kvr__put_u32(&w.out, (uint32_t)w.seen.n);
    kvr__walk_send(&w, true);
}
