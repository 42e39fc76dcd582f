/* check_cli.c -- the contract of the command line: exit codes, one message,
 * formats, the same bytes for any number of threads and instruction set.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_isa.h"
#include "kvr_trace.h"

#include "program.h"

#include <math.h>
#include <sys/stat.h>

#define KV KVR_PROGRAM " "

START_TEST(wrong_usage_exits_2_with_one_message)
{
    must_say(2, "unknown command 'frob'", KV "frob");
    must_say(2, "unknown option '--frob'", KV "replay --frob x");
    must_say(2, "expected TRACE..", KV "replay");
    must_say(2, "unknown policy 'nope'", KV "replay %s -p nope -b 20%%",
             SAMPLE_TRACE);
    must_say(2, "no parameter 'resent'", KV "replay %s -p h2o:resent=1 -b 20%%",
             SAMPLE_TRACE);
    must_say(2, "decay=2, expected", KV "replay %s -p h2o:decay=2 -b 20%%",
             SAMPLE_TRACE);
    must_say(2, "a cache of no tokens", KV "replay %s -p h2o -b 0",
             SAMPLE_TRACE);
    must_say(2, "less than the 40 protected",
             KV "replay %s -p h2o -b 20 --protect-first 40", SAMPLE_TRACE);
    must_say(2, "expected above-uniform",
             KV "replay %s -p lru -b 20 --access often", SAMPLE_TRACE);
    must_say(2, "--policy and --budget are needed", KV "replay %s -p lru",
             SAMPLE_TRACE);
    must_say(2, "ends in .json", KV "replay %s -p lru -b 9 --save x.png",
             SAMPLE_TRACE);
    must_say(2, "expected base, avx2 or avx512",
             "KVREPLAY_ISA=mmx " KV "replay %s -p lru -b 9", SAMPLE_TRACE);
}
END_TEST

START_TEST(bad_input_exits_3_and_leaves_nothing)
{
    char name[256];

    scratch_name(name, ".json");
    must_say(3, "cannot be opened", KV "replay /nonexistent -p h2o -b 9");
    must_say(3, "no decode row", KV "replay %s -p h2o -b 9 --prompt-len 381",
             SAMPLE_TRACE);
    must_say(3, "--memory allows", KV "replay %s -p h2o -b 9 --memory 1M",
             SAMPLE_TRACE);
    must_say(3, "(--memory)", KV "sparsity %s --memory 10k", SAMPLE_TRACE);
    must_say(3, "(--memory)", KV "trace check %s --memory 10k", SAMPLE_TRACE);
    must_say(3, "(--memory)",
             KV "trace synth --kind zipf -T 512 --memory 10k -o %s", name);
    must_say(0, "", KV "replay %s -p h2o -b 9 --format json -o %s",
             SAMPLE_TRACE, name);
    must_say(3, "exists", KV "replay %s -p h2o -b 9 --format json -o %s",
             SAMPLE_TRACE, name);
    must_say(0, "", KV "replay %s -p h2o -b 9 --format json -o %s --force",
             SAMPLE_TRACE, name);
    unlink(name);
}
END_TEST

/* --force overwrites outputs, never inputs, and never two outputs by one. */
START_TEST(outputs_that_cannot_be_meant_are_refused_before_work)
{
    char trace[256], list[256], *out;

    scratch_name(trace, ".kvt.h5");
    scratch_name(list, ".csv");
    ck_assert_int_eq(run_program(&out, "cp %s %s", SAMPLE_TRACE, trace), 0);
    free(out);
    must_say(2, "is an input", KV "replay %s -p h2o -b 9 -o %s --force", trace,
             trace);
    must_say(2, "is an input",
             KV "replay %s -p h2o -b 9 --evictions %s --force", trace, trace);
    must_say(2, "is an input", KV "sparsity %s --save ./%s -o %s --force",
             trace, "x.txt", trace);
    must_say(2, "named for two outputs",
             KV "replay %s -p h2o -b 9 --evictions %s --steps %s --force",
             trace, list, list);
    must_say(3, "its folder does not exist",
             KV "replay %s -p h2o -b 9 -o /nonexistent/x.json", trace);
    must_say(3, "is no regular file",
             KV "trace import %s/awkward/att_ok_f32.npy --axes lhqk "
                "--prompt-len 4 --n-kv-head 2 -o /dev/full --force",
             KVR_TEST_DATA);
    must_say(3, "No space left", "sh -c '" KV "help >/dev/full'");
    must_say(0, "", "cmp %s %s", SAMPLE_TRACE, trace);
    unlink(trace);
}
END_TEST

