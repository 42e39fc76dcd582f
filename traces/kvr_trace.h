/* kvr_trace.h -- reading and writing traces (FORMAT.md, JOURNAL.md).
 *
 * A trace holds, for every layer and query head, the attention rows of one
 * decoding run over T tokens: row t has the weights of keys 0..t. Words and
 * layout: FORMAT.md. No HDF5 type appears here. Reading rows is pread and
 * libdeflate and may be done from many threads, each with a scratch of its own.
 *
 * libhdf5 writes in finish, and reads in kvr_trace_open, kvr_trace_check,
 * kvr_trace_repair and kvr_import, but never in this process: a file may be
 * damaged in ways that libhdf5 does not survive. They fork a child (no exec),
 * which looks at the file within limits of time and memory, tells what it found
 * and ends with _exit. For a program with threads of its own: no two of these
 * calls at a time, and none while another thread is inside of libhdf5, or of
 * OpenBLAS with several threads (which stops them at a fork and starts them
 * again later). The child is waited for by its number; a handler of SIGCHLD may
 * be called for it. The child dies with the calling thread.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_TRACE_H
#define KVR_TRACE_H

#include "kvr_error.h"
#include "kvr_hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { KVR_TILE_ROWS = 64 }; /* rows of one stored tile (chunk) */

enum kvr_dtype { KVR_F16, KVR_F32 };
enum kvr_source { KVR_SOURCE_CAPTURE, KVR_SOURCE_IMPORT, KVR_SOURCE_SYNTHETIC };
/* KVR_MASK_NONE: bidirectional attention; replay refuses it. */
enum kvr_mask {
    KVR_MASK_CAUSAL,
    KVR_MASK_WINDOW,
    KVR_MASK_CHUNK,
    KVR_MASK_NONE
};

/* Token classes of /tokens/class, one of these per token. */
enum kvr_token_class {
    KVR_TOKEN_TEXT,
    KVR_TOKEN_SPECIAL,     /* control tokens: BOS, end of turn, ... */
    KVR_TOKEN_PUNCTUATION, /* only punctuation and white space */
    KVR_TOKEN_SPACE,       /* only white space */
    KVR_TOKEN_DIGIT,       /* only digits and white space */
};

/* Vectors that a layer may hold beside its attention or instead of it: of
 * query heads, KV heads, KV heads; after the rotary embedding. */
enum kvr_vector { KVR_QUERY, KVR_KEY, KVR_VALUE, KVR_N_VECTOR };

/* What a layer holds, bits of `stores`: attention, or query and key (rows are
 * recomputed from them), or all of them. A layer that reads another's cache
 * has no key of its own. */
enum {
    KVR_STORES_ATTENTION = 1,
    KVR_STORES_QUERY = 2,
    KVR_STORES_KEY = 4,
    KVR_STORES_VALUE = 8,
};

/* One stored layer. span: keys a row may see (window: positions
 * t-span+1..t; chunk: positions of its own block of span), 0 for causal. */
struct kvr_layer_shape {
    uint32_t layer;              /* its number in the model */
    uint32_t n_head, n_kv_head;  /* stored here: whole groups only */
    uint32_t key_dim, value_dim; /* 0: unknown */
    enum kvr_mask mask;
    uint32_t span;
    double scale, softcap; /* of the logits; softcap 0: none */
    int32_t kv_source;     /* layer whose cache it reads; -1: its own */
    uint32_t stores;       /* KVR_STORES_*; for a writer 0: attention */
    /* As asked for; a writer stores one as f32 that f16 does not hold. */
    enum kvr_dtype vector_dtype[KVR_N_VECTOR];
    const uint32_t *head_index; /* [n_head] query heads in the model */
};

/* First key that a mask shows to row `row`; span: of a window or a chunk. */
uint32_t kvr_mask_first_key(enum kvr_mask mask, uint32_t span, uint32_t row);
/* What a message calls a stored head: its number in the model, as the options
 * take it. */
uint32_t kvr_head_number(const struct kvr_layer_shape *layer, uint32_t head);

/* Name of a dataset, e.g. "query". */
const char *kvr_vector_name(enum kvr_vector vector);

/* What a trace is, without its rows. Strings may be NULL where unknown. The
 * reader owns what it hands out; the writer copies what it is given. */
