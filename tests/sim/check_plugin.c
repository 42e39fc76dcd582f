/* check_plugin.c -- the example plug-in runs; faulty ones are refused.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "made_rows.h"
#include "suite.h"

#include <string.h>

START_TEST(the_example_is_h2o_without_a_window)
{
    struct dice dice = {.state = 41};
    struct kvr_error err = {0};
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs = NULL;
    struct kvr_sim *sim;
    size_t n = 0;
    const struct kvr_budget budgets[] = {budget_of(9), budget_of(30)};
    struct kvr_sim_options o = plain_options(budgets, 2);
    double *cell = made_cells(&dice, MADE_SINK, 2, 4, 70, NULL, NULL);
    struct matrix_rows rows;

    matrix_rows_init(&rows, cell, 2, 4, 2, 70, 25, 0x1p-24);
    must(kvr_registry_new(&registry, &err));
    const size_t before = kvr_registry_size(registry);
    must(kvr_registry_load(registry, PLUGIN_DIR "/mass.so", &err));
    ck_assert_uint_eq(kvr_registry_size(registry), before + 1);
    ck_assert_str_eq(kvr_registry_at(registry, before)->name, "mass");
    must(kvr_policy_specs_parse(&specs, &n, registry, "mass,h2o:recent=0",
                                &err));
    o.specs = specs;
    o.n_spec = n;
    must(kvr_sim_run(&sim, &rows.rows, &o, &err));
    for (size_t b = 0; b < 2; b++) {
        ck_assert_int_eq(sim->runs[b].status, KVR_OK);
        assert_same_run(sim, b, sim, 2 + b, "mass and h2o:recent=0");
        ck_assert_uint_gt(sim->runs[b].model.evictions, 0);
    }
    must_fail(kvr_registry_load(registry, PLUGIN_DIR "/mass.so", &err),
              KVR_ERR_USAGE, "policy mass exists already");
    kvr_sim_free(sim);
    kvr_policy_specs_free(specs, n);
    kvr_registry_free(registry);
    free(cell);
}
END_TEST

START_TEST(faulty_plugins_are_refused)
{
    static const struct {
        const char *path;
        enum kvr_status status;
        const char *says;
    } bad[] = {
        {PLUGIN_DIR "/wrong_abi.so", KVR_ERR_POLICY,
         "interface 99, this program has interface"},
        {PLUGIN_DIR "/no_symbol.so", KVR_ERR_INPUT,
         "the symbol kvr_plugin_policy is missing"},
        {PLUGIN_DIR "/taken_name.so", KVR_ERR_USAGE,
         "policy h2o exists already"},
        {PLUGIN_DIR "/no_table.so", KVR_ERR_POLICY, "no policy"},
        {PLUGIN_DIR "/schedule.so", KVR_ERR_POLICY, "only a built-in"},
        {PLUGIN_DIR "/nowhere.so", KVR_ERR_INPUT, "nowhere.so"},
        {KVR_TEST_DATA "/sim/check_plugin.c", KVR_ERR_INPUT, "check_plugin.c"}};
    struct kvr_error err = {0};
    struct kvr_registry *registry;

    must(kvr_registry_new(&registry, &err));
    const size_t before = kvr_registry_size(registry);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (struct kvr_error){0};
        must_fail(kvr_registry_load(registry, bad[i].path, &err), bad[i].status,
                  bad[i].says);
        ck_assert_msg(strstr(err.message, bad[i].path) != NULL,
                      "message '%s' does not name the file", err.message);
    }
    ck_assert_uint_eq(kvr_registry_size(registry), before);
    kvr_registry_free(registry);
}
END_TEST

/* Faults of a table: refused when it is loaded. */
START_TEST(tables_that_lie_are_refused)
{
    static const struct {
        const char *slip, *says;
    } bad[] = {{"BAD_CLASS", "class_of is 77, expected 0 to 6"},
               {"BAD_OBSERVE", "observe is -3, expected 0 to 2"},
               {"BAD_GROUP", "group is 9, expected 0 to 3"},
               {"BAD_SCOPE", "scope is 2, expected 0 to 1"},
               {"BAD_NEEDS", "of which 0x100000 is not known"},
               {"NULL_SLOT", "score has no function for instruction set 1"},
               {"NULL_OBSERVED", "observed has no function for"},
               {"BAD_DEFAULT", "keep=many"},
               {"TWICE", "parameter keep stands twice"}};
    struct kvr_error err = {0};
    struct kvr_registry *registry;

    must(kvr_registry_new(&registry, &err));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, PLUGIN_DIR "/slip_%s.so", bad[i].slip);
        err = (struct kvr_error){0};
        must_fail(kvr_registry_load(registry, path, &err), KVR_ERR_POLICY,
                  bad[i].says);
        ck_assert_ptr_nonnull(strstr(err.message, "policy slips"));
    }
    kvr_registry_free(registry);
}
END_TEST

