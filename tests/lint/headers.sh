#!/usr/bin/env bash
# headers.sh -- every public header compiles alone, as C17 and as C++17.
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"
cc=$2
cxx=${3:-}

rooms=(-Ibase -Ipolicies -Itraces -Isim/optimum -Isim/cache -Isim/replay
    -Ianalysis -Icapture)
strict=(-Wall -Wextra -Wpedantic -Wundef -Werror -fsyntax-only)
[ -n "$cxx" ] || echo "skipped: no C++ compiler; headers checked as C only"

for header in $(sources .h | grep '/kvr_' | grep -v '^tests/'); do
    name=${header##*/}
    echo "#include \"$name\"" | "$cc" -std=c17 "${strict[@]}" "${rooms[@]}" \
        -x c - >&2 || echo "$header: not as C17"
    # The one place for compiler attributes.
    [ "$name" = kvr_elementwise.h ] || [ -z "$cxx" ] ||
        echo "#include \"$name\"" | "$cxx" -std=c++17 "${strict[@]}" \
            "${rooms[@]}" -x c++ - >&2 || echo "$header: not as C++17"
done | verdict "headers: each compiles alone"
