/* submodular_greedy.c -- the token leaves whose loss a concave coverage of the
 * last rows feels least.
 *
 * F(S) = sum over the last `history` rows q of h(mass of S in row q), h
 * concave: monotone submodular, so forward greedy keeps (1 - 1/e) of its best
 * (Nemhauser et al. 1978). H2O's own h acts on one total and cannot change a
 * decision; here each row saturates by itself. Rows are observed raw and count
 * residents only; masses are double in every build. Known answer: submod_sqrt
 * in tests/golden/policy_cases.json.
 *
 * State: every resident has a slot with its weight in each of the last rows,
 * slot-major, so that one candidate's loss is one pass over contiguous rows.
 * Longer than most rules: it owns a history and two ways to shrink.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_elementwise.h"

#include <math.h>
#include <string.h>

enum { RECENT, HISTORY, H, SHRINK, EPS, TAU };
enum { SQRT, LOG, CAP };
enum { DELETE, FORWARD };
enum { LANES = 8 };
static const uint32_t NONE = UINT32_MAX;
static const double TIE = 1e-12;

static const struct kvr_param params[] = {
    [RECENT] = {.name = "recent",
                .type = KVR_PARAM_TOKENS,
                .fallback = "B/2",
                .help = "newest tokens that never leave"},
    [HISTORY] = {.name = "history",
                 .type = KVR_PARAM_COUNT,
                 .fallback = "400",
                 .min = 1,
                 .max = 65536,
                 .help = "rows that count"},
    [H] = {.name = "h",
           .type = KVR_PARAM_CHOICE,
           .fallback = "sqrt",
           .choices = "sqrt|log|cap",
           .help = "sqrt(m), log(1 + m/eps) or min(m, tau)"},
    [SHRINK] = {.name = "shrink",
                .type = KVR_PARAM_CHOICE,
                .fallback = "delete",
                .choices = "delete|forward",
                .help = "several evictions at once: repeated best deletion, "
                        "or forward greedy"},
    [EPS] = {.name = "eps",
             .type = KVR_PARAM_REAL,
             .fallback = "0.01",
             .min = 1e-9,
             .max = 1,
             .help = "of h=log"},
    [TAU] = {.name = "tau",
             .type = KVR_PARAM_REAL,
             .fallback = "0.5",
             .min = 1e-9,
             .max = 1,
             .help = "of h=cap"},
    {.name = NULL},
};

/* The parts of the state, at 64-byte boundaries. */
struct greedy_parts {
    uint32_t *slot_of; /* [n_token] NONE: absent */
    uint32_t *owner;   /* [n_slot] position, NONE: free */
    double *key;       /* [n_token] loss, for the ranking */
    double *mass;      /* [rows] of the residents in each row */
    kvr_real *weight;  /* [n_slot][rows] */
    uint32_t *leaving; /* [n_token] marks of a forward shrink */
    uint32_t n_slot, rows;
};

