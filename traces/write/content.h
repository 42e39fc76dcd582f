/* content.h -- a trace in the making: what the writer holds in memory, and
 * what a journal gives back. Tiles themselves stay in the journal.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CONTENT_H
#define CONTENT_H

#include "codec.h"
#include "row_set.h"
#include "shape.h"

/* A closed tile in the journal: rows 64*row_tile.., columns cols*col... */
struct stored_tile {
    uint32_t slot;
    uint32_t row_tile, col;
    uint32_t item;   /* bytes of a number */
    uint32_t size;   /* bytes */
    uint64_t offset; /* in the journal */
    uint64_t hash;   /* of the tile's rows (FORMAT.md); the same in all col */
};

/* Rows of one head. Rows below n_tiled are in stored tiles, those from
 * n_tiled to n_row in `open`, row by row, `width` numbers each. */
struct head_rows {
    uint32_t layer, head;
    enum row_set set;
    uint32_t item; /* bytes of a number */
    /* Rows 0..f16_rows-1 were stored as f16 before the head was widened to
     * f32, which `widened` says. */
    uint32_t f16_rows;
    bool widened;
    uint32_t n_row, n_tiled;
    uint32_t next_col; /* of a tile that a journal is giving back */
    uint32_t width;
    uint8_t *open; /* NULL: no open tile */
};

struct array_data {
    float *data;      /* [rows][capacity] */
    uint32_t rows;    /* 0: absent */
    uint32_t n_token; /* given */
    uint32_t capacity;
};

/* Sums over the committed tokens, and those of the tokens given since. */
struct mlp_data {
    uint32_t n_ff; /* 0: absent */
    uint32_t n_token;
    double *mass, *open_mass;       /* [n_ff] */
    uint32_t *active, *open_active; /* [n_ff] */
};

struct token_data {
    uint32_t n;
    int32_t *id;
    float *logprob;
    uint8_t *class_of;
    uint32_t *text_end; /* offset behind token i's text */
    size_t cap_id, cap_logprob, cap_class, cap_end;
    struct bytes text;
    bool has_text;
};

struct content {
    struct shape_box *box;
    int level;       /* deflate level; 0: tiles are stored as they are */
    uint32_t n_step; /* committed */
    uint32_t n_slot;
    uint32_t *first_slot[N_ROW_SET]; /* [n_layer + 2]: of a layer's dataset */
    struct head_rows *heads;         /* [n_slot] */
    struct stored_tile *tiles;
    size_t n_tile, cap_tile;
    struct array_data (*arrays)[KVR_N_ARRAY]; /* [n_layer] */
    struct mlp_data *mlp;                     /* [n_layer] */
    struct token_data tokens;
};

/* Takes the box over, also on failure. */
enum kvr_status kvr__content_new(struct content **out, struct shape_box *box,
                                 int level, struct kvr_error *err);
void kvr__content_free(struct content *content);

/* Numbers in a row of a slot; chunk columns; as kvr__row_keys. */
uint32_t kvr__content_row_items(const struct content *content, uint32_t slot,
                                uint32_t row);
uint32_t kvr__content_cols(const struct content *content, uint32_t slot);

/* From row `row` on the dataset is f32: open rows are widened. False: no
 * memory. */
bool kvr__content_widen(struct content *content, uint32_t layer,
                        enum row_set set, uint32_t row);
/* Bytes that a journal's record of open rows is shuffled by. */
uint32_t kvr__content_rows_item(const struct content *content);

/* Arrays for n_ff neurons; refuses another number than before. */
enum kvr_status kvr__content_mlp(struct content *content, uint32_t layer,
                                 uint32_t n_ff, struct kvr_error *err);

/* Place of row `row` (n_tiled <= row < n_tiled + 64) in the head's open tile,
 * allocated where needed. NULL: no memory. */
uint8_t *kvr__content_row(struct content *content, uint32_t slot, uint32_t row);

/* Bytes of row `row` of a slot as stored. */
size_t kvr__content_row_size(const struct content *content, uint32_t slot,
                             uint32_t row);

/* Appends one tile's place. Not thread-safe. */
enum kvr_status kvr__content_add_tile(struct content *content,
                                      const struct stored_tile *tile,
                                      struct kvr_error *err);
/* The open tile is closed: its rows are in stored tiles. */
void kvr__content_close_tile(struct content *content, uint32_t slot);

/* Columns of chunks that a tile has: those at or below the diagonal. */
uint32_t kvr__content_n_col(const struct content *content, uint32_t slot,
                            uint32_t row_tile);

/* Packs column `col` of the open tile, rows below n_row. */
enum kvr_status kvr__content_pack(const struct content *content, uint32_t slot,
                                  uint32_t col, uint32_t n_row,
                                  struct codec *codec, const uint8_t **packed,
                                  size_t *n_packed, struct kvr_error *err);

/* FORMAT.md's hash of a tile: of the hashes of its rows. */
uint64_t kvr__content_tile_hash(const struct content *content, uint32_t slot,
                                uint32_t n_row);

/* Room for tokens first..first+n-1 of an array; the caller fills them. */
enum kvr_status kvr__content_array(struct content *content, uint32_t layer,
                                   enum kvr_array array, uint32_t rows,
                                   uint32_t first, uint32_t n,
                                   struct kvr_error *err);
enum kvr_status kvr__content_token(struct content *content, int32_t id,
                                   const uint8_t *text, size_t text_size,
                                   float logprob, uint8_t class_of,
                                   struct kvr_error *err);

/* Sorts the tiles into the order of slot, row_tile, col. */
void kvr__content_sort(struct content *content);

#endif
