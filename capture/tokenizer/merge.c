/* merge.c -- a linked list of symbols and a heap of candidate pairs.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "merge.h"

#include "kvr_memory.h"

#include <stdlib.h>

/* A pair as it was when it was pushed; stale once a size has changed. */
struct kvr_candidate {
    double cost;
    size_t left, left_size, right_size;
    int32_t id;
};

enum kvr_status kvr__merger_add(struct kvr_merger *m, size_t at, size_t size,
                                int32_t id, struct kvr_error *err)
{
    if (!kvr_grow((void **)&m->symbols, &m->capacity, m->n + 1,
                  sizeof *m->symbols))
        return kvr_no_memory(err, "a word", m->n * sizeof *m->symbols);
    m->symbols[m->n] = (struct kvr_symbol){
        .at = at,
        .size = size,
        .id = id,
        .previous = m->n > 0 ? m->n - 1 : SIZE_MAX,
        .next = SIZE_MAX,
    };
    if (m->n > 0)
        m->symbols[m->n - 1].next = m->n;
    m->n++;
    return KVR_OK;
}

static bool before(const struct kvr_candidate *a, const struct kvr_candidate *b)
{
    return a->cost < b->cost || (a->cost == b->cost && a->left < b->left);
}

static void sift_up(struct kvr_candidate *heap, size_t i)
{
    const struct kvr_candidate item = heap[i];

    for (; i > 0 && before(&item, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = item;
}

static void sift_down(struct kvr_candidate *heap, size_t n)
{
    const struct kvr_candidate item = heap[0];
    size_t i = 0;

    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &item))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = item;
}

static enum kvr_status push(struct kvr_merger *m, size_t left, kvr_merge_fn fn,
                            void *ud, struct kvr_error *err)
{
    struct kvr_candidate c = {.left = left};

    if (left == SIZE_MAX || m->symbols[left].next == SIZE_MAX)
        return KVR_OK;
    const struct kvr_symbol *a = &m->symbols[left];
    const struct kvr_symbol *b = &m->symbols[a->next];
    if (!fn(ud, a, b, &c.id, &c.cost))
        return KVR_OK;
    c.left_size = a->size;
    c.right_size = b->size;
    if (!kvr_grow((void **)&m->heap, &m->heap_capacity, m->n_heap + 1,
                  sizeof *m->heap))
        return kvr_no_memory(err, "a word", m->n_heap * sizeof *m->heap);
    m->heap[m->n_heap] = c;
    sift_up(m->heap, m->n_heap++);
    return KVR_OK;
}

static struct kvr_candidate pop(struct kvr_merger *m)
{
    const struct kvr_candidate top = m->heap[0];

    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap > 0)
        sift_down(m->heap, m->n_heap);
    return top;
}

/* A symbol that was swallowed has size 0. */
static bool is_current(const struct kvr_merger *m,
                       const struct kvr_candidate *c)
{
    const struct kvr_symbol *a = &m->symbols[c->left];

    return a->size == c->left_size && a->next != SIZE_MAX &&
           m->symbols[a->next].size == c->right_size;
}

static void join(struct kvr_merger *m, const struct kvr_candidate *c)
{
    struct kvr_symbol *a = &m->symbols[c->left];
    struct kvr_symbol *b = &m->symbols[a->next];

    a->size += b->size;
    a->id = c->id;
    b->size = 0;
    a->next = b->next;
    if (b->next != SIZE_MAX)
        m->symbols[b->next].previous = c->left;
}

enum kvr_status kvr__merger_run(struct kvr_merger *m, kvr_merge_fn fn, void *ud,
                                struct kvr_error *err)
{
    enum kvr_status status = KVR_OK;

    m->n_heap = 0;
    for (size_t i = 0; i + 1 < m->n && status == KVR_OK; i++)
        status = push(m, i, fn, ud, err);
    while (status == KVR_OK && m->n_heap > 0) {
        const struct kvr_candidate c = pop(m);
        if (!is_current(m, &c))
            continue;
        join(m, &c);
        status = push(m, m->symbols[c.left].previous, fn, ud, err);
        if (status == KVR_OK)
            status = push(m, c.left, fn, ud, err);
    }
    return status;
}

void kvr__merger_fini(struct kvr_merger *m)
{
    free(m->symbols);
    free(m->heap);
    *m = (struct kvr_merger){0};
}
