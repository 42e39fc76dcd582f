/* hf_rope.c -- rotary positions in config.json, old style and new.
 *
 * Old: rope_theta (or rotary_emb_base) beside rope_scaling. New:
 * rope_parameters with both, for Gemma 3 once for each type of layer.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "hf_rope.h"

#include "keys.h"

#include <stdio.h>
#include <string.h>

/* A number that may stand in several places, which must agree. */
struct fact {
    char where[64]; /* empty: not stated so far */
    double value;
};

struct source {
    const struct kvr_model *model;
    const char *where; /* for messages; empty: the file's top level */
    struct fact base, local_base, part;
    struct kvr_error *err;
};

static void name_place(char out[64], const struct source *s, const char *name)
{
    snprintf(out, 64, "%s%s%s", s->where, s->where[0] != '\0' ? "." : "", name);
}

static enum kvr_status read_real(double *out, const struct source *s,
                                 const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    char place[64];

    if (value == NULL)
        return KVR_OK;
    name_place(place, s, name);
    if (!json_is_number(value) || !(json_number_value(value) > 0))
        return kvr_fail(s->err, KVR_ERR_INPUT, "%s: %s is no number above 0",
                        s->model->path, place);
    *out = json_number_value(value);
    return KVR_OK;
}

/* The same, of what other places may have stated already. */
static enum kvr_status read_fact(double *out, struct fact *fact,
                                 const struct source *s, const json_t *object,
                                 const char *name)
{
    char place[64];
    const enum kvr_status status = read_real(out, s, object, name);

    if (status != KVR_OK || json_object_get(object, name) == NULL)
        return status;
    name_place(place, s, name);
    if (fact->where[0] != '\0' && fact->value != *out)
        return kvr_fail(s->err, KVR_ERR_INPUT, "%s: %s is %g, but %s is %g",
                        s->model->path, fact->where, fact->value, place, *out);
    memcpy(fact->where, place, sizeof place);
    fact->value = *out;
    return KVR_OK;
}

/* A member that this reader does not know would change the angles. */
static enum kvr_status refuse_others(const struct source *s,
                                     const json_t *object,
                                     const char *const *known)
{
    const char *name;
    const json_t *value;

    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        size_t i = 0;
        name = json_object_iter_key(at);
        value = json_object_iter_value(at);
        while (known[i] != NULL && strcmp(known[i], name) != 0)
            i++;
        if (known[i] == NULL && !json_is_null(value)) {
            char shown[KVR_SLICE_TEXT];
            return kvr_fail(s->err, KVR_ERR_UNSUPPORTED,
                            "%s: %s: '%s' is not supported and may change "
                            "attention",
                            s->model->path, s->where,
                            kvr_slice_show(shown, kvr_slice_of(name)));
        }
    }
    return KVR_OK;
}

static enum kvr_status read_llama3(struct kvr_rope *rope,
                                   const struct source *s, const json_t *object)
{
    enum kvr_status status;

    rope->original = s->model->config.n_context;
    if ((status = read_real(&rope->factor, s, object, "factor")) != KVR_OK ||
        (status = read_real(&rope->low, s, object, "low_freq_factor")) !=
            KVR_OK ||
        (status = read_real(&rope->high, s, object, "high_freq_factor")) !=
            KVR_OK ||
        (status = read_real(&rope->original, s, object,
                            "original_max_position_embeddings")) != KVR_OK)
        return status;
    if (!(rope->factor > 0 && rope->low > 0 && rope->high > rope->low &&
          rope->original > 0))
        return kvr_fail(s->err, KVR_ERR_INPUT,
                        "%s: %s: llama3 needs factor, low_freq_factor below "
                        "high_freq_factor and "
                        "original_max_position_embeddings",
                        s->model->path, s->where);
    return KVR_OK;
}

/* rope_type and what belongs to it. */
static enum kvr_status read_scaling(struct kvr_rope *rope,
                                    const struct source *s,
                                    const json_t *object)
{
    const json_t *type = json_object_get(object, "rope_type");
    char shown[KVR_SLICE_TEXT];

    const json_t *older = json_object_get(object, "type");
    if (type != NULL && older != NULL && !json_equal(type, older))
        return kvr_fail(s->err, KVR_ERR_INPUT,
                        "%s: %s: rope_type and type differ", s->model->path,
                        s->where);
    if (type == NULL)
        type = older;
    if (type == NULL && json_object_get(object, "factor") != NULL)
        return kvr_fail(s->err, KVR_ERR_INPUT,
                        "%s: %s: a factor, but no rope_type", s->model->path,
                        s->where);
    if (type != NULL && !json_is_string(type))
        return kvr_fail(s->err, KVR_ERR_INPUT,
                        "%s: %s: rope_type is not a string", s->model->path,
                        s->where);
    const char *name = type != NULL ? json_string_value(type) : "default";
    if (strcmp(name, "default") == 0 || strcmp(name, "none") == 0)
        return KVR_OK;
    if (strcmp(name, "linear") == 0) {
        rope->linear = 0;
        const enum kvr_status status =
            read_real(&rope->linear, s, object, "factor");
        if (status == KVR_OK && rope->linear == 0)
            return kvr_fail(s->err, KVR_ERR_INPUT,
                            "%s: %s: linear scaling without a factor",
                            s->model->path, s->where);
        return status;
    }
    if (strcmp(name, "llama3") == 0)
        return read_llama3(rope, s, object);
    return kvr_fail(s->err, KVR_ERR_UNSUPPORTED,
                    "%s: %s: rotary scaling '%s' is not supported (supported: "
                    "default linear llama3)",
                    s->model->path, s->where,
                    kvr_slice_show(shown, kvr_slice_of(name)));
}

