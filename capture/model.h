/* model.h -- a model file opened and checked, and its weights on a device.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MODEL_H
#define MODEL_H

#include "backend.h"
#include "family.h"
#include "gguf.h"
#include "kvr_hash.h"

struct kvr_model {
    struct kvr_gguf *gguf;
    const struct kvr_family *family;
    struct kvr_config config;
    char name[128];           /* general.name, or the file's; printable */
    char quantisation[128];   /* types by bytes, most first: "Q4_1 Q8_0 F32" */
    char hash[KVR_HASH_TEXT]; /* of the tensors' bytes, by name */
    uint64_t weight_bytes;
    float *inv_freq; /* [rope_dim / 2]: radians per position, scaling done */

    /* Checked tensors of the file: [KVR_N_MODEL_SLOT], then
     * [n_layer * KVR_N_LAYER_SLOT]. NULL: absent and optional. */
    const struct kvr_gguf_tensor *model_file[KVR_N_MODEL_SLOT];
    const struct kvr_gguf_tensor **layer_file;
};

/* Opens a GGUF model and checks all it needs: architecture, every tensor's
 * type and shape, every metadata key that could change attention. Nothing is
 * decoded. KVR_ERR_UNSUPPORTED names what is not supported and what is.
 * kvr_model_fini may be called after a failure too. */
enum kvr_status kvr_model_init(struct kvr_model *model, const char *path,
                               struct kvr_error *err) KVR_MUST_CHECK;
void kvr_model_fini(struct kvr_model *model);

/* The weights on a device, in the decoder's order of rows. */
struct kvr_weights {
    struct kvr_tensor *model[KVR_N_MODEL_SLOT]; /* OUTPUT always set */
    struct kvr_tensor **layers; /* [n_layer * KVR_N_LAYER_SLOT], may be NULL */
    uint8_t **copies;           /* rows in another order than in the file */
    size_t n_copies;
};

/* Free after the device is closed: the device borrows. */
enum kvr_status kvr_weights_init(struct kvr_weights *weights,
                                 const struct kvr_model *model,
                                 const struct kvr_backend *backend,
                                 struct kvr_device *device,
                                 struct kvr_error *err) KVR_MUST_CHECK;
void kvr_weights_fini(struct kvr_weights *weights);

#endif
