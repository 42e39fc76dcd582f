/* check_statistics.c -- sparsity and powerlaw on written traces, through the
 * library and through the program.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "kvr_head.h"
#include "kvr_isa.h"
#include "kvr_powerlaw.h"
#include "kvr_sparsity.h"

#include "made.h"
#include "suite.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>

static struct kvr_error err;

/* Its layers are numbered 0, 2, 4. */
static const struct made small = {.n_layer = 3,
                                  .n_head = 4,
                                  .n_kv_head = 2,
                                  .t = 150,
                                  .prompt_len = 60,
                                  .tokens = true,
                                  .dtype = KVR_F16};

enum { N_ITEM = 12, PATH_SIZE = 512 };

/* Writes it; the path that made_path hands out does not last. */
static void make_trace(char path[PATH_SIZE], const char *name)
{
    snprintf(path, PATH_SIZE, "%s", made_path(name));
    must(made_write(&small, path, true, &err));
}

static enum kvr_status sparsity_item(uint32_t item, const struct kvr_head *head,
                                     void *ud, struct kvr_error *e)
{
    struct kvr_sparsity *all = ud;

    return kvr_sparsity_of(&all[item], head, e);
}

static void run_heads(struct kvr_sparsity all[N_ITEM],
                      const struct kvr_trace *trace, uint32_t threads)
{
    struct kvr_head_item items[N_ITEM];

    for (uint32_t i = 0; i < N_ITEM; i++)
        items[i] = (struct kvr_head_item){.layer = i / 4, .head = i % 4};
    must(kvr_heads_run(trace, items, N_ITEM, 0, threads, sparsity_item, all,
                       &err));
}

START_TEST(threads_change_no_bit)
{
    static struct kvr_sparsity one[N_ITEM], two[N_ITEM];
    char path[PATH_SIZE];
    struct kvr_trace *trace;

    make_trace(path, "threads.kvt.h5");
    must(kvr_trace_open(&trace, path, &err));
    run_heads(one, trace, 1);
    run_heads(two, trace, 2);
    ck_assert_mem_eq(one, two, sizeof one);
    ck_assert(one[0].row_mean != one[5].row_mean);
    kvr_trace_close(trace);
}
END_TEST

/* Runs the program; its exit code, its output in *text (free() it). */
static int run_program(char **text, const char *arguments)
{
    char command[1024];
    size_t size = 1 << 20;
    const char *out = made_path("stdout"), *errors = made_path("stderr");

    snprintf(command, sizeof command, "%s %s > %s 2> %s", KVR_PROGRAM,
             arguments, out, errors);
    const int status = system(command);
    FILE *f = fopen(out, "r");
    *text = calloc(size + 1, 1);
    const size_t n = fread(*text, 1, size, f);
    fclose(f);
    ck_assert_uint_lt(n, size);
    return WEXITSTATUS(status);
}

/* The same under an instruction set. */
static int run_program_isa(char **text, enum kvr_isa isa, const char *arguments)
{
    setenv("KVREPLAY_ISA", kvr_isa_name(isa), 1);
    const int code = run_program(text, arguments);
    unsetenv("KVREPLAY_ISA");
    return code;
}

static json_t *run_json(const char *command, const char *path, const char *more)
{
    char arguments[600], *text;

    snprintf(arguments, sizeof arguments, "%s %s --format json %s", command,
             path, more);
    ck_assert_int_eq(run_program(&text, arguments), 0);
    json_t *root = json_loads(text, 0, NULL);
    ck_assert_msg(root != NULL, "%s: no JSON: %s", arguments, text);
    free(text);
    return root;
}

static double real_of(const json_t *item, const char *key)
{
    const json_t *value = json_object_get(item, key);

    ck_assert_msg(json_is_number(value), "no number %s", key);
    return json_number_value(value);
}

