#!/usr/bin/env bash
# layout.sh -- a licence line in every file, and nothing too long.
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"

# shellcheck disable=SC2046
awk -f tests/lint/layout.awk $(sources .c .h .def .cu .cuh .cpp .sh .cmake \
    .awk .py run CMakeLists.txt) | verdict "layout: licence lines and lengths"
