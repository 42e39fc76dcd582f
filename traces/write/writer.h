/* writer.h -- the writer's insides, shared by writer.c and commit.c.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef WRITER_H
#define WRITER_H

#include "journal.h"

struct mass_row { /* of one slot: the sum of each row before rounding */
    float *value;
    size_t capacity;
};

struct kvr_writer {
    char *path;
    struct content *content;
    struct journal *journal;
    struct kvr_writer_options options;
    struct mass_row *mass; /* [n_slot] */
    bool *mass_given;      /* [n_layer]: the caller gives row_mass */
    uint32_t (*array_written)[KVR_N_ARRAY]; /* [n_layer], tokens */
    uint32_t tokens_written;
    size_t text_written;
    pthread_mutex_t lock; /* of the codecs, the tile list and the failure */
    struct codec **idle;  /* codecs that no thread uses */
    size_t n_idle, cap_idle;
    struct kvr_error failure; /* the first one ends the writing */
};

/* A codec for the calling thread, and back. */
enum kvr_status kvr__writer_take(struct codec **out, struct kvr_writer *w,
                                 struct kvr_error *err);
void kvr__writer_put(struct kvr_writer *w, struct codec *codec);

/* Closes the head's full tile: packs it and appends it to the journal. */
enum kvr_status kvr__writer_close_tile(struct kvr_writer *w, uint32_t slot,
                                       struct kvr_error *err);

/* Remembers a failure of the journal: nothing may follow it. */
enum kvr_status kvr__writer_failed(struct kvr_writer *w, enum kvr_status status,
                                   const struct kvr_error *err);
/* The failure remembered, or KVR_OK. */
enum kvr_status kvr__writer_state(struct kvr_writer *w, struct kvr_error *err);

#endif
