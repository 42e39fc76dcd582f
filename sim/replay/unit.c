/* unit.c -- one policy at one budget walks over the rows.
 *
 * A step: insert the newest token, score the row against C_t, let the rule
 * observe, evict. The unit owns memory, protection, ranking and ties.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "engine.h"

#include "kvr_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t below(const struct kvr_view *view, uint32_t index, uint32_t m)
{
    const struct draw *d = view->ud;
    struct unit *u = d->unit;
    const struct kvr_random stream = {.seed = d->seed,
                                      .purpose = d->purpose,
                                      .layer = u->setting.layer,
                                      .head = d->head};

    if (d->purpose == KVR_RANDOM_POLICY &&
        (u->run->policy->needs & KVR_NEEDS_RANDOM) == 0 &&
        u->view.ties != KVR_TIES_RANDOM)
        u->drew_unasked = true;
    return m > 0 ? kvr_random_below(&stream, view->step, u->run->replicate,
                                    index, m)
                 : 0;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t layer_budget(const struct layer_work *w, uint32_t budget)
{
    const uint32_t span = w->shape->span;

    if (w->shape->mask == KVR_MASK_CAUSAL || span == 0)
        return budget;
    const uint32_t most = span > 1 ? span - 1 : 1;
    return budget < most ? budget : most;
}

static enum kvr_status allocate(struct unit *u, const struct plan *plan,
                                struct kvr_error *err)
{
    const struct kvr_policy *policy = u->run->policy;
    bool ok = true;

    u->n_m = plan->score_last - plan->score_first + 1;
    u->resident = kvr_aligned_calloc(plan->stride, sizeof(int32_t));
    u->score = kvr_aligned_calloc(plan->stride, sizeof(kvr_real));
    u->bits = kvr_aligned_calloc(plan->words, sizeof(uint64_t));
    u->left_at = kvr_calloc(plan->T, sizeof(uint32_t));
    u->gone_order = kvr_calloc(plan->T, sizeof(uint32_t));
    u->gone_from = kvr_calloc((size_t)plan->T + 1, sizeof(uint32_t));
    u->m = kvr_calloc((size_t)u->n_head * u->n_m, sizeof(double));
    u->tally = kvr_calloc(u->n_cache, sizeof *u->tally);
    u->share = kvr_calloc(u->n_cache, sizeof *u->share);
    u->head_cost = kvr_calloc(u->n_head, sizeof *u->head_cost);
    ok = u->resident && u->score && u->bits && u->left_at && u->gone_order &&
         u->gone_from && u->m && u->tally && u->share && u->head_cost;
    if (plan->needs_optimum) {
        u->visible_at = kvr_calloc(plan->T, sizeof(uint32_t));
        ok = ok && u->visible_at;
    }
    if (plan->options->schedules) { /* a token leaves once */
        u->log = kvr_calloc(plan->T, sizeof *u->log);
        ok = ok && u->log;
    }
    if (plan->options->steps) {
        u->steps = kvr_calloc((size_t)u->n_cache * u->n_m, sizeof *u->steps);
        ok = ok && u->steps;
    }
    for (uint32_t c = 0; u->share != NULL && c < u->n_cache; c++)
        u->share[c] = 1;
    if (policy->state_size != NULL) {
        u->state_size = policy->state_size(&u->setting);
        u->state = u->run->foreign ? kvr__foreign_state(u->state_size)
                                   : kvr_aligned_calloc(u->state_size, 1);
        ok = ok && u->state;
    }
    if (!ok)
        return kvr_no_memory(err, policy->name,
                             kvr__unit_bytes(plan, u->run, u->n_head));
    return KVR_OK;
}