struct kvr_trace_shape {
    uint32_t n_layer;           /* stored layers */
    uint32_t n_head, n_kv_head; /* of the model */
    uint32_t n_token;     /* T; for a writer: T_max, the most that will come */
    uint32_t prompt_len;  /* P */
    enum kvr_dtype dtype; /* of attention; f32 where no layer stores it */
    enum kvr_source source;
    uint32_t n_vocab;    /* columns of /tokens/logits; 0: none */
    uint32_t round_bits; /* f16 mantissa bits kept; 0: all */
    const struct kvr_layer_shape *layers; /* [n_layer] */
    const char *cache;                    /* "full", or the policy in force */
    const char *writer;  /* program and version; NULL: not recorded */
    const char *created; /* ISO 8601; NULL: not recorded */
    const char *options; /* the command line; NULL: not recorded */
    const char *model_name, *architecture, *model_hash, *quantisation;
    const char *backend, *compute;
    const char *bos; /* what was done about a BOS token */
};

/* ---- reading ---- */

struct kvr_trace;
struct kvr_trace_scratch;

struct kvr_trace_facts {
    uint32_t version[2];      /* format_version */
    bool complete;            /* false: a journal whose capture did not end */
    char hash[KVR_HASH_TEXT]; /* stored content hash; "" for a journal */
    bool has_attention;       /* stored in every layer */
    bool has_rows;            /* every layer has attention, or query and key */
    bool recomputed;          /* a layer's rows come from query and key */
    bool has_tokens;
    uint64_t stored_bytes; /* of rows, vectors and logits, compressed */
};

/* Opens a finished trace. Everything is checked against everything else and
 * against what is stored before anything of that size is allocated. A journal
 * (NAME.part) is KVR_ERR_INPUT here: see kvr_journal_open.
 * KVR_ERR_UNSUPPORTED: another major version, a foreign filter. */
enum kvr_status kvr_trace_open(struct kvr_trace **out, const char *path,
                               struct kvr_error *err) KVR_MUST_CHECK;
void kvr_trace_close(struct kvr_trace *trace);

/* Borrowed until close. n_token here is T. */
const struct kvr_trace_shape *kvr_trace_shape(const struct kvr_trace *trace);
const struct kvr_trace_facts *kvr_trace_facts(const struct kvr_trace *trace);
const char *kvr_trace_path(const struct kvr_trace *trace);

/* Scratch for one thread. */
enum kvr_status kvr_trace_scratch_new(struct kvr_trace_scratch **out,
                                      const struct kvr_trace *trace,
                                      struct kvr_error *err) KVR_MUST_CHECK;
void kvr_trace_scratch_free(struct kvr_trace_scratch *scratch);
/* The most memory that one takes, OpenBLAS's buffer included. */
uint64_t kvr_trace_scratch_bytes(const struct kvr_trace *trace);

/* Rows first..first+n-1 of stored head `head` (index within the layer) of
 * stored layer `layer` into out[r * stride + key], r = 0..n-1. Keys above the
 * row's own index and up to `stride` are set to 0. stride holds the last row's
 * keys: first + n, or T where the mask hides none. Values are as stored (f16
 * widened exactly; f32 rounded to multiples of 2^-30). Where the layer has no
 * attention they are computed from query and key, a block of KVR_TILE_ROWS at a
 * time, and rounded to multiples of 2^-30; the same bits however they are asked
 * for. Thread-safe with one scratch per thread. Cheapest when first is a
 * multiple of KVR_TILE_ROWS, n at most that, and a head's rows, and the heads
 * of a group, follow each other. A non-finite or negative weight is
 * KVR_ERR_INPUT naming layer, head, row and key. */
enum kvr_status kvr_trace_read_rows(const struct kvr_trace *trace,
                                    uint32_t layer, uint32_t head,
                                    uint32_t first, uint32_t n, float *out,
                                    size_t stride,
                                    struct kvr_trace_scratch *scratch,
                                    struct kvr_error *err) KVR_MUST_CHECK;

/* Vectors of tokens first..first+n-1 of stored head `head` (a query head of
 * KVR_QUERY, else a KV head): out[r * dim + i], dim the layer's key_dim or
 * value_dim. KVR_ERR_INPUT where the layer does not store them. */
