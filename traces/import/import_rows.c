/* import_rows.c -- is this row attention, and if not, what is it?
 *
 * The first violation is named. The guess looks at the whole head, since one
 * row alone does not tell dropout from a sink, or padding from a model that
 * looks ahead.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "import.h"

#include "kvr_half.h"
#include "kvr_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUESS_ROWS = 512 }; /* rows of a head that a guess looks at */

/* --renormalise is for rounding, not for what was cut or added: row sums this
 * near to 1. */
static const double most_renormalised = 0x1p-3;

/* Single precision: softmax and its sum are right to a few units in the last
 * place, growing with the row. Half precision: each weight is rounded by up to
 * 2^-11 of itself, twice (softmax in half precision, then storage), and tiny
 * ones by up to 2^-25 each. */
double kvr__row_tolerance(unsigned item, uint32_t n)
{
    if (item == 2)
        return 0x1p-10 + n * 0x1p-24;
    return 1e-5 + n * 0x1p-24;
}

/* Rounded once to 8 bits, a weight is off by up to 2^-8 of itself; to 11 bits
 * as above. */
double kvr__rounded_tolerance(unsigned item, uint32_t n, unsigned rounded)
{
    const double stored = kvr__row_tolerance(item, n);

    if (rounded == ROUNDED_BRAIN)
        return stored + 0x1p-8;
    return rounded != 0 && item > 2 ? stored + kvr__row_tolerance(2, n)
                                    : stored;
}

/* What a head looks like. */
struct look {
    uint32_t n;             /* rows seen */
    uint32_t leading_bad;   /* leading rows of NaN, zeros or uniform */
    uint32_t over, under;   /* rows that sum to more or less than 1 */
    uint32_t ahead, behind; /* rows with weight after, or before, their key */
};

static bool is_half(double weight)
{
    return (double)kvr_f16_to_f32(kvr_f32_to_f16((float)weight)) == weight;
}

/* The upper half of a float. */
static bool is_brain(double weight)
{
    const float single = (float)weight;
    uint32_t bits;

    memcpy(&bits, &single, sizeof bits);
    return (bits & 0xffff) == 0 && (double)single == weight;
}

/* ROUNDED_*: what explains that a row's sum is off by so much; 0: nothing. */
static unsigned rounding_of(const double *weight, uint32_t n, unsigned item,
                            double off)
{
    bool half = item > 2, brain = true;

    for (uint32_t key = 0; key < n && (half || brain); key++) {
        half = half && is_half(weight[key]);
        brain = brain && is_brain(weight[key]);
    }
    half = half && off <= kvr__rounded_tolerance(item, n, ROUNDED_HALF);
    brain = brain && off <= kvr__rounded_tolerance(item, n, ROUNDED_BRAIN);
    return half && brain ? ROUNDED_EITHER
           : brain       ? ROUNDED_BRAIN
           : half        ? ROUNDED_HALF
                         : 0;
}

static void look_at_row(struct look *look, uint32_t row, const double *weight,
                        uint32_t n, double tolerance)
{
    double sum = 0;
    bool nan = false, equal = true, ahead = false, behind = false;

    for (uint32_t key = 0; key < n; key++) {
        const double w = weight[key];
        nan = nan || !isfinite(w);
        equal = equal && w == weight[0];
        ahead = ahead || (key > row && w != 0);
        behind = behind || (key < row && w != 0);
        sum += w;
    }
    if (look->leading_bad == row && (nan || (equal && n > 1)))
        look->leading_bad = row + 1;
    look->ahead += ahead;
    look->behind += behind;
    look->over += sum > 1 + tolerance;
    look->under += sum < 1 - tolerance;
    look->n = row + 1;
}

static void look_at_head(struct look *look, const struct row_check *check)
{
    struct dump *dump = check->dump;
    const uint32_t n = dump->n_row;
    double *row = kvr_calloc(n, sizeof *row);
    const double tolerance = kvr__row_tolerance(dump->item, n);

    *look = (struct look){0};
    for (uint32_t r = 0; row != NULL && r < n && r < GUESS_ROWS; r++) {
        struct kvr_error ignored = {0};
        if (dump->read(dump, check->layer, check->head, r, 1, row, &ignored) !=
            KVR_OK)
            break;
        look_at_row(look, r, row, n, tolerance);
    }
    free(row);
}

static enum kvr_status refuse(struct kvr_error *err,
                              const struct row_check *check, uint32_t row,
                              const char *what, const char *guess)
{
    return kvr_fail(err, KVR_ERR_INPUT, "%s: layer %u head %u row %u%s: %s",
                    check->dump->path,
                    kvr__dump_layer(check->dump, check->layer), check->head,
                    row, what, guess);
}

