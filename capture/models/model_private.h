/* model_private.h -- shared by the files that open a model.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MODEL_PRIVATE_H
#define MODEL_PRIVATE_H

#include "model.h"

/* Bounds that no model comes near; they keep products in range. */
enum { KVR_MAX_DIM = 1 << 24, KVR_MAX_LAYERS = 1 << 14 };

/* Each opens the files and fills family, config, layers, stored and name. */
enum kvr_status kvr__model_open_gguf(struct kvr_model *model, const char *path,
                                     struct kvr_error *err) KVR_MUST_CHECK;
enum kvr_status kvr__model_open_hf(struct kvr_model *model, const char *path,
                                   struct kvr_error *err) KVR_MUST_CHECK;
/* Is `path` a Hugging Face folder, or one of its files? */
bool kvr__model_is_hf(const char *path);

/* What was not stated follows from what was; then all is checked. Sets
 * layers, from the config's window, where they are not set. */
enum kvr_status kvr__model_derive(struct kvr_model *model,
                                  struct kvr_error *err) KVR_MUST_CHECK;
/* By the config's rule, where no list says it. */
static inline bool kvr_layer_has_window(const struct kvr_config *c,
                                        uint32_t layer)
{
    return c->use_window && layer >= c->window_from &&
           (c->window_period == 0 || (layer + 1) % c->window_period != 0);
}
/* Printable; cut where it is long. */
void kvr__model_set_name(struct kvr_model *model, struct kvr_slice name);
/* Room for n tensors. */
enum kvr_status kvr__model_new_stored(struct kvr_model *model, size_t n,
                                      struct kvr_error *err) KVR_MUST_CHECK;

/* Is the slot's matrix stored [in, out]? Tables of tokens never are. */
static inline bool kvr_model_turned(const struct kvr_model *model,
                                    const struct kvr_slot_shape *shape)
{
    return model->format == KVR_FORMAT_HF && model->family->hf_in_out &&
           shape->rows != KVR_DIM_ONE && shape->rows != KVR_DIM_VOCAB &&
           shape->rows != KVR_DIM_CONTEXT;
}

/* config.json (hf_config.c) into family, config and layers. */
enum kvr_status kvr__hf_read_config(struct kvr_model *model,
                                    struct kvr_error *err) KVR_MUST_CHECK;

#endif
