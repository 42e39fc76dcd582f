/* run.c -- decoding with recording: prompt chunks, then one token at a time.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "capture_private.h"

#include "kvr_file.h"
#include "kvr_log.h"
#include "kvr_memory.h"
#include "kvr_text.h"
#include "sample.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

struct capture_run {
    struct kvr_capture *capture;
    struct kvr_decoder *decoder;
    struct kvr_recorder recorder;
    struct kvr_sampler sampler;
    float *logits; /* [n_vocab] */
    kvr_capture_progress progress;
    void *ud;
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static enum kvr_status check_room(const struct kvr_capture *c,
                                  struct kvr_error *err)
{
    const struct kvr_capture_plan *plan = &c->plan;
    char need[32], have[32];

    if (c->options.memory > 0 && plan->memory_bytes > c->options.memory) {
        kvr_format_bytes(need, plan->memory_bytes);
        kvr_format_bytes(have, c->options.memory);
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "about %s of memory are needed, %s are allowed "
                        "(--memory); --layers, --heads or fewer tokens need "
                        "less",
                        need, have);
    }
    if (plan->disk_bytes > plan->disk_free) {
        kvr_format_bytes(need, plan->disk_bytes);
        kvr_format_bytes(have, plan->disk_free);
        return kvr_fail(err, KVR_ERR_LIMIT,
                        "%s: about %s are needed on the disk while writing, "
                        "%s are free; --layers, --heads or --round-bits "
                        "make a trace smaller",
                        c->options.output, need, have);
    }
    return KVR_OK;
}

/* Logits after each of the n tokens of the last feed. They go to the writer
 * from here: nobody else may be there. */
static enum kvr_status record_logits(struct capture_run *run, uint32_t first,
                                     uint32_t n, struct kvr_error *err)
{
    enum kvr_status status = kvr__decoder_drain(run->decoder, err);

    for (uint32_t i = 0; i < n && status == KVR_OK; i++) {
        status = kvr__decoder_logits(run->decoder, run->logits, i, err);
        if (status == KVR_OK)
            status = kvr__recorder_logits(&run->recorder, first + i,
                                          run->logits, err);
    }
    return status;
}

/* Feeds the tokens from the decoder's position up to `end`, and hands them to
 * the recorder with the probability of the token after each. The step is
 * closed once the recorder has all of it, which may be during the next. */
static enum kvr_status feed(struct capture_run *run, uint32_t end,
                            struct kvr_error *err)
{
    struct kvr_capture *c = run->capture;
    const uint32_t first = kvr__decoder_position(run->decoder);
    const uint32_t n = end - first;
    const uint32_t known = (uint32_t)c->tokens.n - first - 1;
    const uint32_t targets = known < n ? known : n;
    enum kvr_status status;

    status = kvr__decoder_feed(run->decoder, c->tokens.ids + first, n,
                               &run->recorder.observer, err);
    if (status == KVR_OK && targets > 0)
        status = kvr__decoder_log_prob(run->decoder,
                                       run->recorder.log_prob + first + 1,
                                       c->tokens.ids + first + 1, targets, err);
    if (status == KVR_OK && (c->options.with & KVR_CAPTURE_LOGITS) != 0)
        status = record_logits(run, first, n, err);
    if (status == KVR_OK)
        status = kvr__decoder_defer(run->decoder, kvr__recorder_commit,
                                    &run->recorder, first, n, err);
    if (status == KVR_OK && run->progress != NULL)
        run->progress(end, c->plan.n_token_max, run->ud);
    return status;
}

static enum kvr_status feed_given(struct capture_run *run,
                                  struct kvr_error *err)
{
    const uint32_t given = run->capture->plan.n_given;
    const uint32_t chunk = run->capture->prompt_chunk;
    enum kvr_status status = KVR_OK;

    for (uint32_t at = 0; at < given && status == KVR_OK;) {
        const uint32_t end = given - at < chunk ? given : at + chunk;
        status = feed(run, end, err);
        at = end;
    }
    return status;
}

static enum kvr_status generate(struct capture_run *run,
                                struct kvr_capture_result *result,
                                struct kvr_error *err)
{
    struct kvr_capture *c = run->capture;
    const size_t n_vocab = c->model.config.n_vocab;
    uint32_t row = (c->plan.n_given - 1) % c->prompt_chunk;
    enum kvr_status status = KVR_OK;

