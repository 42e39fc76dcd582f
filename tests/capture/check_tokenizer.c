/* check_tokenizer.c -- small vocabularies made by hand, the merger and the
 * pre-tokenizers.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "suite.h"

#include "pretokenize.h"
#include "sample.h"
#include "tokenizer.h"

#include <math.h>
#include <string.h>

/* "a|b|c": the words, one after another. */
struct made_words {
    char text[256];
    size_t n;
};

static enum kvr_status keep_word(void *ud, const uint8_t *word, size_t size,
                                 struct kvr_error *err)
{
    struct made_words *w = ud;

    (void)err;
    ck_assert_uint_lt(w->n + size + 2, sizeof w->text);
    if (w->n > 0)
        w->text[w->n++] = '|';
    memcpy(w->text + w->n, word, size);
    w->n += size;
    w->text[w->n] = '\0';
    return KVR_OK;
}

static const struct {
    const char *name, *text, *words;
} cuts[] = {
    {"gpt-2", "it's  two", "it|'s| | two"},
    {"gpt-2", "IT'S 12ab", "IT|'|S| 12|ab"},
    {"gpt-2", "a \n b  ", "a| \n| b|  "},
    {"gpt-2", "x\xc2\xa0y", "x|\xc2\xa0|y"},
    {"gpt-2", "x\xe1\xa0\x8e.", "x|\xe1\xa0\x8e."}, /* U+180E is no blank */
    {"smollm", "ab 12", "ab| |1|2"},
    {"smollm", "w  12 x", "w|  |1|2| x"},
    {"smollm", "\xc2\xbd!", "\xc2\xbd|!"},
    {"llama-bpe", "IT'S 12345 x\r\n\n y", "IT|'S| |123|45| x|\r\n\n| y"},
    {"llama-bpe", "(a) --\n  b", "(a|)| --\n| | b"},
    {"qwen2", "v12 \n", "v|1|2| \n"},
};

START_TEST(words_are_cut_as_the_patterns_say)
{
    struct kvr_cutter *cutter;
    struct made_words found = {.n = 0};
    struct kvr_cutter_traits traits;
    struct kvr_error err = {0};

    must(kvr__cutter_new(
        &cutter, &traits,
        (struct kvr_slice){cuts[_i].name, strlen(cuts[_i].name)}, &err));
    must(kvr__cutter_run(cutter, (const uint8_t *)cuts[_i].text,
                         strlen(cuts[_i].text), keep_word, &found, &err));
    ck_assert_str_eq(found.text, cuts[_i].words);
    kvr__cutter_free(cutter);
}
END_TEST

START_TEST(unknown_pretokenizer_is_named)
{
    struct kvr_cutter *cutter;
    struct kvr_error err = {0};
    struct kvr_cutter_traits traits;
    const struct kvr_slice name = {"tekken", 6};

    must_fail(kvr__cutter_new(&cutter, &traits, name, &err),
              KVR_ERR_UNSUPPORTED, "'tekken'");
    ck_assert_ptr_nonnull(strstr(err.message, "gpt-2 smollm llama-bpe qwen2"));
}
END_TEST

#define V(text) \
    { \
        (text), sizeof(text) - 1 \
    }

/* ids: 0 a, 1 b, 2 ab, 3 ba, 4 aba, 5 <x>, 6 <xy>, 7 <u> */
static const struct kvr_slice bpe_texts[] = {
    V("a"), V("b"), V("ab"), V("ba"), V("aba"), V("<x>"), V("<xy>"), V("<u>")};
static const uint8_t bpe_types[] = {1, 1, 1, 1, 1, 3, 3, 4};
static const struct kvr_slice bpe_merges[] = {V("b a"), V("a b"), V("a ba")};

static struct kvr_vocabulary bpe(void)
{
    return (struct kvr_vocabulary){
        .kind = KVR_TOKENIZER_BPE,
        .n = 8,
        .texts = bpe_texts,
        .types = bpe_types,
        .merges = bpe_merges,
        .n_merges = 3,
        .pre = V("gpt-2"),
        .bos = -1,
    };
}

static void check_ids(struct kvr_tokenizer *t, const char *text, bool special,
                      const int32_t *expected, size_t n)
{
    struct kvr_ids ids = {0};
    struct kvr_error err = {0};

    must(kvr__tokenizer_encode(&ids, t, (const uint8_t *)text, strlen(text),
                               special, &err));
    ck_assert_uint_eq(ids.n, n);
    ck_assert(n == 0 || memcmp(ids.ids, expected, n * sizeof *expected) == 0);
    free(ids.ids);
}

#define IDS(...) \
    (const int32_t[]){__VA_ARGS__}, \
        sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

