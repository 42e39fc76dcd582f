/* model.h -- a model opened and checked, and its weights on a device.
 *
 * A model is a GGUF file or a Hugging Face folder (config.json beside
 * safetensors). Both are read into the same description.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MODEL_H
#define MODEL_H

#include "backend.h"
#include "family.h"
#include "gguf.h"
#include "kvr_hash.h"
#include "safetensors.h"

/* A tensor as it is stored, whatever the file: rows of cols values. */
struct kvr_stored {
    struct kvr_slice name;
    uint32_t type; /* enum kvr_quant */
    uint64_t rows, cols;
    const uint8_t *data;
    uint64_t size; /* bytes */
    bool used;     /* some slot asked for it */
};

/* Where layers of one model differ. */
struct kvr_layer_kind {
    uint32_t span; /* keys that a row sees, its own included; 0: all */
    bool local;    /* rotates by inv_freq_local */
};

struct kvr_model {
    enum kvr_format format;
    struct kvr_gguf *gguf; /* one of these two, the other NULL */
    struct kvr_safetensors *safetensors;
    char *path;   /* for messages: the GGUF file, or config.json */
    char *folder; /* of a Hugging Face model; NULL */
    const struct kvr_family *family;
    struct kvr_config config;
    char name[128];           /* general.name, or the file's; UTF-8 */
    char quantisation[128];   /* types by bytes, most first: "Q4_1 Q8_0 F32" */
    char hash[KVR_HASH_TEXT]; /* of the tensors' bytes, by name */
    uint64_t weight_bytes;
    float *inv_freq; /* [rope_dim / 2]: radians per position, scaling done;
                      * NULL: no rotation */
    float *inv_freq_local;         /* of window layers; NULL: the same */
    struct kvr_layer_kind *layers; /* [n_layer] */

    struct kvr_stored *stored; /* by name */
    size_t n_stored;
    /* Checked tensors: [KVR_N_MODEL_SLOT], then
     * [n_layer * KVR_N_LAYER_SLOT]. NULL: absent and optional. Slots of a
     * fused tensor name the same one. */
    const struct kvr_stored *model_file[KVR_N_MODEL_SLOT];
    const struct kvr_stored **layer_file;
};

/* Opens a GGUF file, a folder, its config.json or its .safetensors file, and
 * checks all that is needed: architecture, every tensor's type and shape,
 * every key that could change attention. Nothing is decoded.
 * KVR_ERR_UNSUPPORTED names what is not supported and what is.
 * kvr__model_fini may be called after a failure too. */
enum kvr_status kvr__model_init(struct kvr_model *model, const char *path,
                                struct kvr_error *err) KVR_MUST_CHECK;
void kvr__model_fini(struct kvr_model *model);

/* The weights on a device, in the decoder's order of rows. */
struct kvr_weights {
    struct kvr_tensor *model[KVR_N_MODEL_SLOT]; /* OUTPUT always set */
    struct kvr_tensor **layers; /* [n_layer * KVR_N_LAYER_SLOT], may be NULL */
    uint8_t **copies;           /* rows in another order than in the file */
    size_t n_copies;
};

/* Free after the device is closed: the device borrows. */
enum kvr_status kvr__weights_init(struct kvr_weights *weights,
                                  const struct kvr_model *model,
                                  const struct kvr_backend *backend,
                                  struct kvr_device *device,
                                  struct kvr_error *err) KVR_MUST_CHECK;
void kvr__weights_fini(struct kvr_weights *weights);
/* Memory that kvr__weights_init takes for copies. */
uint64_t kvr__weights_bytes(const struct kvr_model *model);

#endif
