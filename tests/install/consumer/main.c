/* main.c -- a program of somebody else's: one call into each room.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_capture.h"
#include "kvr_powerlaw.h"
#include "kvr_registry.h"
#include "kvr_sim.h"
#include "kvr_trace.h"

#include <stdio.h>
#include <stdlib.h>

static int expect(enum kvr_status found, enum kvr_status expected,
                  const char *what, const struct kvr_error *err)
{
    if (found == expected)
        return 0;
    fprintf(stderr, "%s: status %d, expected %d: %s\n", what, (int)found,
            (int)expected, err->message);
    return 1;
}

int main(void)
{
    const double values[] = {1, 1.5, 2, 3, 5, 9, 17, 33};
    const struct kvr_powerlaw_options how = {0};
    const struct kvr_capture_options nothing = {.model = "no/such.gguf",
                                                .prompt = "x"};
    struct kvr_error err = {0};
    struct kvr_registry *registry = NULL;
    struct kvr_budget *budgets = NULL;
    struct kvr_trace *trace = NULL;
    struct kvr_capture *capture = NULL;
    struct kvr_powerlaw fit;
    size_t n = 0;
    int bad = 0;

    bad += expect(kvr_registry_new(&registry, &err), KVR_OK, "policies", &err);
    bad += expect(kvr_budgets_parse(&budgets, &n, "20%", KVR_BUDGET_OF_TOTAL,
                                    1024, 192, &err),
                  KVR_OK, "sim", &err);
    bad += expect(kvr_powerlaw_fit(&fit, values, 8, &how, &err), KVR_OK,
                  "analysis", &err);
    bad += expect(kvr_trace_open(&trace, "no/such.kvt.h5", &err), KVR_ERR_IO,
                  "traces", &err);
    bad += expect(kvr_capture_new(&capture, &nothing, &err), KVR_ERR_IO,
                  "capture", &err);
    if (bad == 0)
        printf("%zu policies, a budget of %u\n", kvr_registry_size(registry),
               budgets[0].tokens);
    free(budgets);
    kvr_registry_free(registry);
    return bad;
}
