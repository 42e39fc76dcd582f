/* replay_intervals.c -- how far a rule's loss may be off, and whether it really
 * loses more than the least.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "replay_json.h"

#include "kvr_interval.h"
#include "kvr_memory.h"

#include <math.h>
#include <stdlib.h>

/* Counted rows of a result, the mean of its replicates; free() it. */
static double *rows_of(const struct kvr_sim *sim, const double *sums,
                       const struct kvr_run_result *run)
{
    const uint32_t n = sim->score_last - sim->score_first + 1;
    double *rows = kvr_calloc(n, sizeof *rows);

    for (uint32_t i = 0; rows != NULL && i < n; i++)
        rows[i] = sums[sim->score_first + i] / run->n_replicate;
    return rows;
}

/* `other` NULL: of the share itself; else of the difference. False: no
 * memory. */
static bool interval(struct kvr_interval *out, const struct kvr_sim *sim,
                     const struct kvr_run_result *run,
                     const struct kvr_run_result *other)
{
    double *missed = rows_of(sim, run->row_missed, run);
    double *recorded = rows_of(sim, run->row_recorded, run);
    double *theirs =
        other != NULL ? rows_of(sim, other->row_missed, other) : NULL;
    const bool ok =
        missed != NULL && recorded != NULL &&
        (other == NULL || theirs != NULL) &&
        kvr_interval_of(out, missed, theirs, recorded,
                        sim->score_last - sim->score_first + 1, NULL) == KVR_OK;

    free(missed);
    free(recorded);
    free(theirs);
    return ok;
}

static void set_bounds(json_t *to, const struct kvr_interval *v)
{
    if (v->reason != NULL) {
        kvr__cli_null(to, "low", v->reason);
        kvr__cli_null(to, "high", v->reason);
        return;
    }
    kvr__cli_set(to, "low", kvr__cli_real(v->low));
    kvr__cli_set(to, "high", kvr__cli_real(v->high));
    kvr__cli_set(to, "level", kvr__cli_real(KVR_INTERVAL_LEVEL));
    kvr__cli_set(to, "block", json_integer((json_int_t)v->block));
    kvr__cli_set(to, "freedom", kvr__cli_real(v->freedom));
    kvr__cli_set(
        to, "method",
        kvr__cli_text("rows of this text, in blocks whose length follows from "
                      "their autocorrelation; Student's t"));
}

/* A rule that could run: neither knows the future nor is a bound. */
static bool is_candidate(const struct kvr_run_result *run)
{
    const enum kvr_class c = kvr_policy_class(run->policy);

    return run->status == KVR_OK && run->model.recorded > 0 &&
           (c == KVR_CLASS_ONLINE || c == KVR_CLASS_PROMPT_WINDOW);
}

static double share(const struct kvr_run_result *run)
{
    return run->model.missed / run->model.recorded;
}

/* The rule of least loss at the budget of `run`; `full` evicts nothing and
 * stands aside. */
static const struct kvr_run_result *least_at(const struct kvr_sim *sim,
                                             const struct kvr_run_result *run)
{
    const struct kvr_run_result *least = NULL;

    for (size_t i = 0; i < sim->n_run; i++) {
        const struct kvr_run_result *r = &sim->runs[i];
        if (r->budget == run->budget && is_candidate(r) &&
            (r->policy->needs & KVR_KEEPS_ALL) == 0 &&
            (least == NULL || share(r) < share(least)))
            least = r;
    }
    return least;
}

static const char *verdict(const struct kvr_run_result *run,
                           const struct kvr_run_result *least,
                           const struct kvr_interval *v)
{
    if (run == least)
        return "least";
    if (v->estimate == 0 && v->low == 0 && v->high == 0)
        return "equal";
    if (v->reason != NULL || !kvr_interval_tells(v))
        return "cannot tell";
    return v->low > 0 ? "more" : "less";
}

void kvr__replay_set_intervals(json_t *item, const struct kvr_sim *sim,
                               size_t index)
{
    const struct kvr_run_result *run = &sim->runs[index];
    const struct kvr_run_result *least = least_at(sim, run);
    json_t *own = json_object(), *versus = json_object();
    struct kvr_interval v;

    if (interval(&v, sim, run, NULL))
        set_bounds(own, &v);
    else
        kvr__cli_set(own, "low", NULL); /* no memory: nothing is printed */
    kvr__cli_set(json_object_get(item, "miss_mass"), "interval", own);
    if (least == NULL) {
        json_decref(versus);
        kvr__cli_null(item, "versus", "no online rule at this budget");
        return;
    }
    if (!interval(&v, sim, run, least)) {
        kvr__cli_set(item, "versus", NULL);
        json_decref(versus);
        return;
    }
    kvr__cli_set(versus, "rule", kvr__cli_text(least->spec->text));
    kvr__cli_set(versus, "difference", kvr__cli_real(v.estimate));
    set_bounds(versus, &v);
    kvr__cli_set(versus, "verdict", kvr__cli_text(verdict(run, least, &v)));
    kvr__cli_set(item, "versus", versus);
}
