/* check_settings.c -- budgets, access rules, policies and the like from text.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_sim.h"

#include "suite.h"

#include <string.h>

static void budgets_are(const char *text, enum kvr_budget_of of, size_t n,
                        const uint32_t *tokens)
{
    struct kvr_budget *budgets = NULL;
    struct kvr_error err = {0};
    size_t got = 0;

    must(kvr_budgets_parse(&budgets, &got, text, of, 1024, 200, &err));
    ck_assert_msg(got == n, "%s: %zu budgets, expected %zu", text, got, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(budgets[i].tokens == tokens[i],
                      "%s: budget %zu (%s) is %u, expected %u", text, i,
                      budgets[i].spec, budgets[i].tokens, tokens[i]);
    free(budgets);
}

#define BUDGETS(text, of, ...) \
    do { \
        const uint32_t tokens[] = {__VA_ARGS__}; \
        budgets_are(text, KVR_BUDGET_OF_##of, \
                    sizeof tokens / sizeof tokens[0], tokens); \
    } while (0)

START_TEST(reads_budgets)
{
    BUDGETS("64", TOTAL, 64);
    BUDGETS("20%", TOTAL, 205); /* half up */
    BUDGETS("20%", PROMPT, 40);
    BUDGETS("20%", VISIBLE, 205); /* of 1023 */
    BUDGETS("0.01%", TOTAL, 1);   /* at least one */
    BUDGETS("100%", TOTAL, 1024);
    BUDGETS("2000", TOTAL, 2000); /* more than there is: no harm */
    BUDGETS("5%..40%x2", TOTAL, 51, 102, 205, 410);
    BUDGETS("10%..30%+10%", TOTAL, 102, 205, 307);
    BUDGETS("10..50+20", TOTAL, 10, 30, 50);
    BUDGETS("16..100x2", TOTAL, 16, 32, 64);
    BUDGETS("drop:0.8", TOTAL, 40); /* of the prompt, kvpress's ratio */
    BUDGETS("drop:0", TOTAL, 200);
    BUDGETS("8,16..32x2,50%", TOTAL, 8, 16, 32, 512);
}
END_TEST

START_TEST(keeps_what_the_user_wrote)
{
    struct kvr_budget *budgets = NULL;
    struct kvr_error err = {0};
    size_t n = 0;

    must(kvr_budgets_parse(&budgets, &n, "20%,5%..10%x2", KVR_BUDGET_OF_TOTAL,
                           1024, 200, &err));
    must(kvr_budgets_parse(&budgets, &n, "7", KVR_BUDGET_OF_TOTAL, 1024, 200,
                           &err));
    ck_assert_uint_eq(n, 4); /* appended */
    ck_assert_str_eq(budgets[0].spec, "20%");
    ck_assert_str_eq(budgets[1].spec, "5%");
    ck_assert_str_eq(budgets[2].spec, "10%");
    ck_assert_str_eq(budgets[3].spec, "7");
    free(budgets);
}
END_TEST

START_TEST(refuses_bad_budgets)
{
    static const char *const bad[][2] = {
        {"0", "no tokens"},      {"0%", "no tokens"},
        {"101%", "expected"},    {"-3", "expected"},
        {"1.5", "expected"},     {"", "expected"},
        {"8,", "expected"},      {"many", "'many'"},
        {"5..", "a..b"},         {"5..10", "a..b"},
        {"5%..10x2", "a..b"},    {"10..5+1", "does not rise"},
        {"5..10x1", "not rise"}, {"5..10+0", "not rise"},
        {"drop:1", "removed"},   {"drop:", "'drop:'"},
        {"1..90000+1", "4096"},  {"nan", "expected"},
        {"5000000000", "expect"}};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_budget *budgets = NULL;
        struct kvr_error err = {0};
        size_t n = 0;
        must_fail(kvr_budgets_parse(&budgets, &n, bad[i][0],
                                    KVR_BUDGET_OF_TOTAL, 1024, 200, &err),
                  KVR_ERR_USAGE, bad[i][1]);
        ck_assert_ptr_nonnull(strstr(err.message, "--budget"));
        free(budgets);
    }
}
END_TEST