START_TEST(sparsity_reports_heads_layers_and_the_model)
{
    static struct kvr_sparsity all[N_ITEM], mean;
    char path[PATH_SIZE];
    struct kvr_trace *trace;

    make_trace(path, "s.kvt.h5");
    must(kvr_trace_open(&trace, path, &err));
    run_heads(all, trace, 1);
    kvr_trace_close(trace);
    json_t *root = run_json("sparsity", path, "");
    const json_t *list = json_object_get(root, "results");
    ck_assert_str_eq(json_string_value(json_object_get(root, "schema")),
                     "kvreplay.sparsity/1");
    ck_assert_uint_eq(json_array_size(list), 12 + 3 + 1);
    for (size_t i = 0; i < N_ITEM; i++) {
        const json_t *item = json_array_get(list, i + i / 4);
        ck_assert(real_of(item, "layer") == 2 * (double)(i / 4));
        ck_assert(real_of(item, "head") == (double)(i % 4));
        ck_assert(real_of(item, "row_mean") == all[i].row_mean);
        ck_assert(real_of(item, "pooled_causal") == all[i].pooled_causal);
        ck_assert(real_of(item, "pooled_square") == all[i].pooled_square);
        ck_assert(real_of(item, "decode_row_mean") == all[i].decode_row_mean);
        ck_assert(real_of(item, "effective_support") ==
                  all[i].effective_support);
        ck_assert(real_of(item, "zeros") == all[i].zeros);
    }
    kvr_sparsity_mean(&mean, all, N_ITEM);
    ck_assert(real_of(json_array_get(list, 15), "gini") == mean.gini);
    json_decref(root);
}
END_TEST

START_TEST(layers_and_heads_are_selected)
{
    char path[PATH_SIZE];
    char *text, arguments[600];

    make_trace(path, "l.kvt.h5");
    json_t *root = run_json("powerlaw", path, "--layers 1-4 --heads 0,3");
    const json_t *list = json_object_get(root, "results");
    ck_assert_uint_eq(json_array_size(list), 4);
    ck_assert(real_of(json_array_get(list, 3), "layer") == 4);
    ck_assert(real_of(json_array_get(list, 3), "head") == 3);
    json_decref(root);
    snprintf(arguments, sizeof arguments, "powerlaw %s --layers 9", path);
    ck_assert_int_eq(run_program(&text, arguments), 2);
    free(text);
    snprintf(arguments, sizeof arguments, "powerlaw %s --layers 1,3", path);
    ck_assert_int_eq(run_program(&text, arguments), 3);
    free(text);
}
END_TEST

static enum kvr_status sums_item(uint32_t item, const struct kvr_head *head,
                                 void *ud, struct kvr_error *e)
{
    double *sums = ud;

    (void)item;
    return kvr_head_sums(sums, NULL, head, 0, e);
}

START_TEST(powerlaw_fits_the_accumulated_attention)
{
    char path[PATH_SIZE];
    const struct kvr_head_item item = {.layer = 1, .head = 2};
    const struct kvr_powerlaw_options options = {0};
    struct kvr_powerlaw fit;
    struct kvr_trace *trace;
    double sums[150];

    make_trace(path, "p.kvt.h5");
    must(kvr_trace_open(&trace, path, &err));
    must(kvr_heads_run(trace, &item, 1, 0, 1, sums_item, sums, &err));
    kvr_trace_close(trace);
    must(kvr_powerlaw_fit(&fit, sums + 4, 146, &options, &err));
    json_t *root =
        run_json("powerlaw", path, "--layers 2 --heads 2 --skip-first 4");
    const json_t *got = json_array_get(json_object_get(root, "results"), 0);
    ck_assert(real_of(got, "alpha") == fit.alpha);
    ck_assert(real_of(got, "xmin") == fit.xmin);
    ck_assert(real_of(got, "n_tail") == (double)fit.n_tail);
    ck_assert(real_of(got, "ks") == fit.ks);
    ck_assert(real_of(got, "n") == 146);
    ck_assert(real_of(got, "n_used") + real_of(got, "zeros_dropped") == 146);
    ck_assert(real_of(got, "tail_fraction") ==
              (double)fit.n_tail / (double)fit.n);
    ck_assert(json_is_null(json_object_get(got, "p")));
    ck_assert(json_is_string(json_object_get(got, "p_reason")));
    json_decref(root);
}
END_TEST

