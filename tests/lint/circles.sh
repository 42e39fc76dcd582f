#!/usr/bin/env bash
# circles.sh -- files of a folder do not call each other in a circle, and
# folders not at all, but for those named in circles.txt.
#
# usage: circles.sh ROOT BUILD
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"
build=$2
command -v nm >/dev/null || { echo "skipped: no nm"; exit 77; }

# FOLDER/FILE SYMBOL KIND, of every object.
symbols() {
    (objects "$build" | (cd "$build" && xargs nm -A -P)) |
        sed -nE \
            's@^([^:]*)/CMakeFiles/[^:]*/([a-z0-9_]+)\.c\.o: (.*)@\1/\2 \3@p'
}

symbols | awk -f tests/lint/circles.awk tests/lint/circles.txt - |
    verdict "circles: none but those that are named"
