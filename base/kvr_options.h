/* kvr_options.h -- typed rows that read a command line.
 *
 * A command lists its options once; parsing, usage and the manual's table all
 * come from the rows. Values go into a struct of the caller's at `offset`.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_OPTIONS_H
#define KVR_OPTIONS_H

#include "kvr_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kvr_option_type {
    KVR_OPTION_FLAG,   /* bool, no argument */
    KVR_OPTION_TEXT,   /* const char * into argv */
    KVR_OPTION_MAYBE,  /* the same; "--name" alone gives `choices`, another
                        * value only "--name=value" */
    KVR_OPTION_U32,    /* uint32_t, between min and max */
    KVR_OPTION_U64,    /* uint64_t */
    KVR_OPTION_REAL,   /* double, between min and max */
    KVR_OPTION_BYTES,  /* uint64_t: "512M", "2G" */
    KVR_OPTION_CHOICE, /* int: index into "a|b|c" (choices) */
    KVR_OPTION_MANY,   /* struct kvr_option_list: may repeat */
};

/* Arguments of an option that may repeat; items are owned by the struct. */
struct kvr_option_list {
    const char **item;
    size_t n, capacity;
};

struct kvr_option {
    const char *name; /* without the dashes; NULL ends a list */
    char letter;      /* "-q", or 0 */
    enum kvr_option_type type;
    size_t offset;        /* into the struct that receives the value */
    const char *argument; /* its name in the usage: "FILE" */
    const char *help;
    double min, max;     /* for U32 and REAL; both 0: any */
    const char *choices; /* for CHOICE and MAYBE */
    size_t given;        /* offset of a bool set when it was given; 0: none */
};

/* Parses argv[0..argc) (the command's name already taken off). Options and
 * operands may mix; "--" ends the options; "--name=value" and "--name value"
 * both work, unambiguous prefixes do not. Several row lists may apply:
 * `rows` ends with NULL. Operands go into operands[], which has room for
 * argc. Defaults are what `into` holds before.
 * KVR_ERR_USAGE names the option, what was expected and what was found. */
enum kvr_status kvr_options_parse(const struct kvr_option *const *rows,
                                  int argc, char **argv, void *into,
                                  const char **operands, size_t *n_operand,
                                  struct kvr_error *err) KVR_MUST_CHECK;

/* Frees the lists of KVR_OPTION_MANY rows. */
void kvr_options_free(const struct kvr_option *const *rows, void *into);

/* One aligned line per option. */
void kvr_options_print(const struct kvr_option *const *rows, FILE *out);

#ifdef __cplusplus
}
#endif

#endif
