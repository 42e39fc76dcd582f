/* backend.h -- what the decoder asks of a machine: a table of functions over
 * opaque tensors. Plain C, so that a back end may be a module loaded at run
 * time. The CPU back end (cpu_backend.c) is the reference: the others must
 * give its numbers within the golden tolerances.
 *
 * A tensor is a matrix [rows, cols] of f32, or a weight in a stored type of
 * quant.h. Activations hold one token per row. Every call works on the first
 * `n` rows, n >= 1. A device is used from one thread at a time; calls may run
 * asynchronously, but `read` and every callback see everything asked before.
 *
 * A back end reports at once, inside the call, or later: then it has the hooks
 * send, defer and drain, and its callbacks come from threads of its own while
 * the caller goes on. Rows come first, then what was sent, in the order asked;
 * what was deferred comes after all that was asked before it and before
 * anything asked after it. At most one callback runs at a time, but that rows
 * of different heads or layers may be reported at once. A callback's failure
 * ends the reporting and is the answer of the next call that reports.
 * Failures: KVR_ERR_MEMORY, KVR_ERR_INPUT (not finite), KVR_ERR_INTERNAL.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef BACKEND_H
#define BACKEND_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every change of the structs here; checked first. */
enum { KVR_BACKEND_ABI = 3 };

struct kvr_device;
struct kvr_tensor;

/* What products are computed from; sums are always f32. */
enum kvr_compute {
    KVR_COMPUTE_AUTO, /* f32 where that fits, else the half type stored */
    KVR_COMPUTE_F32,  /* true f32: no TF32 */
    KVR_COMPUTE_F16,
    KVR_COMPUTE_BF16,
};

/* Rows as they are wanted; a back end may report floats all the same. */
enum kvr_row_type { KVR_ROWS_F32, KVR_ROWS_F16 };

struct kvr_device_options {
    uint32_t threads;  /* of the host; 0: processors */
    uint32_t max_rows; /* most rows of one call */
    uint32_t max_keys; /* most tokens a cache will hold */
    enum kvr_compute compute;
    enum kvr_row_type rows;
    /* What will be asked for, so that what does not fit is known before. */
    uint64_t n_weight;     /* values of all weights */
    uint64_t buffer_bytes; /* of all buffers */
    uint32_t heads;        /* of one attention call */
    bool bf16;             /* weights are stored as bf16, most of them */
};

enum { KVR_COMPUTE_TEXT = 128, KVR_DEVICE_NAME = 128 };

/* How a back end will compute: the choice made, in words for the trace, and
 * bytes of the device's own memory (0: it has none). */
struct kvr_compute_plan {
    enum kvr_compute compute;
    char text[KVR_COMPUTE_TEXT];
    uint64_t device_bytes;
};

/* A weight as it lies in the model file: `rows` rows of `cols` values of
 * stored type `type`, `block` values in `block_bytes` bytes. `data` stays
 * valid until the device is closed. */
struct kvr_weight {
    uint32_t type, block, block_bytes;
    uint64_t rows, cols;
    const uint8_t *data;
};

enum kvr_norm_kind {
    KVR_RMS_NORM,   /* in / sqrt(mean(in^2) + eps) * weight */
    KVR_LAYER_NORM, /* (in - mean) / sqrt(variance + eps) * weight + bias */
};

enum kvr_activation {
    KVR_SILU,
    KVR_GELU,      /* with the error function */
    KVR_GELU_TANH, /* its approximation */
    KVR_RELU,
    KVR_N_ACTIVATION,
};

struct kvr_norm {
    enum kvr_norm_kind kind;
    const struct kvr_tensor *weight, *bias; /* bias NULL: none */
    float eps;
    uint32_t parts; /* of a row, each normalised by itself: heads, or 1 */
};

/* Attention rows first..first+n-1 of query head `head`, on the host:
 * rows[r * stride + key] for keys 0..first+r, zero outside the mask, summing
 * to mass[r] (about 1). Either `rows` or `halves` (f16, rounded once from f32)
 * is there; neither they nor mass need be where only lse was wanted. lse[r]:
 * natural log of the sum of exp(logit). */
struct kvr_attention_rows {
    uint32_t layer, head, first, n;
    const float *rows;
    const uint16_t *halves;
    size_t stride;
    const float *lse, *mass; /* [n] */
};

/* Receives rows; each head's come in order, different heads possibly from
 * different threads at once. The pointers end with the call. */
