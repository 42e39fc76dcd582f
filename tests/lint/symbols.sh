#!/usr/bin/env bash
# symbols.sh -- the naming law. kvr_ is declared in a header kvr_*.h, kvr__
# between the files of a room, all else is static. What an installed header
# declares is exported, and nothing besides. A tag of a struct, enum or union
# names one thing in the whole project.
#
# usage: symbols.sh ROOT BUILD
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"
build=$2
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }

# FILE VISIBILITY SYMBOL of every global that a room's objects define.
globals() {
    objects "$build" | while read -r object; do
        readelf -sW "$build/$object" | awk -v file="$object" \
            '$5 ~ /GLOBAL|WEAK/ && $7 != "UND" { print file, $6, $8 }'
    done
}

# Words of the headers that are given.
words() {
    cat "$@" | sed -E 's@kvr_[a-z_]+\.(h|def)@@g' |
        grep -oE '\bkvr_[A-Za-z0-9_]+' | sort -u
}

# Headers that users get: all public ones, of base those that it lists.
installed() {
    sources .h .def | grep '/kvr_[^/]*$' | grep -vE '^(tests|cli|base)/'
    sed -nE 's/^ *HEADERS (.*)/\1/p' base/CMakeLists.txt | tr ' ' '\n' |
        sed 's@^@base/@'
}

tags() {
    # shellcheck disable=SC2046
    grep -HoE '^(static |const )*(struct|enum|union) [A-Za-z_0-9]+ \{' \
        $(sources .c .h .cu .cuh .cpp) |
        sed -E 's/^([^:]*):.*(struct|enum|union) ([A-Za-z_0-9]+) \{/\3 \1/' |
        sort -u
}

{
    # shellcheck disable=SC2046
    awk 'FILENAME == ARGV[1] { declared[$1]; next }
        FILENAME == ARGV[2] { installed[$1]; next }
        $3 == "main" || $3 ~ /^(__|_GLOBAL_|\.)/ { next }
        $3 ~ /^kvr__/ && $3 in declared {
            print $1 ": " $3 ": kvr__ in a public header" }
        $3 ~ /^kvr_[^_]/ && !($3 in declared) {
            print $1 ": " $3 ": kvr_, but in no public header" }
        $3 !~ /^kvr_/ { print $1 ": " $3 ": neither kvr_ nor static" }
        ($2 == "DEFAULT") != ($3 in installed) && $1 !~ /^cli\// {
            print $1 ": " $3 ": " $2 " in the library" }' \
        <(words $(sources .h .def | grep '/kvr_[^/]*$')) \
        <(words $(installed)) <(globals)
    # Two back ends complete the table's handles, each in a module of its own.
    tags | awk '$1 != "kvr_device" && $1 != "kvr_tensor" {
            files[$1] = files[$1] " " $2; n[$1]++ }
        END { for (tag in n) if (n[tag] > 1)
            print tag ": a tag of" files[tag] }'
} | verdict "symbols: named by the law"
