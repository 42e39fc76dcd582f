/* reader_h5.h -- the parts of kvr_trace_open that talk to HDF5.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef READER_H5_H
#define READER_H5_H

#include "h5_dataset.h"
#include "reader.h"

/* Format, version, root and model attributes, and the layers' shapes into
 * trace->box; T and dtype come from the first layer's attention. */
enum kvr_status kvr__load_shape(struct kvr_trace *trace, hid_t file,
                                struct kvr_error *err);
/* To be asked of an object before its attributes are read: KVR_ERR_INPUT
 * where one says that it is longer than its place in the file (h5_vlen.h). */
enum kvr_status kvr__check_attributes(const struct kvr_trace *trace,
                                      hid_t object, const char *where,
                                      struct kvr_error *err);
/* Group of stored layer `layer`; close it. Negative: err is filled. */
hid_t kvr__open_layer(const struct kvr_trace *trace, hid_t file, uint32_t layer,
                      struct kvr_error *err);
/* Where the chunks of a dataset of rows lie, if it is there. */
enum kvr_status kvr__load_rows(struct kvr_trace *trace, hid_t group,
                               uint32_t layer, enum row_set set,
                               struct kvr_error *err);
enum kvr_status kvr__load_mlp(struct kvr_trace *trace, hid_t group,
                              uint32_t layer, struct kvr_error *err);
enum kvr_status kvr__load_arrays(struct kvr_trace *trace, hid_t group,
                                 uint32_t layer, struct kvr_error *err);
enum kvr_status kvr__load_tokens(struct kvr_trace *trace, hid_t file,
                                 struct kvr_error *err);
#endif