enum kvr_status kvr__unit_init(struct unit *u, const struct layer_work *w,
                               const struct run *run, uint32_t first_cache,
                               uint32_t n_cache, struct kvr_error *err)
{
    const struct plan *plan = w->plan;
    const struct kvr_policy *policy = run->policy;

    *u = (struct unit){
        .run = run,
        .row_cost = w->row_cost + (size_t)(run - plan->runs) * plan->T,
        .first_cache = first_cache,
        .n_cache = n_cache,
        .first_head = first_cache * w->group,
        .layer_number = w->shape->layer,
        .head_number =
            kvr_head_number(w->shape, first_cache * w->group) / w->group,
        .n_head = n_cache * w->group,
        .setting = {.n_token = plan->T,
                    .prompt_len = plan->P,
                    .budget = layer_budget(w, run->budget->tokens),
                    .capacity = kvr__unit_capacity(plan, run->policy,
                                                   run->budget->tokens),
                    .layer = w->layer,
                    .n_layer = plan->rows->n_layer,
                    .kv_head = w->item->first_cache + first_cache,
                    .n_kv_head = w->n_cache_whole,
                    .group_size = n_cache * w->group,
                    .arg = run->arg},
    };
    u->draw = (struct draw){.unit = u,
                            .head = w->first_head + u->first_head,
                            .seed = plan->options->seed,
                            .purpose = KVR_RANDOM_POLICY};
    if (policy->window != NULL)
        policy->window(&u->setting, &u->window);
    kvr__unit_set_limits(u, w);
    const enum kvr_status status = allocate(u, plan, err);
    u->view = (struct kvr_view){.setting = &u->setting,
                                .ties = plan->options->ties,
                                .resident = u->resident,
                                .bits = u->bits,
                                .below = below,
                                .ud = &u->draw};
    if (status == KVR_OK && policy->begin != NULL)
        policy->begin(u->state, &u->setting);
    return status;
}

void kvr__unit_fini(struct unit *u)
{
    if (u->run != NULL && u->run->foreign)
        kvr__foreign_state_free(u->state);
    else
        free(u->state);
    free(u->score);
    free(u->resident);
    free(u->bits);
    free(u->left_at);
    free(u->gone_order);
    free(u->gone_from);
    free(u->m);
    free(u->tally);
    free(u->share);
    free(u->head_cost);
    free(u->log);
    free(u->visible_at);
    free(u->steps);
}

static void fail(struct unit *u, uint32_t step, const char *what)
{
    u->status = KVR_ERR_POLICY;
    snprintf(u->error, sizeof u->error,
             "policy %s, budget %s, layer %u, kv head %u, step %u: %s",
             u->run->policy->name, u->run->budget->spec, u->layer_number,
             u->head_number, step, what);
}

static void set(struct unit *u, uint32_t position)
{
    u->resident[position] = -1;
    u->bits[position / 64] |= (uint64_t)1 << (position % 64);
    u->n_resident++;
}

static void clear(struct unit *u, struct kvr_view *view, uint32_t position)
{
    u->resident[position] = 0;
    u->bits[position / 64] &= ~((uint64_t)1 << (position % 64));
    u->left_at[position] = view->step;
    u->gone_order[u->n_gone++] = position;
    u->n_resident--;
    view->n_resident = u->n_resident;
    if (u->run->policy->leave != NULL)
        u->run->policy->leave(u->state, view, position);
    while (u->oldest < view->n && u->resident[u->oldest] == 0)
        u->oldest++;
}

/* Tokens that row t cannot see leave the cache by themselves. */
static void expire(struct unit *u, const struct layer_work *w,
                   struct kvr_view *view, uint32_t t)
{
    const uint32_t from = min_u32(kvr__mask_from(w->shape, t), view->n);

    for (uint32_t i = u->oldest; i < from; i++)
        if (u->resident[i] != 0)
            clear(u, view, i);
}

static bool sees_rows(const struct run *run)
{
    return run->observe != KVR_OBSERVE_NONE &&
           (run->policy->update != NULL || run->policy->observed != NULL ||
            run->policy->victim != NULL || run->policy->score != NULL);
}

/* f16 weights up to 1 add up exactly in a float, in any order. */
static kvr_real sum_of(const struct unit *u, const struct layer_work *w,
                       uint32_t h, uint32_t wide)
{
    const struct plan *plan = w->plan;

    if (plan->sums_are_exact && w->kept[h] <= plan->scale)
        return (kvr_real)(w->kept[h] / plan->scale);
    return plan->kernels->sum(u->resident, u->bits, w->row[h], wide);
}

/* Mass of C_t in every head's row: in units for the count, as a weight for the
 * rule. While nothing has left, that is what the row has. */
