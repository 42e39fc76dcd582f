/* tokenizer_steps.c -- normalizer, pre-tokenizer and post-processor of a
 * tokenizer.json.
 *
 * Each is null, one step, or a Sequence of steps. A step that is not known, or
 * has an option that is not, is refused by name.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "tokenizer_json.h"
#include "tokenizer_private.h"

#include <inttypes.h>

#define GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+" \
    "| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Room for a step's sequence to be in a sequence, and so on. */
enum { MAX_DEPTH = 4 };

typedef enum kvr_status (*step_fn)(struct kvr_json_steps *steps,
                                   const json_t *step, struct kvr_error *err);

struct step_row {
    const char *type;
    step_fn read;
};

/* Expands to what a value is for a message: its text, or its JSON. */
static const char *show(char out[KVR_SLICE_TEXT], const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

    kvr_slice_show(out, text != NULL ? kvr_slice_of(text)
                                     : (struct kvr_slice){"nothing", 7});
    free(text);
    return out;
}

static enum kvr_status refuse(const json_t *step, const char *key,
                              struct kvr_error *err)
{
    char type[KVR_SLICE_TEXT], value[KVR_SLICE_TEXT];

    return kvr_fail(
        err, KVR_ERR_UNSUPPORTED, "%s with %s %s is not supported",
        kvr_slice_show(type, kvr__json_text(json_object_get(step, "type"))),
        key, show(value, json_object_get(step, key)));
}

static bool is(const json_t *object, const char *key, const char *text)
{
    return kvr_slice_is(kvr__json_text(json_object_get(object, key)), text);
}

static enum kvr_status read_step(struct kvr_json_steps *steps,
                                 const json_t *step, const char *what,
                                 const char *list, const struct step_row *rows,
                                 size_t n_rows, int depth,
                                 struct kvr_error *err)
{
    const struct kvr_slice type = kvr__json_text(json_object_get(step, "type"));
    char shown[KVR_SLICE_TEXT];

    if (step == NULL || json_is_null(step))
        return KVR_OK;
    if (kvr_slice_is(type, "Sequence") && depth < MAX_DEPTH) {
        const json_t *items = json_object_get(step, list);
        enum kvr_status status = KVR_OK;
        if (!json_is_array(items))
            return kvr_fail(err, KVR_ERR_INPUT, "%s: a Sequence without '%s'",
                            what, list);
        for (size_t i = 0; i < json_array_size(items) && status == KVR_OK; i++)
            status = read_step(steps, json_array_get(items, i), what, list,
                               rows, n_rows, depth + 1, err);
        return status;
    }
    for (size_t i = 0; i < n_rows; i++)
        if (kvr_slice_is(type, rows[i].type))
            return rows[i].read(steps, step, err);
    return kvr_fail(err, KVR_ERR_UNSUPPORTED, "%s '%s' is not supported", what,
                    kvr_slice_show(shown, type));
}

/* ---- normalizers ---- */

static enum kvr_status read_nfc(struct kvr_json_steps *steps,
                                const json_t *step, struct kvr_error *err)
{
    (void)step;
    (void)err;
    steps->nfc = true;
    return KVR_OK;
}

static enum kvr_status read_prepend(struct kvr_json_steps *steps,
                                    const json_t *step, struct kvr_error *err)
{
    if (!is(step, "prepend", KVR_BLANK) || steps->replaces)
        return refuse(step, "prepend", err);
    steps->prepends = true;
    return KVR_OK;
}

static enum kvr_status read_replace(struct kvr_json_steps *steps,
                                    const json_t *step, struct kvr_error *err)
{
    if (!is(json_object_get(step, "pattern"), "String", " "))
        return refuse(step, "pattern", err);
    if (!is(step, "content", KVR_BLANK))
        return refuse(step, "content", err);
    steps->replaces = steps->normalizer_replaces = true;
    return KVR_OK;
}

/* ---- pre-tokenizers ---- */

static enum kvr_status add_pattern(struct kvr_json_steps *steps,
                                   struct kvr_pattern pattern,
                                   struct kvr_error *err)
{
    if (steps->byte_level)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "a pre-tokenizer after ByteLevel is not supported");
    if (steps->n_patterns == KVR_MAX_PATTERNS)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "more than %d pre-tokenizers in a row",
                        (int)KVR_MAX_PATTERNS);
    steps->patterns[steps->n_patterns++] = pattern;
    return KVR_OK;
}

static enum kvr_status read_split(struct kvr_json_steps *steps,
                                  const json_t *step, struct kvr_error *err)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *literal = json_object_get(pattern, "String");
    const bool invert = kvr__json_flag(step, "invert", false);
    const bool isolated = is(step, "behavior", "Isolated") && !invert;
    const bool only = is(step, "behavior", "Removed") && invert;

    if (!json_is_string(regex) && !json_is_string(literal))
        return refuse(step, "pattern", err);
    /* where blanks have been replaced, there is none to split at */
    if (literal != NULL && steps->replaces &&
        kvr_slice_is(kvr__json_text(literal), " "))
        return KVR_OK;
    if (!isolated && !only)
        return refuse(step, invert ? "invert" : "behavior", err);
    return add_pattern(
        steps,
        (struct kvr_pattern){
            .text = kvr__json_text(regex != NULL ? regex : literal),
            .literal = regex == NULL,
            .only = only,
        },
        err);
}

