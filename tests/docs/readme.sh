#!/usr/bin/env bash
# readme.sh PROGRAM SOURCE -- runs the commands that README.md shows.
#
# The lines of its ```sh blocks run in order, in a folder where build/kvreplay
# is the program under test. `./run` lines are left out, since they install
# packages; lines that need the model run where KVREPLAY_MODEL names it.
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
program=$1 source=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/build" "$folder/traces"
ln -s "$program" "$folder/build/kvreplay"
cp -r "$source/traces/samples" "$folder/traces/samples"
cd "$folder"

# shellcheck disable=SC2016  # the dollars are for the commands, not for us
# Continued lines joined, comments and ./run lines gone.
awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 }
     on { line = line $0
          if (line ~ /\\$/) { sub(/\\$/, "", line); next }
          print line; line = "" }' "$source/README.md" |
    sed -e 's/  *#.*//' -e 's/\$(\.\/run model)/$KVREPLAY_MODEL/' \
        -e 's/"\$M"/"$KVREPLAY_MODEL"/' -e '/^M=/d' |
    grep -v '^\./run' >commands

T=traces/samples/smollm2-harbour.kvt.h5
export T
ran=0
while IFS= read -r command; do
    [ -n "$command" ] || continue
    case $command in
    T=*)
        [ "$command" = "T=$T" ] || { echo "README: $command"; exit 1; }
        continue
        ;;
    *KVREPLAY_MODEL* | *my.kvt.h5*)
        if [ -z "${KVREPLAY_MODEL:-}" ]; then
            echo "no model here, left out: $command"
            continue
        fi
        ;;
    esac
    bash -c "$command" >out 2>&1 ||
        { echo "README: this fails: $command"; cat out; exit 1; }
    ran=$((ran + 1))
done <commands
[ "$ran" -ge 8 ] || { echo "README: only $ran commands found"; exit 1; }
echo "$ran commands of README.md ran"
