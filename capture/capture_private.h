/* capture_private.h -- shared by the files that make up a capture.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CAPTURE_PRIVATE_H
#define CAPTURE_PRIVATE_H

#include "backend.h"
#include "decoder.h"
#include "kvr_capture.h"
#include "model.h"
#include "tokenizer.h"

enum { KVR_BOS_TEXT = 128 };

struct kvr_capture {
    struct kvr_capture_options options;
    struct kvr_model model;
    struct kvr_tokenizer *tokenizer; /* NULL: the model has none */
    const struct kvr_backend *backend;
    char backend_why[KVR_BACKEND_WHY];
    struct kvr_compute_plan compute;
    struct kvr_ids tokens; /* given, then generated */
    uint32_t first_text;   /* index of the first token after an added BOS */
    uint32_t prompt_chunk;
    char bos[KVR_BOS_TEXT];
    struct kvr_capture_plan plan;
    bool *layer_wanted, *head_wanted; /* [n_layer], [n_head] */
    struct kvr_layer_shape *shapes;   /* [stored_layers] */
    uint32_t *head_index;             /* [stored_heads] */
    uint32_t *layer_slot, *head_slot; /* where a wanted one is stored */
    struct kvr_trace_shape shape;
    bool ran;
};

/* Reads the prompt into capture->tokens and says in capture->bos what was
 * done about BOS. */
enum kvr_status kvr__capture_read_prompt(struct kvr_capture *capture,
                                         struct kvr_error *err) KVR_MUST_CHECK;

/* How its decoder is made. */
struct kvr_decoder_options
kvr__capture_decoder(const struct kvr_capture *capture);

/* Rows, norms and tokens on their way to the writer (record.c). */
struct kvr_recorder {
    struct kvr_capture *capture;
    struct kvr_writer *writer;
    float *lse, *mass; /* [stored_layers][stored_heads][prompt_chunk] */
    float *gathered;   /* [stored_heads][prompt_chunk] */
    float *vectors;    /* [prompt_chunk][stored_heads * widest head] */
    float *log_prob;   /* [n_token_max]; NaN where not known */
    struct kvr_observer observer;
};

/* Opens the output. */
enum kvr_status kvr__recorder_init(struct kvr_recorder *recorder,
                                   struct kvr_capture *capture,
                                   struct kvr_error *err) KVR_MUST_CHECK;
/* Logits [n_vocab] after token `index`, where they are stored. */
enum kvr_status kvr__recorder_logits(struct kvr_recorder *recorder,
                                     uint32_t index, const float *logits,
                                     struct kvr_error *err) KVR_MUST_CHECK;
/* A kvr_deferred_fn: the tokens of a feed, all else of which was taken; ud is
 * the recorder. */
enum kvr_status kvr__recorder_commit(void *ud, uint32_t first, uint32_t n,
                                     struct kvr_error *err) KVR_MUST_CHECK;
/* The finished trace. */
enum kvr_status kvr__recorder_finish(struct kvr_recorder *recorder,
                                     struct kvr_error *err) KVR_MUST_CHECK;
/* Frees; what was not finished is given up. */
void kvr__recorder_fini(struct kvr_recorder *recorder);

#endif