static enum kvr_status read_digits(struct kvr_json_steps *steps,
                                   const json_t *step, struct kvr_error *err)
{
    const bool one = kvr__json_flag(step, "individual_digits", false);

    return add_pattern(
        steps,
        (struct kvr_pattern){.text = kvr_slice_of(one ? "\\p{N}" : "\\p{N}+")},
        err);
}

/* What Unicode calls punctuation, and the rest of ASCII's. */
static enum kvr_status read_punctuation(struct kvr_json_steps *steps,
                                        const json_t *step,
                                        struct kvr_error *err)
{
    const bool runs = is(step, "behavior", "Contiguous");

    if (!runs && !is(step, "behavior", "Isolated"))
        return refuse(step, "behavior", err);
    return add_pattern(
        steps,
        (struct kvr_pattern){.text = kvr_slice_of(runs ? "[\\p{P}$+<=>^`|~]+"
                                                       : "[\\p{P}$+<=>^`|~]")},
        err);
}

static enum kvr_status read_byte_level(struct kvr_json_steps *steps,
                                       const json_t *step,
                                       struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    if (kvr__json_flag(step, "add_prefix_space", true)) {
        /* each piece of the steps before would get one */
        if (steps->n_patterns > 0)
            return refuse(step, "add_prefix_space", err);
        steps->add_space = true;
    }
    if (kvr__json_flag(step, "use_regex", true))
        status = add_pattern(
            steps, (struct kvr_pattern){.text = kvr_slice_of(GPT2)}, err);
    steps->byte_level = true;
    return status;
}

static enum kvr_status read_metaspace(struct kvr_json_steps *steps,
                                      const json_t *step, struct kvr_error *err)
{
    const json_t *scheme = json_object_get(step, "prepend_scheme");

    if (!is(step, "replacement", KVR_BLANK))
        return refuse(step, "replacement", err);
    if (scheme != NULL && !is(step, "prepend_scheme", "always") &&
        !is(step, "prepend_scheme", "first") &&
        !is(step, "prepend_scheme", "never"))
        return refuse(step, "prepend_scheme", err);
    steps->replaces = true;
    steps->add_space = scheme != NULL
                           ? !is(step, "prepend_scheme", "never")
                           : kvr__json_flag(step, "add_prefix_space", true);
    steps->split_blanks = kvr__json_flag(step, "split", true);
    return KVR_OK;
}

/* ---- post-processors ---- */

/* ByteLevel there only trims offsets. */
static enum kvr_status read_nothing(struct kvr_json_steps *steps,
                                    const json_t *step, struct kvr_error *err)
{
    (void)steps;
    (void)step;
    (void)err;
    return KVR_OK;
}

/* single: [BOS] and the text, nothing else. */
static enum kvr_status read_template(struct kvr_json_steps *steps,
                                     const json_t *step, struct kvr_error *err)
{
    const json_t *single = json_object_get(step, "single");
    const size_t n = json_array_size(single);
    const json_t *last = json_array_get(single, n > 0 ? n - 1 : 0);
    const json_t *special =
        json_object_get(json_array_get(single, 0), "SpecialToken");
    const char *name = json_string_value(json_object_get(special, "id"));

    if (n < 1 || n > 2 || json_object_get(last, "Sequence") == NULL ||
        (n == 2 && name == NULL))
        return refuse(step, "single", err);
    if (n == 1)
        return KVR_OK;
    const json_t *ids = json_object_get(
        json_object_get(json_object_get(step, "special_tokens"), name), "ids");
    const json_int_t id = json_integer_value(json_array_get(ids, 0));
    if (json_array_size(ids) != 1 || !json_is_integer(json_array_get(ids, 0)) ||
        id < 0 || id > INT32_MAX || steps->bos >= 0)
        return refuse(step, "special_tokens", err);
    steps->bos = (int32_t)id;
    return KVR_OK;
}

enum kvr_status kvr__json_read_steps(struct kvr_json_steps *steps,
                                     const json_t *root, struct kvr_error *err)
{
    static const struct step_row normalizers[] = {
        {"NFC", read_nfc},
        {"Prepend", read_prepend},
        {"Replace", read_replace},
    };
    static const struct step_row pre_tokenizers[] = {
        {"Split", read_split},
        {"Digits", read_digits},
        {"Punctuation", read_punctuation},
        {"ByteLevel", read_byte_level},
        {"Metaspace", read_metaspace},
    };
    static const struct step_row post_processors[] = {
        {"ByteLevel", read_nothing},
        {"TemplateProcessing", read_template},
    };
    enum kvr_status status;

    *steps = (struct kvr_json_steps){.bos = -1};
    if ((status =
             read_step(steps, json_object_get(root, "normalizer"), "normalizer",
                       "normalizers", normalizers, 3, 0, err)) != KVR_OK ||
        (status = read_step(steps, json_object_get(root, "pre_tokenizer"),
                            "pre_tokenizer", "pretokenizers", pre_tokenizers, 5,
                            0, err)) != KVR_OK)
        return status;
    return read_step(steps, json_object_get(root, "post_processor"),
                     "post_processor", "processors", post_processors, 2, 0,
                     err);
}