static void weigh_heads(struct unit *u, struct layer_work *w, uint32_t t,
                        uint32_t k, uint32_t r)
{
    const struct plan *plan = w->plan;
    const uint32_t wide = (t + 64) / 64 * 64;

    for (uint32_t h = 0; h < u->n_head; h++) {
        const uint32_t head = u->first_head + h;
        const struct facts *f = &w->facts[u->first_cache + h / w->group];
        const uint32_t at = r * f->n_head + h % w->group;
        w->row[h] = row_of(w, head, k);
        w->losses[h] = loss_of(w, head, k);
        w->kept[h] = f->total[at];
        w->by[h] = f->sum[at];
    }
    if (u->n_resident == t + 1)
        return;
    plan->kernels->mass(w->kept, u->resident, u->bits, w->losses, u->n_head,
                        w->scale, wide);
    for (uint32_t h = 0; h < u->n_head; h++)
        w->by[h] = sum_of(u, w, h, wide);
}

/* The reduced row that the rule sees, in w->weight. */
static void reduce(const struct unit *u, struct layer_work *w, uint32_t t)
{
    const struct kernels *kernels = w->plan->kernels;
    const uint32_t wide = (t + 64) / 64 * 64;
    const kvr_real g = (kvr_real)u->n_head;

    for (uint32_t h = 0; h < u->n_head; h++) {
        if (u->run->observe == KVR_OBSERVE_RAW)
            w->by[h] = 1;
        else
            w->by[h] = w->by[h] > 0 ? (kvr_real)1 / w->by[h] : 0;
    }
    if (u->run->group == KVR_GROUP_MAX)
        kernels->weigh_max(w->weight, w->row, w->by, u->n_head, wide);
    else
        kernels->weigh(w->weight, w->row, w->by, u->n_head,
                       u->run->group == KVR_GROUP_SUM ? (kvr_real)1
                                                      : (kvr_real)1 / g,
                       wide);
}

static void observe(struct unit *u, struct layer_work *w, struct kvr_view *view)
{
    const struct plan *plan = w->plan;
    const struct kvr_policy *policy = u->run->policy;
    const uint32_t wide = (view->n + 63) / 64 * 64;
    kvr_real constant[4] = {0};

    reduce(u, w, view->step);
    view->weight = w->weight;
    if ((policy->needs & KVR_NEEDS_ACCESS) != 0) {
        int inclusive;
        const kvr_real least =
            kvr__access_least(&plan->options->access, w->weight, u->resident,
                              view->n, u->n_resident, w->sorted, &inclusive);
        plan->kernels->above(w->accessed, w->weight, least, inclusive, wide);
        view->accessed = w->accessed;
    }
    if (policy->update != NULL) {
        if (policy->constants != NULL && !u->run->foreign)
            policy->constants(&u->setting, constant);
        else if (policy->constants != NULL &&
                 !kvr__foreign_constant(constant, policy, &u->setting))
            fail(u, view->step, "it sets more constants than the one there is");
        policy->update[plan->isa](u->score, w->weight, wide, view->step,
                                  constant);
    }
    if (policy->observed != NULL)
        policy->observed[plan->isa](u->state, view);
}

/* How many tokens have to go after row t. */
static uint32_t surplus(const struct unit *u, const struct plan *plan,
                        uint32_t t)
{
    const struct kvr_when *when = &plan->options->when;
    const uint32_t start = plan->options->stream_prefill ? 0 : plan->P - 1;

    if (t < start || u->n_resident <= u->target ||
        (u->run->policy->needs & KVR_KEEPS_ALL) != 0 ||
        u->run->policy->mask != NULL)
        return 0;
    if (when->kind == KVR_WHEN_EVERY && (t - start) % when->n != 0)
        return 0;
    if (when->kind == KVR_WHEN_OVERFLOW && u->n_resident <= u->cap)
        return 0;
    if (when->kind == KVR_WHEN_PROMPT_END && t != plan->P - 1)
        return 0;
    return u->n_resident - u->target;
}

/* Number `k` from the oldest of the candidates whose keys are lowest. */
static uint32_t equal_at(const struct unit *u, const struct kvr_view *view,
                         const kvr_real *key, kvr_real low,
                         const kvr_real *second, kvr_real low2, uint32_t k)
{
    for (uint32_t i = view->first; i < view->last; i++)
        if (u->resident[i] != 0 && key[i] == low &&
            (second == NULL || second[i] == low2) && k-- == 0)
            return i;
    return UINT32_MAX;
}

/* One of n equals, from a stream apart from the rule's own draws. */
static uint32_t draw_tie(const struct kvr_view *view, uint32_t n)
{
    struct draw ties = *(const struct draw *)view->ud;
    struct kvr_view apart = *view;

    ties.purpose = KVR_RANDOM_TIES;
    apart.ud = &ties;
    return below(&apart, view->n_resident, n);
}