START_TEST(reads_access_rules)
{
    static const struct {
        const char *text;
        enum kvr_access_kind kind;
        double x;
    } good[] = {{"above-uniform", KVR_ACCESS_ABOVE_UNIFORM, 0},
                {"relmax:0.01", KVR_ACCESS_RELMAX, 0.01},
                {"abs:1e-3", KVR_ACCESS_ABS, 1e-3},
                {"topm:32", KVR_ACCESS_TOPM, 32},
                {"mass:0.9", KVR_ACCESS_MASS, 0.9}};
    static const char *const bad[] = {"",
                                      "abs",
                                      "abs:",
                                      "abs:x",
                                      "abs:2",
                                      "relmax:-1",
                                      "topm:0",
                                      "topm:2.5",
                                      "mass:1.1",
                                      "uniform",
                                      "above-uniform:1",
                                      "abs:inf",
                                      "abs:0x1"};
    struct kvr_access access;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct kvr_error err = {0};
        must(kvr_access_parse(&access, good[i].text, &err));
        ck_assert_int_eq(access.kind, good[i].kind);
        ck_assert(access.x == good[i].x);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_error err = {0};
        must_fail(kvr_access_parse(&access, bad[i], &err), KVR_ERR_USAGE,
                  "--access: expected above-uniform");
        ck_assert_ptr_nonnull(strstr(err.message, bad[i]));
    }
}
END_TEST

START_TEST(reads_when)
{
    static const struct {
        const char *text;
        enum kvr_when_kind kind;
        uint32_t n;
    } good[] = {{"step", KVR_WHEN_STEP, 1},
                {"every:8", KVR_WHEN_EVERY, 8},
                {"overflow:1", KVR_WHEN_OVERFLOW, 1},
                {"prompt-end", KVR_WHEN_PROMPT_END, 1}};
    static const char *const bad[] = {"",        "every",     "every:0",
                                      "every:x", "overflow:", "steps",
                                      "each:3",  "every:-1"};
    struct kvr_when when;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct kvr_error err = {0};
        must(kvr_when_parse(&when, good[i].text, &err));
        ck_assert_int_eq(when.kind, good[i].kind);
        ck_assert_uint_eq(when.n, good[i].n);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_error err = {0};
        must_fail(kvr_when_parse(&when, bad[i], &err), KVR_ERR_USAGE,
                  "--when: expected step");
    }
}
END_TEST

START_TEST(reads_protection)
{
    static const struct {
        const char *text;
        uint32_t tokens; /* of a budget of 205 */
    } good[] = {{"0", 0}, {"4", 4}, {"10%", 21}, {"0%", 0}, {"0.1%", 1}};
    static const char *const bad[] = {"", "-1", "1.5", "x", "101%", "%"};
    struct kvr_protect protect;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct kvr_error err = {0};
        must(kvr_protect_parse(&protect, good[i].text, &err));
        ck_assert_msg(kvr_protect_tokens(&protect, 205) == good[i].tokens,
                      "%s of 205 is %u", good[i].text,
                      kvr_protect_tokens(&protect, 205));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_error err = {0};
        must_fail(kvr_protect_parse(&protect, bad[i], &err), KVR_ERR_USAGE,
                  "--protect: expected tokens");
    }
}
END_TEST

/* ---- policies ---- */

START_TEST(reads_a_list_of_policies)
{
    struct kvr_error err = {0};
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs = NULL;
    size_t n = 0;

    must(kvr_registry_new(&registry, &err));
    must(kvr_policy_specs_parse(&specs, &n, registry,
                                "h2o:recent=10%,decay=0.9,lru,lfu,aging=4",
                                &err));
    must(kvr_policy_specs_parse(&specs, &n, registry, "window", &err));
    ck_assert_uint_eq(n, 4);
    ck_assert_str_eq(specs[0].text, "h2o:recent=10%,decay=0.9");
    ck_assert_str_eq(specs[0].value[0], "10%");
    ck_assert_str_eq(specs[0].value[3], "0.9");
    ck_assert_ptr_null(specs[0].value[1]);
    ck_assert_str_eq(specs[1].text, "lru");
    ck_assert_str_eq(specs[2].text, "lfu:aging=4");
    ck_assert_str_eq(specs[3].policy->name, "window");
    kvr_policy_specs_free(specs, n);
    kvr_registry_free(registry);
}
END_TEST

