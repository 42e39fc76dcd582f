/* fuzz_replay.c -- traces whose numbers were changed, replayed and analysed.
 *
 * The traces are stored plain, so that most mutations fall into arrays: rows,
 * queries, keys, norms, sums. Either the trace is refused as bad input, or
 * every number that comes out is what its name says: shares between 0 and 1,
 * topk <= oracle <= rule, no NaN. SPDX-License-Identifier: GPL-3.0-or-later */
#include "fuzz.h"
#include "kvr_head.h"
#include "kvr_powerlaw.h"
#include "kvr_sim.h"
#include "kvr_sparsity.h"

#include "made.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_refusal(enum kvr_status status)
{
    return status == KVR_ERR_INPUT || status == KVR_ERR_UNSUPPORTED ||
           status == KVR_ERR_NOTHING || status == KVR_ERR_LIMIT ||
           status == KVR_ERR_USAGE || status == KVR_ERR_IO;
}

static void settled(enum kvr_status status, const struct kvr_error *err)
{
    if (status != KVR_OK && !is_refusal(status)) {
        fprintf(stderr, "fuzz: status %d: %s\n", (int)status, err->message);
        abort();
    }
}

static bool is_share(double part, double whole)
{
    return part >= 0 && part <= whole && isfinite(whole);
}

static void check_tally(const struct kvr_tally *t)
{
    MUST_HOLD(is_share(t->missed, t->recorded));
    MUST_HOLD(is_share(t->kept, t->best));
    MUST_HOLD(is_share(t->head_kept, t->head_best));
    MUST_HOLD(is_share(t->topk, t->missed));
    MUST_HOLD(is_share(t->late, t->missed));
    MUST_HOLD(t->overlap <= t->wanted && t->hits <= t->accesses);
    MUST_HOLD(t->kl >= 0 && isfinite(t->kl));
    if (isnan(t->oracle_matched))
        return;
    MUST_HOLD(t->topk <= t->oracle_matched && t->oracle_matched <= t->missed);
}

static void check_sim(const struct kvr_sim *sim)
{
    for (size_t i = 0; i < sim->n_run; i++) {
        const struct kvr_run_result *r = &sim->runs[i];
        MUST_HOLD(r->status == KVR_OK);
        check_tally(&r->model);
        for (uint32_t c = 0; c < sim->n_cache; c++)
            check_tally(&r->caches[c].tally);
        MUST_HOLD(r->model_miss.max >= 0 && r->model_miss.max <= 1);
    }
}

static void replay(const struct kvr_trace *trace, enum kvr_loss loss)
{
    static const struct kvr_budget budgets[] = {{.spec = "5", .tokens = 5},
                                                {.spec = "17", .tokens = 17}};
    struct kvr_registry *registry = NULL;
    struct kvr_policy_spec *specs = NULL;
    struct kvr_rows *rows = NULL;
    struct kvr_sim *sim = NULL;
    struct kvr_error err = {0};
    struct kvr_sim_options o = {.budgets = budgets,
                                .n_budget = 2,
                                .observe = -1,
                                .group = -1,
                                .when = {.n = 1},
                                .bounds = true,
                                .loss = loss,
                                .threads = 1};

    enum kvr_status status = kvr_registry_new(&registry, &err);
    if (status == KVR_OK)
        status = kvr_policy_specs_parse(
            &specs, &o.n_spec, registry,
            "h2o:recent=1,tova,lru,oracle,topk,submodular-greedy:recent=1",
            &err);
    MUST_HOLD(status == KVR_OK);
    o.specs = specs;
    status = kvr_rows_open(&rows, trace, 0, 1, &err);
    if (status == KVR_OK)
        status = kvr_sim_run(&sim, rows, &o, &err);
    settled(status, &err);
    if (status == KVR_OK)
        check_sim(sim);
    kvr_sim_free(sim);
    kvr_rows_close(rows);
    kvr_policy_specs_free(specs, o.n_spec);
    kvr_registry_free(registry);
}

static enum kvr_status analyse(uint32_t item, const struct kvr_head *head,
                               void *ud, struct kvr_error *err)
{
    struct kvr_sparsity s;
    struct kvr_powerlaw fit;
    struct kvr_error why = {0};
    double *sums = calloc(head->n_token, sizeof *sums);

    (void)item, (void)ud;
    enum kvr_status status = kvr_sparsity_of(&s, head, err);
    if (status == KVR_OK)
        MUST_HOLD(is_share(s.row_mean, 1) && is_share(s.zeros, 1) &&
                  is_share(s.gini, 1) && is_share(s.top5, 1) &&
                  is_share(s.mass_first, 1.01) && s.effective_support >= 1 &&
                  s.effective_support <= head->n_token);
    if (status == KVR_OK)
        status = kvr_head_sums(sums, NULL, head, 0, err);
    if (status == KVR_OK) {
        const struct kvr_powerlaw_options options = {0};
        const enum kvr_status fitted =
            kvr_powerlaw_fit(&fit, sums, head->n_token, &options, &why);
        settled(fitted, &why);
        if (fitted == KVR_OK)
            MUST_HOLD(fit.alpha > 1 && isfinite(fit.alpha) && fit.xmin > 0 &&
                      fit.ks >= 0 && fit.ks <= 1);
    }
    free(sums);
    return status;
}

static void statistics(const struct kvr_trace *trace)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    struct kvr_error err = {0};

    for (uint32_t l = 0; l < shape->n_layer; l++)
        for (uint32_t h = 0; h < shape->layers[l].n_head; h++) {
            const struct kvr_head_item item = {.layer = l, .head = h};
            settled(kvr_heads_run(trace, &item, 1, 0, 1, analyse, NULL, &err),
                    &err);
        }
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct kvr_trace *trace = NULL;
    struct kvr_error err = {0};
    const char *path = fuzz_path("in.kvt.h5");

    fuzz_save(path, data, size);
    const enum kvr_status status = kvr_trace_open(&trace, path, &err);
    settled(status, &err);
    if (status != KVR_OK)
        return;
    replay(trace, KVR_LOSS_MASS);
    replay(trace, KVR_LOSS_VALUE);
    statistics(trace);
    kvr_trace_close(trace);
}

size_t fuzz_corpus(const char **names, size_t most)
{
    static const struct made corpus[] = {
        {.dtype = KVR_F16, .norms = true},
        {.dtype = KVR_F32, .mask = KVR_MASK_WINDOW, .span = 30, .norms = true},
        {.dtype = KVR_F32,
         .stores = KVR_STORES_QUERY | KVR_STORES_KEY,
         .dim = 4,
         .norms = true},
        {.dtype = KVR_F16,
         .stores = KVR_STORES_ATTENTION | KVR_STORES_QUERY | KVR_STORES_KEY,
         .dim = 4},
    };
    static const char *const files[] = {"f16.kvt.h5", "window.kvt.h5",
                                        "qk.kvt.h5", "both.kvt.h5"};
    static char kept[4][400];
    const size_t n = sizeof corpus / sizeof corpus[0];

    for (size_t i = 0; i < n && i < most; i++) {
        struct made m = corpus[i];
        struct kvr_error err = {0};
        m.n_layer = 1;
        m.n_head = 2;
        m.n_kv_head = 1;
        m.t = 66;
        m.prompt_len = 20;
        m.raw = true;
        snprintf(kept[i], sizeof kept[i], "%s", fuzz_path(files[i]));
        if (made_write(&m, kept[i], true, &err) != KVR_OK) {
            fprintf(stderr, "fuzz: %s\n", err.message);
            abort();
        }
        names[i] = kept[i];
    }
    return n;
}
