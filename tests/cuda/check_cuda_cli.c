/* check_cuda_cli.c -- which back end is taken and why, as a user sees it; and
 * calls of the run-time library that fail: a message, an exit code, no output.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "../cli/program.h"

#include "kvr_file.h"

#define MODEL KVR_TEST_DATA "/awkward/gguf_ok_tiny.gguf"
#define CAPTURE KVR_PROGRAM " capture -m " MODEL " -p 'hello you' "
#define CUDA CAPTURE "--backend cuda -n 3 -o %s"

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
    const char *environment, *says;
} absent[] = {
    {"KVREPLAY_CUDA_MODULE=/nowhere/m.so", "/nowhere/m.so"},
    {"KVREPLAY_CUDA_MODULE=m.so", "with a slash"},
    {"KVREPLAY_CUDA_MODULE=" KVR_MODULES "/kvr_other_abi.so",
     "the module has ABI 2, this program 3"},
    {"KVREPLAY_CUDA_MODULE=" KVR_MODULES "/kvr_no_module.so",
     "lacks kvr_backend_module"},
    {"SIMT_DRIVER=0", "no NVIDIA driver"},
    {"SIMT_DEVICES=0", "no CUDA device"},
    {"SIMT_MAJOR=7", "compute capability 7.0"},
};
enum { N_ABSENT = sizeof absent / sizeof absent[0] };

START_TEST(absence_is_said)
{
    must_say(3, absent[_i].says, "%s " CUDA, absent[_i].environment, out);
    must_say(3, "--backend cpu works everywhere", "%s " CUDA,
             absent[_i].environment, out);
    ck_assert(!kvr_file_exists(out));
    must_say(0, "on cpu: no CUDA: ", "%s " CAPTURE "-o %s",
             absent[_i].environment, out);
    must_say(0, absent[_i].says, "%s " CAPTURE "--dry-run --format json -q",
             absent[_i].environment);
}
END_TEST

START_TEST(presence_is_said)
{
    must_say(0, "on cuda: there is a device, an emulated device",
             CAPTURE "-o %s", out);
    must_say(0, "\"backend\": \"cuda\"",
             CAPTURE "--dry-run --format json --backend cuda");
    must_say(0, "on cpu: asked for", CAPTURE "--dry-run --backend cpu");
    must_say(0, "\"compute\": \"f16 products",
             CAPTURE "--dry-run --format json --compute f16");
    must_say(3, "computes in f32",
             CAPTURE "--dry-run --backend cpu --compute bf16");
    must_say(0, "", KVR_PROGRAM " trace info %s", out);
}
END_TEST

static long long device_bytes(const char *compute)
{
    char *said;

    ck_assert_int_eq(run_program(&said,
                                 CAPTURE "--dry-run --format json -q "
                                         "--compute %s",
                                 compute),
                     0);
    const char *at = strstr(said, "\"device_bytes\": ");
    ck_assert_ptr_nonnull(at);
    const long long bytes = strtoll(at + 16, NULL, 10);
    free(said);
    return bytes;
}

START_TEST(memory_is_counted_before)
{
    const long long f32 = device_bytes("f32"), f16 = device_bytes("f16");

    ck_assert_int_lt(f16, f32);
    must_say(0, "(f32 does not fit)",
             "SIMT_MEMORY=%lld " CAPTURE "--dry-run --format json", f32 - 1);
    must_say(3, "--compute f16 needs about",
             "SIMT_MEMORY=%lld " CAPTURE "--dry-run --compute f32", f32 - 1);
    must_say(3, "a smaller --prompt-chunk", "SIMT_MEMORY=%lld " CUDA, f16 - 1,
             out);
    ck_assert(!kvr_file_exists(out));
}
END_TEST

static const struct {
    const char *fault, *says;
    int code;
} faults[] = {
    {"alloc:1", "asked", 4},
    {"alloc:9", "--compute f16", 4},
    {"host:1", "pinned memory", 4},
    {"host:4", "pinned memory", 4},
    {"copy:3", "cudaMemcpyAsync", 4},
    {"sync:20", "illegal memory", 4},
    {"event:75", "cudaEventRecord", 4},
    {"stream:2", "cudaStream", 4},
    {"launch:1", "launch failure", 4},
    {"launch:50", "launch failure", 4},
    {"blas:1", "cublasCreate", 4},
    {"blas:10", "cublasSgemm", 4},
};
enum { N_FAULTS = sizeof faults / sizeof faults[0] };

START_TEST(fault_becomes_a_message)
{
    must_say(faults[_i].code, faults[_i].says, "SIMT_FAIL=%s " CUDA,
             faults[_i].fault, out);
    ck_assert(!kvr_file_exists(out));
}
END_TEST

/* The n-th call fails, whichever it is: first all, then some of many. */
START_TEST(every_call_may_fail)
{
    uint32_t n = 1, failed = 0;

    for (;; n += n < 60 ? 1 : 1 + n / 12) {
        char *said;
        const int code = run_program(&said, "SIMT_FAIL=any:%u " CUDA, n, out);
        if (code == 0) {
            free(said);
            break;
        }
        failed++;
        ck_assert_msg(code == 4 && (strstr(said, "CUDA") != NULL ||
                                    strstr(said, "cuBLAS") != NULL),
                      "call %u: exit %d; said: %.1500s", n, code, said);
        ck_assert_msg(!kvr_file_exists(out), "call %u: an output", n);
        free(said);
        teardown();
    }
    ck_assert_uint_gt(n, 300);
    ck_assert_uint_gt(failed, 60);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda_cli");
    TCase *tc = tcase_create("cuda_cli");

    tcase_set_timeout(tc, 600);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, absence_is_said, 0, N_ABSENT);
    tcase_add_test(tc, presence_is_said);
    tcase_add_test(tc, memory_is_counted_before);
    tcase_add_loop_test(tc, fault_becomes_a_message, 0, N_FAULTS);
    tcase_add_test(tc, every_call_may_fail);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
