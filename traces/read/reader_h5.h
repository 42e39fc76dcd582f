/* reader_h5.h -- the parts of kvr_trace_open that look into a file's index.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef READER_H5_H
#define READER_H5_H

#include "h5_data.h"
#include "reader.h"

/* Format, version, root and model attributes, and the layers' shapes into
 * trace->box; T and dtype come from the first layer's attention. */
enum kvr_status kvr__load_shape(struct kvr_trace *trace,
                                const struct h5_index *file,
                                struct kvr_error *err);
/* Group of stored layer `layer`. */
enum kvr_status kvr__find_layer(const struct h5_object **out,
                                const struct kvr_trace *trace,
                                const struct h5_index *file, uint32_t layer,
                                struct kvr_error *err);
/* Where the chunks of a dataset of rows lie, if it is there. */
enum kvr_status kvr__load_rows(struct kvr_trace *trace,
                               const struct h5_index *file,
                               const struct h5_object *group, uint32_t layer,
                               enum row_set set, struct kvr_error *err);
enum kvr_status kvr__load_mlp(struct kvr_trace *trace,
                              const struct h5_index *file,
                              const struct h5_object *group, uint32_t layer,
                              struct kvr_error *err);
enum kvr_status kvr__load_arrays(struct kvr_trace *trace,
                                 const struct h5_index *file,
                                 const struct h5_object *group, uint32_t layer,
                                 struct kvr_error *err);
enum kvr_status kvr__load_tokens(struct kvr_trace *trace,
                                 const struct h5_index *file,
                                 struct kvr_error *err);
#endif
