#!/usr/bin/env bash
# circles.sh -- files of a folder do not call each other in a circle, and
# folders not at all, but for those named in circles.txt.
#
# usage: circles.sh ROOT BUILD
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"
build=$2
command -v nm >/dev/null || { echo "skipped: no nm"; exit 77; }

# FOLDER/FILE KIND SYMBOL, of every object of a room (not of its double build).
symbols() {
    (cd "$build" && find base policies traces sim analysis capture cli \
        -name '*.c.o' -not -path '*_double.dir/*' -not -path '*/examples/*' |
        sort | xargs nm -A -P) |
        sed -nE \
            's@^([^:]*)/CMakeFiles/[^:]*/([a-z0-9_]+)\.c\.o: (.*)@\1/\2 \3@p'
}

symbols | awk -f tests/lint/circles.awk tests/lint/circles.txt - |
    verdict "circles: none but those that are named"
