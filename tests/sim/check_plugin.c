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

KVR_SUITE("plugin", the_example_is_h2o_without_a_window,
          faulty_plugins_are_refused)