START_TEST(a_head_that_cannot_be_fitted_is_an_item_with_the_reason)
{
    char path[PATH_SIZE];

    make_trace(path, "n.kvt.h5");
    json_t *root = run_json("powerlaw", path, "--min-points 151");
    const json_t *list = json_object_get(root, "results");
    ck_assert_uint_eq(json_array_size(list), 12);
    const json_t *item = json_array_get(list, 0);
    ck_assert(json_is_null(json_object_get(item, "alpha")));
    ck_assert_ptr_nonnull(
        strstr(json_string_value(json_object_get(item, "not_fitted")),
               "at least 151"));
    json_decref(root);
}
END_TEST

START_TEST(bytes_depend_on_neither_threads_nor_instruction_set)
{
    static const char *const commands[] = {"sparsity", "powerlaw"};
    char path[PATH_SIZE];

    make_trace(path, "b.kvt.h5");
    for (int c = 0; c < 2; c++) {
        char arguments[600], *one, *two;
        snprintf(arguments, sizeof arguments,
                 "%s %s --format json --no-provenance --threads 1", commands[c],
                 path);
        ck_assert_int_eq(run_program_isa(&one, KVR_ISA_BASE, arguments), 0);
        ck_assert_uint_gt(strlen(one), 1000);
        arguments[strlen(arguments) - 1] = '2';
        for (int isa = 0; isa < KVR_N_ISA; isa++) {
            if (!kvr_isa_available((enum kvr_isa)isa)) {
                printf("skipped: %s\n", kvr_isa_name((enum kvr_isa)isa));
                continue;
            }
            ck_assert_int_eq(
                run_program_isa(&two, (enum kvr_isa)isa, arguments), 0);
            ck_assert_str_eq(one, two);
            free(two);
        }
        free(one);
    }
}
END_TEST

START_TEST(over_the_memory_limit_a_run_is_refused)
{
    char path[PATH_SIZE], arguments[600], *text;

    make_trace(path, "m.kvt.h5");
    snprintf(arguments, sizeof arguments,
             "sparsity %s --threads 2 --memory 64K", path);
    ck_assert_int_eq(run_program(&text, arguments), 3);
    free(text);
    snprintf(arguments, sizeof arguments, "sparsity %s --threads 2 --memory 1M",
             path);
    ck_assert_int_eq(run_program(&text, arguments), 0);
    free(text);
}
END_TEST

static void values_exit(const char *file, const char *more, int expected)
{
    char arguments[600], *text;

    snprintf(arguments, sizeof arguments, "powerlaw --values %s/awkward/%s %s",
             KVR_TEST_DATA, file, more);
    const int code = run_program(&text, arguments);
    ck_assert_msg(code == expected, "%s: exit %d, expected %d", arguments, code,
                  expected);
    ck_assert(expected == 0 || strlen(text) == 0);
    free(text);
}

/* tests/awkward/README.md, the exit codes. */
START_TEST(awkward_values_have_their_exit_codes)
{
    values_exit("pl_cont_alpha2.5.txt", "", 0);
    values_exit("pl_with_zeros.txt", "", 0);
    values_exit("pl_counts_ties.txt", "--xmin 1", 0);
    values_exit("pl_attention_scale.txt", "", 0);
    values_exit("pl_all_equal.txt", "", 3);
    values_exit("pl_three_values.txt", "", 3);
    values_exit("pl_three_values.txt", "--min-points 3", 0);
    values_exit("pl_nan_inf.txt", "", 3);
    values_exit("pl_negative.txt", "", 3);
    values_exit("no_such_file.txt", "", 3);
    values_exit("pl_with_zeros.txt", "--kind discrete", 3);
    values_exit("pl_counts_ties.txt", "--ks left-sample", 2);
    values_exit("pl_counts_ties.txt", "--ks median", 2);
    values_exit("pl_counts_ties.txt", "--bootstrap 100", 2);
    values_exit("pl_counts_ties.txt", "a_trace.kvt.h5", 2);
}
END_TEST

KVR_SUITE("statistics", threads_change_no_bit,
          sparsity_reports_heads_layers_and_the_model,
          layers_and_heads_are_selected,
          powerlaw_fits_the_accumulated_attention,
          a_head_that_cannot_be_fitted_is_an_item_with_the_reason,
          bytes_depend_on_neither_threads_nor_instruction_set,
          over_the_memory_limit_a_run_is_refused,
          awkward_values_have_their_exit_codes)