static enum kvr_status refuse_key(struct kvr_error *err,
                                  const struct row_check *check, uint32_t row,
                                  uint32_t key, double weight, const char *what)
{
    const uint32_t pad = check->options->pad;
    struct look look;
    char text[120], guess[240];

    look_at_head(&look, check);
    snprintf(text, sizeof text, " key %u: %s (%.6g)", key, what, weight);
    if (look.leading_bad > pad && look.leading_bad < look.n)
        snprintf(guess, sizeof guess,
                 "the first %u rows look like left padding: state it with "
                 "--pad %u",
                 look.leading_bad, look.leading_bad);
    else if (!isfinite(weight))
        snprintf(guess, sizeof guess,
                 "a row that was masked whole (padding: --pad N), or an "
                 "overflow");
    else if (weight < 0)
        snprintf(guess, sizeof guess,
                 "raw scores before the softmax? weights are expected");
    else if (key < pad)
        snprintf(guess, sizeof guess,
                 "padding of %u keys was stated, but they have weight", pad);
    else if (check->span != 0 && key + check->span <= row)
        snprintf(guess, sizeof guess,
                 "a window of %u keys was stated: is it another, or has this "
                 "layer none (--window, --config)?",
                 check->span);
    else if (look.behind == 0 && look.n > 1)
        snprintf(guess, sizeof guess,
                 "rows look only ahead: are the axes q and k swapped "
                 "(--axes ..kq)?");
    else
        snprintf(guess, sizeof guess,
                 "a model that is not causal (--not-causal), swapped axes, or "
                 "left padding (--pad N)");
    return refuse(err, check, row, text, guess);
}

static enum kvr_status refuse_sum(struct kvr_error *err,
                                  const struct row_check *check, uint32_t row,
                                  double sum, double tolerance)
{
    struct look look;
    char text[120], guess[240];

    look_at_head(&look, check);
    snprintf(text, sizeof text, ": weights sum to %.6g, expected 1 +- %.2g",
             sum, tolerance);
    if (look.leading_bad > check->options->pad && look.leading_bad < look.n)
        snprintf(guess, sizeof guess,
                 "the first %u rows look like left padding: state it with "
                 "--pad %u",
                 look.leading_bad, look.leading_bad);
    else if (fabs(sum - 1) < 0x1p-6)
        snprintf(guess, sizeof guess,
                 "weights rounded to fewer bits and then changed? "
                 "--renormalise divides each row by its sum");
    else if (look.over > 0)
        snprintf(guess, sizeof guess,
                 "dropout in training mode? %u rows of this head sum to more "
                 "than 1: capture in evaluation mode, model.eval()",
                 look.over);
    else
        snprintf(guess, sizeof guess,
                 "a sink outside of the tokens (a learned sink logit)? Then "
                 "--sink stores what is missing; or dropout in training mode "
                 "(use evaluation mode)");
    return refuse(err, check, row, text, guess);
}

/* Within what storage explains; or what fewer bits explain, where all weights
 * of the row are such numbers. */
static enum kvr_status check_sum(const struct row_check *check, uint32_t row,
                                 const double *weight, double sum,
                                 struct kvr_error *err)
{
    const struct kvr_import_options *options = check->options;
    const uint32_t n = check->dump->n_row;
    const double off = options->sink && sum < 1 ? 0 : fabs(sum - 1);
    double tolerance = kvr__row_tolerance(check->dump->item, n);

    if (options->renormalise)
        tolerance = most_renormalised;
    if (off <= tolerance)
        return KVR_OK;
    const unsigned rounded =
        options->renormalise ? 0
                             : rounding_of(weight, n, check->dump->item, off);
    if (rounded == 0)
        return refuse_sum(err, check, row, sum, tolerance);
    *check->rounded |= rounded;
    return KVR_OK;
}

enum kvr_status kvr__check_row(const struct row_check *check, uint32_t row,
                               const double *weight, double *sum,
                               struct kvr_error *err)
{
    const struct kvr_import_options *options = check->options;
    const uint32_t n = check->dump->n_row;

    *sum = 0;
    for (uint32_t key = 0; key < n; key++) {
        const double w = weight[key];
        if (!isfinite(w))
            return refuse_key(err, check, row, key, w, "not a finite number");
        if (w < 0)
            return refuse_key(err, check, row, key, w, "a negative weight");
        *sum += w;
    }
    for (uint32_t key = 0; key < n; key++) {
        const double w = weight[key];
        if (key > row && w != 0 && !options->not_causal)
            return refuse_key(err, check, row, key, w,
                              "weight on a future key");
        if (check->span != 0 && key + check->span <= row && w != 0)
            return refuse_key(err, check, row, key, w,
                              "weight outside of the window");
        if (key < options->pad && w != 0)
            return refuse_key(err, check, row, key, w,
                              "weight on a padding key");
    }
    return check_sum(check, row, weight, *sum, err);
}
