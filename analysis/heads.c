/* heads.c -- all heads of a trace on many threads.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_head.h"

#include "kvr_memory.h"
#include "kvr_parallel.h"

#include <stdlib.h>

struct heads_job {
    const struct kvr_trace *trace;
    const struct kvr_head_item *items;
    struct kvr_trace_scratch **scratch;
    uint32_t prompt_len;
    kvr_head_fn fn;
    void *ud;
};

struct head_source {
    const struct kvr_trace *trace;
    struct kvr_head_item item;
    struct kvr_trace_scratch *scratch;
};

static enum kvr_status read_trace(void *ud, uint32_t first, uint32_t n,
                                  float *out, size_t stride,
                                  struct kvr_error *err)
{
    const struct head_source *s = ud;

    return kvr_trace_read_rows(s->trace, s->item.layer, s->item.head, first, n,
                               out, stride, s->scratch, err);
}

static enum kvr_status do_item(uint32_t item, uint32_t worker, void *ud,
                               struct kvr_error *err)
{
    const struct heads_job *job = ud;
    const struct kvr_trace_shape *shape = kvr_trace_shape(job->trace);
    const struct kvr_layer_shape *layer =
        &shape->layers[job->items[item].layer];
    struct head_source source = {.trace = job->trace,
                                 .item = job->items[item],
                                 .scratch = job->scratch[worker]};
    const struct kvr_head head = {
        .layer = layer->layer,
        .index = layer->head_index[source.item.head],
        .n_token = shape->n_token,
        .prompt_len = job->prompt_len,
        .mask = layer->mask,
        .span = layer->span,
        .read = read_trace,
        .ud = &source,
    };

    if (layer->mask == KVR_MASK_NONE)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED,
                        "%s: layer %u is bidirectional; the statistics are "
                        "of causal attention",
                        kvr_trace_path(job->trace), layer->layer);
    return job->fn(item, &head, job->ud, err);
}

enum kvr_status kvr_heads_run(const struct kvr_trace *trace,
                              const struct kvr_head_item *items, uint32_t n,
                              uint32_t prompt_len, uint32_t threads,
                              kvr_head_fn fn, void *ud, struct kvr_error *err)
{
    const struct kvr_trace_shape *shape = kvr_trace_shape(trace);
    const uint32_t workers = kvr_parallel_workers(n, threads);
    struct heads_job job = {.trace = trace, .items = items, .fn = fn, .ud = ud};
    enum kvr_status status = KVR_OK;

    job.prompt_len = prompt_len != 0 ? prompt_len : shape->prompt_len;
    if (job.prompt_len > shape->n_token)
        return kvr_fail(err, KVR_ERR_INPUT, "%s: prompt length %u of %u tokens",
                        kvr_trace_path(trace), job.prompt_len, shape->n_token);
    if (!kvr_trace_facts(trace)->has_rows)
        return kvr_fail(err, KVR_ERR_UNSUPPORTED, "%s: holds no attention rows",
                        kvr_trace_path(trace));
    job.scratch = kvr_calloc(workers, sizeof *job.scratch);
    if (job.scratch == NULL)
        return kvr_no_memory(err, "scratch", workers * sizeof *job.scratch);
    for (uint32_t w = 0; w < workers && status == KVR_OK; w++)
        status = kvr_trace_scratch_new(&job.scratch[w], trace, err);
    if (status == KVR_OK)
        status = kvr_parallel_for(n, threads, do_item, &job, err);
    for (uint32_t w = 0; w < workers; w++)
        kvr_trace_scratch_free(job.scratch[w]);
    free(job.scratch);
    return status;
}