/* The victim by ranking; *tied: how many were as good. */
static uint32_t rank(struct unit *u, struct layer_work *w,
                     struct kvr_view *view, const kvr_real *key,
                     const kvr_real *second)
{
    const struct kernels *kernels = w->plan->kernels;
    struct lowest found =
        kernels->lowest(key, u->resident, view->first, view->last);
    const kvr_real low = found.low;

    if (found.n == 0)
        return UINT32_MAX;
    if (second != NULL && found.n > 1)
        found = kernels->lowest_second(key, low, second, u->resident,
                                       view->first, view->last);
    *view->tied = found.n;
    if (found.n <= 1 || view->ties == KVR_TIES_OLDEST)
        return found.oldest;
    const uint32_t k =
        view->ties == KVR_TIES_NEWEST ? found.n - 1 : draw_tie(view, found.n);
    return equal_at(u, view, key, low, second, found.low, k);
}

static void evict_one(struct unit *u, struct layer_work *w,
                      struct kvr_view *view, uint32_t victim)
{
    const bool counted = view->step + 1 >= w->plan->P;

    if (victim < view->first || victim >= view->last ||
        u->resident[victim] == 0) {
        fail(u, view->step,
             victim == UINT32_MAX ? "it names no token that may leave"
                                  : "it names a token that may not leave");
        return;
    }
    if (counted)
        for (uint32_t c = 0; c < u->n_cache; c++) {
            u->tally[c].evictions++;
            u->tally[c].tied += *view->tied > 1;
            u->tally[c].tied_at_zero +=
                *view->tied > 1 && sees_rows(u->run) && w->weight[victim] == 0;
        }
    u->evicted_now++;
    if (u->log != NULL)
        u->log[u->n_log++] = (struct kvr_eviction){view->step, victim};
    clear(u, view, victim);
}

/* Ranks by the rule's form; keys are computed once per step. */
static void evict(struct unit *u, struct layer_work *w, struct kvr_view *view,
                  uint32_t n)
{
    const struct kvr_policy *policy = u->run->policy;
    const enum kvr_isa isa = w->plan->isa;
    const kvr_real *key = u->score, *second = NULL;

    if (policy->rank != NULL) {
        policy->rank[isa](w->key, u->score, view->n, view->step);
        key = w->key;
    } else if (policy->score != NULL) {
        if (u->run->foreign) /* what it leaves out shows */
            for (uint32_t i = 0; i < view->n; i++)
                w->key[i] = w->second[i] = (kvr_real)NAN;
        policy->score[isa](u->state, view, w->key, w->second);
        key = w->key;
        second = policy->two_keys ? w->second : NULL;
    }
    view->first = max_u32(u->oldest, u->protect_first);
    if (u->run->foreign && policy->victim == NULL) {
        const uint32_t bad = kvr__foreign_no_number(u, view, key, second);
        if (bad != UINT32_MAX) {
            char what[96];
            snprintf(what, sizeof what,
                     "its score of position %u is not a number", bad);
            fail(u, view->step, what);
        }
    }
    for (; n > 0 && u->status == KVR_OK; n--) {
        view->n_evict = n;
        w->tied = 1;
        view->tied = &w->tied;
        view->first = max_u32(u->oldest, u->protect_first);
        const uint32_t victim = policy->victim != NULL
                                    ? policy->victim[isa](u->state, view)
                                    : rank(u, w, view, key, second);
        evict_one(u, w, view, victim);
    }
    view->n_evict = 0;
}

static void evict_by_schedule(struct unit *u, struct layer_work *w,
                              struct kvr_view *view)
{
    const struct optimum *o = &w->optimum[u->first_cache];
    const uint32_t *leaves = o->leaves + u->run->budget_index * w->plan->T;

    if (isnan(o->loss[u->run->budget_index])) {
        fail(u, view->step, "no schedule keeps the protected tokens");
        return;
    }
    w->tied = 1;
    view->tied = &w->tied;
    view->first = 0;
    view->last = view->n;
    for (uint32_t i = 0; i < view->n && u->status == KVR_OK; i++)
        if (leaves[i] == view->step && u->resident[i] != 0)
            evict_one(u, w, view, i);
}