    for (uint32_t i = 0; i < c->options.n_generate && !result->ended;
         i++, row = 0) {
        const uint32_t step = (uint32_t)c->tokens.n;
        status = kvr__decoder_logits(run->decoder, run->logits, row, err);
        if (status != KVR_OK)
            return status;
        const int32_t id = kvr__sampler_next(&run->sampler, run->logits, step);
        run->recorder.log_prob[step] =
            kvr__log_prob_of(run->logits, n_vocab, id);
        if ((status = kvr__ids_add(&c->tokens, id, err)) != KVR_OK ||
            (status = feed(run, step + 1, err)) != KVR_OK)
            return status;
        result->n_generated++;
        result->ended = !c->options.ignore_eos && c->tokenizer != NULL &&
                        kvr__tokenizer_is_end(c->tokenizer, id);
    }
    return status;
}

static enum kvr_status decode(struct capture_run *run,
                              struct kvr_capture_result *result,
                              struct kvr_error *err)
{
    const double start = seconds();
    enum kvr_status status;

    if ((status = feed_given(run, err)) != KVR_OK ||
        (status = kvr__decoder_drain(run->decoder, err)) != KVR_OK)
        return status;
    const double middle = seconds();
    result->prompt_seconds = middle - start;
    if ((status = generate(run, result, err)) != KVR_OK ||
        (status = kvr__decoder_drain(run->decoder, err)) != KVR_OK)
        return status;
    result->decode_seconds = seconds() - middle;
    result->n_token = (uint32_t)run->capture->tokens.n;
    return kvr__recorder_finish(&run->recorder, err);
}

static enum kvr_status prepare(struct capture_run *run, struct kvr_error *err)
{
    struct kvr_capture *c = run->capture;
    const struct kvr_decoder_options options = kvr__capture_decoder(c);
    enum kvr_status status;

    run->logits = kvr_calloc(c->model.config.n_vocab, sizeof *run->logits);
    if (run->logits == NULL)
        return kvr_no_memory(err, "logits", c->model.config.n_vocab);
    /* the recorder reads ids while others are added: they must not move */
    if (!kvr_grow((void **)&c->tokens.ids, &c->tokens.capacity,
                  c->plan.n_token_max, sizeof *c->tokens.ids))
        return kvr_no_memory(err, "token ids", c->plan.n_token_max);
    if ((status = kvr__sampler_init(&run->sampler, c->options.temperature,
                                    c->options.top_p > 0 ? c->options.top_p : 1,
                                    c->options.seed, c->model.config.n_vocab,
                                    err)) != KVR_OK ||
        (status = kvr__decoder_new(&run->decoder, &c->model, c->backend,
                                   &options, err)) != KVR_OK)
        return status;
    return kvr__recorder_init(&run->recorder, c, err);
}

enum kvr_status kvr_capture_run(struct kvr_capture *c,
                                struct kvr_capture_result *result,
                                kvr_capture_progress progress, void *ud,
                                struct kvr_error *err)
{
    struct capture_run run = {.capture = c, .progress = progress, .ud = ud};
    enum kvr_status status;

    *result = (struct kvr_capture_result){0};
    if (c->ran || c->options.output == NULL)
        return kvr_fail(err, KVR_ERR_INTERNAL,
                        "a capture runs once, with an output");
    c->ran = true;
    if ((status = check_room(c, err)) != KVR_OK)
        return status;
    if (progress != NULL)
        progress(0, c->plan.n_token_max, ud);
    status = prepare(&run, err);
    if (status == KVR_OK) {
        status = decode(&run, result, err);
        /* the steps before a failure are closed */
        if (status != KVR_OK && kvr__decoder_drain(run.decoder, NULL) != KVR_OK)
            kvr_log(KVR_LOG_DETAIL, "recording had failed too");
    }
    kvr__decoder_free(run.decoder); /* then nobody calls the recorder */
    kvr__recorder_fini(&run.recorder);
    kvr__sampler_fini(&run.sampler);
    free(run.logits);
    return status;
}
