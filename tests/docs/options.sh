#!/usr/bin/env bash
# options.sh -- the manual names every option that --help prints, in the
# section of its command (or among those of every command).
#
# usage: options.sh PROGRAM SOURCE
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
program=$1 source=$2
manual=$source/docs/manual.md
missing=0
n=0

# Lines of the manual under the heading "## NAME" or "### NAME".
section() {
    awk -v name="$1" '/^##+ / { inside = $0 ~ "^##+ " name "$" } inside' \
        "$manual"
}

complain() {
    echo "docs/manual.md: $*" >&2
    missing=$((missing + 1))
}

check_command() {
    local command=$1 shared=$2 text
    text=$(section "$command")
    [ -n "$text" ] || { complain "no section '$command'"; return; }
    # gap has the options of replay
    [ "$command" = gap ] && text=$text$(section replay)
    # shellcheck disable=SC2086
    while read -r option; do
        n=$((n + 1))
        grep -qE -e "\`(-[A-Za-z]\`, \`)?$option[ \`\\|]" <<<"$text" ||
            grep -qE -e "\`(-[A-Za-z]\`, \`)?$option[ \`]" <<<"$shared" ||
            complain "$command: $option is missing"
    done < <("$program" $command --help |
        sed -nE 's/^  (    |-[A-Za-z], )(--[a-z-]+).*/\2/p')
}

shared=$(section "Options of every command")
while read -r symbol; do
    command=$symbol
    if [ "$command" = trace ]; then
        while read -r sub; do
            check_command "trace $sub" "$shared"
        done < <("$program" trace --help |
            sed -nE 's/^  trace ([a-z]+) .*/\1/p')
    else
        check_command "$command" "$shared"
    fi
done < <(sed -nE 's/^COMMAND\(cmd_([a-z_]+)\).*/\1/p' \
    "$source/cli/commands.def" | tr _ -)

# The policies' table too.
while read -r policy; do
    grep -q "^| \`$policy\` |" "$source/docs/policies.md" ||
        { echo "docs/policies.md: $policy is missing" >&2; missing=1; }
done < <("$program" policies --format csv | sed -n '2,$s/,.*//p')

# The worked example is the file that is built.
example=$(awk '/^```c$/ { inside = 1; next } /^```$/ && inside { exit }
    inside' "$source/docs/policies.md")
[ "$example" = "$(sed -n '/^#include/,$p' \
    "$source/policies/examples/mass.c")" ] ||
    { echo "docs/policies.md: the example is not mass.c" >&2; missing=1; }

echo "$n options of all commands"
[ "$n" -gt 100 ] || { echo "too few were found" >&2; exit 1; }
[ "$missing" -eq 0 ]