/* A mask rule says anew what row t may see. */
static void apply_mask(struct unit *u, struct layer_work *w,
                       struct kvr_view *view)
{
    const uint32_t wide = (view->n + 63) / 64 * 64;

    view->first = kvr__mask_from(w->shape, view->step);
    u->run->policy->mask[w->plan->isa](u->state, view, w->accessed);
    u->n_resident = 0;
    memset(u->bits, 0, w->plan->words * sizeof *u->bits);
    for (uint32_t i = 0; i < wide; i++)
        u->resident[i] = 0;
    for (uint32_t i = view->first; i < view->n; i++)
        if (w->accessed[i] != 0)
            set(u, i);
    view->n_resident = u->n_resident;
    if (u->resident[view->step] == 0)
        fail(u, view->step, "its mask hides the newest token");
}

static void see_facts(const struct unit *u, const struct layer_work *w,
                      struct kvr_view *view, uint32_t r)
{
    const struct plan *plan = w->plan;
    const struct facts *f = &w->facts[u->first_cache];
    const size_t nb = plan->options->n_budget;

    view->next_access =
        f->next_access != NULL ? f->next_access + r * plan->stride : NULL;
    view->future_mass = f->future != NULL ? f->future + r * plan->stride : NULL;
    view->column_mass = f->column;
    view->recorded = f->summed + r * plan->stride;
    view->top_least = f->least[r * nb + u->run->budget_index];
    if (u->run->foreign)
        kvr__foreign_hide(u, plan, view);
}

/* After the row. What the next one cannot see goes first, so that no token it
 * could see has to leave for it. */
static void make_room(struct unit *u, struct layer_work *w,
                      struct kvr_view *view)
{
    expire(u, w, view, view->step + 1);
    if ((u->run->policy->needs & KVR_NEEDS_SCHEDULE) != 0) {
        evict_by_schedule(u, w, view);
        return;
    }
    const uint32_t n = surplus(u, w->plan, view->step);
    if (n > 0)
        evict(u, w, view, n);
}

static void step(struct unit *u, struct layer_work *w, uint32_t t, uint32_t k,
                 uint32_t r)
{
    const struct plan *plan = w->plan;
    const struct kvr_policy *policy = u->run->policy;
    struct kvr_view *view = &u->view;
    const bool counted = t >= plan->P
                             ? t >= plan->score_first && t <= plan->score_last
                             : plan->options->stream_prefill;

    view->step = t;
    view->n = t + 1;
    view->first = view->n_evict = 0;
    view->last = t + 1 > u->protect_last ? t + 1 - u->protect_last : 0;
    view->weight = NULL;
    view->accessed = NULL;
    view->tied = NULL;
    u->evicted_now = 0;
    u->gone_from[t] = u->n_gone;
    __builtin_prefetch(&u->row_cost[t], 1);
    set(u, t);
    u->score[t] = 0;
    view->n_resident = u->n_resident;
    expire(u, w, view, t);
    see_facts(u, w, view, r);
    if (policy->insert != NULL)
        policy->insert(u->state, view);
    if (policy->mask != NULL && t >= plan->P)
        apply_mask(u, w, view);
    view->n_resident = u->n_resident;
    if (u->visible_at != NULL)
        u->visible_at[t] = u->n_resident;
    if (counted || sees_rows(u->run)) {
        weigh_heads(u, w, t, k, r);
        for (uint32_t c = 0; counted && c < u->n_cache; c++)
            kvr__unit_count(u, w, c, t, r, w->kept + c * w->group);
    }
    if (sees_rows(u->run))
        observe(u, w, view);
    make_room(u, w, view);
    if (u->steps != NULL && counted && t >= plan->P)
        for (uint32_t c = 0; c < u->n_cache; c++)
            u->steps[(size_t)c * u->n_m + t - plan->score_first].evicted =
                u->evicted_now;
}

void kvr__unit_advance(struct unit *u, struct layer_work *w, uint32_t first,
                       uint32_t k, uint32_t from, uint32_t end)
{
    for (uint32_t r = from; r < end && u->status == KVR_OK; r++) {
        step(u, w, first + r, k + r, r);
        u->gone_from[first + r + 1] = u->n_gone;
    }
    if (u->run->foreign && u->status == KVR_OK && kvr__foreign_slip(u) != NULL)
        fail(u, first + end - 1, kvr__foreign_slip(u));
    kvr__late_settle(u, w);
}
