/* check_golden_policies.c -- evictions and miss mass of the worked cases.
 *
 * tests/golden/policy_cases.json, made by an independent program in exact
 * arithmetic. Double build, fed doubles: evictions equal, miss mass 1e-12.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_sim.h"

#include "matrix_rows.h"
#include "suite.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* A golden column and the policy that must reproduce it. */
static const struct golden_column {
    const char *golden, *policy;
    int observe;       /* -1: published */
    bool has_schedule; /* evictions are unique (the optimum's are not) */
} columns[] = {
    {"h2o", "h2o:recent=%R", -1, true},
    {"h2o_raw", "h2o:recent=%R", KVR_OBSERVE_RAW, true},
    {"h2o_avg", "h2o:recent=%R,average=1", -1, true},
    {"tova", "tova", -1, true},
    {"streaming_llm", "streaming-llm:sinks=%S", -1, true},
    {"fifo_local", "window", -1, true},
    {"lru", "lru", KVR_OBSERVE_RAW, true},
    {"lfu", "lfu", KVR_OBSERVE_RAW, true},
    {"belady", "belady", -1, true},
    {"oracle_future_mass", "greedy-future", -1, true},
    {"submod_sqrt", "submodular-greedy:recent=%R,history=400", -1, true},
    {"oracle_topk_step", "topk", -1, false},
};

static json_t *root;

static double number(const json_t *value)
{
    return json_is_string(value) ? strtod(json_string_value(value), NULL)
                                 : json_number_value(value);
}

static double *load_matrix(const json_t *attention, uint32_t *T)
{
    *T = (uint32_t)json_array_size(attention);
    double *cell = calloc((size_t)*T * *T, sizeof *cell);
    for (uint32_t t = 0; t < *T; t++)
        for (uint32_t i = 0; i <= t; i++)
            cell[(size_t)t * *T + i] =
                number(json_array_get(json_array_get(attention, t), i));
    return cell;
}

/* "%R" and "%S" become the case's recent and sinks. */
static void fill_in(char out[128], const char *pattern, const json_t *params)
{
    size_t n = 0;

    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '%') {
            out[n++] = *pattern;
            continue;
        }
        pattern++;
        n += (size_t)snprintf(
            out + n, 128 - n, "%d",
            (int)json_integer_value(
                json_object_get(params, *pattern == 'R' ? "recent" : "sinks")));
    }
    out[n] = '\0';
}

static struct kvr_access access_of(const json_t *a)
{
    const char *kind = json_string_value(json_object_get(a, "kind"));

    if (strcmp(kind, "abs") == 0)
        return (struct kvr_access){KVR_ACCESS_ABS,
                                   number(json_object_get(a, "theta"))};
    if (strcmp(kind, "relmax") == 0)
        return (struct kvr_access){KVR_ACCESS_RELMAX,
                                   number(json_object_get(a, "rho"))};
    if (strcmp(kind, "topm") == 0)
        return (struct kvr_access){KVR_ACCESS_TOPM,
                                   number(json_object_get(a, "m"))};
    ck_assert_str_eq(kind, "above_uniform");
    return (struct kvr_access){KVR_ACCESS_ABOVE_UNIFORM, 0};
}

static bool skipped(const json_t *item, const char *name)
{
    const json_t *list = json_object_get(item, "tie_breaks_differ_in_doubles");
    size_t i;
    json_t *entry;

    json_array_foreach(list, i, entry)
    {
        if (strcmp(json_string_value(entry), name) == 0)
            return true;
    }
    return false;
}

static void compare(const json_t *item, const struct golden_column *c,
                    const struct kvr_sim *sim)
{
    const char *id = json_string_value(json_object_get(item, "id"));
    const json_t *want =
        json_object_get(json_object_get(item, "expected"), c->golden);
    const json_t *evictions = json_object_get(want, "evictions");
    const json_t *miss = json_object_get(want, "miss_mass");
    size_t n;
    const struct kvr_eviction *got = kvr_sim_evictions(sim, 0, 0, &n);

    ck_assert_msg(sim->runs[0].status == KVR_OK, "%s %s: %s", id, c->golden,
                  sim->runs[0].error);
    if (c->has_schedule) {
        ck_assert_msg(n == json_array_size(evictions),
                      "%s %s: %zu evictions, expected %zu", id, c->golden, n,
                      json_array_size(evictions));
        for (size_t i = 0; i < n; i++) {
            const json_t *e = json_array_get(evictions, i);
            const int step = (int)json_integer_value(json_array_get(e, 0));
            const int pos = (int)json_integer_value(json_array_get(e, 1));
            ck_assert_msg(
                (int)got[i].step == step && (int)got[i].position == pos,
                "%s %s: eviction %zu is %u@%u, expected %d@%d", id, c->golden,
                i, got[i].position, got[i].step, pos, step);
        }
    }
    for (uint32_t t = sim->prompt_len; t < sim->n_token; t++) {
        const double expected = number(json_array_get(miss, t));
        const double found = sim->runs[0].row_missed[t];
        ck_assert_msg(fabs(found - expected) <= 1e-12,
                      "%s %s: row %u misses %.17g, expected %.17g", id,
                      c->golden, t, found, expected);
    }
}

static void run_case(const json_t *item, const struct golden_column *c)
{
    struct kvr_error err = {0};
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs = NULL;
    struct matrix_rows rows;
    struct kvr_sim *sim;
    size_t n_spec = 0;
    uint32_t T;
    char text[128];
    double *cell = load_matrix(json_object_get(item, "attention"), &T);
    const uint32_t P =
        (uint32_t)json_integer_value(json_object_get(item, "prefill"));
    struct kvr_budget budget = {.spec = "golden"};

    budget.tokens =
        (uint32_t)json_integer_value(json_object_get(item, "budget"));
    fill_in(text, c->policy, json_object_get(item, "params"));
    matrix_rows_init(&rows, cell, 1, 1, 1, T, P, 0);
    must(kvr_registry_new(&registry, &err));
    must(kvr_policy_specs_parse(&specs, &n_spec, registry, text, &err));
    const struct kvr_sim_options options = {
        .specs = specs,
        .n_spec = n_spec,
        .budgets = &budget,
        .n_budget = 1,
        .access = access_of(json_object_get(item, "access")),
        .observe = c->observe,
        .group = -1,
        .when = {.n = 1},
        .schedules = true,
        .threads = 1};
    must(kvr_sim_run(&sim, &rows.rows, &options, &err));
    compare(item, c, sim);
    kvr_sim_free(sim);
    kvr_policy_specs_free(specs, n_spec);
    kvr_registry_free(registry);
    free(cell);
}

START_TEST(every_policy_reproduces_the_worked_cases)
{
    size_t i;
    json_t *item;
    int done = 0;

    json_array_foreach(json_object_get(root, "cases"), i, item)
    {
        const json_t *expected = json_object_get(item, "expected");
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
            if (json_object_get(expected, columns[c].golden) == NULL ||
                skipped(item, columns[c].golden))
                continue;
            run_case(item, &columns[c]);
            done++;
        }
    }
    ck_assert_int_ge(done, 130);
}
END_TEST

int main(void)
{
    json_error_t why;

    root = json_load_file(KVR_TEST_DATA "/golden/policy_cases.json", 0, &why);
    if (root == NULL) {
        fprintf(stderr, "policy_cases.json: %s\n", why.text);
        return EXIT_FAILURE;
    }
    Suite *suite = suite_create("golden policies");
    TCase *tc = tcase_create("cases");
    tcase_add_test(tc, every_policy_reproduces_the_worked_cases);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    json_decref(root);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
