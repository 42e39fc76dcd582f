#!/usr/bin/env bash
# format.sh -- the layout is clang-format's, with .clang-format.
# Versions differ in details; the one that decides is Debian 12's.
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"
decides=14

tool=$(command -v clang-format-$decides || command -v clang-format || true)
if [ -z "$tool" ] || ! "$tool" --version | grep -q "version $decides\."; then
    echo "skipped: no clang-format $decides"
    exit 77
fi
# shellcheck disable=SC2046
"$tool" --dry-run $(sources .c .h .cu .cuh .cpp) 2>&1 |
    awk -F: '/code should be/ && !seen[$1]++ {
        print $1 ":" $2 ": not as clang-format lays it out" }' |
    verdict "format: as clang-format lays it out"
