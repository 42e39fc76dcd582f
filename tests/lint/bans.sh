#!/usr/bin/env bash
# bans.sh -- functions that nobody may call, and those that rooms below the
# command line may not.
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"

# shellcheck disable=SC2046
awk -f tests/lint/bans.awk $(sources .c .h .def .cu .cuh .cpp) |
    verdict "bans: none is called"
