/* keys.h -- the metadata keys of the families (hf_keys.c, gguf_keys.c).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KEYS_H
#define KEYS_H

#include "family.h"
#include "gguf.h"

/* Rows of the tables: into a field of struct kvr_config, ... */
#define KEY(name, kind, field, required) \
    { \
        name, kind, offsetof(struct kvr_config, field), required, false \
    }
/* ... that null may leave open, ... */
#define OPEN(name, kind, field) \
    { \
        name, kind, offsetof(struct kvr_config, field), false, true \
    }
#define U32(name, field, required) KEY(name, KVR_KEY_U32, field, required)
#define COUNT(name, field, required) KEY(name, KVR_KEY_COUNT, field, required)
#define REAL(name, field, required) KEY(name, KVR_KEY_REAL, field, required)
#define POSITIVE(name, field, required) \
    KEY(name, KVR_KEY_POSITIVE, field, required)
#define BOOL(name, field, required) KEY(name, KVR_KEY_BOOL, field, required)
#define ACTIVATION(name, field, required) \
    KEY(name, KVR_KEY_ACTIVATION, field, required)
/* ... or nowhere: n_layer stands for no field. */
#define ONLY_TRUE(name) KEY(name, KVR_KEY_TRUE, n_layer, false)
#define ONLY_FALSE(name) KEY(name, KVR_KEY_FALSE, n_layer, false)
#define READ(name) KEY(name, KVR_KEY_READ, n_layer, false)
#define INERT(name) KEY(name, KVR_KEY_INERT, n_layer, false)
#define END INERT(NULL)

extern const struct kvr_key kvr__gguf_plain_keys[];
extern const struct kvr_key kvr__gguf_phi3_keys[];
extern const struct kvr_key kvr__gguf_gemma2_keys[];
extern const struct kvr_key kvr__gguf_gemma3_keys[];
extern const struct kvr_key kvr__gguf_gpt2_keys[];
extern const struct kvr_key kvr__gguf_neox_keys[];

extern const struct kvr_key kvr__hf_llama_keys[];
extern const struct kvr_key kvr__hf_mistral_keys[];
extern const struct kvr_key kvr__hf_qwen2_keys[];
extern const struct kvr_key kvr__hf_qwen3_keys[];
extern const struct kvr_key kvr__hf_phi3_keys[];
extern const struct kvr_key kvr__hf_gemma2_keys[];
extern const struct kvr_key kvr__hf_gemma3_keys[];
extern const struct kvr_key kvr__hf_gpt2_keys[];
extern const struct kvr_key kvr__hf_opt_keys[];
extern const struct kvr_key kvr__hf_neox_keys[];

/* Does the family know the key, or does it mean nothing to any? */
bool kvr__hf_key_known(const struct kvr_family *family, const char *name);
/* Is that the value of an unknown key which changes nothing: what the format's
 * reference implementation takes where the key is absent? rest: behind the
 * architecture's name. */
bool kvr__gguf_is_default(struct kvr_slice rest,
                          const struct kvr_gguf_value *value);

#endif