struct ran {
    struct kvr_registry *registry;
    struct kvr_policy_spec *specs;
    size_t n;
    double *cell;
    struct kvr_sim *sim;
};

/* Runs the plug-in's rule beside a built-in one. */
static enum kvr_status run_slip(struct ran *r, const char *slip,
                                struct kvr_error *out)
{
    struct kvr_error err = {0};
    struct dice dice = {.state = 5};
    static const struct kvr_budget budget = {.spec = "9", .tokens = 9};
    struct kvr_sim_options o = plain_options(&budget, 1);
    struct matrix_rows rows;
    char path[512];

    *r = (struct ran){0};
    snprintf(path, sizeof path, PLUGIN_DIR "/slip_%s.so", slip);
    r->cell = made_cells(&dice, MADE_SMOOTH, 1, 2, 70, NULL, NULL);
    matrix_rows_init(&rows, r->cell, 1, 2, 2, 70, 25, 0x1p-24);
    must(kvr_registry_new(&r->registry, &err));
    must(kvr_registry_load(r->registry, path, &err));
    must(kvr_policy_specs_parse(&r->specs, &r->n, r->registry, "slips,window",
                                &err));
    o.specs = r->specs;
    o.n_spec = r->n;
    return kvr_sim_run(&r->sim, &rows.rows, &o, out);
}

static void end_slip(struct ran *r)
{
    kvr_sim_free(r->sim);
    kvr_policy_specs_free(r->specs, r->n);
    kvr_registry_free(r->registry);
    free(r->cell);
}

/* Faults of a run: the rule fails by name, head and step; the others go on. */
START_TEST(rules_that_slip_fail_by_name)
{
    static const struct {
        const char *slip, *says;
    } bad[] = {{"ONE_NAN", "its score of position 7 is not a number"},
               {"LEAVES_OUT", "is not a number"},
               {"READS_FUTURE", "is not a number"},
               {"READS_ROW", "is not a number"},
               {"READS_ACCESS", "is not a number"},
               {"DRAWS", "without KVR_NEEDS_RANDOM"},
               {"SMALL_STATE", "outside of its state"},
               {"TWO_CONSTANTS", "more constants than the one"}};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_error err = {0};
        struct ran r;
        const enum kvr_status status = run_slip(&r, bad[i].slip, &err);
        ck_assert_msg(status == KVR_OK, "%s: %s", bad[i].slip, err.message);
        const struct kvr_run_result *run = &r.sim->runs[0];
        ck_assert_msg(run->status == KVR_ERR_POLICY &&
                          strstr(run->error, bad[i].says) != NULL &&
                          strstr(run->error, "policy slips") != NULL &&
                          strstr(run->error, "step") != NULL,
                      "%s: %d '%s'", bad[i].slip, (int)run->status, run->error);
        ck_assert_int_eq(r.sim->runs[1].status, KVR_OK);
        end_slip(&r);
    }
}
END_TEST

START_TEST(a_variant_is_judged_like_its_rule)
{
    struct kvr_error err = {0};
    struct ran r;

    must_fail(run_slip(&r, "BAD_VARIANT", &err), KVR_ERR_POLICY,
              "policy nothing: 0 ways to decide");
    end_slip(&r);
}
END_TEST

START_TEST(needs_decide_the_class)
{
    struct kvr_error err = {0};
    struct ran r;

    must(run_slip(&r, "SEES_THE_FUTURE", &err));
    ck_assert_int_eq(r.sim->runs[0].status, KVR_OK);
    ck_assert_int_eq(r.sim->runs[0].policy->class_of, KVR_CLASS_ONLINE);
    ck_assert_int_eq(kvr_policy_class(r.sim->runs[0].policy),
                     KVR_CLASS_OFFLINE);
    end_slip(&r);
    /* what this program's own rows say is what their needs allow */
    must(kvr_registry_new(&r.registry, &err));
    for (size_t i = 0; i < kvr_registry_size(r.registry); i++) {
        const struct kvr_policy *p = kvr_registry_at(r.registry, i);
        ck_assert_msg(kvr_policy_class(p) == p->class_of, "%s", p->name);
    }
    kvr_registry_free(r.registry);
}
END_TEST

KVR_SUITE("plugin", the_example_is_h2o_without_a_window,
          faulty_plugins_are_refused, tables_that_lie_are_refused,
          rules_that_slip_fail_by_name, a_variant_is_judged_like_its_rule,
          needs_decide_the_class)