START_TEST(help_lists_every_command)
{
    must_say(0, "replay", KV "help");
    must_say(0, "--protect-first", KV "replay --help");
    must_say(0, "kvreplay ", KV "--version");
    must_say(0, "graduation", KV "policies h2o");
}
END_TEST

START_TEST(json_is_strict_and_complete)
{
    char *out;
    ck_assert_int_eq(run_program(&out,
                                 KV "replay -q %s -p h2o,topk -b 20%% "
                                    "--format json",
                                 SAMPLE_TRACE),
                     0);
    json_t *root = json_of(out);
    ck_assert_str_eq(json_string_value(json_object_get(root, "schema")),
                     "kvreplay.replay/1");
    const json_t *results = json_object_get(root, "results");
    ck_assert_uint_eq(json_array_size(results), 2);
    const json_t *item = json_array_get(results, 0);
    static const char *const keys[] = {"policy",
                                       "params",
                                       "class",
                                       "observe",
                                       "group",
                                       "budget",
                                       "miss_mass",
                                       "kl",
                                       "hit_ratio",
                                       "recall",
                                       "overlap",
                                       "occupancy",
                                       "evictions",
                                       "tie_share",
                                       "late_importance",
                                       "oracle",
                                       "oracle_matched",
                                       "heads",
                                       "scope"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        ck_assert_msg(json_object_get(item, keys[i]) != NULL, "no %s", keys[i]);
    ck_assert(json_is_null(json_object_get(item, "oracle")));
    ck_assert_str_eq(json_string_value(json_object_get(item, "oracle_reason")),
                     "not computed");
    ck_assert_uint_eq(json_array_size(json_object_get(item, "heads")), 12);
    json_decref(root);
    free(out);
}
END_TEST

/* Same bytes as the first run, with other threads or instruction set. */
static void same_bytes(const char *arguments)
{
    char *first, *other;

    ck_assert_int_eq(run_program(&first,
                                 "KVREPLAY_ISA=base " KV
                                 "%s --threads 1 --no-provenance",
                                 arguments),
                     0);
    for (int isa = 0; isa < KVR_N_ISA; isa++) {
        if (!kvr_isa_available((enum kvr_isa)isa)) {
            printf("skipped: this processor lacks %s\n",
                   kvr_isa_name((enum kvr_isa)isa));
            continue;
        }
        ck_assert_int_eq(
            run_program(&other,
                        "KVREPLAY_ISA=%s " KV "%s --threads 2 --no-provenance",
                        kvr_isa_name((enum kvr_isa)isa), arguments),
            0);
        ck_assert_msg(strcmp(first, other) == 0, "%s: %s differs from base",
                      arguments, kvr_isa_name((enum kvr_isa)isa));
        free(other);
    }
    free(first);
}

START_TEST(threads_and_instruction_sets_give_the_same_bytes)
{
    char line[1024];

    snprintf(line, sizeof line,
             "replay -q %s -p h2o,lru,lfu,tova,random,window,"
             "streaming-llm,full,topk,h2o:average=1,belady,greedy-future,"
             "submodular-greedy -b 5%%,20%% --format json",
             SAMPLE_TRACE);
    same_bytes(line);
    snprintf(line, sizeof line,
             "replay -q %s -p lru,tova,submodular-greedy -b 5%% "
             "--ties random --seeds 2 --seed 3 --format csv",
             SAMPLE_TRACE);
    same_bytes(line);
    snprintf(line, sizeof line, "gap -q %s -p h2o,tova -b 10%% --format csv",
             SAMPLE_TRACE);
    same_bytes(line);
    snprintf(line, sizeof line, "sparsity -q %s --format json", SAMPLE_TRACE);
    same_bytes(line);
    snprintf(line, sizeof line, "powerlaw -q %s --format json", SAMPLE_TRACE);
    same_bytes(line);
}
END_TEST

/* A table without a fit says so; it has no median. */
START_TEST(nothing_fitted_is_said)
{
    char name[256], *out;

    scratch_name(name, ".kvt.h5");
    must_say(0, "", KV "trace synth -T 4 --heads 2 --layers 1 -q -o %s", name);
    ck_assert_int_eq(run_program(&out, KV "powerlaw -q %s", name), 0);
    ck_assert_ptr_nonnull(strstr(out, "none of 2 fitted."));
    ck_assert_ptr_null(strstr(out, "nan"));
    free(out);
    unlink(name);
}
END_TEST

START_TEST(csv_has_every_scope)
{
    char *out;

    ck_assert_int_eq(run_program(&out,
                                 KV "replay -q %s -p h2o -b 20%% --format csv",
                                 SAMPLE_TRACE),
                     0);
    size_t lines = 0;
    for (const char *c = out; *c != '\0'; c++)
        lines += *c == '\n';
    ck_assert_uint_eq(lines, 1 + 1 + 4 + 12);
    ck_assert_ptr_nonnull(strstr(out, ",model,"));
    ck_assert_ptr_nonnull(strstr(out, ",layer,"));
    ck_assert_ptr_nonnull(strstr(out, ",kv_head,"));
    free(out);
}
END_TEST

/* Loss, evictions and peak occupancy as the lists say them. */
START_TEST(lists_agree_with_the_table)
{
    char evictions[256], steps[256], *out;

    scratch_name(evictions, ".csv");
    scratch_name(steps, ".csv");
    ck_assert_int_eq(run_program(&out,
                                 KV "replay -q %s -p h2o -b 20%% --format json "
                                    "--evictions %s --steps %s",
                                 SAMPLE_TRACE, evictions, steps),
                     0);
    json_t *root = json_of(out);
    const json_t *item = json_array_get(json_object_get(root, "results"), 0);
    FILE *file = fopen(evictions, "r");
    char line[512];
    long n = -1;
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL)
        n++;
    fclose(file);
    ck_assert_int_eq(n, json_integer_value(json_object_get(item, "evictions")));
    file = fopen(steps, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    ck_assert_str_eq(line,
                     "policy,budget,layer,kv_head,step,visible,miss,evicted\n");
    for (n = 0; fgets(line, sizeof line, file) != NULL; n++)
        ck_assert_ptr_nonnull(strstr(line, ",77,"));
    fclose(file);
    ck_assert_int_eq(n, 12 * (381 - 128));
    unlink(evictions);
    unlink(steps);
    json_decref(root);
    free(out);
}
END_TEST

/* What cannot be written is refused before anything is computed. */
START_TEST(folders_and_long_names_are_no_outputs)
{
    char folder[256], name[300] = "/tmp/";

    scratch_name(folder, "");
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    must_say(3, "is a folder", KV "replay %s -p h2o -b 9 -o %s --force",
             SAMPLE_TRACE, folder);
    must_say(3, "is a folder",
             KV "replay %s -p h2o -b 9 --evictions %s --force", SAMPLE_TRACE,
             folder);
    must_say(3, "is a folder", KV "trace synth -T 20 -o %s --force", folder);
    rmdir(folder);
    memset(name + 5, 'x', 248);
    must_say(3, "name is too long", KV "trace synth -T 20 -o %s", name);
    must_say(3, "name is too long", KV "replay %s -p h2o -b 9 -o %s",
             SAMPLE_TRACE, name);
    must_say(2, "SOURCE_DATE_EPOCH",
             "SOURCE_DATE_EPOCH=x " KV "trace synth -T 20 -o %s", folder);
    ck_assert(access(folder, F_OK) != 0);
}
END_TEST

/* Standard output that is full: one message. */
START_TEST(a_full_output_is_said_once)
{
    char *said;

    ck_assert_int_eq(run_program(&said,
                                 "sh -c '" KV "replay %s -p h2o -b 9 -q "
                                 "2>&1 >/dev/full'",
                                 SAMPLE_TRACE),
                     3);
    const char *first = strstr(said, "standard output");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(strstr(first + 1, "standard output"));
    free(said);
}
END_TEST

/* Several traces, one of a name that is no UTF-8: every line names its own. */
START_TEST(lines_of_several_traces_name_them)
{
    char copy[256], *out;
    json_t *root;

    scratch_name(copy, "-\xff.kvt.h5");
    ck_assert_int_eq(run_program(&out, "cp %s '%s'", SAMPLE_TRACE, copy), 0);
    free(out);
    ck_assert_int_eq(run_program(&out,
                                 KV "replay '%s' %s -p h2o,lru -b 9 -q "
                                    "--layers 0 --format json",
                                 copy, SAMPLE_TRACE),
                     0);
    root = json_of(out);
    const json_t *traces = json_object_get(root, "traces");
    const json_t *results = json_object_get(root, "results");
    ck_assert_uint_eq(json_array_size(traces), 2);
    ck_assert_uint_eq(json_array_size(results), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *r = json_array_get(results, i);
        const json_t *t = json_array_get(traces, i / 2);
        ck_assert_int_eq(json_integer_value(json_object_get(r, "trace")),
                         i / 2);
        ck_assert_str_eq(json_string_value(json_object_get(r, "trace_path")),
                         json_string_value(json_object_get(t, "path")));
    }
    json_decref(root);
    free(out);
    must_say(0, "\xef\xbf\xbd.kvt.h5",
             KV "sparsity '%s' %s -q --layers 0 --format csv", copy,
             SAMPLE_TRACE);
    must_say(0, "trace  ", KV "replay '%s' %s -p h2o -b 9 -q --layers 0", copy,
             SAMPLE_TRACE);
    unlink(copy);
}
END_TEST

static double field(const json_t *item, const char *a, const char *b)
{
    const json_t *v = json_object_get(item, a);

    return json_number_value(b != NULL ? json_object_get(v, b) : v);
}

/* --seeds: every number of the item is of the same rows. */
START_TEST(replicates_are_one_result)
{
    char *out;
    json_t *root;
    double sum = 0;

    for (int gap = 0; gap < 2; gap++) {
        ck_assert_int_eq(run_program(&out,
                                     KV "%s %s -p random,window -b 20 -q "
                                        "--layers 0 --seeds 4 --format json",
                                     gap ? "gap" : "replay", SAMPLE_TRACE),
                         0);
        root = json_of(out);
        const json_t *item =
            json_array_get(json_object_get(root, "results"), 0);
        const json_t *each = json_object_get(item, "miss_mass_seeds");
        ck_assert_str_eq(json_string_value(json_object_get(item, "policy")),
                         "random");
        ck_assert_uint_eq(json_array_size(each), 4);
        sum = 0;
        for (size_t i = 0; i < 4; i++)
            sum += json_number_value(json_array_get(each, i)) / 4;
        ck_assert_double_eq_tol(field(item, "miss_mass", "mean"), sum, 1e-12);
        /* counts are of one replicate */
        ck_assert_double_eq_tol(field(item, "evictions", NULL),
                                3 * (381 - 20.0), 1e-9);
        const json_t *v =
            json_object_get(json_object_get(item, "miss_mass"), "interval");
        ck_assert_double_le(field(v, "low", NULL), sum);
        ck_assert_double_le(sum, field(v, "high", NULL));
        ck_assert_ptr_nonnull(json_object_get(item, "over_seeds"));
        if (gap)
            ck_assert_double_eq_tol(field(item, "miss", NULL), sum, 1e-12);
        json_decref(root);
        free(out);
    }
}
END_TEST

/* A library that calls exit(1) when it gets no memory says "no" with it. */
START_TEST(exit_of_a_library_is_no_answer)
{
    must_say(4, "a library has ended the program",
             KV "policies --plugin " EXIT_PLUGIN);
}
END_TEST

KVR_SUITE("command line", exit_of_a_library_is_no_answer,
          folders_and_long_names_are_no_outputs, a_full_output_is_said_once,
          lines_of_several_traces_name_them, replicates_are_one_result,
          wrong_usage_exits_2_with_one_message,
          bad_input_exits_3_and_leaves_nothing,
          outputs_that_cannot_be_meant_are_refused_before_work,
          help_lists_every_command, json_is_strict_and_complete,
          nothing_fitted_is_said, csv_has_every_scope,
          lists_agree_with_the_table, exit_of_a_library_is_no_answer,
          threads_and_instruction_sets_give_the_same_bytes)