START_TEST(refuses_bad_policies)
{
    static const char *const bad[][2] = {
        {"h3o", "unknown policy 'h3o'; there are: full window"},
        {"", "unknown policy ''"},
        {"h2o:", "no key=value"},
        {"h2o:recent", "'recent' is no key=value"},
        {"h2o:recnt=3", "no parameter 'recnt'; it has: recent statistic"},
        {"window:x=1", "it has: none"},
        {"h2o:recent=1,recent=2", "recent is given twice"},
        {"recent=3", "unknown policy 'recent=3'"},
        {"lru,,lfu", "unknown policy ''"}};
    struct kvr_error err = {0};
    struct kvr_registry *registry;

    must(kvr_registry_new(&registry, &err));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_policy_spec *specs = NULL;
        size_t n = 0;
        err = (struct kvr_error){0};
        must_fail(kvr_policy_specs_parse(&specs, &n, registry, bad[i][0], &err),
                  KVR_ERR_USAGE, bad[i][1]);
        kvr_policy_specs_free(specs, n);
    }
    kvr_registry_free(registry);
}
END_TEST

/* Values of one policy at B = 41. */
static enum kvr_status values(struct kvr_arg args[KVR_MAX_PARAM], bool *clamped,
                              const char *text, struct kvr_error *err)
{
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs = NULL;
    size_t n = 0;
    enum kvr_status status = kvr_registry_new(&registry, err);

    if (status == KVR_OK)
        status = kvr_policy_specs_parse(&specs, &n, registry, text, err);
    if (status == KVR_OK)
        status = kvr_policy_args(args, clamped, &specs[0], 41, err);
    kvr_policy_specs_free(specs, n);
    kvr_registry_free(registry);
    return status;
}

START_TEST(values_follow_the_budget)
{
    struct kvr_arg args[KVR_MAX_PARAM];
    struct kvr_error err = {0};
    bool clamped;

    must(values(args, &clamped, "h2o", &err));
    ck_assert_uint_eq(args[0].count, 20); /* floor of B/2 */
    ck_assert(args[3].real == 1);
    ck_assert(!clamped);
    must(values(args, &clamped, "h2o:recent=10%,statistic=global", &err));
    ck_assert_uint_eq(args[0].count, 4);
    ck_assert_uint_eq(args[1].count, 1);
    must(values(args, &clamped, "h2o:recent=B/4", &err));
    ck_assert_uint_eq(args[0].count, 10);
    must(values(args, &clamped, "h2o:recent=0.1%", &err));
    ck_assert_uint_eq(args[0].count, 1);
    must(values(args, &clamped, "h2o:recent=42", &err));
    ck_assert_uint_eq(args[0].count, 41);
    ck_assert(clamped);
    must(values(args, &clamped, "streaming-llm", &err));
    ck_assert_uint_eq(args[0].count, 4);
}
END_TEST

START_TEST(refuses_bad_values)
{
    static const char *const bad[][2] = {
        {"h2o:recent=", "recent= is not a number"},
        {"h2o:recent=-1", "not a number"},
        {"h2o:recent=101%", "not a number"},
        {"h2o:recent=B/0", "not a number"},
        {"h2o:decay=0", "decay=0, expected 1e-06 to 1"},
        {"h2o:decay=1.5", "decay=1.5, expected"},
        {"h2o:decay=nan", "not a number"},
        {"h2o:average=2", "average=2, expected 0 to 1"},
        {"h2o:statistic=all", "statistic=all, expected local|global"},
        {"h2o:statistic=", "expected local|global"},
        {"submodular-greedy:history=0", "history=0, expected 1 to 65536"}};
    struct kvr_arg args[KVR_MAX_PARAM];
    bool clamped;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_error err = {0};
        must_fail(values(args, &clamped, bad[i][0], &err), KVR_ERR_USAGE,
                  bad[i][1]);
    }
}
END_TEST

KVR_SUITE("settings", reads_budgets, keeps_what_the_user_wrote,
          refuses_bad_budgets, reads_access_rules, reads_when, reads_protection,
          reads_a_list_of_policies, refuses_bad_policies,
          values_follow_the_budget, refuses_bad_values)