enum kvr_status kvr_trace_read_vectors(const struct kvr_trace *trace,
                                       uint32_t layer, enum kvr_vector vector,
                                       uint32_t head, uint32_t first,
                                       uint32_t n, float *out,
                                       struct kvr_trace_scratch *scratch,
                                       struct kvr_error *err) KVR_MUST_CHECK;

/* Logits after tokens first..first+n-1: out[r * n_vocab + id]. */
enum kvr_status kvr_trace_read_logits(const struct kvr_trace *trace,
                                      uint32_t first, uint32_t n, float *out,
                                      struct kvr_trace_scratch *scratch,
                                      struct kvr_error *err) KVR_MUST_CHECK;

/* What the layer's MLP did, per neuron: sums over all tokens of the magnitude
 * of the down projection's input, and the tokens where that was not 0. */
struct kvr_trace_mlp {
    uint32_t n_ff;          /* 0: the layer has none */
    const float *mass;      /* [n_ff] borrowed until close, or NULL */
    const uint32_t *active; /* [n_ff] the same */
};
struct kvr_trace_mlp kvr_trace_mlp(const struct kvr_trace *trace,
                                   uint32_t layer);

/* Per-row and per-token arrays of a layer, f32. rows x T, row-major;
 * rows is n_head for LSE, ROW_MASS, SINK_MASS and n_head or n_kv_head for the
 * norms (see *rows). */
enum kvr_array {
    KVR_LSE,
    KVR_ROW_MASS,
    KVR_SINK_MASS,
    KVR_KEY_NORM,
    KVR_VALUE_NORM1,
    KVR_VALUE_NORM2,
    KVR_VALUE_OUT_NORM1,
    KVR_N_ARRAY,
};

/* Dataset name of an array, e.g. "value_norm2". */
const char *kvr_array_name(enum kvr_array array);

