/* kvr_param.h -- typed parameters of a policy.
 *
 * A policy lists rows; help, parsing and range checks come from them. Values
 * arrive in the order of the rows. Counts of tokens may be written as a
 * number, as a percentage of the budget B ("25%", rounded half up, at least
 * 1) or as B/n (rounded down); one above B is clamped to B with a note.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef KVR_PARAM_H
#define KVR_PARAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum kvr_param_type {
    KVR_PARAM_TOKENS, /* a count of cached tokens, see above: .count */
    KVR_PARAM_COUNT,  /* a plain number: .count */
    KVR_PARAM_REAL,   /* .real */
    KVR_PARAM_CHOICE, /* index into "a|b|c": .count */
};

struct kvr_param {
    const char *name; /* NULL ends the list */
    enum kvr_param_type type;
    const char *fallback; /* default, as a user would write it */
    double min, max;      /* of COUNT and REAL, inclusive */
    const char *choices;  /* of CHOICE */
    const char *help;
};

struct kvr_arg {
    uint32_t count;
    double real;
};

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