typedef enum kvr_status (*kvr_rows_fn)(void *ud,
                                       const struct kvr_attention_rows *rows,
                                       struct kvr_error *err);

struct kvr_attention {
    struct kvr_tensor *out;          /* [n, n_head * value_dim] */
    const struct kvr_tensor *query;  /* [n, n_head * key_dim], rotated */
    const struct kvr_tensor *keys;   /* cache, see store */
    const struct kvr_tensor *values; /* cache */
    uint32_t layer, n_head, n_kv_head, key_dim, value_dim;
    uint32_t first, n;  /* the rows' positions; their keys are stored */
    float scale;        /* of the logits */
    float softcap;      /* then c * tanh(logit / c); 0: none */
    uint32_t span;      /* keys that a row sees, its own included; 0: all */
    kvr_rows_fn report; /* NULL: nobody wants the rows */
    bool lse_only;      /* of the report only lse is used */
    void *ud;
};

/* Called with what was sent: the first n rows of each tensor, NULL for a NULL
 * tensor. Pointers end with the call. */
typedef enum kvr_status (*kvr_sent_fn)(void *ud, uint32_t layer, uint32_t first,
                                       uint32_t n, const float *const *values,
                                       struct kvr_error *err);

enum { KVR_SEND_MAX = 4 };

struct kvr_send {
    const struct kvr_tensor *tensors[KVR_SEND_MAX];
    uint32_t layer, first, n;
    kvr_sent_fn sent;
    void *ud;
};

typedef enum kvr_status (*kvr_deferred_fn)(void *ud, uint32_t first, uint32_t n,
                                           struct kvr_error *err);

struct kvr_backend {
    uint32_t abi; /* KVR_BACKEND_ABI */
    const char *name;

    /* Optional. KVR_ERR_UNSUPPORTED: it cannot work on this machine, and why.
     * device: its name, KVR_DEVICE_NAME bytes. */
    enum kvr_status (*probe)(char *device, struct kvr_error *err);
    /* What open would do with these options. KVR_ERR_UNSUPPORTED: it does not
     * compute like that; KVR_ERR_LIMIT: not enough memory of its own. */
    enum kvr_status (*plan)(struct kvr_compute_plan *out,
                            const struct kvr_device_options *options,
                            struct kvr_error *err);
    enum kvr_status (*open)(struct kvr_device **out,
                            const struct kvr_device_options *options,
                            struct kvr_error *err);
    /* Frees the tensors too. NULL is fine. */
    void (*close)(struct kvr_device *device);

    /* Tensors live until close. buffer: f32, zeroed. */
    enum kvr_status (*weight)(struct kvr_tensor **out,
                              struct kvr_device *device,
                              const struct kvr_weight *weight,
                              struct kvr_error *err);
    enum kvr_status (*buffer)(struct kvr_tensor **out,
                              struct kvr_device *device, uint64_t rows,
                              uint64_t cols, struct kvr_error *err);
    enum kvr_status (*write)(struct kvr_device *device,
                             struct kvr_tensor *tensor, const float *in,
                             uint32_t n, struct kvr_error *err);
    enum kvr_status (*read)(struct kvr_device *device, float *out,
                            const struct kvr_tensor *tensor, uint32_t first,
                            uint32_t n, struct kvr_error *err);