static size_t align(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static uint32_t slots(const struct kvr_setting *s)
{
    return s->capacity;
}

static uint32_t row_room(const struct kvr_setting *s)
{
    const uint32_t history =
        s->arg[HISTORY].count < s->n_token ? s->arg[HISTORY].count : s->n_token;

    return (history + LANES - 1) / LANES * LANES;
}

static size_t state_size(const struct kvr_setting *s)
{
    const size_t n = s->n_token, rows = row_room(s);

    return 2 * align(n * sizeof(uint32_t)) + align(n * sizeof(double)) +
           align(slots(s) * sizeof(uint32_t)) + align(rows * sizeof(double)) +
           align((size_t)slots(s) * rows * sizeof(kvr_real));
}

static struct greedy_parts parts_of(void *state, const struct kvr_setting *s)
{
    struct greedy_parts p = {.n_slot = slots(s), .rows = row_room(s)};
    char *at = (char *)state;

    p.slot_of = (uint32_t *)(void *)at;
    at += align(s->n_token * sizeof(uint32_t));
    p.leaving = (uint32_t *)(void *)at;
    at += align(s->n_token * sizeof(uint32_t));
    p.key = (double *)(void *)at;
    at += align(s->n_token * sizeof(double));
    p.owner = (uint32_t *)(void *)at;
    at += align(p.n_slot * sizeof(uint32_t));
    p.mass = (double *)(void *)at;
    at += align(p.rows * sizeof(double));
    p.weight = (kvr_real *)(void *)at;
    return p;
}

static void begin(void *state, const struct kvr_setting *s)
{
    struct greedy_parts p = parts_of(state, s);

    for (uint32_t i = 0; i < s->n_token; i++)
        p.slot_of[i] = NONE;
    for (uint32_t i = 0; i < p.n_slot; i++)
        p.owner[i] = NONE;
}

static void insert(void *state, const struct kvr_view *view)
{
    struct greedy_parts p = parts_of(state, view->setting);
    uint32_t slot = 0;

    while (slot < p.n_slot && p.owner[slot] != NONE)
        slot++;
    if (slot == p.n_slot)
        return; /* the engine never holds more than its capacity */
    p.owner[slot] = view->step;
    p.slot_of[view->step] = slot;
    memset(p.weight + (size_t)slot * p.rows, 0, p.rows * sizeof *p.weight);
}

static void leave(void *state, const struct kvr_view *view, uint32_t position)
{
    struct greedy_parts p = parts_of(state, view->setting);

    if (p.slot_of[position] != NONE)
        p.owner[p.slot_of[position]] = NONE;
    p.slot_of[position] = NONE;
}

KVR_INLINE void remember(void *state, const struct kvr_view *view)
{
    struct greedy_parts p = parts_of(state, view->setting);
    const uint32_t row = view->step % view->setting->arg[HISTORY].count;

    if (row >= p.rows)
        return; /* a history beyond T: rows wrap at T, which never comes */
    for (uint32_t i = 0; i < p.n_slot; i++)
        p.weight[(size_t)i * p.rows + row] =
            p.owner[i] != NONE ? view->weight[p.owner[i]] : 0;
}
KVR_OBSERVED(remember)

KVR_INLINE void sum_masses(struct greedy_parts *p)
{
    memset(p->mass, 0, p->rows * sizeof *p->mass);
    for (uint32_t s = 0; s < p->n_slot; s++) {
        const kvr_real *restrict w = p->weight + (size_t)s * p->rows;
        double *restrict m = p->mass;
        if (p->owner[s] == NONE)
            continue;
        for (uint32_t q = 0; q < p->rows; q++)
            m[q] += (double)w[q];
    }
}

KVR_INLINE double h_of(double mass, const struct kvr_arg *arg)
{
    const double m = mass > 0 ? mass : 0;

    if (arg[H].count == LOG)
        return log(1 + m / arg[EPS].real);
    if (arg[H].count == CAP)
        return m < arg[TAU].real ? m : arg[TAU].real;
    return sqrt(m);
}

/* sum over rows of h(m) - h(m + sign * w): 8 lanes, in a fixed order. */
KVR_INLINE double change(const struct greedy_parts *p, uint32_t slot,
                         double sign, const struct kvr_arg *arg)
{
    const kvr_real *restrict w = p->weight + (size_t)slot * p->rows;
    const double *restrict m = p->mass;
    double lane[LANES] = {0};

    if (arg[H].count == SQRT) {
        for (uint32_t q = 0; q < p->rows; q += LANES)
            for (uint32_t l = 0; l < LANES; l++) {
                const double rest = m[q + l] + sign * (double)w[q + l];
                lane[l] += sqrt(m[q + l]) - sqrt(rest > 0 ? rest : 0);
            }
    } else {
        for (uint32_t q = 0; q < p->rows; q += LANES)
            for (uint32_t l = 0; l < LANES; l++)
                lane[l] += h_of(m[q + l], arg) -
                           h_of(m[q + l] + sign * (double)w[q + l], arg);
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Marks the victims of a forward shrink: everything that greedy additions to
 * the protected tokens do not reach. */
KVR_INLINE void forward(struct greedy_parts *p, const struct kvr_view *view)
{
    const struct kvr_arg *arg = view->setting->arg;
    uint32_t keep = 0;

    memset(p->mass, 0, p->rows * sizeof *p->mass);
    for (uint32_t i = 0; i < view->n; i++) {
        const int candidate = i >= view->first && i < view->last;
        p->leaving[i] = view->resident[i] != 0 && candidate;
        keep += p->leaving[i];
        if (view->resident[i] == 0 || candidate)
            continue;
        const kvr_real *w = p->weight + (size_t)p->slot_of[i] * p->rows;
        for (uint32_t q = 0; q < p->rows; q++)
            p->mass[q] += (double)w[q];
    }
    for (keep -= view->n_evict; keep > 0; keep--) {
        uint32_t best = NONE;
        double most = 0;
        for (uint32_t i = view->first; i < view->last; i++) {
            if (p->leaving[i] == 0)
                continue;
            const double gain = -change(p, p->slot_of[i], 1, arg);
            /* Equal gains: the newer stays, the oldest leaves. */
            if (best == NONE || gain >= most - TIE) {
                most = best == NONE || gain > most ? gain : most;
                best = i;
            }
        }
        p->leaving[best] = 0;
        const kvr_real *w = p->weight + (size_t)p->slot_of[best] * p->rows;
        for (uint32_t q = 0; q < p->rows; q++)
            p->mass[q] += (double)w[q];
    }
}

KVR_INLINE uint32_t least_loss(void *state, const struct kvr_view *view)
{
    struct greedy_parts p = parts_of(state, view->setting);
    const struct kvr_arg *arg = view->setting->arg;

    if (arg[SHRINK].count == FORWARD) {
        uint32_t marked = 0;
        for (uint32_t i = view->first; i < view->last; i++)
            marked += view->resident[i] != 0 && p.leaving[i] != 0;
        if (marked != view->n_evict && view->n_evict > 1)
            forward(&p, view);
        for (uint32_t i = view->first; i < view->last; i++)
            if (view->resident[i] != 0 && p.leaving[i] != 0) {
                p.leaving[i] = 0;
                return i;
            }
    }
    sum_masses(&p);
    for (uint32_t i = view->first; i < view->last; i++)
        if (view->resident[i] != 0)
            p.key[i] = change(&p, p.slot_of[i], -1, arg);
    return kvr_lowest(view, p.key, TIE);
}
KVR_VICTIM(least_loss)

static void window(const struct kvr_setting *setting, struct kvr_window *out)
{
    out->last = setting->arg[RECENT].count;
}

const struct kvr_policy kvr__policy_submodular_greedy = {
    .abi = KVR_POLICY_ABI,
    .name = "submodular-greedy",
    .summary = "least loss of a concave coverage of the last rows leaves",
    .cite = "this project; Nemhauser et al. 1978 for the greedy bound",
    .budget_note = "B tokens between steps, `recent` of them the newest",
    .params = params,
    .class_of = KVR_CLASS_ONLINE,
    .observe = KVR_OBSERVE_RAW,
    .group = KVR_GROUP_MEAN,
    .state_size = state_size,
    .begin = begin,
    .window = window,
    .insert = insert,
    .leave = leave,
    .observed = remember_isa,
    .victim = least_loss_isa,
};