START_TEST(merges_go_by_rank_then_from_the_left)
{
    const struct kvr_vocabulary v = bpe();
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    must(kvr__tokenizer_new(&t, &v, &err));
    check_ids(t, "ab", true, IDS(2));
    check_ids(t, "aba", true, IDS(4));     /* b a first, then a ba */
    check_ids(t, "abab", true, IDS(4, 1)); /* leftmost "ba" first */
    check_ids(t, "baba", true, IDS(3, 3));
    kvr__tokenizer_free(t);
}
END_TEST

START_TEST(longest_special_token_wins)
{
    const struct kvr_vocabulary v = bpe();
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};
    struct kvr_ids ids = {0};

    must(kvr__tokenizer_new(&t, &v, &err));
    check_ids(t, "a<xy><x>b", true, IDS(0, 6, 5, 1));
    check_ids(t, "<u>a", false, IDS(7, 0)); /* user-defined: always */
    /* as plain text, '<' has no token here: refused with its offset */
    must_fail(kvr__tokenizer_encode(&ids, t, (const uint8_t *)"ab<x>", 5, false,
                                    &err),
              KVR_ERR_INPUT, "0x3C at offset 2");
    free(ids.ids);
    kvr__tokenizer_free(t);
}
END_TEST

START_TEST(merges_must_be_of_tokens)
{
    static const struct kvr_slice bad[] = {V("a a"), V("ab"), V("a \xc3")};
    struct kvr_vocabulary v = bpe();
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};

    for (size_t i = 0; i < 3; i++) {
        v.merges = &bad[i];
        v.n_merges = 1;
        must_fail(kvr__tokenizer_new(&t, &v, &err), KVR_ERR_INPUT, "merge 0");
    }
}
END_TEST

/* ids: 0 <unk>, 1 U+2581, 2 a, 3 b, 4 U+2581a, 5 ab, 6 <0x20> */
static const struct kvr_slice spm_texts[] = {V("<unk>"),
                                             V("\xe2\x96\x81"),
                                             V("a"),
                                             V("b"),
                                             V("\xe2\x96\x81"
                                               "a"),
                                             V("ab"),
                                             V("<0x20>")};
static const uint8_t spm_types[] = {2, 1, 1, 1, 1, 1, 6};
static const float spm_scores[] = {0, 0, 0, 0, -2, -1, 0};

START_TEST(higher_score_merges_first)
{
    struct kvr_vocabulary v = {
        .kind = KVR_TOKENIZER_SPM,
        .n = 7,
        .texts = spm_texts,
        .types = spm_types,
        .scores = spm_scores,
        .bos = -1,
        .add_space = true,
    };
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};
    struct kvr_ids ids = {0};

    must(kvr__tokenizer_new(&t, &v, &err));
    check_ids(t, "ab", true, IDS(1, 5)); /* not U+2581a, b */
    check_ids(t, "a", true, IDS(4));
    check_ids(t, "b a", true, IDS(1, 3, 4));
    must_fail(
        kvr__tokenizer_encode(&ids, t, (const uint8_t *)"a a?", 4, true, &err),
        KVR_ERR_INPUT, "0x3F at offset 3");
    free(ids.ids);
    kvr__tokenizer_free(t);
}
END_TEST

START_TEST(sampling_keeps_the_smallest_set)
{
    /* probabilities 0.5, 0.3, 0.15, 0.05 */
    const float logits[] = {logf(0.15f), logf(0.5f), logf(0.05f), logf(0.3f)};
    struct kvr_sampler s;
    struct kvr_error err = {0};
    int count[4] = {0};

    must(kvr__sampler_init(&s, 1, 0.75, 3, 4, &err));
    for (uint32_t step = 0; step < 4000; step++)
        count[kvr__sampler_next(&s, logits, step)]++;
    kvr__sampler_fini(&s);
    ck_assert_int_eq(count[0] + count[2], 0);
    ck_assert_int_gt(count[1], 2380); /* 0.625 of 4000 */
    ck_assert_int_lt(count[1], 2620);
    must(kvr__sampler_init(&s, 0, 1, 3, 4, &err));
    ck_assert_int_eq(kvr__sampler_next(&s, logits, 0), 1);
    kvr__sampler_fini(&s);
    ck_assert(fabs((double)kvr__log_prob_of(logits, 4, 3) - log(0.3)) < 1e-6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *tc = tcase_create("tokenizer");
    tcase_add_loop_test(tc, words_are_cut_as_the_patterns_say, 0,
                        sizeof cuts / sizeof cuts[0]);
    tcase_add_test(tc, unknown_pretokenizer_is_named);
    tcase_add_test(tc, merges_go_by_rank_then_from_the_left);
    tcase_add_test(tc, longest_special_token_wins);
    tcase_add_test(tc, merges_must_be_of_tokens);
    tcase_add_test(tc, higher_score_merges_first);
    tcase_add_test(tc, sampling_keeps_the_smallest_set);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
