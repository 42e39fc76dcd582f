/* first_failure.h -- for mutants: the first assertion that fails ends the
 * program. Included before anything else.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SIMT_FIRST_FAILURE_H
#define SIMT_FIRST_FAILURE_H

#include <check.h>

#include <unistd.h>

#undef _ck_assert_failed
#define _ck_assert_failed(...) _exit(1)

#endif
