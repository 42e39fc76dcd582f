#!/usr/bin/env bash
# headers.sh -- every public header compiles alone, and all of them together, as
# C17 and as C++17.
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"
cc=$2
cxx=${3:-}

rooms=(-Ibase -Ipolicies -Itraces -Isim/optimum -Isim/cache -Isim/replay
    -Ianalysis -Icapture)
strict=(-Wall -Wextra -Wpedantic -Wundef -Werror -fsyntax-only)
[ -n "$cxx" ] || echo "skipped: no C++ compiler; headers checked as C only"

# try WHAT: the includes on standard input.
try() {
    local text
    text=$(cat)
    "$cc" -std=c17 "${strict[@]}" "${rooms[@]}" -x c - <<<"$text" >&2 ||
        echo "$1: not as C17"
    # kvr_elementwise.h is the one place for compiler attributes.
    text=$(grep -v kvr_elementwise.h <<<"$text" || true)
    [ -z "$cxx" ] || [ -z "$text" ] ||
        "$cxx" -std=c++17 "${strict[@]}" "${rooms[@]}" -x c++ - <<<"$text" \
            >&2 ||
        echo "$1: not as C++17"
}

include() { sed -E 's@.*/(kvr_[^/]*)@#include "\1"@'; }

headers=$(sources .h | grep '/kvr_' | grep -v '^tests/')
{
    for header in $headers; do
        include <<<"$header" | try "$header"
    done
    include <<<"$headers" | try "all public headers"
    include <<<"$headers" | tac | try "all public headers, the last one first"
} | verdict "headers: each compiles alone, and all together"
