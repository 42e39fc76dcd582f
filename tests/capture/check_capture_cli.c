/* check_capture_cli.c -- kvreplay capture as a user runs it: exit codes,
 * messages, what is left behind.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "../cli/program.h"

#include "kvr_file.h"

#define TINY KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf"
#define CAPTURE KVR_PROGRAM " capture -m " TINY " "

static char out[256];

static void setup(void)
{
    scratch_name(out, ".kvt.h5");
}

static void teardown(void)
{
    char part[300];

    snprintf(part, sizeof part, "%s.part", out);
    unlink(part);
    unlink(out);
}

static const struct {
    const char *arguments, *says;
    int code;
} wrong[] = {
    {"-p hello", "expected -o", 2},
    {"--dry-run", "exactly one of", 2},
    {"--dry-run -p a -f b", "exactly one of", 2},
    {"--dry-run -p a --top-p 0.5", "--top-p needs --temp", 2},
    {"--dry-run -p a --temp 1 --top-p 0", "above 0", 2},
    {"--dry-run -p a --heads 1", "KV head 0", 2},
    {"--dry-run -p a --prompt-len 99", "only", 2},
    {"--dry-run -p a --store keys", "--store", 2},
    {"--dry-run -p a --with values,nothing", "'nothing'", 2},
    {"--dry-run -p a --store qk --round-bits 7", "--store qk", 2},
    {"--dry-run -p a --dtype f32 --round-bits 7", "--round-bits", 2},
    {"--dry-run --text /dev/null -n 3", "generates nothing", 2},
    {"--dry-run -p a --backend cuda", "/nowhere/kvr_cuda.so", 3},
    {"--dry-run -p a --compute f16", "computes in f32", 3},
    {"--dry-run -f /nowhere/at/all", "/nowhere/at/all", 3},
    {"--dry-run -p a --tokenizer /nowhere.json", "/nowhere.json", 3},
    {"--dry-run -p a --chat", "no chat template", 3},
    {"--dry-run -p a --chat=other", "chatml llama-2 llama-3 gemma", 2},
    {"--dry-run -p a --chat=chatml", "'<|im_start|>'", 3},
    {"--dry-run -p a --chat=llama-2 --no-special", "--no-special", 2},
    {"--dry-run --ids /dev/null --chat=llama-2", "--ids", 2},
};

START_TEST(wrong_usage_is_named)
{
    must_say(wrong[_i].code, wrong[_i].says, CAPTURE "%s", wrong[_i].arguments);
}
END_TEST

START_TEST(dry_run_computes_nothing)
{
    must_say(0, "\"tokens_max\": 8",
             CAPTURE "-p hello -n 6 --dry-run --format json -q -o %s", out);
    ck_assert(!kvr_file_exists(out));
    must_say(0, "'hello'", CAPTURE "-p hello --dry-run --show-tokens");
}
END_TEST

START_TEST(message_becomes_a_chat)
{
    must_say(0, "\"chat\": \"llama-2\"",
             CAPTURE "-p '  hello ' --chat=llama-2 --dry-run --format json");
    must_say(0, "'['",
             CAPTURE "-p hello --chat=llama-2 --dry-run "
                     "--show-tokens");
    must_say(0, "\"chat\": null", CAPTURE "-p hi --dry-run --format json");
}
END_TEST

START_TEST(output_is_not_overwritten_unasked)
{
    must_say(0, "\"n_token\": 8",
             CAPTURE "-p hello -n 6 --ignore-eos --format json -o %s", out);
    must_say(3, out, CAPTURE "-p other -o %s", out);
    must_say(0, "7", CAPTURE "-p hello -n 5 --ignore-eos --force -o %s", out);
    must_say(0, "", KVR_PROGRAM " trace check %s", out);
}
END_TEST

START_TEST(queries_and_keys_are_a_trace)
{
    must_say(0, "\"logits_bytes\"",
             CAPTURE "-p hello -n 6 --dry-run --with logits --format json -q");
    must_say(0, "\"n_token\": 8",
             CAPTURE "-p hello -n 6 --ignore-eos --store qk --with values,mlp "
                     "--format json -o %s",
             out);
    must_say(0, "", KVR_PROGRAM " trace check %s", out);
    must_say(0, "\"query\"", KVR_PROGRAM " trace info --format json %s", out);
    must_say(0, "\"mlp_mass\"", KVR_PROGRAM " trace info --format json %s",
             out);
    must_say(0, "weight", KVR_PROGRAM " trace show --row 5 %s", out);
    must_say(0, "h2o",
             KVR_PROGRAM " replay %s --policy h2o,topk --budget 2 --bounds",
             out);
    must_say(0, "head", KVR_PROGRAM " sparsity %s", out);
}
END_TEST

START_TEST(ids_come_from_standard_input)
{
    must_say(0, "\"n_token\": 3",
             "echo '1 281 275' | " CAPTURE "--ids - --format json -o %s", out);
}
END_TEST

START_TEST(full_disk_is_said)
{
    must_say(3, "",
             "ulimit -f 1; " CAPTURE
             "-p 'hello the end' -n 100 --ignore-eos -o %s",
             out);
    ck_assert(!kvr_file_exists(out));
}
END_TEST

/* A sanitizer's shadow does not fit under such a limit. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* OpenBLAS waits for ever for memory that it cannot map. */
START_TEST(limit_of_address_space_is_said)
{
    const char *limit = "ulimit -v 110000; timeout 20 ";
    char part[300];

    if (SANITIZED)
        return;
    must_say(0, "kvreplay", "%s" KVR_PROGRAM " --version", limit);
    must_say(4, "OpenBLAS", "%s" CAPTURE "-p hello -n 3 -o %s", limit, out);
    ck_assert(!kvr_file_exists(out));
    snprintf(part, sizeof part, "%s.part", out);
    ck_assert(!kvr_file_exists(part));
    must_say(0, "", CAPTURE "-p hello -n 6 --ignore-eos --store qk -o %s", out);
    must_say(4, "OpenBLAS", "%s" KVR_PROGRAM " trace check %s", limit, out);
    must_say(4, "OpenBLAS", "%s" KVR_PROGRAM " replay %s -p window -b 2", limit,
             out);
    must_say(4, "OpenBLAS", "%s" KVR_PROGRAM " sparsity %s", limit, out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("capture_cli");
    TCase *tc = tcase_create("capture_cli");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, wrong_usage_is_named, 0,
                        sizeof wrong / sizeof wrong[0]);
    tcase_add_test(tc, dry_run_computes_nothing);
    tcase_add_test(tc, message_becomes_a_chat);
    tcase_add_test(tc, output_is_not_overwritten_unasked);
    tcase_add_test(tc, queries_and_keys_are_a_trace);
    tcase_add_test(tc, ids_come_from_standard_input);
    tcase_add_test(tc, full_disk_is_said);
    tcase_add_test(tc, limit_of_address_space_is_said);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
