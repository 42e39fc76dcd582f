/* import_match.h -- a pattern of names: step_%d/layer_%02d.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef IMPORT_MATCH_H
#define IMPORT_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR__MOST_LAYER 65535U
#define KVR__MOST_STEP ((uint32_t)1 << 24)

/* One or two numbers between pieces of text; a slash at the front is left
 * out. */
struct kvr__pattern {
    const char *text; /* borrowed */
    struct {
        const char *at;
        size_t n;
    } piece[3];
    int n_number;
    int step, layer; /* which of the numbers; -1: none */
};

/* False: no number, more than a layer and a step, two numbers side by side,
 * or another conversion. */
bool kvr__pattern_parse(struct kvr__pattern *pattern, const char *text);

/* number[0]: the step, number[1]: the layer; 0 where the pattern has none,
 * UINT64_MAX where the name's does not fit. */
bool kvr__pattern_fits(uint64_t number[2], const struct kvr__pattern *pattern,
                       const char *path);

/* The part of the pattern that names the groups of the steps; false: there is
 * none, or a layer's number stands in it. */
bool kvr__pattern_of_groups(struct kvr__pattern *group,
                            const struct kvr__pattern *pattern);

/* The group that holds them; malloc'ed. */
char *kvr__pattern_home(const struct kvr__pattern *pattern);

/* Bytes of "step_" or "step" before a digit; 0: `name` begins otherwise. */
size_t kvr__step_word(const char *name);

/* N of "layer_N", "layerN" or "layers/N" in a name. */
bool kvr__layer_in_name(uint32_t *layer, const char *name);

#endif
