/* suite.h -- the main() of a Check program, and small helpers.
 *
 * KVR_SUITE("name", test_a, test_b, ..) makes the main function;
 * KVR_SUITE_WITH one with a fixture.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kvr_error.h"

/* The call must succeed; its message is shown when it does not. */
#define must(call) \
    do { \
        const enum kvr_status must_status = (call); \
        ck_assert_msg(must_status == KVR_OK, "%s: %s", #call, err.message); \
    } while (0)

/* The call must fail with this status and a message that holds `text`. */
#define must_fail(call, expected, text) \
    do { \
        const enum kvr_status fail_status = (call); \
        ck_assert_msg(fail_status == (expected), "%s: status %d: %s", #call, \
                      (int)fail_status, err.message); \
        ck_assert_msg(strstr(err.message, (text)) != NULL, \
                      "message '%s' lacks '%s'", err.message, (text)); \
    } while (0)

/* With a fixture: `before` and `after` each test; NULL: none. */
#define KVR_SUITE_WITH(name, before, after, ...) \
    int main(void) \
    { \
        const TTest *const tests[] = {__VA_ARGS__}; \
        Suite *suite = suite_create(name); \
        TCase *tc = tcase_create(name); \
        tcase_set_timeout(tc, 300); \
        tcase_add_checked_fixture(tc, before, after); \
        for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) \
            tcase_add_test(tc, tests[i]); \
        suite_add_tcase(suite, tc); \
        SRunner *runner = srunner_create(suite); \
        srunner_run_all(runner, CK_NORMAL); \
        const int failed = srunner_ntests_failed(runner); \
        srunner_free(runner); \
        return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE; \
    }

#define KVR_SUITE(name, ...) KVR_SUITE_WITH(name, NULL, NULL, __VA_ARGS__)

/* An empty file of its own: `path` holds a name that ends with XXXXXX. */
static inline void suite_make_file(char *path)
{
    const int file = mkstemp(path);

    ck_assert_int_ge(file, 0);
    close(file);
}

#endif