/* One object of the new style, or rope_scaling of the old. */
static enum kvr_status read_object(struct kvr_rope *rope, struct fact *base,
                                   double *part, struct source *s,
                                   const json_t *object)
{
    static const char *const known[] = {"rope_theta",
                                        "rope_type",
                                        "type",
                                        "partial_rotary_factor",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "original_max_position_embeddings",
                                        NULL};
    enum kvr_status status;

    if (!json_is_object(object))
        return kvr_fail(s->err, KVR_ERR_INPUT, "%s: %s is not an object",
                        s->model->path, s->where);
    if ((status = read_scaling(rope, s, object)) != KVR_OK ||
        (status = read_fact(&rope->base, base, s, object, "rope_theta")) !=
            KVR_OK ||
        (status = read_fact(part, &s->part, s, object,
                            "partial_rotary_factor")) != KVR_OK)
        return status;
    return refuse_others(s, object, known);
}

/* rope_parameters: {full_attention: {..}, sliding_attention: {..}} */
static enum kvr_status read_by_type(struct kvr_config *c, struct source *s,
                                    const json_t *object)
{
    static const char *const known[] = {"full_attention", "sliding_attention",
                                        NULL};
    const json_t *full = json_object_get(object, known[0]);
    const json_t *local = json_object_get(object, known[1]);
    enum kvr_status status = KVR_OK;

    if (full != NULL) {
        s->where = "rope_parameters.full_attention";
        status = read_object(&c->rope, &s->base, &c->rope_part, s, full);
    }
    if (status == KVR_OK && local != NULL) {
        s->where = "rope_parameters.sliding_attention";
        if (c->rope_local.base == 0)
            c->rope_local = s->model->family->defaults.rope;
        status = read_object(&c->rope_local, &s->local_base, &c->rope_part, s,
                             local);
    }
    if (status != KVR_OK)
        return status;
    s->where = "rope_parameters";
    return refuse_others(s, object, known);
}

/* What the top level says. */
static enum kvr_status read_top(struct kvr_config *c, struct source *s,
                                const json_t *root)
{
    const struct {
        double *out;
        struct fact *fact;
        const char *name;
    } numbers[] = {
        {&c->rope.base, &s->base, "rope_theta"},
        {&c->rope.base, &s->base, "rotary_emb_base"},
        {&c->rope_local.base, &s->local_base, "rope_local_base_freq"},
        {&c->rope_part, &s->part, "rotary_pct"},
        {&c->rope_part, &s->part, "partial_rotary_factor"},
    };
    enum kvr_status status = KVR_OK;

    for (size_t i = 0;
         i < sizeof numbers / sizeof numbers[0] && status == KVR_OK; i++)
        if (kvr__hf_key_known(s->model->family, numbers[i].name))
            status = read_fact(numbers[i].out, numbers[i].fact, s, root,
                               numbers[i].name);
    return status;
}

static bool same_scaling(const struct kvr_rope *a, const struct kvr_rope *b)
{
    return a->linear == b->linear && a->factor == b->factor &&
           a->low == b->low && a->high == b->high && a->original == b->original;
}

static enum kvr_status read_parameters(struct kvr_config *c, struct source *s,
                                       const json_t *object)
{
    if (json_object_get(object, "full_attention") != NULL ||
        json_object_get(object, "sliding_attention") != NULL)
        return read_by_type(c, s, object);
    return read_object(&c->rope, &s->base, &c->rope_part, s, object);
}

enum kvr_status kvr__hf_read_rope(struct kvr_model *model, const json_t *root,
                                  struct kvr_error *err)
{
    struct source s = {.model = model, .where = "", .err = err};
    struct kvr_config *c = &model->config;
    const json_t *older = json_object_get(root, "rope_scaling");
    const json_t *now = json_object_get(root, "rope_parameters");
    enum kvr_status status;

    if (c->rope.base == 0)
        return KVR_OK; /* no rotation in this family */
    if ((status = read_top(c, &s, root)) != KVR_OK)
        return status;
    struct kvr_rope scaled = c->rope;
    const bool both = older != NULL && !json_is_null(older) && now != NULL &&
                      !json_is_null(now);
    if (older != NULL && !json_is_null(older)) {
        s.where = "rope_scaling";
        status = read_object(&scaled, &s.base, &c->rope_part, &s, older);
        if (status != KVR_OK)
            return status;
    }
    if (now == NULL || json_is_null(now)) {
        c->rope = scaled;
        return KVR_OK;
    }
    s.where = "rope_parameters";
    status = read_parameters(c, &s, now);
    if (status == KVR_OK && both && !same_scaling(&scaled, &c->rope))
        return kvr_fail(err, KVR_ERR_INPUT,
                        "%s: rope_scaling and rope_parameters differ",
                        model->path);
    return status;
}
