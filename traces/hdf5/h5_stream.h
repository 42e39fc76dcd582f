/* h5_stream.h -- what the child that reads an HDF5 file tells its parent:
 * items, each with a tag, the numbers little-endian.
 *
 * TAG_OBJECT begins an object, in the order of their numbers; what follows
 * belongs to it. A text is its length (u32), its bytes and a 0.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef H5_STREAM_H
#define H5_STREAM_H

enum h5_tag {
    TAG_OBJECT = 1,   /* u32 enum h5_object_kind */
    TAG_PROBLEM,      /* text */
    TAG_ATTR_PROBLEM, /* text */
    TAG_LINK,         /* text, u32 enum h5_link_kind, u32 object */
    TAG_ATTR,         /* text, type, u64 n, u32 read?, bytes like a text */
    TAG_SET,          /* see h5_walk_set.c */
    TAG_PLACE,        /* u64 cell, offset, size, skipped */
    TAG_FAILED,       /* u32 1: the system's reason; text */
    TAG_END,          /* u32 objects */
};

#endif
