/* keys.h -- the metadata keys of the families (hf_keys.c, model_gguf.c).
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KEYS_H
#define KEYS_H

#include "family.h"

#include <jansson.h>

extern const struct kvr_key kvr_gguf_llama_keys[];

extern const struct kvr_key kvr_hf_llama_keys[];
extern const struct kvr_key kvr_hf_mistral_keys[];
extern const struct kvr_key kvr_hf_qwen2_keys[];
extern const struct kvr_key kvr_hf_qwen3_keys[];
extern const struct kvr_key kvr_hf_phi3_keys[];
extern const struct kvr_key kvr_hf_gemma2_keys[];
extern const struct kvr_key kvr_hf_gemma3_keys[];
extern const struct kvr_key kvr_hf_gpt2_keys[];
extern const struct kvr_key kvr_hf_opt_keys[];
extern const struct kvr_key kvr_hf_neox_keys[];

/* Does the family know the key, or does it mean nothing to any? */
bool kvr_hf_key_known(const struct kvr_family *family, const char *name);

#endif
