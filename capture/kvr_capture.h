/* kvr_capture.h -- recording the attention of a real decoding run.
 *
 * kvr_capture_new opens the model, turns the prompt into tokens and makes the
 * plan; nothing is computed or written. kvr_capture_run decodes and writes
 * the trace. The library prints nothing: warnings go through kvr_log.
 * Not thread-safe; it uses threads of its own.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_CAPTURE_H
#define KVR_CAPTURE_H

#include "kvr_error.h"
#include "kvr_trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum kvr_capture_backend {
    KVR_CAPTURE_AUTO,
    KVR_CAPTURE_CPU,
    KVR_CAPTURE_CUDA
};

/* What products are computed from; sums are f32. AUTO: f32 where that fits
 * into the device's memory, else the half type that the model is stored in. */
enum kvr_capture_compute {
    KVR_CAPTURE_COMPUTE_AUTO,
    KVR_CAPTURE_COMPUTE_F32,
    KVR_CAPTURE_COMPUTE_F16,
    KVR_CAPTURE_COMPUTE_BF16
};

/* What rows are stored as: themselves, the queries and keys that they are
 * recomputed from, or both. */
enum kvr_capture_store {
    KVR_CAPTURE_ATTENTION,
    KVR_CAPTURE_QK,
    KVR_CAPTURE_BOTH
};

/* What is stored beside them, bits of `with`. Norms are unless no_norms. */
enum {
    KVR_CAPTURE_VALUES = 1, /* value vectors, f16 where that holds them */
    KVR_CAPTURE_MLP = 2,    /* mlp_mass and mlp_active */
    KVR_CAPTURE_LOGITS = 4, /* /tokens/logits, f32 */
};

/* Plain data, borrowed until kvr_capture_free. Zero means the default. */
struct kvr_capture_options {
    const char *model;  /* GGUF file, Hugging Face folder, or a file in it */
    const char *output; /* trace; NULL where only the plan is wanted */
    /* Exactly one source. "-" as a file: standard input. */
    const char *prompt;      /* text, zero-terminated */
    const char *prompt_file; /* text: its bytes, whatever they are */
    const char *ids_file;    /* decimal ids between white space or commas */
    uint32_t n_generate;
    uint32_t prompt_len; /* the rest is teacher-forced; 0: all that is given */
    const char *tokenizer; /* a tokenizer.json in place of the model's own */
    const char *chat;   /* NULL: the text as it is. Else it is the message of a
                         * chat: "auto" by the model's template, or the name of
                         * a form (chatml, llama-2, llama-3, gemma, phi-3,
                         * zephyr) */
    bool no_special;    /* special-token strings are plain text */
    bool ignore_eos;    /* generate on after an end token */
    double temperature; /* 0: greedy */
    double top_p;       /* 0 or 1: all */
    uint64_t seed;
    enum kvr_capture_backend backend;
    enum kvr_capture_compute compute;
    const char *layers, *heads; /* lists such as "0,4-7"; NULL: all. Heads
                                 * are query heads, whole groups only */
    enum kvr_dtype dtype;       /* of attention, queries and keys */
    uint32_t round_bits; /* f16 mantissa bits kept of attention; 0: all */
    enum kvr_capture_store store;
    uint32_t with; /* KVR_CAPTURE_VALUES, .. */
    bool no_norms;
    uint32_t prompt_chunk; /* tokens fed at a time; 0: 256 */
    uint32_t threads;      /* 0: processors */
    uint64_t memory;       /* bytes; 0: no limit */
    bool force, sync;      /* as in struct kvr_writer_options */
    /* Provenance for the trace, NULL: not recorded. */
    const char *writer, *created, *command_line;
};

/* What will be done. Strings are borrowed until kvr_capture_free. */
struct kvr_capture_plan {
    const char *model_name, *architecture, *quantisation;
    const char *backend, *backend_why;
    const char *compute;                 /* as the trace records it */
    const char *bos;                     /* what was done about a BOS token */
    const char *chat;                    /* the form; NULL: no chat */
    uint32_t n_layer, n_head, n_kv_head; /* of the model */
    uint32_t stored_layers, stored_heads, stored_kv_heads; /* per layer */
    uint32_t n_given, prompt_len, n_token_max;
    uint64_t raw_bytes, expected_bytes; /* of the trace */
    uint64_t logits_bytes;              /* of them, where they are stored */
    uint64_t disk_bytes; /* needed while writing: journal and trace */
    uint64_t disk_free;  /* UINT64_MAX: not known, or no output named */
    uint64_t memory_bytes;
    uint64_t device_bytes; /* of a device's own memory; 0: it has none */
};

struct kvr_capture_result {
    uint32_t n_token;
    bool ended; /* at an end token, before n_generate */
    double prompt_seconds, decode_seconds; /* wall clock */
    uint32_t n_generated;
};

/* One token of the run; text is borrowed until kvr_capture_free. */
struct kvr_capture_token {
    int32_t id;
    const uint8_t *text; /* NULL: the model has no tokenizer */
    size_t text_size;
    enum kvr_token_class class_of;
};

struct kvr_capture;

/* KVR_ERR_USAGE: an option that this model or prompt does not allow;
 * KVR_ERR_INPUT, KVR_ERR_UNSUPPORTED: the model or the prompt. */
enum kvr_status kvr_capture_new(struct kvr_capture **out,
                                const struct kvr_capture_options *options,
                                struct kvr_error *err) KVR_MUST_CHECK;
void kvr_capture_free(struct kvr_capture *capture);

const struct kvr_capture_plan *
kvr_capture_plan(const struct kvr_capture *capture);

/* Tokens: those given, after a run also those generated. */
uint32_t kvr_capture_n_token(const struct kvr_capture *capture);
struct kvr_capture_token kvr_capture_token(struct kvr_capture *capture,
                                           uint32_t index);

/* Tokens done so far, of at most `total`. */
typedef void (*kvr_capture_progress)(uint32_t done, uint32_t total, void *ud);

/* Once. Refuses before the first token what does not fit on the disk or in
 * `memory` (KVR_ERR_LIMIT) and an output that exists (KVR_ERR_EXISTS). A
 * failure later leaves the journal, which holds every step before it.
 * progress may be NULL; called from this thread. */
enum kvr_status kvr_capture_run(struct kvr_capture *capture,
                                struct kvr_capture_result *result,
                                kvr_capture_progress progress, void *ud,
                                struct kvr_error *err) KVR_MUST_CHECK;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