/* *out borrowed until close; NULL and *rows 0 where the trace lacks it. */
enum kvr_status kvr_trace_array(const float **out, uint32_t *rows,
                                const struct kvr_trace *trace, uint32_t layer,
                                enum kvr_array array,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* Tokens; arrays of T, borrowed until close, NULL where absent. */
struct kvr_trace_tokens {
    const int32_t *id;
    const uint8_t *text;         /* bytes of all pieces, one after another */
    const uint32_t *text_offset; /* [T + 1] into text */
    const float *logprob;        /* of the token given those before; NaN at 0 */
    const uint8_t *class_of;     /* enum kvr_token_class */
    const int32_t *position;
};
const struct kvr_trace_tokens *kvr_trace_tokens(const struct kvr_trace *trace);

/* ---- writing ---- */

/* Writes OUT.kvt.h5 through the journal OUT.kvt.h5.part. Rows come in order
 * of step; a step (one token's rows in all layers and heads) counts once it is
 * committed. Not thread-safe, except kvr_writer_rows for different layers or
 * heads. */
struct kvr_writer;

struct kvr_writer_options {
    bool force;       /* overwrite an existing output */
    bool sync;        /* fsync at every commit */
    int deflate;      /* 1: deflate; 0: store raw. -1: default (1) */
    uint64_t memory;  /* most bytes to take (KVR_ERR_LIMIT); 0: no limit */
    uint32_t threads; /* compression of tiles at commit; 0: processors */
};

/* Creates the journal. KVR_ERR_EXISTS: the output or its journal is there
 * (another capture may be running; the message says what to do). */
enum kvr_status kvr_writer_open(struct kvr_writer **out, const char *path,
                                const struct kvr_trace_shape *shape,
                                const struct kvr_writer_options *options,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* Rows first..first+n-1 of one head: in[r * stride + key], keys 0..first+r
 * are used. Each (layer, head) gets its rows in order, without gaps. A
 * non-finite or negative weight is refused: layer, head and row are named. The
 * rows are copied (rounded to the trace's dtype). */
enum kvr_status kvr_writer_rows(struct kvr_writer *writer, uint32_t layer,
                                uint32_t head, uint32_t first, uint32_t n,
                                const float *in, size_t stride,
                                struct kvr_error *err) KVR_MUST_CHECK;

/* The same for rows that are f16 already and a trace of f16 without
 * round_bits: the bits are stored as they are, but that -0 becomes 0. row_mass
 * must come from the caller (kvr_writer_array): sums of rounded weights are not
 * sums of the weights. */
enum kvr_status kvr_writer_half_rows(struct kvr_writer *writer, uint32_t layer,
                                     uint32_t head, uint32_t first, uint32_t n,
                                     const uint16_t *in, size_t stride,
                                     struct kvr_error *err) KVR_MUST_CHECK;

/* Vectors of tokens first..first+n-1, all heads of one kind of a layer that
 * `stores` it: in[r * stride + head * dim + i]. In order, no gaps. A vector
 * that is not finite is refused. One that f16 does not hold (FORMAT.md) makes
 * the whole dataset f32 from here on; rows given before stay as rounded, and
 * the file says how many those are. */
enum kvr_status kvr_writer_vectors(struct kvr_writer *writer, uint32_t layer,
                                   enum kvr_vector vector, uint32_t first,
                                   uint32_t n, const float *in, size_t stride,
                                   struct kvr_error *err);

/* Inputs of the down projection of tokens first..first+n-1:
 * in[r * n_ff + i]. In order; a layer that has any has all. */
enum kvr_status kvr_writer_mlp(struct kvr_writer *writer, uint32_t layer,
                               uint32_t n_ff, uint32_t first, uint32_t n,
                               const float *in, struct kvr_error *err);

/* Logits after token `first`..: in[r * n_vocab + id]. Only for a writer whose
 * shape has n_vocab. */
enum kvr_status kvr_writer_logits(struct kvr_writer *writer, uint32_t first,
                                  uint32_t n, const float *in,
                                  struct kvr_error *err);

/* Values of one array for tokens first..first+n-1: in[row * stride + token].
 * rows as kvr_trace_array says; the first call fixes it. In order, no gaps. */
enum kvr_status kvr_writer_array(struct kvr_writer *writer, uint32_t layer,
                                 enum kvr_array array, uint32_t rows,
                                 uint32_t first, uint32_t n, const float *in,
                                 size_t stride,
                                 struct kvr_error *err) KVR_MUST_CHECK;

/* The next token. text may be NULL (then no token has text). */
enum kvr_status kvr_writer_token(struct kvr_writer *writer, int32_t id,
                                 const uint8_t *text, size_t text_size,
                                 float logprob, enum kvr_token_class class_of,
                                 struct kvr_error *err) KVR_MUST_CHECK;

/* All rows, arrays and tokens of steps below `n_step` are given: they are
 * appended to the journal and count from now on, whatever happens. Call once
 * per decode step, or once per prompt block. */
enum kvr_status kvr_writer_commit(struct kvr_writer *writer, uint32_t n_step,
                                  struct kvr_error *err) KVR_MUST_CHECK;

/* Replaces a fact that is known only now. prompt_len for an import whose file
 * says it late. Before the first commit. */
void kvr_writer_set_prompt_len(struct kvr_writer *writer, uint32_t prompt_len);

/* Assembles the trace from the journal under a temporary name, syncs and
 * renames it, then removes the journal. On failure the journal stays. Frees
 * the writer in either case. */
enum kvr_status kvr_writer_finish(struct kvr_writer *writer,
                                  struct kvr_error *err) KVR_MUST_CHECK;

/* Gives up: frees the writer. The journal stays if anything was committed
 * (trace repair reads it), else it is removed. */
void kvr_writer_abandon(struct kvr_writer *writer);

/* Now, as ISO 8601 in UTC, for `created`; SOURCE_DATE_EPOCH in the environment
 * stands for now. KVR_ERR_USAGE where it is no number of seconds. */
enum { KVR_TIME_TEXT = 24 };
enum kvr_status kvr_trace_time(char out[KVR_TIME_TEXT],
                               struct kvr_error *err) KVR_MUST_CHECK;

/* Bytes on disk that a trace of this shape will take: raw is what it stores
 * without compression, expected assumes the usual ratios. */
void kvr_trace_estimate(uint64_t *raw, uint64_t *expected,
                        const struct kvr_trace_shape *shape);
/* Bytes of the rows from `first` on that the journal holds beside its tiles
 * where they come a step at a time. */
uint64_t kvr_trace_step_bytes(const struct kvr_trace_shape *shape,
                              uint32_t first);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
