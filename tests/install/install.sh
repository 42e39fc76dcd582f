#!/usr/bin/env bash
# install.sh -- the installed tree serves a program and a plug-in.
#
# usage: install.sh BUILD SOURCE CMAKE CC VERSION
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
build=$1 source=$2 cmake=$3 cc=$4 version=$5
here=$source/tests/install
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

"$cmake" --install "$build" --prefix "$prefix" >"$work/log"

# Moved after the installation: nothing may remember where it was.
mv "$prefix" "$work/moved"
prefix=$work/moved
program=$prefix/bin/kvreplay
[ "$("$program" --version)" = "kvreplay $version" ]

echo "with find_package:"
"$cmake" -S "$here/consumer" -B "$work/found" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$prefix" -DWANTED="$version" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
"$cmake" --build "$work/found" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
"$work/found/consumer"

echo "with pkg-config:"
pc=$(find "$prefix" -name kvreplay.pc)
export PKG_CONFIG_PATH=${pc%/*}
[ "$(pkg-config --modversion kvreplay)" = "$version" ]
# shellcheck disable=SC2046
"$cc" -std=c17 -Wall -Werror -o "$work/consumer" "$here/consumer/main.c" \
    $(pkg-config --cflags --libs kvreplay)
"$work/consumer"

echo "a plug-in from kvr_policy.h and kvr_elementwise.h alone:"
mkdir "$work/alone"
cp "$prefix"/include/kvreplay/kvr_{policy,param,elementwise}.h "$work/alone"
"$cc" -std=c17 -O3 -ffp-contract=off -Wall -Wextra -Wpedantic -Werror \
    -shared -fPIC -I"$work/alone" -o "$work/mass.so" \
    "$source/policies/examples/mass.c"
"$program" policies mass --plugin "$work/mass.so" | tee "$work/out"
grep -q '^mass -- ' "$work/out"

# It replays, and evicts what h2o without a window evicts.
evictions() {
    "$program" replay "$source/traces/samples/smollm2-harbour.kvt.h5" -q \
        -b 20% -p "$1" --plugin "$work/mass.so" --evictions "$work/$2" \
        >"$work/log"
}
evictions mass ours.csv
evictions h2o:recent=0 theirs.csv
cmp <(cut -d, -f2- "$work/ours.csv") <(cut -d, -f2- "$work/theirs.csv")
echo "$(wc -l <"$work/ours.csv") lines of evictions as h2o:recent=0"