    /* out[i] = row ids[i] of weight * scale; every id is below its rows */
    enum kvr_status (*embed)(struct kvr_device *device, struct kvr_tensor *out,
                             const struct kvr_tensor *weight, float scale,
                             const int32_t *ids, uint32_t n,
                             struct kvr_error *err);
    /* Row by row, or part by part of each row; out may be in. */
    enum kvr_status (*norm)(struct kvr_device *device, struct kvr_tensor *out,
                            const struct kvr_tensor *in,
                            const struct kvr_norm *norm, uint32_t n,
                            struct kvr_error *err);
    /* x += y */
    enum kvr_status (*add)(struct kvr_device *device, struct kvr_tensor *x,
                           const struct kvr_tensor *y, uint32_t n,
                           struct kvr_error *err);
    /* out (+)= in[first + i] weight^T + bias; bias may be NULL ([1, rows]) */
    enum kvr_status (*matmul)(struct kvr_device *device, struct kvr_tensor *out,
                              bool accumulate, const struct kvr_tensor *in,
                              uint32_t first, const struct kvr_tensor *weight,
                              const struct kvr_tensor *bias, uint32_t n,
                              struct kvr_error *err);
    /* Rotates pairs (j, j + rope_dim / 2) of each of `heads` heads of x.
     * angles: [n, rope_dim], cosines then sines. */
    enum kvr_status (*rope)(struct kvr_device *device, struct kvr_tensor *x,
                            const struct kvr_tensor *angles, uint32_t heads,
                            uint32_t rope_dim, uint32_t n,
                            struct kvr_error *err);
    /* A cache is [heads * max_keys, dim]: token t of head h in row
     * h * max_keys + t. Stores the n rows of `in` from token `first`. */
    enum kvr_status (*store)(struct kvr_device *device,
                             struct kvr_tensor *cache,
                             const struct kvr_tensor *in, uint32_t heads,
                             uint32_t first, uint32_t n, struct kvr_error *err);
    /* Causal attention with softmax in f32, over a window where span says
     * so. A row that is not finite is
     * KVR_ERR_INPUT naming layer, head and step. */
    enum kvr_status (*attention)(struct kvr_device *device,
                                 const struct kvr_attention *call,
                                 struct kvr_error *err);
    /* gate = activation(gate) * up; up may be NULL */
    enum kvr_status (*activate)(struct kvr_device *device,
                                struct kvr_tensor *gate,
                                const struct kvr_tensor *up,
                                enum kvr_activation activation, uint32_t n,
                                struct kvr_error *err);

    /* Optional: NULL where the back end lacks them. */

    /* out[h * n + i] = L1 norm of W_h v: v the value of row i for query head
     * h's KV head, W_h that head's columns of the output matrix. out is a
     * buffer of at least n rows of n_head columns, filled from its start. */
    enum kvr_status (*value_out)(struct kvr_device *device,
                                 struct kvr_tensor *out,
                                 const struct kvr_tensor *value,
                                 const struct kvr_tensor *weight,
                                 uint32_t n_head, uint32_t n_kv_head,
                                 uint32_t n, struct kvr_error *err);
    /* out[i] = log softmax(cap(in[i] weight^T))[targets[i]]; n targets; cap:
     * c * tanh(logit / c), nothing where softcap is 0 */
    enum kvr_status (*log_prob)(struct kvr_device *device, float *out,
                                const struct kvr_tensor *in,
                                const struct kvr_tensor *weight, float softcap,
                                const int32_t *targets, uint32_t n,
                                struct kvr_error *err);

    /* All three or none: none where reports are made inside the calls. */

    /* What the tensors hold now, later, in order. */
    enum kvr_status (*send)(struct kvr_device *device,
                            const struct kvr_send *what, struct kvr_error *err);
    /* fn(ud, first, n), later, in order. */
    enum kvr_status (*defer)(struct kvr_device *device, kvr_deferred_fn fn,
                             void *ud, uint32_t first, uint32_t n,
                             struct kvr_error *err);
    /* Returns when all that was asked before has been reported. */
    enum kvr_status (*drain)(struct kvr_device *device, struct kvr_error *err);
};

enum kvr_backend_choice {
    KVR_BACKEND_AUTO,
    KVR_BACKEND_CPU,
    KVR_BACKEND_CUDA,
};

enum { KVR_BACKEND_WHY = KVR_ERROR_SIZE + 32 };

/* The back end to use; `why` (KVR_BACKEND_WHY bytes) says in a few words why
 * it was taken. KVR_ERR_UNSUPPORTED: it was named and cannot be had. A module
 * that was loaded stays. */
enum kvr_status kvr__backend_choose(const struct kvr_backend **out, char *why,
                                    enum kvr_backend_choice choice,
                                    struct kvr_error *err) KVR_MUST_CHECK;

/* backend_module.c: the back end of the CUDA module. It is the file that
 * KVREPLAY_CUDA_MODULE names, or kvr_cuda.so beside the program or in
 * ../lib/kvreplay. KVR_ERR_UNSUPPORTED: none, or it does not fit. */
enum kvr_status kvr__backend_load(const struct kvr_backend **out,
                                  struct kvr_error *err) KVR_MUST_CHECK;

/* The one symbol that a module exports, of this type. The table's `abi` is
 * read before anything else. */
#define KVR_BACKEND_SYMBOL "kvr_backend_module"
typedef const struct kvr_backend *(*kvr_backend_module_fn)(void);

extern const struct kvr_backend kvr__backend_cpu;

#ifdef __cplusplus
}
#endif

#endif
