#!/usr/bin/env bash
# includes.sh -- arrows between rooms point down: the include table holds.
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"

{
    sources .h .def .cuh | sed 's/^/header:/'
    # shellcheck disable=SC2046
    grep -nHE '^[[:space:]]*#[[:space:]]*include' \
        $(sources .c .h .def .cu .cuh .cpp)
} | awk -f tests/lint/includes.awk tests/lint/includes.txt - |
    verdict "includes: as the table allows"
